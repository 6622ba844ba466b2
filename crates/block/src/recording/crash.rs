//! The states that a crash might leave.
//!
//! # Which states there are
//!
//! A crash comes after some line of the log (the *point*). What a flush had made durable by then is
//! there; of the changes that were *pending*, each fragment may be there or not. A fragment is what
//! a device writes atomically: a block, or a sector of 512 bytes for devices that don't keep their
//! word.
//!
//! Order needs no enumeration of its own. Whatever order a device writes in, a fragment ends up
//! with its old contents or with those of one pending change; and that is the state in which
//! that change's fragment is kept and those of later changes are not. So the subsets of fragments, laid
//! over each other in the order of the log, are all states there are.
//!
//! # Which of them are yielded
//!
//! All of them where a point has few fragments ([`CrashPlan::exhaustive_bits`]). Otherwise, of each point:
//! nothing and all of what is pending; all subsets of whole changes if they are few, else each change
//! alone and each one missing; the newest change torn in the middle of everything; and random
//! subsets of changes and fragments, from a seed. The lists are thinned out evenly where they would be
//! long.
//!
//! # What can't be read afterwards
//!
//! A sector that is being written when power fails may be one that the disk can't read until it is written
//! again. Whatever was there is gone then, however long ago it was made durable, which is no fault of
//! who wrote: so a test says where this may be ([`CrashPlan::lost_in`]). There each fragment of the newest
//! change is lost alone, with those before it written and those behind it not; and all of it.
//!
//! A state in which nothing of the newest change is there was already one of the point before, so
//! it is left out, unless the test has made a mark since: then the same image may break another promise.

use std::collections::VecDeque;
use std::fmt;
use std::mem::take;
use std::num::ParseIntError;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use vfscale_sync::random::Random;

use super::{Entry, Recording};
use crate::cow::{CowDevice, Data, Layer};

/// The fewest bytes that a disk writes atomically.
const FRAGMENT_BYTES_MIN: u64 = 512;
/// The most bits of a subset that has a name of its own.
const BITS_MAX: u32 = 20;

/// How many states a test wants to see.
#[derive(Clone, Debug)]
#[must_use]
pub struct CrashPlan {
    exhaustive_bits: u32,
    listed_max: usize,
    samples: usize,
    fragment_bytes: Option<u64>,
    lost_in: Vec<(usize, Range<u64>)>,
    seed: u64,
}

impl Default for CrashPlan {
    /// Up to 64 states of a point exhaustively; else 16 of each list, and 4 samples.
    fn default() -> Self {
        Self {
            exhaustive_bits: 6,
            listed_max: 16,
            samples: 4,
            fragment_bytes: None,
            lost_in: Vec::new(),
            seed: 0,
        }
    }
}

impl CrashPlan {
    /// Tries all states of points that have at most this many pending fragments, and all subsets of at
    /// most this many pending changes: up to 2 to the power of it, 20 at most.
    pub fn exhaustive_bits(self, bits: u32) -> Self {
        Self { exhaustive_bits: bits.min(BITS_MAX), ..self }
    }

    /// How many changes of a point are tried alone, missing, and how many tears of the newest one.
    pub fn listed_max(self, count: usize) -> Self {
        Self { listed_max: count, ..self }
    }

    /// How many random states of each point.
    pub fn samples(self, count: usize) -> Self {
        Self { samples: count, ..self }
    }

    /// What a device writes atomically: the largest block size unless said otherwise, and 512 bytes at least.
    pub fn fragment_bytes(self, bytes: u64) -> Self {
        Self { fragment_bytes: Some(bytes.max(FRAGMENT_BYTES_MIN)), ..self }
    }

    /// What is written into these ranges, in bytes, can be such that it can't be read any more.
    pub fn lost_in(self, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        self.lost_on(0, ranges)
    }

    /// The same for a device that records beside others: `disk` is its number, from 0 in the order in which
    /// they began.
    pub fn lost_on(mut self, disk: usize, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        self.lost_in.extend(ranges.into_iter().map(|range| (disk, range)));
        self
    }

    /// Where the random states come from; a test prints it.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

/// What of the pending changes is there. Changes have numbers from 0, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    All,
    Nothing,
    Only(u64),
    Without(u64),
    /// Everything but the newest change, and so many of its fragments, from its start.
    Torn(u64),
    /// Everything but the newest change, so many of its fragments from its start, and behind them one that
    /// can't be read.
    Lost(u64),
    /// Everything, but nothing of the newest change can be read.
    AllLost,
    /// Those changes whose bit is set.
    Changes(u64),
    /// Those fragments whose bit is set, counted through all changes.
    Fragments(u64),
    /// By chance, from this seed.
    Sample(u64),
}

/// The name of a state: with it, and the same calls, [`crash_state`](super::RecordingDevice::crash_state)
/// makes the state again. Shown as text such as `17:512:torn:3`, which it can be parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashId {
    /// The crash comes after this many lines of the log.
    point: usize,
    fragment_bytes: u64,
    keep: Keep,
}

impl fmt::Display for CrashId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.point, self.fragment_bytes)?;
        match self.keep {
            Keep::All => f.write_str("all"),
            Keep::Nothing => f.write_str("nothing"),
            Keep::Only(change) => write!(f, "only:{change}"),
            Keep::Without(change) => write!(f, "without:{change}"),
            Keep::Torn(fragments) => write!(f, "torn:{fragments}"),
            Keep::Lost(fragments) => write!(f, "lost:{fragments}"),
            Keep::AllLost => f.write_str("all-lost"),
            Keep::Changes(bits) => write!(f, "changes:{bits}"),
            Keep::Fragments(bits) => write!(f, "fragments:{bits}"),
            Keep::Sample(seed) => write!(f, "sample:{seed}"),
        }
    }
}

/// A text that is no [`CrashId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a crash state")]
pub struct NoCrashId;

impl From<ParseIntError> for NoCrashId {
    fn from(_: ParseIntError) -> Self {
        Self
    }
}

impl FromStr for CrashId {
    type Err = NoCrashId;

    fn from_str(text: &str) -> Result<Self, NoCrashId> {
        let parts: Vec<_> = text.split(':').collect();
        let (point, fragment_bytes, kind, number) = match parts[..] {
            [point, bytes, kind] => (point, bytes, kind, None),
            [point, bytes, kind, number] => (point, bytes, kind, Some(number.parse()?)),
            _ => return Err(NoCrashId),
        };
        let keep = match (kind, number) {
            ("all", None) => Keep::All,
            ("nothing", None) => Keep::Nothing,
            ("only", Some(change)) => Keep::Only(change),
            ("without", Some(change)) => Keep::Without(change),
            ("torn", Some(fragments)) => Keep::Torn(fragments),
            ("lost", Some(fragments)) => Keep::Lost(fragments),
            ("all-lost", None) => Keep::AllLost,
            ("changes", Some(bits)) => Keep::Changes(bits),
            ("fragments", Some(bits)) => Keep::Fragments(bits),
            ("sample", Some(seed)) => Keep::Sample(seed),
            _ => return Err(NoCrashId),
        };
        let fragment_bytes = fragment_bytes.parse()?;
        if fragment_bytes < FRAGMENT_BYTES_MIN {
            return Err(NoCrashId);
        }
        Ok(Self { point: point.parse()?, fragment_bytes, keep })
    }
}

/// A state that a crash might have left. It is written to like any device, and keeps that to itself.
#[derive(Debug)]
pub struct CrashState {
    id: CrashId,
    marks: usize,
    pending: usize,
    devices: Vec<Arc<CowDevice>>,
}

/// When a crash came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// How many marks the test had made.
    pub marks: usize,
    /// How many lines the log had: as [`log_len`](super::RecordingDevice::log_len) said.
    pub lines: usize,
}

impl CrashState {
    /// Its name, for making it again.
    #[must_use]
    pub fn id(&self) -> CrashId {
        self.id
    }

    /// Whether something can't be read in it.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        matches!(self.id.keep, Keep::Lost(_) | Keep::AllLost)
    }

    /// How many marks the test had made before the crash.
    #[must_use]
    pub fn marks(&self) -> usize {
        self.marks
    }

    /// The image, as an owner of the device finds it after the crash; the first, if several were recorded.
    #[must_use]
    pub fn device(&self) -> Arc<CowDevice> {
        self.devices[0].clone()
    }

    /// The images of all devices that were recorded side by side, in the order in which they began.
    #[must_use]
    pub fn devices(&self) -> &[Arc<CowDevice>] {
        &self.devices
    }
}

impl fmt::Display for CrashState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, marks, pending, .. } = self;
        write!(f, "crash state {id} ({pending} changes pending, {marks} marks)")
    }
}

/// A change that no flush has covered yet.
#[derive(Clone, Debug)]
struct Pending {
    disk: usize,
    line: usize,
    returned: Option<usize>,
    start: u64,
    end: u64,
    data: Data,
}

impl Pending {
    /// In how many parts it may arrive. A discard happens, or not.
    fn fragments(&self, fragment_bytes: u64) -> u64 {
        match self.data {
            Data::Bytes(..) => (self.end - self.start).div_ceil(fragment_bytes),
            Data::Fill(_) | Data::Lost => 1,
        }
    }

    /// Lays fragment number `fragment` into `layer`, or that it can't be read.
    fn put(&self, fragment: u64, fragment_bytes: u64, is_lost: bool, layer: &mut Layer) {
        let Data::Bytes(..) = self.data else {
            return layer.put(self.start, self.end, self.data.clone());
        };
        let from = fragment * fragment_bytes;
        let end = (self.start + from + fragment_bytes).min(self.end);
        let data = if is_lost { Data::Lost } else { self.data.skip(from) };
        layer.put(self.start + from, end, data);
    }
}

/// What the lines of the log up to some point come to.
#[derive(Debug)]
struct Replay {
    point: usize,
    /// Of each device.
    durable: Vec<Arc<Layer>>,
    /// Of all devices, in the order of the log.
    pending: Vec<Pending>,
    /// Of each device.
    sizes: Vec<u64>,
    marks: usize,
}

/// What a line was to the states that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// No state is new.
    Nothing,
    /// States with something of the newest change are new.
    Newest,
    /// All are.
    All,
}

impl Replay {
    fn new(recording: &Recording) -> Self {
        let sizes: Vec<u64> = recording.bases.iter().map(|base| base.size()).collect();
        let durable = sizes.iter().map(|_| Arc::default()).collect();
        Self { point: 0, durable, pending: Vec::new(), sizes, marks: 0 }
    }

    /// Goes on by one line; `None` at the end of the log.
    fn step(&mut self, entries: &[Entry]) -> Option<Step> {
        let line = self.point;
        let entry = entries.get(line)?;
        self.point += 1;
        Some(match entry {
            Entry::Change { disk, start, end, data } => {
                let (disk, start, end, data) = (*disk, *start, *end, data.clone());
                self.pending.push(Pending { disk, line, returned: None, start, end, data });
                Step::Newest
            }
            Entry::Flush(_) => Step::Nothing,
            Entry::Returned(call) => match entries.get(*call) {
                Some(Entry::Flush(disk)) => self.flushed(*disk, *call),
                _ => self.returned(*call, line),
            },
            Entry::Resized { disk, size } => {
                self.sizes[*disk] = *size;
                Step::All
            }
            Entry::Forgotten(disk) => {
                // What is left is a state that there was.
                self.pending.retain(|change| change.disk != *disk || change.returned.is_none());
                Step::Nothing
            }
            Entry::Mark => {
                self.marks += 1;
                Step::All
            }
        })
    }

    fn returned(&mut self, call: usize, line: usize) -> Step {
        if let Some(change) = self.pending.iter_mut().rfind(|change| change.line == call) {
            change.returned = Some(line);
        }
        Step::Nothing
    }

    /// The flush of a device that began at line `began` has returned. If it leaves nothing pending, the state
    /// that it leaves was one of the last change's.
    fn flushed(&mut self, disk: usize, began: usize) -> Step {
        let covered = |change: &Pending| {
            change.disk == disk && change.returned.is_some_and(|line| line < began)
        };
        let (durable, pending) =
            take(&mut self.pending).into_iter().partition::<Vec<_>, _>(covered);
        self.pending = pending;
        // A layer that states share is copied here, one that none has is changed in place.
        let layer = Arc::make_mut(&mut self.durable[disk]);
        for Pending { start, end, data, .. } in durable {
            layer.put(start, end, data);
        }
        if self.pending.is_empty() { Step::Nothing } else { Step::All }
    }

    fn fragments(&self, fragment_bytes: u64) -> u64 {
        self.pending.iter().map(|change| change.fragments(fragment_bytes)).sum()
    }

    fn state(&self, recording: &Recording, id: CrashId) -> CrashState {
        let own = self.kept(id.keep, id.fragment_bytes);
        let devices = own.into_iter().enumerate().map(|(disk, own)| {
            let name = match disk {
                0 => format!("crash state {id}"),
                _ => format!("crash state {id}, device {disk}"),
            };
            let (base, durable) = (recording.bases[disk].clone(), self.durable[disk].clone());
            Arc::new(CowDevice::with_layers(name.into(), base, self.sizes[disk], durable, own))
        });
        let devices = devices.collect();
        CrashState { id, marks: self.marks, pending: self.pending.len(), devices }
    }

    /// The fragments of pending changes that are there, of each device.
    fn kept(&self, keep: Keep, fragment_bytes: u64) -> Vec<Layer> {
        let mut layers: Vec<Layer> = self.sizes.iter().map(|_| Layer::default()).collect();
        let mut counted = 0;
        let newest = self.pending.len().saturating_sub(1) as u64;
        let mut chance = match keep {
            Keep::Sample(seed) => Some(Chance::new(seed)),
            _ => None,
        };
        for (number, change) in (0..).zip(&self.pending) {
            let whole = chance.as_mut().and_then(Chance::change);
            for fragment in 0..change.fragments(fragment_bytes) {
                let is_lost =
                    number == newest && (keep == Keep::AllLost || keep == Keep::Lost(fragment));
                let is_there = match keep {
                    Keep::All | Keep::AllLost => true,
                    Keep::Nothing => false,
                    Keep::Only(only) => number == only,
                    Keep::Without(missing) => number != missing,
                    Keep::Torn(count) => number < newest || fragment < count,
                    Keep::Lost(count) => number < newest || fragment <= count,
                    Keep::Changes(bits) => has_bit(bits, number),
                    Keep::Fragments(bits) => has_bit(bits, counted),
                    Keep::Sample(_) => {
                        whole.or_else(|| chance.as_mut().map(Chance::flip)).unwrap_or(false)
                    }
                };
                counted += 1;
                if is_there {
                    change.put(fragment, fragment_bytes, is_lost, &mut layers[change.disk]);
                }
            }
        }
        layers
    }
}

fn has_bit(bits: u64, number: u64) -> bool {
    number < 64 && bits >> number & 1 == 1
}

/// Chances of one sample: it decides by changes or by fragments, and has a bias of its own, so that
/// nearly nothing and nearly everything come up as well as the middle.
#[derive(Debug)]
struct Chance {
    random: Random,
    by_fragments: bool,
    of_eight: u64,
}

impl Chance {
    fn new(seed: u64) -> Self {
        let mut chance = Self { random: Random::new(seed), by_fragments: false, of_eight: 4 };
        chance.by_fragments = chance.random.number().is_multiple_of(2);
        chance.of_eight = 1 + chance.random.below(7);
        chance
    }

    fn flip(&mut self) -> bool {
        self.random.below(8) < self.of_eight
    }

    /// Whether a change is there as a whole; `None` if its fragments are asked one by one.
    fn change(&mut self) -> Option<bool> {
        if self.by_fragments { None } else { Some(self.flip()) }
    }
}

/// The states of a recording, one after the other. See the [module](self).
///
/// Memory: the durable extents once, and for each state that is still alive what it has of its own.
#[derive(Debug)]
pub struct CrashStates {
    recording: Recording,
    plan: CrashPlan,
    fragment_bytes: u64,
    replay: Replay,
    chance: Chance,
    /// Those of the present point.
    queue: VecDeque<Keep>,
}

impl CrashStates {
    pub(super) fn new(recording: Recording, plan: CrashPlan) -> Self {
        let block_bytes = recording.bases.iter().map(|base| u64::from(base.block_size())).max();
        let fragment_bytes = plan.fragment_bytes.or(block_bytes).unwrap_or(FRAGMENT_BYTES_MIN);
        let (replay, chance) = (Replay::new(&recording), Chance::new(plan.seed));
        // Before the first line there is the image as it was.
        let queue = VecDeque::from([Keep::All]);
        Self { recording, plan, fragment_bytes, replay, chance, queue }
    }

    fn enqueue(&mut self, step: Step) {
        let (changes, bits) = (self.replay.pending.len() as u64, self.plan.exhaustive_bits);
        let fragments = self.replay.fragments(self.fragment_bytes);
        let newest = self.replay.pending.last().map_or(0, |c| c.fragments(self.fragment_bytes));
        if step == Step::Nothing {
            return;
        }
        let only_newest = step == Step::Newest;
        if only_newest && self.may_be_lost() {
            self.queue.extend(self.thinned(0, newest).map(Keep::Lost));
            self.queue.push_back(Keep::AllLost);
        }
        if fragments <= u64::from(bits) {
            // Bits of the newest change are the highest.
            let from = if only_newest { 1 << (fragments - newest) } else { 0 };
            self.queue.extend((from..1 << fragments).map(Keep::Fragments));
            return;
        }
        if changes <= u64::from(bits) {
            let from = if only_newest { 1 << (changes - 1) } else { 0 };
            self.queue.extend((from..1 << changes).map(Keep::Changes));
        } else {
            let first = if only_newest { changes - 1 } else { 0 };
            self.queue.extend((!only_newest).then_some(Keep::Nothing));
            self.queue.push_back(Keep::All);
            self.queue.extend(self.thinned(first, changes).map(Keep::Only));
            let last = if only_newest { changes - 1 } else { changes };
            self.queue.extend(self.thinned(0, last).map(Keep::Without));
        }
        self.queue.extend(self.thinned(1, newest).map(Keep::Torn));
        for _ in 0..self.plan.samples {
            let seed = self.chance.random.number();
            self.queue.push_back(Keep::Sample(seed));
        }
    }

    /// Whether what the newest change wrote may be such that it can't be read.
    fn may_be_lost(&self) -> bool {
        self.replay.pending.last().is_some_and(|change| {
            let is_inside = |(disk, range): &(usize, Range<u64>)| {
                *disk == change.disk && range.start <= change.start && change.end <= range.end
            };
            self.plan.lost_in.iter().any(is_inside)
        })
    }

    /// The numbers from `from` up to `to`, or as many of them as the plan allows, evenly spread.
    fn thinned(&self, from: u64, to: u64) -> impl Iterator<Item = u64> + use<> {
        let all = to.saturating_sub(from);
        let count = all.min(self.plan.listed_max as u64);
        (0..count).map(move |i| from + i * all / count)
    }
}

impl CrashStates {
    /// When each of them is, in order. None of them is made.
    #[must_use]
    pub fn moments(mut self) -> Vec<Moment> {
        let mut moments = Vec::new();
        while self.next_keep().is_some() {
            moments.push(Moment { marks: self.replay.marks, lines: self.replay.point });
        }
        moments
    }

    /// Goes on to the next state, and says what of the pending changes is there in it.
    fn next_keep(&mut self) -> Option<Keep> {
        loop {
            if let Some(keep) = self.queue.pop_front() {
                return Some(keep);
            }
            let step = self.replay.step(&self.recording.entries)?;
            self.enqueue(step);
        }
    }
}

impl Iterator for CrashStates {
    type Item = CrashState;

    fn next(&mut self) -> Option<CrashState> {
        let keep = self.next_keep()?;
        let (point, fragment_bytes) = (self.replay.point, self.fragment_bytes);
        let id = CrashId { point, fragment_bytes, keep };
        Some(self.replay.state(&self.recording, id))
    }

    /// States that are passed over are not made, which is most of what one costs.
    fn nth(&mut self, n: usize) -> Option<CrashState> {
        (0..n).try_for_each(|_| self.next_keep().map(drop))?;
        self.next()
    }

    /// None of them is made.
    fn count(mut self) -> usize {
        std::iter::from_fn(|| self.next_keep()).count()
    }
}

/// The state `id` of a recording, if it has one.
pub(super) fn rebuild(recording: &Recording, id: CrashId) -> Option<CrashState> {
    let mut replay = Replay::new(recording);
    while replay.point < id.point {
        replay.step(&recording.entries)?;
    }
    Some(replay.state(recording, id))
}

/// What a device holds when all pending changes of it are there, above its base.
pub(super) fn present(recording: &Recording, disk: usize) -> Layer {
    let mut replay = Replay::new(recording);
    while replay.step(&recording.entries).is_some() {}
    let mut layer = Layer::clone(&replay.durable[disk]);
    for change in replay.pending.into_iter().filter(|change| change.disk == disk) {
        layer.put(change.start, change.end, change.data);
    }
    layer
}

#[cfg(test)]
mod tests;
