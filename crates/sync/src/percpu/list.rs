//! Lists of objects that carry their own links, one list for each CPU slot.
//!
//! # Purpose
//!
//! Seed 004 splits the lists that every object of a kind is on (a superblock's inodes, the unused
//! dentries in the order of their last use) into a list and a lock for each CPU: an object enters
//! the list of the CPU it was made on and leaves that list, whichever CPU it goes on. One slot is
//! the kernel before that. The rare walk takes the locks one after the other.
//!
//! [`SharedList`](crate::refcount::shared::SharedList) does the same for values that the list
//! itself allocates. Here the owner has the memory (a slab), and the links are a field of the
//! object.
//!
//! # Invariants
//!
//! * An object's links are read and written under the lock of the slot it is on. Only the number of
//!   that slot may be read without it: whoever reads it takes the lock and looks again.
//! * An object leaves the list before its memory is given back ([`PerCpuList::insert`] asks for
//!   that), so that who holds a slot's lock may use every object on it.
//! * Each list is ordered: objects enter at the front, [`PerCpuList::age`] looks at the back.

use std::cell::UnsafeCell;
use std::ops::ControlFlow;
use std::ptr::{self, NonNull};

use crate::atomic::{AtomicU32, Ordering};
use crate::lock::LockClass;
use crate::lock::slot_lock::SlotLock;
use crate::percpu::PerCpu;

/// On no list.
const NOWHERE: u32 = 0;

/// The links of an object that can be on a [`PerCpuList`].
pub struct PerCpuLinks<T> {
    next: UnsafeCell<*const T>,
    prev: UnsafeCell<*const T>,
    /// One more than the number of its slot, or [`NOWHERE`]. Changes under that slot's lock.
    home: AtomicU32,
}

// SAFETY: the pointers are to objects of type `T` that other threads change under a lock.
unsafe impl<T: Sync> Send for PerCpuLinks<T> {}
// SAFETY: the cells are used under the lock of the object's slot.
unsafe impl<T: Sync> Sync for PerCpuLinks<T> {}

impl<T> PerCpuLinks<T> {
    /// On no list.
    #[must_use]
    pub fn new() -> Self {
        Self {
            next: UnsafeCell::new(ptr::null()),
            prev: UnsafeCell::new(ptr::null()),
            home: AtomicU32::new(NOWHERE),
        }
    }

    /// Whether the object is on a list just now.
    pub fn is_listed(&self) -> bool {
        self.home.load(Ordering::Relaxed) != NOWHERE
    }
}

impl<T> Default for PerCpuLinks<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// An object with links.
pub trait Linked: Sync + Sized + 'static {
    /// Its links, always the same ones.
    fn links(&self) -> &PerCpuLinks<Self>;
}

/// What [`PerCpuList::age`] does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// It goes to the front, as if it had just come.
    Young,
    /// It stays where it is, and so do those in front of it: the walk ends.
    Stop,
}

/// The list of one slot.
struct List<T> {
    first: *const T,
    last: *const T,
    len: usize,
}

// SAFETY: the objects are `Sync`, and the list owns none of them.
unsafe impl<T: Sync> Send for List<T> {}

impl<T: Linked> List<T> {
    /// # Safety
    /// The entry lives, and is on no list; the caller holds this slot's lock, as for all below.
    unsafe fn push_front(&mut self, entry: *const T) {
        // SAFETY: objects on the list live, and their links are ours under the lock.
        unsafe {
            let links = (*entry).links();
            *links.next.get() = self.first;
            *links.prev.get() = ptr::null();
            match self.first.as_ref() {
                Some(first) => *first.links().prev.get() = entry,
                None => self.last = entry,
            }
        }
        self.first = entry;
        self.len += 1;
    }

    /// # Safety
    /// The entry is on this list.
    unsafe fn unlink(&mut self, entry: *const T) {
        // SAFETY: as above.
        unsafe {
            let links = (*entry).links();
            let (next, prev) = (*links.next.get(), *links.prev.get());
            match prev.as_ref() {
                Some(prev) => *prev.links().next.get() = next,
                None => self.first = next,
            }
            match next.as_ref() {
                Some(next) => *next.links().prev.get() = prev,
                None => self.last = prev,
            }
        }
        self.len -= 1;
    }
}

/// Lists of objects with links, one for each CPU slot. See the [module](self).
///
/// `Send` and `Sync`. It owns no object; objects must have left it when it is dropped.
pub struct PerCpuList<T: Linked, C: LockClass> {
    slots: PerCpu<SlotLock<List<T>, C>>,
}

impl<T: Linked, C: LockClass> PerCpuList<T, C> {
    /// Empty lists, in `slots` slots (at least one).
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let empty = |_| SlotLock::new(List { first: ptr::null(), last: ptr::null(), len: 0 });
        Self { slots: PerCpu::new(slots, empty) }
    }

    /// The number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The number of objects on the list of one slot, just now. Takes that slot's lock.
    #[must_use]
    pub fn slot_len(&self, slot: usize) -> usize {
        self.slots.get(slot).map_or(0, |slot| slot.lock().len)
    }

    /// Enters `entry` at the front of this CPU's list. Takes that slot's lock. Returns how many
    /// objects the list of the slot then has.
    ///
    /// # Safety
    /// The object is on no list, nobody else enters it into one at the same time, and it is
    /// [removed](Self::remove) before its memory is used for anything else.
    pub unsafe fn insert(&self, entry: NonNull<T>) -> usize {
        let number = self.slots.this_slot();
        let mut slot = self.slots.get(number).expect("there is a slot for every CPU").lock();
        // SAFETY: it is valid and on no list, says the caller.
        unsafe {
            slot.push_front(entry.as_ptr());
            entry.as_ref().links().home.store(number as u32 + 1, Ordering::Relaxed);
        }
        slot.len
    }

    /// Takes `entry` off the list it is on, whichever slot's that is; `false` if it is on none.
    /// Takes that slot's lock.
    pub fn remove(&self, entry: &T) -> bool {
        let home = &entry.links().home;
        loop {
            let at = home.load(Ordering::Relaxed);
            let Some(slot) = at.checked_sub(1).and_then(|slot| self.slots.get(slot as usize))
            else {
                return false;
            };
            let mut slot = slot.lock();
            if home.load(Ordering::Relaxed) != at {
                continue;
            }
            // SAFETY: it is on this slot's list, and the lock is held.
            unsafe { slot.unlink(entry) };
            home.store(NOWHERE, Ordering::Relaxed);
            return true;
        }
    }

    /// Looks at up to `max` objects of one slot, from the back of its list on; what `visit` calls
    /// [`Age::Young`] goes to the front. Holds the slot's lock meanwhile, so that `visit` should be
    /// short and take no lock of the same or a lower rank. Returns how many were looked at.
    pub fn age(&self, slot: usize, max: usize, mut visit: impl FnMut(&T) -> Age) -> usize {
        let Some(slot) = self.slots.get(slot) else { return 0 };
        let mut slot = slot.lock();
        let max = max.min(slot.len);
        for seen in 0..max {
            let entry = slot.last;
            // SAFETY: there is one, for no more than the length are looked at, and it lives as long
            // as the lock is held.
            match visit(unsafe { &*entry }) {
                Age::Stop => return seen,
                Age::Young => {
                    // SAFETY: it is on this slot's list.
                    unsafe {
                        slot.unlink(entry);
                        slot.push_front(entry);
                    }
                }
            }
        }
        max
    }

    /// Calls `visit` for every object, until it breaks. Takes the locks of the slots one after the
    /// other and holds each during the calls, which should be short and take no lock of the same or
    /// a lower rank. An object that is there throughout is visited once.
    pub fn each(&self, mut visit: impl FnMut(&T) -> ControlFlow<()>) {
        for slot in self.slots.iter() {
            let slot = slot.lock();
            let mut entry = slot.first;
            // SAFETY: objects on the list live as long as its lock is held, which guards the links
            // too.
            while let Some(object) = unsafe { entry.as_ref() } {
                if visit(object).is_break() {
                    return;
                }
                // SAFETY: as above.
                entry = unsafe { *object.links().next.get() };
            }
        }
    }

    /// The number of objects. Takes the locks of all slots, one after the other; exact if none
    /// comes or goes meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.iter().map(|slot| slot.lock().len).sum()
    }

    /// Whether there are no objects. As [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Linked, C: LockClass> Drop for PerCpuList<T, C> {
    fn drop(&mut self) {
        debug_assert!(self.is_empty(), "objects leave a list before it ends");
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
