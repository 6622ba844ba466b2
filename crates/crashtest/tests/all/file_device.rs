//! Power cuts of volumes in real files: tests all of [`FileDevice`], with and without `O_DIRECT`
//! and io_uring, on a file whose writes and syncs are recorded below the kernel ([`below`]).
//!
//! A block device is accessed by the same calls; a loop device over such a file represents it.
//! `VFSCALE_CRASH_STATES` sets the total number of checked states (300), `VFSCALE_SEED` the seed of
//! random choices. Needs root and /dev/fuse; otherwise the tests print that and pass.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vfscale::Vfs;
use vfscale_block::{Device, FileDevice, FileOptions, MemoryDevice, Operation, OsError};
use vfscale_crashtest::number;
use vfscale_crashtest::script;
use vfscale_crashtest::subject::volume::Volumes;
use vfscale_crashtest::subject::{Disk, LostRange, Opened, Subject};
use vfscale_crashtest::sweep::{Summary, Sweep, SweepPlan};
use vfscale_sync::random::{Random, seed};
use vfscale_testkit::{Fault, FaultyDevice};

use crate::below::{Below, Event, How};

const DEVICE: u64 = 32 << 20;
/// Length of a script.
const CALLS: usize = 60;

/// A method of access to the file of a volume.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    direct: bool,
    io_uring: bool,
    /// Whether the kernel caches writes without `O_DIRECT`.
    keeps_writes: bool,
    /// Whether a loop device is in between.
    is_loop: bool,
}

/// Returns all methods.
fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for io_uring in [true, false] {
        let way = Way { io_uring, ..Way::default() };
        ways.push(Way { direct: true, ..way });
        ways.push(way);
        ways.push(Way { keeps_writes: true, ..way });
    }
    let way = Way { io_uring: true, is_loop: true, ..Way::default() };
    ways.extend([way, Way { direct: true, ..way }]);
    ways
}

/// Volumes in a file.
struct Files {
    volumes: Volumes,
    way: Way,
    lies: bool,
    /// Number of batches that used io_uring.
    batches: Arc<AtomicU64>,
}

impl Files {
    fn new(way: Way) -> Self {
        let volumes =
            Volumes { sync_interval: Some(Duration::from_millis(5)), ..Volumes::default() };
        Self { volumes, way, lies: false, batches: Arc::default() }
    }
}

/// A loop device over a file. Dropping it detaches it.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Result<Self, String> {
        let mut losetup = Command::new("losetup");
        let output = losetup.args(["--direct-io=on", "--find", "--show"]).arg(file).output();
        let output = output.map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(Self(String::from_utf8_lossy(&output.stdout).trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let status = Command::new("losetup").arg("-d").arg(&self.0).status();
        if !std::thread::panicking() {
            assert!(status.unwrap().success());
        }
    }
}

/// Opens a device. A process that another test has just forked may still have the previous loop
/// device of that number open, until it executes its program.
fn open(options: &FileOptions, path: &Path) -> Result<FileDevice, String> {
    let mut last = String::new();
    for _ in 0..200 {
        match options.clone().open(path) {
            Ok(file) => return Ok(file),
            Err(error @ vfscale_block::Error::Locked { .. }) => last = error.to_string(),
            Err(error) => return Err(error.to_string()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(last)
}

/// A device with its access path. The fields are dropped in order, from top to bottom.
struct Reached {
    file: Arc<FileDevice>,
    _loop: Option<Loop>,
    _below: Below,
}

impl Reached {
    fn new(device: Arc<dyn Device>, way: Way, lies: bool) -> Result<Self, String> {
        let how = How { keeps_writes: way.keeps_writes, lies, ..How::default() };
        let below = Below::mount(device, how)?;
        let by_loop = way.is_loop.then(|| Loop::over(&below.path())).transpose()?;
        let path = by_loop.as_ref().map_or_else(|| below.path(), |device| device.0.clone());
        let options = FileOptions::new().direct(way.direct).io_uring(way.io_uring);
        let file = Arc::new(open(&options, &path)?);
        let ways = file.describe();
        assert_eq!(ways.contains("direct I/O"), way.direct, "{ways}");
        Ok(Self { file, _loop: by_loop, _below: below })
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        // The volume may hold the device for a moment.
        self.file.release();
    }
}

struct Open {
    opened: Box<dyn Opened>,
    reached: Reached,
    batches: Arc<AtomicU64>,
}

impl Opened for Open {
    fn vfs(&self) -> &Vfs {
        self.opened.vfs()
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        let closed = self.opened.close();
        self.batches.fetch_add(self.reached.file.ring_batches(), Ordering::Relaxed);
        closed
    }
}

impl Subject for Files {
    fn format(&self, disks: &[Disk]) -> Result<(), String> {
        self.volumes.format(disks)
    }

    fn open(&self, disks: &[Disk]) -> Result<Box<dyn Opened>, String> {
        let reached = Reached::new(disks[0].clone(), self.way, self.lies)?;
        let disks: [Disk; 1] = [reached.file.clone()];
        let opened = self.volumes.open(&disks)?;
        Ok(Box::new(Open { opened, reached, batches: self.batches.clone() }))
    }

    fn may_be_lost(&self, disks: &[Disk]) -> Vec<LostRange> {
        self.volumes.may_be_lost(disks)
    }

    fn repair(&self, disks: &[Disk]) -> Result<(), String> {
        self.volumes.repair(disks)
    }

    fn check(&self, disks: &[Disk]) -> Result<(), String> {
        self.volumes.check(disks)
    }
}

fn memory(bytes: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::with_block_size(bytes, 512).unwrap())
}

/// Returns whether this method can be tested here; prints why not.
fn is_possible(way: Way) -> bool {
    match Reached::new(memory(DEVICE), way, false) {
        Ok(_) => true,
        Err(why) => {
            println!("######## SKIPPED: power cuts of image files: {why}");
            false
        }
    }
}

fn sweep(subject: &Files, states: usize, seed: u64) -> Summary {
    let plan = SweepPlan { device_bytes: DEVICE, states_of_script: states, seed };
    let mut sweep = Sweep::new(subject, plan).unwrap();
    let mut random = Random::new(seed);
    // A script has a limited number of states.
    for _ in 0..states {
        sweep.run(&script::random(&mut random, CALLS));
        if sweep.states() >= states {
            break;
        }
    }
    sweep.finish()
}

#[test]
fn files_keep_their_promises_when_power_fails() {
    let (seed, ways) = (seed(), ways());
    let states = number("VFSCALE_CRASH_STATES", 300).div_ceil(ways.len());
    for (way, number) in ways.into_iter().zip(0..) {
        if !is_possible(way) {
            continue;
        }
        let subject = Files::new(way);
        let summary = sweep(&subject, states, seed + number);
        let batches = subject.batches.load(Ordering::Relaxed);
        println!("{way:?}: {batches} batches by io_uring, {summary}");
        assert!(summary.violations.is_empty(), "{way:?}: {summary}");
        assert!(summary.states >= states, "{way:?}: {summary}");
        assert_eq!(batches > 0, way.io_uring, "{way:?}: {summary}");
    }
}

/// A file whose syncs have no effect is detected with every method.
#[test]
fn syncs_of_files_that_lie_are_found() {
    for way in ways() {
        if !is_possible(way) {
            continue;
        }
        let summary = sweep(&Files { lies: true, ..Files::new(way) }, 60, 3);
        assert!(!summary.violations.is_empty(), "{way:?}");
    }
}

/// A new image is durable with its size and its name, and so is a new size.
#[test]
fn made_and_grown_files_are_durable() {
    let (device, how) = (memory(0), How { is_missing: true, ..How::default() });
    let below = match Below::mount(device.clone(), how) {
        Ok(below) => below,
        Err(why) => return println!("######## SKIPPED: power cuts of image files: {why}"),
    };
    let file = FileDevice::create(below.path(), 1 << 20).unwrap();
    assert_eq!(device.size(), 1 << 20);
    let events = below.events();
    let made = [Event::Created, Event::Resized(1 << 20), Event::Synced, Event::DirSynced];
    assert_eq!(events, made);
    file.set_size(2 << 20).unwrap();
    assert_eq!(device.size(), 2 << 20);
    assert_eq!(below.events()[events.len()..], [Event::Resized(2 << 20), Event::Synced]);
    drop(file);
}

/// Only the unreadable sectors of a device are unreadable in a file on it, although the page cache
/// reads more at a time than requested, and fails as a whole.
#[test]
fn an_unreadable_sector_takes_no_other_with_it() {
    const SECTOR: usize = 512;
    const LOST: u64 = 100 * SECTOR as u64;
    let sectors = || (0..400).map(|number| number * SECTOR as u64);
    for way in ways() {
        if !is_possible(way) {
            continue;
        }
        let device = MemoryDevice::with_block_size(DEVICE, SECTOR as u32).unwrap();
        sectors().for_each(|at| device.write_at(at, &[(at / 512) as u8; SECTOR]).unwrap());
        let device = FaultyDevice::new(device);
        let lost = LOST..LOST + SECTOR as u64;
        device.arm(Fault::on(Operation::Read).from(1).within(lost).fail(OsError::IO));
        let reached = Reached::new(Arc::new(device), way, false).unwrap();
        let read = |at| {
            let mut sector = [0; SECTOR];
            reached.file.read_at(at, &mut sector).map(|()| assert_eq!(sector[0], (at / 512) as u8))
        };
        let unit = u64::from(reached.file.block_size());
        let is_lost = |at: &u64| at / unit == LOST / unit;
        let failed: Vec<_> = sectors().filter(|at| read(*at).is_err()).collect();
        assert_eq!(failed, sectors().filter(is_lost).collect::<Vec<_>>(), "{way:?}");
        let mut bytes = vec![[0; SECTOR]; 400];
        let reads = bytes.iter_mut().zip(sectors()).filter(|(_, at)| !is_lost(at));
        let mut reads: Vec<_> = reads.map(|(bytes, at)| (at, &mut bytes[..])).collect();
        reached.file.read_many(&mut reads).unwrap();
    }
}
