//! Lists of objects that carry their own links, one list for each CPU slot.
//!
//! # Purpose
//!
//! Piggin ("Scaling the Linux VFS", 2009) splits the lists that every object of a kind is on (a
//! superblock's inodes, the unused dentries in the order of their last use) into a list and a lock
//! for each CPU: an object enters the list of the CPU it was made on and leaves that list,
//! whichever CPU drops it. One slot is Linux before these patches. The rare walk takes the locks
//! one after the other.
//!
//! [`SharedList`](crate::refcount::shared::SharedList) does this for values that the list itself
//! allocates. Here the owner allocates the memory (from a slab), and the links are a field of the
//! object.
//!
//! An object that enters a linked list writes a link of the object that entered before it. Another
//! CPU may be using that one, and the two then share a cache line, although they use objects of
//! their own. So each slot has an array for the newest objects, as the folio batches of Linux, and
//! links them when it is full. An object that comes and goes is never linked.
//!
//! # Invariants
//!
//! * An object's links are read and written under the lock of the slot it is on. Only the place of
//!   the object may be read without it: the reader then takes the lock and reads it again.
//! * All objects of the array are newer than those of the linked list. An object that leaves the
//!   array leaves a gap, so no other object is written; gaps at the end are used again.
//! * An object leaves the list before its memory is given back ([`PerCpuList::insert`] requires
//!   that), so the holder of a slot's lock may use every object on its list.
//! * Each list is ordered: objects enter at the front, [`PerCpuList::age`] begins at the back.
//! * The common total plus what each slot has not reported is the number of objects. A slot reports
//!   when it has 32 more or 32 fewer than it reported last, so the total is read in one load and
//!   lacks less than 32 for each slot, up or down. An object that comes and goes reports nothing.

use std::cell::UnsafeCell;
use std::ops::ControlFlow;
use std::ptr::{self, NonNull};

use crate::atomic::{AtomicI64, AtomicU32, Ordering};
use crate::lock::LockClass;
use crate::lock::slot_lock::SlotLock;
use crate::percpu::{CachePadded, PerCpu};

/// The `home` of an object on no list.
const NOWHERE: u32 = 0;

/// The bits of a `home` with the number of the slot, counted from one; above them is the place in
/// the array of that slot, counted from one, or 0 for an object that is linked.
const SLOT_BITS: u32 = 16;

/// Number of objects of a slot that are not linked. With the lock and the rest of the list, they
/// fill the memory of a slot.
const NEWEST: usize = 8;

/// The number of objects, more or fewer, that a slot reports at a time.
pub const REPORT: usize = 32;

/// The links of an object that can be on a [`PerCpuList`]. Counterpart of `list_head` in Linux.
pub struct PerCpuLinks<T> {
    next: UnsafeCell<*const T>,
    prev: UnsafeCell<*const T>,
    /// Its slot and its place there ([`SLOT_BITS`]), or [`NOWHERE`]. Changes under the slot's lock.
    home: AtomicU32,
}

// SAFETY: the pointers are to objects of type `T` that other threads change under a lock.
unsafe impl<T: Sync> Send for PerCpuLinks<T> {}
// SAFETY: the cells are used under the lock of the object's slot.
unsafe impl<T: Sync> Sync for PerCpuLinks<T> {}

impl<T> PerCpuLinks<T> {
    /// Creates the links of an object on no list.
    pub fn new() -> Self {
        Self {
            next: UnsafeCell::new(ptr::null()),
            prev: UnsafeCell::new(ptr::null()),
            home: AtomicU32::new(NOWHERE),
        }
    }

    /// Returns whether the object is on a list now.
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
    /// Returns its links; each call returns the same ones.
    fn links(&self) -> &PerCpuLinks<Self>;
}

/// The decision of a visitor of [`PerCpuList::age`] about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Moves it to the front, as if it had just been inserted.
    Young,
    /// Does not move it, or any object in front of it: the walk ends.
    Stop,
}

/// The list of one slot.
struct List<T> {
    /// The newest objects, in the order in which they have entered; null where one has left.
    newest: [*const T; NEWEST],
    /// The number of places of `newest` that are in use. The last of them is no gap.
    places: u32,
    first: *const T,
    last: *const T,
    /// The number of all objects.
    len: usize,
    /// The part of `len` that is not in the common total yet, which may be negative.
    unreported: i64,
}

// SAFETY: the objects are `Sync`, and the list owns none of them.
unsafe impl<T: Sync> Send for List<T> {}

impl<T: Linked> List<T> {
    fn new() -> Self {
        Self {
            newest: [ptr::null(); NEWEST],
            places: 0,
            first: ptr::null(),
            last: ptr::null(),
            len: 0,
            unreported: 0,
        }
    }

    /// Inserts an entry as the newest, and writes no other one, unless it is the turn of all
    /// entries of the array to be linked.
    ///
    /// # Safety
    /// The entry lives, and is on no list; the caller holds the lock of this slot, `number`.
    unsafe fn enter(&mut self, entry: *const T, number: usize) {
        if self.places as usize == NEWEST {
            // SAFETY: the caller holds the lock.
            unsafe { self.link_all(number) };
        }
        self.newest[self.places as usize] = entry;
        self.places += 1;
        self.len += 1;
        let home = (number as u32 + 1) | (self.places << SLOT_BITS);
        // SAFETY: the entry lives.
        unsafe { (*entry).links().home.store(home, Ordering::Relaxed) };
    }

    /// Links the entries of the array.
    ///
    /// # Safety
    /// The caller holds the lock of this slot, `number`.
    unsafe fn link_all(&mut self, number: usize) {
        let places = std::mem::take(&mut self.places) as usize;
        for place in 0..places {
            let entry = std::mem::replace(&mut self.newest[place], ptr::null());
            if !entry.is_null() {
                // SAFETY: objects of the array live, and no other list has them.
                unsafe {
                    self.push_front(entry);
                    (*entry).links().home.store(number as u32 + 1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Removes an entry, whose `home` is this one.
    ///
    /// # Safety
    /// The entry is on this list; the caller holds this slot's lock.
    unsafe fn leave(&mut self, entry: *const T, home: u32) {
        self.len -= 1;
        let Some(place) = (home >> SLOT_BITS).checked_sub(1) else {
            // SAFETY: the entry is linked, and the lock is held.
            return unsafe { self.unlink(entry) };
        };
        debug_assert!(ptr::eq(self.newest[place as usize], entry), "it is elsewhere");
        self.newest[place as usize] = ptr::null();
        while self.places > 0 && self.newest[self.places as usize - 1].is_null() {
            self.places -= 1;
        }
    }

    /// Links an entry in front of all that are linked.
    ///
    /// # Safety
    /// The entry lives, and is not linked; the caller holds this slot's lock.
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
    }

    /// Unlinks an entry.
    ///
    /// # Safety
    /// The entry is linked here; the caller holds this slot's lock.
    unsafe fn unlink(&mut self, entry: *const T) {
        // SAFETY: objects on the list live, and their links are ours under the lock.
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
    }
}

/// Lists of objects with links, one for each CPU slot. See the [module](self).
///
/// `Send` and `Sync`. It owns no object; objects must have left it when it is dropped.
pub struct PerCpuList<T: Linked, C: LockClass> {
    slots: PerCpu<SlotLock<List<T>, C>>,
    /// The number of objects that slots have reported. Written once in [`REPORT`] changes.
    total: CachePadded<AtomicI64>,
}

impl<T: Linked, C: LockClass> PerCpuList<T, C> {
    /// Creates empty lists, in `slots` slots (at least one).
    ///
    /// # Panics
    /// If there are more slots than 65,534.
    pub fn new(slots: usize) -> Self {
        assert!(slots < (1 << SLOT_BITS) - 1, "more slots than CPUs: {slots}");
        let empty = |_| SlotLock::new(List::new());
        let total = CachePadded::new(AtomicI64::new(0));
        Self { slots: PerCpu::new(slots, empty), total }
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of objects on the list of one slot at this moment. Takes that slot's
    /// lock.
    pub fn slot_len(&self, slot: usize) -> usize {
        self.slots.get(slot).map_or(0, |slot| slot.lock().len)
    }

    /// Inserts `entry` at the front of this CPU's list. Takes that slot's lock. Returns whether the
    /// slot has reported to the common total: so one insertion in [`REPORT`] at most, and only if
    /// the list has grown since the last one.
    ///
    /// # Safety
    /// The object is on no list, no other thread inserts it concurrently, and it is
    /// [removed](Self::remove) before its memory is used for anything else.
    pub unsafe fn insert(&self, entry: NonNull<T>) -> bool {
        let number = self.slots.this_slot();
        let mut slot = self.slots.get(number).expect("every CPU has a slot").lock();
        // SAFETY: the caller promises that it is valid and on no list.
        unsafe { slot.enter(entry.as_ptr(), number) };
        self.note(&mut slot, 1)
    }

    /// Counts a change of the length of a slot's list. Returns whether the slot has reported.
    #[inline]
    fn note(&self, list: &mut List<T>, change: i64) -> bool {
        list.unreported += change;
        let reports = list.unreported.unsigned_abs() >= REPORT as u64;
        if reports {
            // Relaxed: the number publishes no other data.
            self.total.fetch_add(list.unreported, Ordering::Relaxed);
            list.unreported = 0;
        }
        reports
    }

    /// Returns about the number of objects, in one load: it differs by less than [`REPORT`] for
    /// each slot, up or down. Takes no lock.
    pub fn approximate_len(&self) -> usize {
        self.total.load(Ordering::Relaxed).try_into().unwrap_or(0)
    }

    /// Removes `entry` from the list it is on, whichever slot's that is; returns `false` if it is
    /// on none. Takes that slot's lock.
    pub fn remove(&self, entry: &T) -> bool {
        let home = &entry.links().home;
        loop {
            let at = home.load(Ordering::Relaxed);
            let number = at & ((1 << SLOT_BITS) - 1);
            let Some(slot) = number.checked_sub(1).and_then(|slot| self.slots.get(slot as usize))
            else {
                return false;
            };
            let mut slot = slot.lock();
            if home.load(Ordering::Relaxed) != at {
                continue;
            }
            // SAFETY: it is on this slot's list, and the lock is held.
            unsafe { slot.leave(entry, at) };
            home.store(NOWHERE, Ordering::Relaxed);
            self.note(&mut slot, -1);
            return true;
        }
    }

    /// Visits up to `max` objects of one slot, from the back of its list; objects for which `visit`
    /// returns [`Age::Young`] move to the front. Holds the slot's lock, so `visit` must be short
    /// and take no lock of this or a lower rank. Returns the number of objects visited.
    pub fn age(&self, slot: usize, max: usize, mut visit: impl FnMut(&T) -> Age) -> usize {
        let (number, Some(slot)) = (slot, self.slots.get(slot)) else { return 0 };
        let mut slot = slot.lock();
        // SAFETY: the lock is held.
        unsafe { slot.link_all(number) };
        let max = max.min(slot.len);
        for seen in 0..max {
            let entry = slot.last;
            // SAFETY: the list has a last entry, because at most as many entries are visited as the
            // list is long, and the entry lives as long as the lock is held.
            match visit(unsafe { &*entry }) {
                Age::Stop => return seen,
                Age::Young => {
                    // SAFETY: it is linked here, as all entries are.
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
    /// other and holds each during the calls, which must be short and take no lock of this or a
    /// lower rank. An object that is on a list throughout is visited once.
    pub fn each(&self, mut visit: impl FnMut(&T) -> ControlFlow<()>) {
        for slot in self.slots.iter() {
            let slot = slot.lock();
            for entry in slot.newest[..slot.places as usize].iter().rev() {
                // SAFETY: objects of the array live as long as the lock is held.
                if let Some(object) = unsafe { entry.as_ref() }
                    && visit(object).is_break()
                {
                    return;
                }
            }
            let mut entry = slot.first;
            // SAFETY: objects on the list live as long as its lock is held, which guards the links
            // too.
            while let Some(object) = unsafe { entry.as_ref() } {
                if visit(object).is_break() {
                    return;
                }
                // SAFETY: the lock is held, which guards the links of objects on the list.
                entry = unsafe { *object.links().next.get() };
            }
        }
    }

    /// Returns the number of objects. Takes the locks of all slots, one after the other; exact if
    /// no object is inserted or removed concurrently.
    pub fn len(&self) -> usize {
        self.slots.iter().map(|slot| slot.lock().len).sum()
    }

    /// Returns whether there are no objects. Takes locks like [`len`](Self::len).
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
