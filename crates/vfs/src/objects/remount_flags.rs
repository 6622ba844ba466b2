//! The options of a mount or of a superblock, and the hold that a remount puts on writers.
//!
//! A remount to read-only must find out whether there are writers before it may forbid anything.
//! During that check it sets a hold bit next to the options, which don't change (`MNT_WRITE_HOLD`
//! in Linux). A writer that arrives during that time waits until the remount has decided, and is
//! refused only if the options are then read-only. A reader of the options never sees the hold.

use vfscale_sync::atomic::{AtomicU32, Ordering, fence};

use crate::base::types::MountFlags;

/// Set while a remount looks for writers. No option has this bit.
const HOLD: u32 = 1 << 31;

const _: () = assert!(MountFlags::all().bits() & HOLD == 0);

/// Options with many readers, changed by one remount at a time.
pub(crate) struct RemountFlags(AtomicU32);

/// Answer to a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Writable,
    ReadOnly,
    /// A remount is about to decide.
    Held,
}

impl RemountFlags {
    pub(crate) fn new(flags: MountFlags) -> RemountFlags {
        RemountFlags(AtomicU32::new(flags.bits() & !HOLD))
    }

    #[inline]
    pub(crate) fn get(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.0.load(Ordering::SeqCst) & !HOLD)
    }

    /// Replaces the options, and ends a hold.
    pub(crate) fn set(&self, flags: MountFlags) {
        self.0.store(flags.bits() & !HOLD, Ordering::SeqCst);
    }

    /// Makes it read-only, even if there are writers.
    pub(crate) fn forbid(&self) {
        if !self.get().contains(MountFlags::RDONLY) {
            self.0.fetch_or(MountFlags::RDONLY.bits(), Ordering::SeqCst);
        }
    }

    /// Holds writers until [`set`](Self::set). A full fence: a writer that has announced a change
    /// without seeing the hold is found by a thread that sums up after this.
    pub(crate) fn hold(&self) {
        self.0.fetch_or(HOLD, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Returns the answer of these options of a mount and those of its superblock, read together,
    /// to a writer.
    #[inline]
    pub(crate) fn verdict(&self, superblock: &RemountFlags) -> Verdict {
        let bits = self.0.load(Ordering::SeqCst) | superblock.0.load(Ordering::SeqCst);
        if bits & (HOLD | MountFlags::RDONLY.bits()) == 0 {
            Verdict::Writable
        } else if bits & HOLD == 0 {
            Verdict::ReadOnly
        } else {
            Verdict::Held
        }
    }
}
