//! The states that a crash might leave.
//!
//! # Possible states
//!
//! A crash happens after some line of the log (the *point*). Changes that a flush had made durable
//! before it are present; of the changes that were *pending*, each fragment may be present or not.
//! A fragment is the atomic unit of a device: a block, or a sector of 512 bytes for devices that
//! break their promise.
//!
//! Order needs no enumeration of its own. Whatever order a device writes in, a fragment ends up
//! with its old contents or with those of one pending change; and that is the state in which that
//! change's fragment is present and those of later changes are not. So the subsets of fragments,
//! applied in the order of the log, are all possible states.
//!
//! # Yielded states
//!
//! All of them where a point has few fragments ([`CrashPlan::exhaustive_bits`]). Otherwise, of each
//! point: none and all of the pending changes; all subsets of whole changes if they are few, else
//! each change alone and each one missing; all changes with the newest one torn; and random subsets
//! of changes and fragments, from a seed. Long lists are thinned out evenly.
//!
//! # Unreadable sectors
//!
//! A sector that is being written when power fails may become unreadable until it is written again.
//! Its former contents are then lost, however long ago they were made durable, which is not the
//! fault of the code that wrote it: so a test specifies where this may happen
//! ([`CrashPlan::lost_in`]). There each fragment of the newest change is lost alone, with those
//! before it written and those after it not; and all of it.
//!
//! A state in which nothing of the newest change is present was already one of the point before, so
//! it is omitted, unless the test has made a mark since: then the same image may break another
//! promise.

use std::collections::VecDeque;
use std::fmt;
use std::mem::take;
use std::num::ParseIntError;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use vfscale_sync::random::Random;

use super::log::{LogEntry, Recording};
use vfscale_block::cow::{CowDevice, ExtentData, Layer};

/// Smallest atomic unit of a disk, in bytes.
const FRAGMENT_BYTES_MIN: u64 = 512;
/// Largest number of bits of a subset that has an id of its own.
const BITS_MAX: u32 = 20;

/// A test's selection of states.
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
    /// Selects up to 64 states of a point exhaustively; else 16 of each list, and 4 samples.
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
    /// Selects all states of points that have at most `bits` pending fragments, and all subsets of
    /// at most `bits` pending changes: up to 2 to the power of `bits`, which is at most 20.
    pub fn exhaustive_bits(self, bits: u32) -> Self {
        Self { exhaustive_bits: bits.min(BITS_MAX), ..self }
    }

    /// Sets how many changes of a point are tried alone and missing, and how many tears of the
    /// newest one.
    pub fn listed_max(self, count: usize) -> Self {
        Self { listed_max: count, ..self }
    }

    /// Sets the number of random states of each point.
    pub fn samples(self, count: usize) -> Self {
        Self { samples: count, ..self }
    }

    /// Sets the atomic unit of a device in bytes, at least 512: by default the largest block size.
    pub fn fragment_bytes(self, bytes: u64) -> Self {
        Self { fragment_bytes: Some(bytes.max(FRAGMENT_BYTES_MIN)), ..self }
    }

    /// Makes writes into these ranges, in bytes, possibly unreadable after a crash.
    pub fn lost_in(self, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        self.lost_on(0, ranges)
    }

    /// Makes writes into these ranges of device number `disk` possibly unreadable. Devices that
    /// record together have numbers from 0 in the order in which they began.
    pub fn lost_on(mut self, disk: usize, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        self.lost_in.extend(ranges.into_iter().map(|range| (disk, range)));
        self
    }

    /// Sets the seed of the random states; a test prints it.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

/// The part of the pending changes that is present. Changes have numbers from 0, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subset {
    All,
    Nothing,
    Only(u64),
    Without(u64),
    /// All changes but the newest, and this number of its fragments, from its start.
    Torn(u64),
    /// All changes but the newest, this number of its fragments from its start, and after them one
    /// that can't be read.
    Lost(u64),
    /// All changes, but nothing of the newest one can be read.
    AllLost,
    /// The changes whose bit is set.
    Changes(u64),
    /// The fragments whose bit is set, counted through all changes.
    Fragments(u64),
    /// A random subset, from this seed.
    Sample(u64),
}

/// The id of a state. With it, and the same calls,
/// [`crash_state`](super::RecordingDevice::crash_state) rebuilds the state. It is displayed as text
/// such as `17:512:torn:3`, from which it can be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashId {
    /// Number of lines of the log before the crash.
    point: usize,
    fragment_bytes: u64,
    subset: Subset,
}

impl fmt::Display for CrashId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.point, self.fragment_bytes)?;
        match self.subset {
            Subset::All => f.write_str("all"),
            Subset::Nothing => f.write_str("nothing"),
            Subset::Only(change) => write!(f, "only:{change}"),
            Subset::Without(change) => write!(f, "without:{change}"),
            Subset::Torn(fragments) => write!(f, "torn:{fragments}"),
            Subset::Lost(fragments) => write!(f, "lost:{fragments}"),
            Subset::AllLost => f.write_str("all-lost"),
            Subset::Changes(bits) => write!(f, "changes:{bits}"),
            Subset::Fragments(bits) => write!(f, "fragments:{bits}"),
            Subset::Sample(seed) => write!(f, "sample:{seed}"),
        }
    }
}

/// The error for a text that is not a [`CrashId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a crash state")]
pub struct ParseCrashIdError;

impl From<ParseIntError> for ParseCrashIdError {
    fn from(_: ParseIntError) -> Self {
        Self
    }
}

impl FromStr for CrashId {
    type Err = ParseCrashIdError;

    fn from_str(text: &str) -> Result<Self, ParseCrashIdError> {
        let parts: Vec<_> = text.split(':').collect();
        let (point, fragment_bytes, kind, number) = match parts[..] {
            [point, bytes, kind] => (point, bytes, kind, None),
            [point, bytes, kind, number] => (point, bytes, kind, Some(number.parse()?)),
            _ => return Err(ParseCrashIdError),
        };
        let subset = match (kind, number) {
            ("all", None) => Subset::All,
            ("nothing", None) => Subset::Nothing,
            ("only", Some(change)) => Subset::Only(change),
            ("without", Some(change)) => Subset::Without(change),
            ("torn", Some(fragments)) => Subset::Torn(fragments),
            ("lost", Some(fragments)) => Subset::Lost(fragments),
            ("all-lost", None) => Subset::AllLost,
            ("changes", Some(bits)) => Subset::Changes(bits),
            ("fragments", Some(bits)) => Subset::Fragments(bits),
            ("sample", Some(seed)) => Subset::Sample(seed),
            _ => return Err(ParseCrashIdError),
        };
        let fragment_bytes = fragment_bytes.parse()?;
        if fragment_bytes < FRAGMENT_BYTES_MIN {
            return Err(ParseCrashIdError);
        }
        Ok(Self { point: point.parse()?, fragment_bytes, subset })
    }
}

/// A state that a crash might have left. It can be written like any device; the writes stay
/// private.
#[derive(Debug)]
pub struct CrashState {
    id: CrashId,
    marks: usize,
    pending: usize,
    devices: Vec<Arc<CowDevice>>,
}

/// The moment of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Number of marks that the test had made.
    pub marks: usize,
    /// Number of lines of the log, as returned by [`log_len`](super::RecordingDevice::log_len).
    pub lines: usize,
}

impl CrashState {
    /// Returns its id, for rebuilding it.
    pub fn id(&self) -> CrashId {
        self.id
    }

    /// Returns whether a part of it can't be read.
    pub fn has_lost(&self) -> bool {
        matches!(self.id.subset, Subset::Lost(_) | Subset::AllLost)
    }

    /// Returns the number of marks that the test had made before the crash.
    pub fn marks(&self) -> usize {
        self.marks
    }

    /// Returns the image after the crash; that of the first device, if several were recorded.
    pub fn device(&self) -> Arc<CowDevice> {
        self.devices[0].clone()
    }

    /// Returns the images of all devices that recorded together, in the order in which they began.
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
    data: ExtentData,
}

impl Pending {
    /// Returns the number of fragments in which it may arrive. A discard is atomic.
    fn fragments(&self, fragment_bytes: u64) -> u64 {
        match self.data {
            ExtentData::Bytes(..) => (self.end - self.start).div_ceil(fragment_bytes),
            ExtentData::Fill(_) | ExtentData::Lost => 1,
        }
    }

    /// Puts fragment number `fragment` into `layer`, or marks it as unreadable there.
    fn put(&self, fragment: u64, fragment_bytes: u64, is_lost: bool, layer: &mut Layer) {
        let ExtentData::Bytes(..) = self.data else {
            return layer.put(self.start, self.end, self.data.clone());
        };
        let from = fragment * fragment_bytes;
        let end = (self.start + from + fragment_bytes).min(self.end);
        let data = if is_lost { ExtentData::Lost } else { self.data.skip(from) };
        layer.put(self.start + from, end, data);
    }
}

/// The state of the devices after replaying the log up to some point.
#[derive(Debug)]
struct Replay {
    point: usize,
    /// Durable changes of each device.
    durable: Vec<Arc<Layer>>,
    /// Pending changes of all devices, in the order of the log.
    pending: Vec<Pending>,
    /// Size of each device.
    sizes: Vec<u64>,
    marks: usize,
}

/// The new states that a line of the log makes possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewStates {
    /// None.
    Nothing,
    /// States with some of the newest change.
    Newest,
    /// All states of the point.
    All,
}

impl Replay {
    fn new(recording: &Recording) -> Self {
        let sizes: Vec<u64> = recording.bases.iter().map(|base| base.size()).collect();
        let durable = sizes.iter().map(|_| Arc::default()).collect();
        Self { point: 0, durable, pending: Vec::new(), sizes, marks: 0 }
    }

    /// Advances by one line; returns `None` at the end of the log.
    fn step(&mut self, entries: &[LogEntry]) -> Option<NewStates> {
        let line = self.point;
        let entry = entries.get(line)?;
        self.point += 1;
        Some(match entry {
            LogEntry::Change { disk, start, end, data } => {
                let (disk, start, end, data) = (*disk, *start, *end, data.clone());
                self.pending.push(Pending { disk, line, returned: None, start, end, data });
                NewStates::Newest
            }
            LogEntry::Flush(_) => NewStates::Nothing,
            LogEntry::Returned(call) => match entries.get(*call) {
                Some(LogEntry::Flush(disk)) => self.flushed(*disk, *call),
                _ => self.returned(*call, line),
            },
            LogEntry::Resized { disk, size } => {
                self.sizes[*disk] = *size;
                NewStates::All
            }
            LogEntry::Forgotten(disk) => {
                // The remaining state was possible before.
                self.pending.retain(|change| change.disk != *disk || change.returned.is_none());
                NewStates::Nothing
            }
            LogEntry::Mark => {
                self.marks += 1;
                NewStates::All
            }
        })
    }

    fn returned(&mut self, call: usize, line: usize) -> NewStates {
        if let Some(change) = self.pending.iter_mut().rfind(|change| change.line == call) {
            change.returned = Some(line);
        }
        NewStates::Nothing
    }

    /// Completes the flush of a device that began at line `began`. If no change is pending after
    /// it, the state that it leaves was possible after the last change.
    fn flushed(&mut self, disk: usize, began: usize) -> NewStates {
        let covered = |change: &Pending| {
            change.disk == disk && change.returned.is_some_and(|line| line < began)
        };
        let (durable, pending) =
            take(&mut self.pending).into_iter().partition::<Vec<_>, _>(covered);
        self.pending = pending;
        // A layer that states share is copied here; any other is changed in place.
        let layer = Arc::make_mut(&mut self.durable[disk]);
        for Pending { start, end, data, .. } in durable {
            layer.put(start, end, data);
        }
        if self.pending.is_empty() { NewStates::Nothing } else { NewStates::All }
    }

    fn fragments(&self, fragment_bytes: u64) -> u64 {
        self.pending.iter().map(|change| change.fragments(fragment_bytes)).sum()
    }

    fn state(&self, recording: &Recording, id: CrashId) -> CrashState {
        let own = self.present_layers(id.subset, id.fragment_bytes);
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

    /// Returns the present fragments of pending changes, of each device.
    fn present_layers(&self, subset: Subset, fragment_bytes: u64) -> Vec<Layer> {
        let mut layers: Vec<Layer> = self.sizes.iter().map(|_| Layer::default()).collect();
        let mut counted = 0;
        let newest = self.pending.len().saturating_sub(1) as u64;
        let mut rng = match subset {
            Subset::Sample(seed) => Some(SampleRng::new(seed)),
            _ => None,
        };
        for (number, change) in (0..).zip(&self.pending) {
            let whole = rng.as_mut().and_then(SampleRng::change);
            for fragment in 0..change.fragments(fragment_bytes) {
                let is_lost = number == newest
                    && (subset == Subset::AllLost || subset == Subset::Lost(fragment));
                let is_there = match subset {
                    Subset::All | Subset::AllLost => true,
                    Subset::Nothing => false,
                    Subset::Only(only) => number == only,
                    Subset::Without(missing) => number != missing,
                    Subset::Torn(count) => number < newest || fragment < count,
                    Subset::Lost(count) => number < newest || fragment <= count,
                    Subset::Changes(bits) => has_bit(bits, number),
                    Subset::Fragments(bits) => has_bit(bits, counted),
                    Subset::Sample(_) => {
                        whole.or_else(|| rng.as_mut().map(SampleRng::flip)).unwrap_or(false)
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

/// The random numbers of one sample. It decides by changes or by fragments, and has a bias of its
/// own, so that nearly empty and nearly full subsets occur as well as the middle.
#[derive(Debug)]
struct SampleRng {
    random: Random,
    by_fragments: bool,
    of_eight: u64,
}

impl SampleRng {
    fn new(seed: u64) -> Self {
        let mut rng = Self { random: Random::new(seed), by_fragments: false, of_eight: 4 };
        rng.by_fragments = rng.random.number().is_multiple_of(2);
        rng.of_eight = 1 + rng.random.below(7);
        rng
    }

    fn flip(&mut self) -> bool {
        self.random.below(8) < self.of_eight
    }

    /// Returns whether a change is present as a whole; `None` if that is decided for each fragment.
    fn change(&mut self) -> Option<bool> {
        if self.by_fragments { None } else { Some(self.flip()) }
    }
}

/// The states of a recording, one after the other. See the [module](self).
///
/// Memory: the durable extents once, and for each state that still exists its own extents.
#[derive(Debug)]
pub struct CrashStates {
    recording: Recording,
    plan: CrashPlan,
    fragment_bytes: u64,
    replay: Replay,
    rng: SampleRng,
    /// The states of the current point.
    queue: VecDeque<Subset>,
}

impl CrashStates {
    pub(super) fn new(recording: Recording, plan: CrashPlan) -> Self {
        let block_bytes = recording.bases.iter().map(|base| u64::from(base.block_size())).max();
        let fragment_bytes = plan.fragment_bytes.or(block_bytes).unwrap_or(FRAGMENT_BYTES_MIN);
        let (replay, rng) = (Replay::new(&recording), SampleRng::new(plan.seed));
        // The state before the first line is the initial image.
        let queue = VecDeque::from([Subset::All]);
        Self { recording, plan, fragment_bytes, replay, rng, queue }
    }

    fn enqueue(&mut self, step: NewStates) {
        let (changes, bits) = (self.replay.pending.len() as u64, self.plan.exhaustive_bits);
        let fragments = self.replay.fragments(self.fragment_bytes);
        let newest = self.replay.pending.last().map_or(0, |c| c.fragments(self.fragment_bytes));
        if step == NewStates::Nothing {
            return;
        }
        let only_newest = step == NewStates::Newest;
        if only_newest && self.may_be_lost() {
            self.queue.extend(self.thinned(0, newest).map(Subset::Lost));
            self.queue.push_back(Subset::AllLost);
        }
        if fragments <= u64::from(bits) {
            // Bits of the newest change are the highest.
            let from = if only_newest { 1 << (fragments - newest) } else { 0 };
            self.queue.extend((from..1 << fragments).map(Subset::Fragments));
            return;
        }
        if changes <= u64::from(bits) {
            let from = if only_newest { 1 << (changes - 1) } else { 0 };
            self.queue.extend((from..1 << changes).map(Subset::Changes));
        } else {
            let first = if only_newest { changes - 1 } else { 0 };
            self.queue.extend((!only_newest).then_some(Subset::Nothing));
            self.queue.push_back(Subset::All);
            self.queue.extend(self.thinned(first, changes).map(Subset::Only));
            let last = if only_newest { changes - 1 } else { changes };
            self.queue.extend(self.thinned(0, last).map(Subset::Without));
        }
        self.queue.extend(self.thinned(1, newest).map(Subset::Torn));
        for _ in 0..self.plan.samples {
            let seed = self.rng.random.number();
            self.queue.push_back(Subset::Sample(seed));
        }
    }

    /// Returns whether the newest change may become unreadable.
    fn may_be_lost(&self) -> bool {
        self.replay.pending.last().is_some_and(|change| {
            let is_inside = |(disk, range): &(usize, Range<u64>)| {
                *disk == change.disk && range.start <= change.start && change.end <= range.end
            };
            self.plan.lost_in.iter().any(is_inside)
        })
    }

    /// Returns the numbers from `from` up to `to`, or as many of them as the plan allows, evenly
    /// spaced.
    fn thinned(&self, from: u64, to: u64) -> impl Iterator<Item = u64> + use<> {
        let all = to.saturating_sub(from);
        let count = all.min(self.plan.listed_max as u64);
        (0..count).map(move |i| from + i * all / count)
    }
}

impl CrashStates {
    /// Returns the moment of each state, in order, without building the states.
    #[must_use]
    pub fn moments(mut self) -> Vec<Moment> {
        let mut moments = Vec::new();
        while self.next_subset().is_some() {
            moments.push(Moment { marks: self.replay.marks, lines: self.replay.point });
        }
        moments
    }

    /// Advances to the next state, and returns the part of the pending changes that is present in
    /// it.
    fn next_subset(&mut self) -> Option<Subset> {
        loop {
            if let Some(subset) = self.queue.pop_front() {
                return Some(subset);
            }
            let step = self.replay.step(&self.recording.entries)?;
            self.enqueue(step);
        }
    }
}

impl Iterator for CrashStates {
    type Item = CrashState;

    fn next(&mut self) -> Option<CrashState> {
        let subset = self.next_subset()?;
        let (point, fragment_bytes) = (self.replay.point, self.fragment_bytes);
        let id = CrashId { point, fragment_bytes, subset };
        Some(self.replay.state(&self.recording, id))
    }

    /// Skips states without building them, which is most of their cost.
    fn nth(&mut self, n: usize) -> Option<CrashState> {
        (0..n).try_for_each(|_| self.next_subset().map(drop))?;
        self.next()
    }

    /// Counts the states without building them.
    fn count(mut self) -> usize {
        std::iter::from_fn(|| self.next_subset()).count()
    }
}

/// Returns the state `id` of a recording, if it has one.
pub(super) fn rebuild(recording: &Recording, id: CrashId) -> Option<CrashState> {
    let mut replay = Replay::new(recording);
    while replay.point < id.point {
        replay.step(&recording.entries)?;
    }
    Some(replay.state(recording, id))
}

/// Returns the changes of a device with all pending ones present, above its base.
pub(super) fn present_layer(recording: &Recording, disk: usize) -> Layer {
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
