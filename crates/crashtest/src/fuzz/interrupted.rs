//! Repairs that a power cut interrupts, and the mounts that follow.
//!
//! # Guarantees under test
//!
//! A power cut during a repair leaves one of these:
//!
//! * all earlier findings, and no effect of the repair except, perhaps, a mark that it has begun;
//! * a volume with the mark of a repair that has begun, which a mount refuses;
//! * a volume without findings, apart from copies of the superblock, which a mount writes. It
//!   mounts, all of it can be read and changed, and then it has no findings.
//!
//! In all cases the repair can be repeated, with the result of the uninterrupted one.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use vfscale_block::{Device, Operation};
use vfscale_diskfs::{BLOCK_BYTES, check, on_disk::byte_of_block};
use vfscale_sync::random::Random;
use vfscale_testkit::{CrashState, Fault, FaultyDevice, RecordingDevice};

use super::image::{Image, copy, new_volume, open};
use super::media;
use super::usable::use_it;
use crate::model::tree::Tree;
use crate::sweep::sample;

/// Number of the finding that copies of the superblock differ.
const COPIES: u32 = 1000;
/// Number of the finding that a repair was interrupted.
const INTERRUPTED: u32 = 1002;
/// Maximum number of damaged blocks.
const DAMAGES: u64 = 3;
/// Maximum number of attempts to find damage that can be repaired.
const TRIES: usize = 1_000;

/// An injected fault that the test must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairFault {
    /// No fault.
    Nothing,
    /// The mark of a repair never reaches the device.
    NoMark,
    /// The device ignores the flush after the mark, and all others.
    NoFlush,
}

/// Result of interrupted repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupted {
    /// Number of interrupted repairs.
    pub repairs: u64,
    /// Number of states that power cuts left.
    pub states: u64,
    /// Number of those that a mount refused because of the mark.
    pub refused: u64,
    /// Number of those before the first effect of the repair.
    pub as_before: u64,
    /// Number of those in which everything was repaired.
    pub repaired: u64,
}

impl AddAssign for Interrupted {
    fn add_assign(&mut self, other: Self) {
        self.repairs += other.repairs;
        self.states += other.states;
        self.refused += other.refused;
        self.as_before += other.as_before;
        self.repaired += other.repaired;
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { repairs, states, refused, as_before, repaired } = self;
        write!(
            f,
            "{states} states of {repairs} repairs: {refused} refused, {as_before} as before, "
        )?;
        write!(f, "{repaired} repaired")
    }
}

impl Interrupted {
    /// Damages a volume, repairs it, and checks `states` of the states that power cuts might have
    /// left.
    ///
    /// # Errors
    /// Describes the violation.
    pub fn run(planted: RepairFault, states: usize, seed: u64) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let image = new_volume(&mut random)?;
        let damaged = Damaged::new(&image, &mut random)?;
        let recorded = Arc::new(RecordingDevice::new(damaged.device.clone()));
        let device = Arc::new(FaultyDevice::new(recorded.clone()));
        match planted {
            RepairFault::Nothing => {}
            RepairFault::NoFlush => device.arm(Fault::on(Operation::Flush).lie()),
            RepairFault::NoMark => {
                for copy in image.superblock.geometry().copies() {
                    let at = byte_of_block(copy);
                    let range = at..at + BLOCK_BYTES as u64;
                    device.arm(Fault::on(Operation::Write).within(range).lie());
                }
            }
        }
        let repaired: Arc<dyn Device> = device;
        // With an injected fault, only the states are judged.
        repair(&repaired)
            .or_else(|why| if planted == RepairFault::Nothing { Err(why) } else { Ok(()) })?;
        let mut tally = Self { repairs: 1, ..Self::default() };
        for state in sample(&recorded, (states, &[]), &mut random) {
            tally.states += 1;
            damaged.look(&state, &mut tally).map_err(|why| {
                format!("seed {seed}, {:?}, state {}: {why}", damaged.did, state.id())
            })?;
        }
        Ok(tally)
    }
}

/// A damaged volume that can be repaired.
struct Damaged {
    device: Arc<dyn Device>,
    did: Vec<String>,
    /// Numbers of the findings.
    before: BTreeSet<u32>,
    /// Tree after a repair.
    after: Tree,
}

impl Damaged {
    fn new(image: &Image, random: &mut Random) -> Result<Self, String> {
        for _ in 0..TRIES {
            let device = image.copy();
            let damages = 1 + random.below(DAMAGES);
            let damage = |_| media::damage(&*device, random);
            let did = (0..damages).map(damage).collect::<Result<Vec<_>, _>>()?;
            let Ok(before) = numbers(&device) else { continue };
            let repaired = copy(&device);
            if !before.is_empty() && repair(&repaired).is_ok() {
                let after = tree(&repaired)?;
                return Ok(Self { device, did, before, after });
            }
        }
        Err("no damage was found that can be repaired".into())
    }

    fn look(&self, state: &CrashState, tally: &mut Interrupted) -> Result<(), String> {
        let device: Arc<dyn Device> = state.device();
        let found = numbers(&device)?;
        let is_marked = found.contains(&INTERRUPTED);
        match open(copy(&device)) {
            // Errors have no numbers, but a mount checks the mark before anything else.
            Err(_) if is_marked => tally.refused += 1,
            Ok(_) if is_marked => return Err(format!("mounted with {found:?}")),
            opened if found == self.before => {
                drop(opened);
                tally.as_before += 1;
            }
            opened if found.iter().all(|number| *number == COPIES) => {
                drop(opened.map_err(|why| format!("repaired, not mounted: {why}"))?);
                let errors = use_it(&copy(&device))?;
                if !errors.is_empty() {
                    return Err(format!("repaired, but: {}", errors.join("; ")));
                }
                tally.repaired += 1;
            }
            opened => {
                let how = opened.map(drop);
                return Err(format!("{how:?} with {found:?}, not {:?}", self.before));
            }
        }
        repair(&device).map_err(|why| format!("repaired again: {why}"))?;
        let tree = tree(&device)?;
        same(&self.after, &tree).map_err(|why| format!("repaired again: {why}"))?;
        let errors = use_it(&device)?;
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}

/// Returns the numbers of the findings of a check.
fn numbers(device: &Arc<dyn Device>) -> Result<BTreeSet<u32>, String> {
    let report = check::check(copy(device), &check::Options::default(), &mut ())
        .map_err(|error| error.to_string())?;
    Ok(report.findings.iter().map(|finding| finding.problem.number()).collect())
}

/// Repairs a volume completely.
fn repair(device: &Arc<dyn Device>) -> Result<(), String> {
    let options = check::Options { repair: true, ..check::Options::default() };
    let report = check::check(device.clone(), &options, &mut ()).map_err(|e| e.to_string())?;
    if report.left == 0 { Ok(()) } else { Err(format!("{} findings are left", report.left)) }
}

fn tree(device: &Arc<dyn Device>) -> Result<Tree, String> {
    let volume = open(copy(device))?;
    Tree::read(&volume.task())
}

/// Checks that two trees have equal names, attributes and data.
fn same(one: &Tree, other: &Tree) -> Result<(), String> {
    for (ours, theirs) in one.match_shape(other)? {
        let data = [one.nodes[&ours].data(), other.nodes[&theirs].data()];
        if data[0] != data[1] {
            return Err(format!("{}: other data", other.path_of(theirs)));
        }
    }
    Ok(())
}
