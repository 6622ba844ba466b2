//! The options of a mount or of a superblock, and the hold that a remount puts on writers.
//!
//! A remount to read-only must find out whether there are writers before it may forbid anything.
//! During that check it sets a hold bit next to the options, which don't change (`MNT_WRITE_HOLD`
//! in Linux). A writer that arrives during that time waits until the remount has decided, and is
//! refused only if the options are then read-only. A reader of the options never sees the hold.
//!
//! Changes within an RCU section are not counted before the first such check
//! ([`count_sections`](RemountFlags::count_sections)).

use vfscale_sync::atomic::{AtomicU32, Ordering, fence};
use vfscale_sync::rcu;

use crate::base::types::MountFlags;

/// Set while a remount looks for writers. No option has this bit.
const HOLD: u32 = 1 << 31;
/// Set from the first remount that looks for writers on.
const COUNTED: u32 = 1 << 30;
/// Set a grace period after that.
const ALL_COUNTED: u32 = 1 << 29;
/// Bits that are no options.
const OWN: u32 = HOLD | COUNTED | ALL_COUNTED;

const _: () = assert!(MountFlags::all().bits() & OWN == 0);

/// Options with many readers, changed by one remount at a time.
pub(crate) struct RemountFlags(AtomicU32);

/// Answer to a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Writable,
    /// Writable, and every change has to be counted.
    Counted,
    ReadOnly,
    /// A remount is about to decide.
    Held,
}

impl RemountFlags {
    pub(crate) fn new(flags: MountFlags) -> RemountFlags {
        RemountFlags(AtomicU32::new(flags.bits() & !OWN))
    }

    /// Creates options under which changes within RCU sections are always counted.
    pub(crate) fn new_counted(flags: MountFlags) -> RemountFlags {
        RemountFlags(AtomicU32::new(flags.bits() & !OWN | COUNTED | ALL_COUNTED))
    }

    #[inline]
    pub(crate) fn get(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.0.load(Ordering::SeqCst) & !OWN)
    }

    /// Replaces the options, and ends a hold.
    pub(crate) fn set(&self, flags: MountFlags) {
        let bits = flags.bits() & !OWN;
        let keep = |before: u32| Some(bits | before & (COUNTED | ALL_COUNTED));
        // Always succeeds.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, keep);
    }

    /// Has changes within RCU sections counted from now on. Waits for a grace period, the first
    /// time: then all changes in progress are counted, for a section that did not see this has
    /// ended. The caller is in no RCU section and holds no lock: a change that is waited for may
    /// wait for locks itself.
    pub(crate) fn count_sections(&self) {
        if self.0.load(Ordering::SeqCst) & ALL_COUNTED == 0 {
            self.0.fetch_or(COUNTED, Ordering::SeqCst);
            rcu::synchronize();
            self.0.fetch_or(ALL_COUNTED, Ordering::SeqCst);
        }
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
        if bits & (HOLD | COUNTED | MountFlags::RDONLY.bits()) == 0 {
            Verdict::Writable
        } else if bits & HOLD != 0 {
            Verdict::Held
        } else if bits & MountFlags::RDONLY.bits() != 0 {
            Verdict::ReadOnly
        } else {
            Verdict::Counted
        }
    }
}
