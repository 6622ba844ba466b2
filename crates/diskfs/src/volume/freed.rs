//! The blocks of a volume that were freed and are to be discarded.
//!
//! Freed blocks are noted by regions of 256 KiB, a bit for each, so a volume of one terabyte needs
//! less than three megabytes however it is fragmented. When the turn of a region comes, all that is
//! free in it is discarded, in runs that are as long as the free space allows: files that come and
//! go in the meantime reuse blocks without any discard. A crash forgets the regions; the next trim
//! finds their blocks.

use std::collections::BTreeMap;
use std::ops::Range;

use vfscale_sync::Mutex;
use vfscale_sync::atomic::AtomicBool;

use crate::base::ranks::{DiscardLock, FreedLock};
use crate::format::BlockRange;

/// Number of blocks of a region: 256 KiB.
const REGION_BLOCKS: u64 = 64;
/// Number of regions in one entry of the map.
const REGIONS: u64 = u64::BITS as u64;

/// The regions with freed blocks that are to be discarded.
#[derive(Debug, Default)]
pub(crate) struct FreedRegions {
    pub(super) regions: Mutex<Regions, FreedLock>,
}

/// Masks of regions, by the number of their entry.
type Masks = BTreeMap<u64, u64>;

#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Noted lately.
    new: Masks,
    /// Noted before a pass, and not discarded yet.
    pub(super) due: Masks,
}

impl FreedRegions {
    /// Notes runs that are free now.
    pub(crate) fn note(&self, runs: impl Iterator<Item = BlockRange>) {
        let mut regions = self.regions.lock();
        for run in runs.filter(|run| !run.is_empty()) {
            for region in run.start / REGION_BLOCKS..run.end().div_ceil(REGION_BLOCKS) {
                *regions.new.entry(region / REGIONS).or_default() |= 1 << (region % REGIONS);
            }
        }
    }

    /// Returns whether regions are due. If not, those that were noted so far are due from the next
    /// pass on.
    pub(super) fn begin_pass(&self) -> bool {
        let mut regions = self.regions.lock();
        let are_due = !regions.due.is_empty();
        if !are_due {
            regions.due = std::mem::take(&mut regions.new);
        }
        are_due
    }

    /// Takes the first due regions that lie side by side, as a range of blocks.
    pub(super) fn take(&self) -> Option<Range<u64>> {
        let mut regions = self.regions.lock();
        let mut entry = regions.due.first_entry()?;
        let (number, mask) = (*entry.key(), *entry.get());
        let first = mask.trailing_zeros();
        let count = (mask >> first).trailing_ones();
        let taken = (u64::MAX >> (u64::BITS - count)) << first;
        *entry.get_mut() &= !taken;
        if *entry.get() == 0 {
            entry.remove();
        }
        let start = (number * REGIONS + u64::from(first)) * REGION_BLOCKS;
        Some(start..start + u64::from(count) * REGION_BLOCKS)
    }
}

/// The discards of an open volume.
#[derive(Debug)]
pub(super) struct VolumeDiscards {
    /// Held by the thread that discards.
    pub(super) turn: Mutex<(), DiscardLock>,
    /// Whether the device has failed to discard; nothing more is discarded in the background.
    pub(super) has_failed: AtomicBool,
}

impl VolumeDiscards {
    pub(super) fn new() -> Self {
        Self { turn: Mutex::new(()), has_failed: AtomicBool::new(false) }
    }
}

/// A range of a volume to be trimmed, in bytes (`struct fstrim_range`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimRange {
    /// The start.
    pub start: u64,
    /// The length.
    pub len: u64,
    /// The length of the shortest free run that is discarded.
    pub minlen: u64,
}

impl TrimRange {
    /// The whole volume.
    pub const ALL: Self = Self { start: 0, len: u64::MAX, minlen: 0 };
}
