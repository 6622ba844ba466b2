//! The memory that the indexes of a volume take, and dropping zones when it is too much.

use vfscale_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::Groups;

/// The memory of an entry of an index, in bytes: a run is in two trees, which have room for more.
pub const ENTRY_BYTES: u64 = 64;
/// The least that is kept, in entries.
const ENTRIES_MIN: usize = 4096;
/// How far the count may be off for each group.
const ENTRIES_UNCOUNTED: usize = 64;

/// The entries of all indexes. On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct IndexMemory {
    held: AtomicUsize,
    limit: AtomicUsize,
    /// The group of which something is dropped next.
    hand: AtomicU32,
}

impl IndexMemory {
    /// Begins with none, and without a limit.
    pub(super) fn new() -> Self {
        Self {
            held: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            hand: AtomicU32::new(0),
        }
    }

    /// Notes that an index has so many entries, of which `counted` are counted.
    pub(super) fn count(&self, counted: &mut usize, entries: usize) {
        if entries.abs_diff(*counted) >= ENTRIES_UNCOUNTED {
            // Modulo the number of all numbers.
            self.held.fetch_add(entries.wrapping_sub(*counted), Ordering::Relaxed);
            *counted = entries;
        }
    }

    fn is_over(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed)
    }
}

impl Groups {
    /// Lets the indexes take about `bytes` bytes of memory from now on, or 256 KiB if that is more,
    /// and four bytes for each 16 MiB of the volume.
    pub fn set_index_bytes(&self, bytes: u64) {
        let entries = usize::try_from(bytes / ENTRY_BYTES).unwrap_or(usize::MAX);
        self.memory.limit.store(entries.max(ENTRIES_MIN), Ordering::Relaxed);
        self.shrink_indexes();
    }

    /// Returns how many bytes of memory the entries of the indexes take, about.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.memory.held.load(Ordering::Relaxed) as u64 * ENTRY_BYTES
    }

    /// Drops zones that were not used of late, as long as there are more entries than there may be.
    /// Takes the leaf lock of a group for one zone at a time. A clock (Corbató 1968), whose hand
    /// goes over the groups and their zones.
    pub(super) fn shrink_indexes(&self) {
        if !self.memory.is_over() {
            return;
        }
        let limit = self.memory.limit.load(Ordering::Relaxed);
        let enough = limit - limit / 8;
        let count = self.count();
        // Twice around: what is used is passed the first time.
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
