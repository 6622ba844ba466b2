//! Damaged volumes: any bytes, in the log and elsewhere, are an error or a file system.
//!
//! A [`Fuzzer`] makes volumes by random scripts and stops them as a crash would. Each round damages
//! a copy of one: its log (`log`: contents of records, records of an older log or of another
//! volume, duplicate records, missing records) or any blocks (`media`). Mostly, checksums and links
//! are fixed afterwards, so the damage gets past them. Then the copy is checked, opened, read,
//! changed, closed and checked again, and another copy of it is repaired.
//!
//! # Guarantees under test
//!
//! * Nothing panics, in any thread, and everything terminates.
//! * A volume without findings opens, and all of it can be read. It can be changed and closed, and
//!   has no findings after that.
//! * A repaired volume with nothing left to repair is such a volume.
//!
//! For all other volumes an error is as acceptable as a tree: inconsistent bytes are detected where
//! they are read.
//!
//! # Invariants
//!
//! * A round is determined by the seed, apart from the timing of background threads.
//!
//! # Locks
//!
//! The module has no locks of its own.

mod interrupted;
mod log;
mod media;
mod walk;

use std::fmt;
use std::sync::Arc;

use vfscale::diskfs::dump::{Dump, What};
use vfscale::diskfs::mkfs::{self, MkfsOptions};
use vfscale::diskfs::{LogPlace, Superblock, check};
use vfscale_block::{CowDevice, Device, MemoryDevice};
use vfscale_sync::random::Random;

use crate::script;
use crate::script::op::Op;
pub use interrupted::{Interrupted, Planted};
use log::Log;

/// Size of the smallest possible volume: little of it is free space, so damage seldom hits that.
const DEVICE_BYTES: u64 = 16 << 20;
/// Size of the smallest possible log.
const LOG_BLOCKS: u64 = 256;
/// Every how many rounds a volume is repaired as well.
const REPAIR: u64 = 4;
/// Every how many rounds the structures of a volume are shown.
const SHOW: u64 = 8;

/// Result of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of rounds.
    pub rounds: u64,
    /// Number of volumes without findings.
    pub sound: u64,
    /// Number of volumes with findings.
    pub unsound: u64,
    /// Number of volumes that opened.
    pub opened: u64,
    /// Number of calls on those that failed.
    pub errors: u64,
    /// Number of volumes that were completely repaired.
    pub repaired: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, sound, unsound, opened, errors, repaired } = self;
        write!(
            f,
            "{rounds} volumes: {sound} sound, {unsound} with findings, {opened} opened, {errors} calls \
             failed, {repaired} repaired"
        )
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.sound += other.sound;
        self.unsound += other.unsound;
        self.opened += other.opened;
        self.errors += other.errors;
        self.repaired += other.repaired;
    }
}

/// A volume that is not changed any more.
struct Image {
    device: Arc<dyn Device>,
    superblock: Superblock,
}

impl Image {
    fn of(device: Arc<dyn Device>) -> Result<Self, String> {
        let found = vfscale::diskfs::copies::read(&*device).map_err(|e| e.to_string())?;
        Ok(Self { device, superblock: found.superblock })
    }

    fn copy(&self) -> Arc<dyn Device> {
        Arc::new(CowDevice::new(self.device.clone()))
    }

    /// Makes calls on a copy and returns it as a crash would leave it.
    fn after(&self, random: &mut Random, length: usize) -> Result<Self, String> {
        let device = self.copy();
        run(&device, script::random(random, length).ops)?;
        Self::of(device)
    }
}

/// Makes calls on a volume and ignores their errors, syncs it, and stops it as a crash would: by
/// dropping it, so its log must be replayed.
fn run(device: &Arc<dyn Device>, ops: Vec<Op>) -> Result<(), String> {
    let volume = open(device.clone())?;
    let task = volume.task();
    for op in ops.into_iter().filter(|op| *op != Op::Close).chain([Op::Sync]) {
        let _ = op.run(&task);
    }
    Ok(())
}

fn open(device: Arc<dyn Device>) -> Result<vfscale::Volume, String> {
    vfscale::volume_on(device).sync_interval(None).open().map_err(|e| e.to_string())
}

fn new_volume(random: &mut Random) -> Result<Image, String> {
    let device = MemoryDevice::with_block_size(DEVICE_BYTES, 4096).map_err(|e| e.to_string())?;
    let device: Arc<dyn Device> = Arc::new(device);
    let options = MkfsOptions { log_blocks: Some(LOG_BLOCKS), ..MkfsOptions::default() };
    mkfs::format(&*device, &options).map_err(|e| e.to_string())?;
    run(&device, script::setup())?;
    Image::of(device)?.after(random, 20)
}

/// Damages volumes and checks the results.
pub struct Fuzzer {
    random: Random,
    /// An earlier state of the volume to damage.
    older: Image,
    /// The volume to damage. Its log must be replayed.
    image: Image,
    /// Another volume of the same size.
    other: Image,
    /// Descriptions of the last round's damages.
    did: Vec<String>,
}

impl Fuzzer {
    /// Makes the volumes.
    ///
    /// # Errors
    /// If an undamaged volume does not work.
    pub fn new(seed: u64) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let older = new_volume(&mut random)?;
        let image = older.after(&mut random, 30)?;
        let other = new_volume(&mut random)?;
        Ok(Self { random, older, image, other, did: Vec::new() })
    }

    /// Returns the descriptions of the last round's damages.
    #[must_use]
    pub fn did(&self) -> &[String] {
        &self.did
    }

    /// Damages a copy and checks the result.
    ///
    /// # Errors
    /// Describes the violation.
    pub fn round(&mut self, number: u64) -> Result<Tally, String> {
        self.did.clear();
        let device = self.image.copy();
        let damages = self.random.below(3);
        for _ in 0..=damages {
            let what = if self.random.below(3) == 0 {
                media::damage(&*device, &mut self.random)?
            } else {
                self.damage_log(&*device)?
            };
            self.did.push(what);
        }
        let mut tally = look(&device)?;
        if number.is_multiple_of(REPAIR) {
            tally.repaired = repair(&device)?;
        }
        if number.is_multiple_of(SHOW) {
            show(&device);
            look_only(&device);
        }
        Ok(tally)
    }

    fn damage_log(&mut self, device: &dyn Device) -> Result<String, String> {
        let Some(mut log) = Log::new(device, &self.image.superblock)? else {
            return Ok("no log is left".into());
        };
        let other = match self.random.below(3) {
            0 => Log::new(&*self.older.device, &self.older.superblock)?,
            1 => Log::new(&*self.other.device, &self.other.superblock)?,
            _ => None,
        };
        log.damage(other.as_ref(), &mut self.random)
    }
}

fn copy(device: &Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(CowDevice::new(device.clone()))
}

/// Checks a volume, uses it and checks it again.
fn look(device: &Arc<dyn Device>) -> Result<Tally, String> {
    let mut tally = Tally { rounds: 1, ..Tally::default() };
    let report = check::check(copy(device), &check::Options::default(), &mut ());
    let is_sound = report.as_ref().is_ok_and(|report| report.count == 0);
    tally.sound = u64::from(is_sound);
    tally.unsound = u64::from(report.is_ok_and(|report| report.count > 0));
    match use_it(&copy(device)) {
        Ok(errors) if is_sound && !errors.is_empty() => {
            return Err(format!("a check finds nothing, but: {}", errors.join("; ")));
        }
        Ok(errors) => {
            tally.opened = 1;
            tally.errors = errors.len() as u64;
        }
        Err(why) if is_sound => return Err(format!("a check finds nothing, but: {why}")),
        Err(_) => {}
    }
    Ok(tally)
}

/// Opens a volume, reads and changes it, closes it, and checks it if all of that succeeded. Returns
/// the errors of calls.
fn use_it(device: &Arc<dyn Device>) -> Result<Vec<String>, String> {
    let volume = open(device.clone())?;
    let task = volume.task();
    let mut errors = walk::everything(&task);
    errors.extend(walk::work(&task));
    drop(task);
    errors.extend(volume.close().err().map(|e| format!("closing: {e}")));
    if errors.is_empty() {
        errors.extend(findings(device).err().map(|found| format!("checked then: {found}")));
    }
    Ok(errors)
}

/// Checks that a volume has no findings.
fn findings(device: &Arc<dyn Device>) -> Result<(), String> {
    let report = check::check(device.clone(), &check::Options::default(), &mut ())
        .map_err(|e| e.to_string())?;
    match report.findings.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} findings, such as {first:?}", report.count)),
    }
}

/// Repairs a copy. Returns 1 if nothing was left to repair, in which case the volume must work, and
/// 0 otherwise.
fn repair(device: &Arc<dyn Device>) -> Result<u64, String> {
    let device = copy(device);
    let options = check::Options { repair: true, ..check::Options::default() };
    let Ok(report) = check::check(device.clone(), &options, &mut ()) else { return Ok(0) };
    if report.left > 0 {
        return Ok(0);
    }
    findings(&device).map_err(|found| format!("repaired, but then: {found}"))?;
    let errors = use_it(&device).map_err(|why| format!("repaired, but not opened: {why}"))?;
    if errors.is_empty() { Ok(1) } else { Err(format!("repaired, but: {}", errors.join("; "))) }
}

/// Reads all of a volume that is opened read-only.
fn look_only(device: &Arc<dyn Device>) {
    let opened = vfscale::volume_on(copy(device)).read_only(true).open();
    if let Ok(volume) = opened {
        let _ = walk::everything(&volume.task());
        let _ = volume.close();
    }
}

/// Shows some structures, whether they exist or not.
fn show(device: &Arc<dyn Device>) {
    let opened = [true, false].map(|replays| Dump::open(copy(device), None, replays));
    for dump in opened.into_iter().flatten() {
        let _ = dump.figures().to_string();
        let inodes = (64..140).flat_map(|ino| {
            [What::Inode(ino), What::Directory(ino), What::Extents(ino), What::Attributes(ino)]
        });
        let blocks = (0..64).flat_map(|at| [What::Block(at), What::Tree(at)]);
        let groups = (0..5).map(What::Group);
        for what in inodes.chain(blocks).chain(groups).chain([What::Superblock, What::Log]) {
            if let Ok(value) = dump.show(what) {
                let _ = value.to_string();
            }
        }
    }
}

/// Returns the first block and the length of the log, for volumes that have it inside.
fn log_place(superblock: &Superblock) -> Option<(u64, u64)> {
    match superblock.log() {
        LogPlace::Inside { start, blocks } => Some((start, blocks)),
        LogPlace::Outside { .. } => None,
    }
}

#[cfg(test)]
mod tests;
