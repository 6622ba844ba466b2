//! Who takes turns at an inode's data and attributes.
//!
//! Changes take turns: each has the inode's lock (`i_rwsem`) exclusively, for it is to be seen
//! whole by others, and sets size, mode, times and data as they are in one order. Who looks for
//! data or a hole has the lock shared.
//!
//! # Overwriting
//!
//! A short write over bytes that are there changes nothing but these. So those who do that to
//! different pages of one file need not take turns, and where several CPUs do they don't: the lock
//! is spread over them ([`SpreadRwLock`](vfscale_sync::spread_rwlock::SpreadRwLock)), and they have
//! it shared.
//!
//! * As long as the lock is shared, the size stays as it is, pages come and go nowhere, nothing is
//!   sealed, and no bit or capability comes that a write takes away: all of that changes
//!   exclusively. So who finds, with the lock, that a write is within the size, allowed, and takes
//!   nothing away, may go on.
//! * Two that write to the same bytes exclude each other in the driver
//!   ([`FileSystem::overwrite`](crate::objects::driver::FileSystem::overwrite)), for all pages of a
//!   write at once.
//! * An overwrite that can't be shared is made exclusively, as any other write: when there is a
//!   hole, or a writer has closed the parts of the lock.
//!
//! # When a lock is spread
//!
//! Until then overwriters have it exclusively, and it is noted if one had to wait: whoever wrote so
//! few bytes before the file's end is taken for one. So is the CPU of those who share it. What one
//! CPU uses is not spread. Nor are the locks of drivers that keep directories: who has them waits
//! for disks, and so would who closes the parts. The memory of the parts is charged to the file
//! system, and stays until the inode goes.

use vfscale_sync::atomic::Ordering;
use vfscale_sync::spread_rwlock::{ReaderParts, SpreadReadGuard, SpreadWriteGuard};

use super::{Inode, SHARED};
use crate::base::lock_classes::InodeData;

/// An inode's lock, held exclusively.
pub(crate) type Alone<'a> = SpreadWriteGuard<'a, InodeData>;

/// An inode's lock, held shared.
pub(crate) type Sharing<'a> = SpreadReadGuard<'a, InodeData>;

impl Inode {
    /// The lock of data and attributes, exclusively (`i_rwsem`). Blocks.
    pub(crate) fn lock(&self) -> Alone<'_> {
        self.usage.lock.write(&self.sharers)
    }

    /// The lock of data and attributes, shared. Blocks.
    pub(crate) fn lock_shared(&self) -> Sharing<'_> {
        if let Some(sharing) = self.share() {
            return sharing;
        }
        if let Some(slots) = self.spread_slots()
            && self.usage.lock.note_cpu(slots)
        {
            self.spread(self.lock(), slots);
        }
        self.usage.lock.read(&self.sharers)
    }

    /// Whether several CPUs were found to share the lock.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & SHARED != 0
    }

    /// The lock of data and attributes, shared, if several CPUs were found to share it and nobody
    /// has had it exclusively since. Never blocks.
    #[inline]
    pub(crate) fn share(&self) -> Option<Sharing<'_>> {
        self.usage.lock.read_in_part(&self.sharers)
    }

    /// Notes that somebody waited for the lock who could have shared it, and gives it back.
    #[cold]
    pub(crate) fn unlock_sharable(&self, alone: Alone<'_>) {
        if let Some(slots) = self.spread_slots()
            && alone.note_wait(slots)
        {
            self.spread(alone, slots);
        }
    }

    /// For how many CPUs the lock is to be spread, if it is.
    fn spread_slots(&self) -> Option<usize> {
        let slots = self.sb().scaling().file_lock_slots();
        (slots > 1 && !self.is_backed()).then_some(slots)
    }

    #[cold]
    fn spread(&self, alone: Alone<'_>, slots: usize) {
        let charge = || self.sb().fs().charge(ReaderParts::bytes(slots) as u64);
        if self.is_shared() || charge().is_ok() {
            self.kind.fetch_or(SHARED, Ordering::Relaxed);
            alone.spread(slots);
        }
    }

    /// What is charged for the parts of its lock, if that is shared.
    pub(crate) fn sharers_bytes(&self) -> u64 {
        ReaderParts::bytes(self.sb().scaling().file_lock_slots()) as u64
    }
}
