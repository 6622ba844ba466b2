//! The memory limit of the indexes of a volume, beyond which zones are dropped.

use vfscale_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Memory of an entry of an index, in bytes: a run is in two trees, whose nodes have spare room.
pub const ENTRY_BYTES: u64 = 64;
/// Minimum limit, in entries.
const ENTRIES_MIN: usize = 4096;
/// Maximum error of the count for each group, in entries.
const ENTRIES_UNCOUNTED: usize = 64;

/// The count of entries of all indexes, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct IndexMemory {
    held: AtomicUsize,
    limit: AtomicUsize,
    /// The group from which a zone is dropped next.
    hand: AtomicU32,
}

impl IndexMemory {
    /// Creates a count of 0, without a limit.
    pub(super) fn new() -> Self {
        Self {
            held: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            hand: AtomicU32::new(0),
        }
    }

    /// Updates the total for an index with `entries` entries, of which `counted` are included so
    /// far.
    pub(super) fn count(&self, counted: &mut usize, entries: usize) {
        if entries.abs_diff(*counted) >= ENTRIES_UNCOUNTED {
            // Wraps around if there are fewer.
            self.held.fetch_add(entries.wrapping_sub(*counted), Ordering::Relaxed);
            *counted = entries;
        }
    }

    /// Limits the memory to about `bytes` bytes.
    pub(super) fn set_limit(&self, bytes: u64) {
        let entries = usize::try_from(bytes / ENTRY_BYTES).unwrap_or(usize::MAX);
        self.limit.store(entries.max(ENTRIES_MIN), Ordering::Relaxed);
    }

    /// Returns the approximate memory of all entries, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed) as u64 * ENTRY_BYTES
    }

    fn is_over(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed)
    }

    /// Drops zones that were not used recently, while there are more entries than the limit. A
    /// clock (Corbató 1968), whose hand moves over the `count` groups and their zones; `drop_zone`
    /// moves it on by a zone of a group, and returns false at the end of the group.
    pub(super) fn shrink(&self, count: impl FnOnce() -> u32, drop_zone: impl Fn(u32) -> bool) {
        if !self.is_over() {
            return;
        }
        let limit = self.limit.load(Ordering::Relaxed);
        let enough = limit - limit / 8;
        let count = count();
        // Twice around: the first round passes recently used zones.
        for _ in 0..=2 * count {
            let group = self.hand.load(Ordering::Relaxed) % count;
            loop {
                if self.held.load(Ordering::Relaxed) <= enough {
                    return;
                }
                if !drop_zone(group) {
                    break;
                }
            }
            self.hand.fetch_add(1, Ordering::Relaxed);
        }
    }
}
