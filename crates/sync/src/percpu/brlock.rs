//! Big-reader lock: a lock per CPU, of which a reader takes its CPU's and a writer all. Counterpart
//! of `lglock` and `brlock` in Linux 3.x.
//!
//! # Purpose
//!
//! For data that every call reads and few calls change, and whose readers must not retry: mounts
//! and freezing. Readers on two CPUs touch no common line. A writer pays for all of them. It is the
//! lock of Nick Piggin's vfsmount and per-CPU file list patches ("Scaling the Linux VFS", 2009).
//! With one slot it is a plain reader-writer lock, whose readers write one word. (Linux had a
//! spinlock before these patches, whose readers excluded each other as well.)
//!
//! # Invariants
//!
//! * A reader holds one slot, and stores its number: it may be moved to another CPU while inside.
//! * A writer takes the slots in ascending order: two writers can't block each other.
//! * A slot is a reader-writer lock, and not a mutex as in Linux. There a reader can't be
//!   preempted; here a second reader of the same CPU must not wait for a first that was.
//! * Each slot orders like a reader-writer lock: the writer, which holds all slots, is ordered
//!   after all readers that left and before all that enter later.
//!
//! # Lock order
//!
//! It has one rank: to order checking a writer holds one lock. Must not be nested, because a
//! waiting writer stops readers slot by slot.

use std::marker::PhantomData;

use crossbeam_utils::CachePadded;

use crate::cpu;
use crate::lock::LockClass;
use crate::lock::held;
use crate::lock::raw_rwlock::RawRwLock;

/// A reader-writer lock whose readers share no cache line. `Send` and `Sync`.
pub struct BrLock<C: LockClass> {
    class: PhantomData<fn() -> C>,
    slots: Box<[CachePadded<RawRwLock>]>,
}

impl<C: LockClass> BrLock<C> {
    /// Creates an unlocked lock with `slots` slots of 128 bytes (at least one).
    pub fn new(slots: usize) -> Self {
        let slots = (0..slots.max(1)).map(|_| CachePadded::new(RawRwLock::new())).collect();
        Self { class: PhantomData, slots }
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Enters as a reader, by the slot of this CPU. Blocks while a writer is inside, or has taken
    /// this slot and waits for another: spins for about a microsecond, then sleeps.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn read(&self) -> BrReadGuard<'_, C> {
        self.read_at(cpu::current())
    }

    /// Enters as a reader like [`read`](Self::read), by the slot of a CPU: for a caller that has
    /// [its number](cpu::current) already.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn read_at(&self, cpu: u32) -> BrReadGuard<'_, C> {
        held::assert_no_section::<C>();
        held::acquire::<C>(false);
        let slot = self.slot(cpu);
        slot.read(C::stat);
        BrReadGuard { slot, class: PhantomData, not_send: PhantomData }
    }

    /// Enters as a reader if that needs no waiting. Never blocks.
    #[inline]
    pub fn try_read(&self) -> Option<BrReadGuard<'_, C>> {
        let slot = self.slot(cpu::current());
        if !slot.try_read(C::stat) {
            return None;
        }
        held::note::<C>();
        Some(BrReadGuard { slot, class: PhantomData, not_send: PhantomData })
    }

    #[inline]
    fn slot(&self, cpu: u32) -> &RawRwLock {
        let index = cpu as usize;
        let slots = self.slots.len();
        &self.slots[if index < slots { index } else { index % slots }]
    }

    /// Enters as the writer, slot by slot. Blocks while a reader or writer is inside; readers that
    /// arrive later wait. Costs an atomic operation on a foreign line for each slot.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    pub fn write(&self) -> BrWriteGuard<'_, C> {
        held::assert_no_section::<C>();
        held::acquire::<C>(false);
        for slot in &self.slots {
            slot.write(C::stat);
        }
        BrWriteGuard { lock: self, not_send: PhantomData }
    }
}

/// A reader inside a [`BrLock`]. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub struct BrReadGuard<'a, C: LockClass> {
    slot: &'a RawRwLock,
    class: PhantomData<fn() -> C>,
    not_send: PhantomData<*const ()>,
}

impl<C: LockClass> Drop for BrReadGuard<'_, C> {
    #[inline]
    fn drop(&mut self) {
        self.slot.unlock_read();
        held::release::<C>();
    }
}

/// The writer inside a [`BrLock`]. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub struct BrWriteGuard<'a, C: LockClass> {
    lock: &'a BrLock<C>,
    not_send: PhantomData<*const ()>,
}

impl<C: LockClass> Drop for BrWriteGuard<'_, C> {
    fn drop(&mut self) {
        for slot in self.lock.slots.iter().rev() {
            slot.unlock_write();
        }
        held::release::<C>();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
