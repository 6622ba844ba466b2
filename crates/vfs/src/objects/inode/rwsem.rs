//! The lock of an inode's data and attributes (`i_rwsem`).
//!
//! A change holds the inode's lock exclusively: readers must see it whole, and it sets size, mode,
//! times and data in one order. A search for data or a hole holds the lock shared.
//!
//! # Overwriting
//!
//! A short write over existing bytes changes nothing else. So overwrites of different pages of one
//! file need not exclude each other. Where several CPUs overwrite one file, the lock is sharded
//! over them ([`ShardedRwLock`](vfscale_sync::sharded_rwlock::ShardedRwLock)), and they hold it
//! shared.
//!
//! * While the lock is shared, the size does not change, no page is added or removed, no seal is
//!   added, and no mode bit or capability is set that a write clears: all of these change under the
//!   exclusive lock. So a writer that finds, under the lock, that a write is within the size,
//!   allowed, and clears no bit or capability, may continue.
//! * Two writes to the same bytes exclude each other in the driver
//!   ([`FileOps::overwrite`](crate::objects::driver::FileOps::overwrite)), which locks all pages of
//!   a write together.
//! * An overwrite that can't be shared is made exclusively, like any other write: over a hole, or
//!   when a writer has closed the parts of the lock.
//!
//! # When a lock is sharded
//!
//! Until then overwriters hold the lock exclusively. The lock records whether one had to wait; any
//! short write before the file's end counts as an overwrite. It also records the CPUs of shared
//! holders. A lock that one CPU uses is not sharded. Locks of backed drivers aren't either: their
//! holders wait for disks, and so would a writer that closes the parts. The memory of the parts is
//! charged to the file system and is freed with the inode.

use vfscale_sync::atomic::Ordering;
use vfscale_sync::sharded_rwlock::{ReaderParts, ShardedReadGuard, ShardedWriteGuard};

use super::{Inode, SHARED};
use crate::base::lock_classes::InodeData;

/// An inode's lock, held exclusively.
pub(crate) type ExclusiveGuard<'a> = ShardedWriteGuard<'a, InodeData>;

/// An inode's lock, held shared.
pub(crate) type SharedGuard<'a> = ShardedReadGuard<'a, InodeData>;

impl Inode {
    /// Locks data and attributes exclusively (`i_rwsem`). Blocks as long as the holder, which may
    /// wait for a disk or copy much: so the caller holds a reference and is in no RCU section.
    pub(crate) fn lock(&self) -> ExclusiveGuard<'_> {
        self.usage.lock.write(&self.sharers)
    }

    /// Locks data and attributes exclusively, if no thread holds the lock, and it is not open to
    /// several CPUs. Never blocks.
    pub(crate) fn try_lock(&self) -> Option<ExclusiveGuard<'_>> {
        self.usage.lock.try_write(&self.sharers)
    }

    /// Locks data and attributes shared. Blocks.
    pub(crate) fn lock_shared(&self) -> SharedGuard<'_> {
        if let Some(shared) = self.share() {
            return shared;
        }
        if let Some(slots) = self.spread_slots()
            && self.usage.lock.note_cpu(slots)
        {
            self.spread(self.lock(), slots);
        }
        self.usage.lock.read(&self.sharers)
    }

    /// Returns whether several CPUs were found to share the lock.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & SHARED != 0
    }

    /// Locks data and attributes shared, if several CPUs were found to share the lock and no thread
    /// has held it exclusively since. Never blocks.
    #[inline]
    pub(crate) fn share(&self) -> Option<SharedGuard<'_>> {
        self.usage.lock.read_in_part(&self.sharers)
    }

    /// Unlocks, and notes that a thread waited for the lock that could have shared it.
    #[cold]
    pub(crate) fn unlock_sharable(&self, exclusive: ExclusiveGuard<'_>) {
        if let Some(slots) = self.spread_slots()
            && exclusive.note_wait(slots)
        {
            self.spread(exclusive, slots);
        }
    }

    /// Returns the number of parts that the lock may be sharded into, if it may be.
    fn spread_slots(&self) -> Option<usize> {
        let slots = self.sb().scaling().file_lock_slots();
        (slots > 1 && !self.is_backed()).then_some(slots)
    }

    /// Shards the lock into `slots` parts, unless there is no space to charge for them, and unlocks
    /// it.
    #[cold]
    fn spread(&self, exclusive: ExclusiveGuard<'_>, slots: usize) {
        let charge = || self.sb().accounting().charge(ReaderParts::bytes(slots) as u64);
        if self.is_shared() || charge().is_ok() {
            self.kind.fetch_or(SHARED, Ordering::Relaxed);
            exclusive.spread(slots);
        }
    }

    /// Returns the number of bytes that are charged for the parts of the lock, if it is sharded.
    pub(crate) fn sharers_bytes(&self) -> u64 {
        ReaderParts::bytes(self.sb().scaling().file_lock_slots()) as u64
    }
}
