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
//! * No thread panics, and every call and thread terminates.
//! * A volume without findings opens, and all of it can be read. It can be changed and closed, and
//!   then has no findings, unless it has a feature that forbids changes.
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
//! The module defines no locks.

mod image;
mod interrupted;
mod log;
mod media;
mod usable;
mod walk;

use std::fmt;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_diskfs::{check, dump::Dump, dump::What};
use vfscale_sync::random::Random;

use image::{Image, copy, new_volume};
pub use interrupted::{Interrupted, RepairFault};
use log::Log;
use usable::{read_it, repair, use_it};

/// Number of rounds per repair of a volume.
const REPAIR: u64 = 4;
/// Number of rounds per display of a volume's structures.
const SHOW: u64 = 8;

/// Result of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FuzzTally {
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

impl fmt::Display for FuzzTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, sound, unsound, opened, errors, repaired } = self;
        write!(
            f,
            "{rounds} volumes: {sound} sound, {unsound} with findings, {opened} opened, {errors} calls \
             failed, {repaired} repaired"
        )
    }
}

impl std::ops::AddAssign for FuzzTally {
    fn add_assign(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.sound += other.sound;
        self.unsound += other.unsound;
        self.opened += other.opened;
        self.errors += other.errors;
        self.repaired += other.repaired;
    }
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
    pub fn did(&self) -> &[String] {
        &self.did
    }

    /// Damages a copy and checks the result.
    ///
    /// # Errors
    /// Describes the violation.
    pub fn round(&mut self, number: u64) -> Result<FuzzTally, String> {
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
            let _ = read_it(&copy(&device));
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

/// Checks a volume, uses it and checks it again.
fn look(device: &Arc<dyn Device>) -> Result<FuzzTally, String> {
    let mut tally = FuzzTally { rounds: 1, ..FuzzTally::default() };
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

#[cfg(test)]
mod tests;
