//! Openings after a crash whose reads fail, of a device that is well afterwards.
//!
//! # Guarantees under test
//!
//! A read that failed proves nothing. For each block that the opening of a state reads: if that
//! block, or a sector of it, can't be read during the opening, or has a wrong byte, then everything
//! promised is there when the device is well again, whether that opening has failed or not.
//!
//! A wrong byte where the last writes of a log may have ended looks like a write that a power
//! failure has torn ([`Subject::may_look_torn`]). Then the last changes may be gone, but the state
//! must be undamaged.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vfscale_block::{CowDevice, Device, Operation};
use vfscale_sync::random::Random;
use vfscale_testkit::{Fault, FaultyDevice};

use crate::model::history::History;
use crate::model::tree::Tree;
use crate::model::verdict;
use crate::script::{Script, setup};
use crate::subject::{Disk, Subject};
use crate::sweep::{SweepPlan, Violation, disks, prepare, record, recording, recover, sample};

/// Size of a block of a file system, in bytes.
const BLOCK: u64 = 4096;
/// Size of a sector, in bytes.
const SECTOR: u64 = 512;

/// An error of a device that passes: of the device with this number, in these bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Flaw {
    /// They can't be read.
    Unread(usize, Range<u64>),
    /// This byte has some bits flipped.
    Flipped(usize, u64, u8),
}

/// The outcome of openings with passing errors.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    /// Number of openings with an error.
    pub openings: usize,
    /// Number of those that failed.
    pub refused: usize,
    /// All violations.
    pub violations: Vec<Violation>,
}

type Faulty = Arc<FaultyDevice<Arc<CowDevice>>>;

/// Runs a script, and opens some of the states that a crash may have left, each with up to
/// `flaws_of_state` passing errors in turn.
///
/// # Errors
/// If the script does not work without an error.
pub fn run(
    subject: &dyn Subject,
    script: &Script,
    plan: SweepPlan,
    flaws_of_state: usize,
) -> Result<Passed, String> {
    let base = prepare(subject, plan.device_bytes, &setup())?;
    let history = History::of(&setup(), &script.ops)?;
    let recorded = recording(&base);
    let clock = record(subject, &recorded, &history)?;
    let (mut random, mut passed) = (Random::new(plan.seed), Passed::default());
    let states = sample(&recorded[0], (plan.states_of_script, &[]), &mut random);
    let states: Vec<_> = states.collect();
    for state in states {
        let (images, done) = (disks(&state), state.marks().min(history.steps.len()));
        let mut flaws = flaws(&blocks_read(subject, &images)?, &mut random);
        random.shuffle(&mut flaws);
        for flaw in flaws.into_iter().take(flaws_of_state) {
            let looks_torn = subject.may_look_torn(&images).iter().any(|(disk, range)| {
                matches!(&flaw, Flaw::Flipped(of, at, _) if of == disk && range.contains(at))
            });
            let judge = |tree: &Tree| match looks_torn {
                true => Ok(0),
                false => verdict::judge(&history, Some(&clock), done, tree),
            };
            passed.openings += 1;
            match open_with(subject, &images, &flaw, judge) {
                Ok(is_open) => passed.refused += usize::from(!is_open),
                Err(why) => passed.violations.push(Violation {
                    script: script.clone(),
                    state: Some(state.id()),
                    why: format!("{flaw:?}: {why}"),
                }),
            }
        }
    }
    Ok(passed)
}

fn copies(images: &[Disk]) -> Vec<Faulty> {
    let copy = |disk: &Disk| FaultyDevice::new(Arc::new(CowDevice::new(disk.clone())));
    images.iter().map(copy).map(Arc::new).collect()
}

fn dynamic(devices: &[Faulty]) -> Vec<Disk> {
    devices.iter().map(|device| Arc::clone(device) as Disk).collect()
}

/// Returns the blocks that an opening reads, with the number of their device.
fn blocks_read(subject: &dyn Subject, images: &[Disk]) -> Result<Vec<(usize, u64)>, String> {
    let devices = copies(images);
    let mut all = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        for block in 0..device.size() / BLOCK {
            let is_read = Arc::new(AtomicBool::new(false));
            all.push(((number, block), is_read.clone()));
            let note = move || is_read.store(true, Ordering::Relaxed);
            let range = block * BLOCK..(block + 1) * BLOCK;
            device.arm(Fault::on(Operation::Read).within(range).run(note));
        }
    }
    let opened = subject.open(&dynamic(&devices)).map_err(|why| format!("not opened: {why}"))?;
    devices.iter().for_each(|device| device.disarm());
    opened.close()?;
    all.retain(|(_, is_read)| is_read.load(Ordering::Relaxed));
    Ok(all.into_iter().map(|(block, _)| block).collect())
}

/// Returns three errors of each block: of all of it, of a sector, and of a byte.
fn flaws(blocks: &[(usize, u64)], random: &mut Random) -> Vec<Flaw> {
    let of_block = |(disk, block): &(usize, u64)| {
        let at = block * BLOCK;
        let sector = at + random.below(BLOCK / SECTOR) * SECTOR;
        let (byte, bits) = (at + random.below(BLOCK), 1 + random.below(255) as u8);
        let unread = |at, len| Flaw::Unread(*disk, at..at + len);
        [unread(at, BLOCK), unread(sector, SECTOR), Flaw::Flipped(*disk, byte, bits)]
    };
    blocks.iter().flat_map(of_block).collect()
}

/// Opens a state with an error, and judges it when the device is well again. Returns whether the
/// first opening succeeded.
fn open_with(
    subject: &dyn Subject,
    images: &[Disk],
    flaw: &Flaw,
    judge: impl Fn(&Tree) -> Result<usize, String>,
) -> Result<bool, String> {
    let devices = copies(images);
    match flaw.clone() {
        Flaw::Unread(disk, range) => devices[disk].arm(Fault::on(Operation::Read).within(range)),
        Flaw::Flipped(disk, at, bits) => {
            devices[disk].arm(Fault::on(Operation::Read).flip(at, bits));
        }
    }
    let opened = subject.open(&dynamic(&devices));
    devices.iter().for_each(|device| device.disarm());
    let is_open = opened.is_ok();
    if let Ok(opened) = opened {
        opened.close().map_err(|why| format!("opened, not closed: {why}"))?;
    }
    let recovered = recover(subject, &dynamic(&devices), judge, false);
    recovered
        .map_err(|why| if is_open { why } else { format!("the opening failed, then {why}") })?;
    Ok(is_open)
}
