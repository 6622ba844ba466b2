//! Devices that carry out a write which a volume has begun at the last moment: when it is waited
//! for.
//!
//! `VFSCALE_CRASH_STATES` sets the number of checked states (a quarter of 2,000), `VFSCALE_SEED`
//! the seed of random choices.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use vfscale_block::{Device, Error, PendingWrite};
use vfscale_crashtest::subject::volume::Volumes;
use vfscale_crashtest::subject::{Disk, Opened, Subject};
use vfscale_crashtest::sweep::{Summary, Sweep, SweepPlan};
use vfscale_crashtest::{number, script};
use vfscale_sync::page::PageBox;
use vfscale_sync::random::{Random, seed};

const DEVICE: u64 = 32 << 20;
/// Number of calls of a script.
const CALLS: usize = 60;
/// Number of states of a script.
const STATES: usize = 50;

/// The moment of a write that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// When it is waited for, or dropped.
    Waited,
    /// One in two as soon as it is begun, the others when they are waited for.
    Either,
    /// Never, which no device may do.
    Never,
}

/// A write of pages to an offset.
type Write = (u64, Arc<Vec<PageBox>>);

/// A device that does not carry out begun writes at once.
#[derive(Debug)]
struct Late {
    inner: Disk,
    when: When,
    random: Mutex<Random>,
}

impl Late {
    fn end(&self, (offset, pages): Write) -> Result<(), Error> {
        match self.when {
            When::Never => Ok(()),
            When::Waited | When::Either => self.inner.write_pages(offset, &pages),
        }
    }
}

/// A write in flight, which its drop ends.
struct InFlight<'d>(&'d Late, Option<Write>);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let _ = self.1.take().map(|write| self.0.end(write));
    }
}

impl Device for Late {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.inner)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.inner.write_at(offset, buf)
    }

    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), Error> {
        self.inner.write_many(writes)
    }

    fn flush(&self) -> Result<(), Error> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.inner.discard(offset, len)
    }

    fn begin_write_pages<'d>(&'d self, offset: u64, pages: &Arc<Vec<PageBox>>) -> PendingWrite<'d> {
        let is_now = self.when == When::Either && self.random.lock().unwrap().below(2) == 0;
        if is_now {
            return PendingWrite::ended(self.inner.write_pages(offset, pages));
        }
        let mut writing = InFlight(self, Some((offset, Arc::clone(pages))));
        PendingWrite::in_flight(move || writing.1.take().map_or(Ok(()), |write| self.end(write)))
    }
}

/// Volumes on such devices.
struct OnLateDevices(Volumes, When);

impl Subject for OnLateDevices {
    fn others(&self) -> Vec<u64> {
        self.0.others()
    }

    fn format(&self, disks: &[Disk]) -> Result<(), String> {
        self.0.format(disks)
    }

    fn open(&self, disks: &[Disk]) -> Result<Box<dyn Opened>, String> {
        let late = |disk: &Disk| {
            let random = Mutex::new(Random::new(1));
            Arc::new(Late { inner: disk.clone(), when: self.1, random }) as Disk
        };
        self.0.open(&disks.iter().map(late).collect::<Vec<_>>())
    }

    fn check(&self, disks: &[Disk]) -> Result<(), String> {
        self.0.check(disks)
    }
}

/// Runs scripts whose files are cached in little memory, and written in the background if so
/// requested.
fn sweep(when: When, sync_interval: Option<Duration>, states: usize, seed: u64) -> Summary {
    let volumes = Volumes { sync_interval, cache_bytes: Some(256 << 10), ..Volumes::default() };
    let subject = OnLateDevices(volumes, when);
    let mut random = Random::new(seed);
    let plan = SweepPlan { device_bytes: DEVICE, states_of_script: STATES, seed };
    let mut sweep = Sweep::new(&subject, plan).unwrap();
    for _ in 0..states.div_ceil(STATES) {
        sweep.run(&script::random(&mut random, CALLS));
    }
    sweep.finish()
}

#[test]
fn writes_at_the_last_moment() {
    let (seed, states) = (seed(), number("VFSCALE_CRASH_STATES", 2_000) / 8);
    for when in [When::Waited, When::Either] {
        for interval in [None, Some(Duration::from_millis(4))] {
            let summary = sweep(when, interval, states / 2, seed);
            println!("{when:?}: {summary}");
            assert!(summary.violations.is_empty(), "{when:?}, {interval:?}: {summary}");
        }
    }
}

/// The sweep detects writes that were not carried out when they have been waited for.
#[test]
fn writes_that_never_come_are_found() {
    let summary = sweep(When::Never, None, 200, 1);
    assert!(!summary.violations.is_empty(), "{summary}");
}
