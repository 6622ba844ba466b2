//! The memory limit of the indexes of a volume, beyond which zones are dropped.

use vfscale_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::Groups;

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

    fn is_over(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed)
    }
}

impl Groups {
    /// Limits the memory of the indexes to about `bytes` bytes, or 256 KiB if that is more, plus
    /// four bytes for each 16 MiB of the volume.
    pub fn set_index_bytes(&self, bytes: u64) {
        let entries = usize::try_from(bytes / ENTRY_BYTES).unwrap_or(usize::MAX);
        self.memory.limit.store(entries.max(ENTRIES_MIN), Ordering::Relaxed);
        self.shrink_indexes();
    }

    /// Returns the approximate memory of the entries of the indexes, in bytes.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.memory.held.load(Ordering::Relaxed) as u64 * ENTRY_BYTES
    }

    /// Drops zones that were not used recently, while there are more entries than the limit. Takes
    /// the leaf lock of a group for one zone at a time. A clock (Corbató 1968), whose hand moves
    /// over the groups and their zones.
    pub(super) fn shrink_indexes(&self) {
        if !self.memory.is_over() {
            return;
        }
        let limit = self.memory.limit.load(Ordering::Relaxed);
        let enough = limit - limit / 8;
        let count = self.count();
        // Twice around: the first round passes recently used zones.
        for _ in 0..=2 * count {
            let group = self.memory.hand.load(Ordering::Relaxed) % count;
            let Some(group) = self.at(group) else { return };
            loop {
                if self.memory.held.load(Ordering::Relaxed) <= enough {
                    return;
                }
                if group.change_index(|index| index.drop_zone()) != Some(true) {
                    break;
                }
            }
            self.memory.hand.fetch_add(1, Ordering::Relaxed);
        }
    }
}
