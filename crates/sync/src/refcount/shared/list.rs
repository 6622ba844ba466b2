//! Lists of shared values, one for each CPU slot.
//!
//! # Purpose
//!
//! Every open file is on a list of its superblock, which is walked to find out whether files are
//! open (a remount to read-only), and which every open and close changes. Piggin ("Scaling the
//! Linux VFS", 2009, "files lock") makes it a list and a lock for each CPU: the common call takes
//! its CPU's lock, the rare walk takes all. One slot is Linux before that patch.
//!
//! A list is a table of pointers rather than a chain of neighbours, so inserting or removing one
//! value writes to no other value. A value that is freed on another CPU than its own does not touch
//! that CPU's table: it is marked as ended, and the freeing CPU's slot stores its memory. When
//! [`ENDED_MAX`] of them are stored in a slot, their table entries are cleared together, and the
//! memory returns to the slots that allocated it.
//!
//! The lists also reuse the memory of freed values, up to [`KEPT_MAX`] for each slot: making a
//! value takes memory and enters the list under one lock, and freeing one needs one lock, too.
//!
//! # A bound on all lists together
//!
//! Lists may share a [`Bound`], with a unit for each value ([`SharedList::bounded`]). A slot takes
//! units in batches and holds some for future values, under the lock that it takes anyway; so a
//! value costs one comparison. When no batch is left, slots of other lists may still hold units:
//! the bound reports that it is low, and the caller recalls them ([`SharedList::trim`]) before it
//! fails.
//!
//! # Invariants
//!
//! * A slot has taken as many units as it has used table entries, and at most two batches more. A
//!   value that moves to another list takes its unit along; the caller that moves it gives the unit
//!   back when the value is freed.
//! * A value is on exactly one list from its creation until its last owner drops it, except for a
//!   moment while it moves to another ([`Shared::move_to`]), which it does at most once.
//! * [`Listable::ended`] is called when the value has left its list, and before its memory is used
//!   again: an effect that it undoes (the increment of a count of the values on the list, say) is
//!   undone late rather than early.
//! * A value has left its list when its table entry was cleared under its slot's lock, or, on
//!   another CPU, when it is marked [`ENDED`], which walks skip. Its memory is not used again
//!   before its entry was cleared.
//! * A walk holds a slot's lock, and marks each value [`VISITED`] while it reads it. A CPU that
//!   frees a value of another slot and finds that mark waits for the lock once: walks that start
//!   after that find [`ENDED`]. A CPU that frees a value of its own slot holds the lock, and need
//!   not check.
//! * The location of a value (list, slot and table index) changes only while it moves, first under
//!   the lock of the old slot and then under that of the new one.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::bound::Bound;
use super::{Counted, Shared, Storage};
use crate::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use crate::lock::LockClass;
use crate::lock::slot_lock::SlotLock;
use crate::percpu::PerCpu;

/// Number of memory blocks that each slot stores for future values.
const KEPT_MAX: u32 = 32;

/// Number of values of other slots that each slot stores before it clears their table entries.
const ENDED_MAX: u32 = 32;

/// State of a value that may be read.
const LIVE: u8 = 0;
/// State of a value that a walk reads.
const VISITED: u8 = 1;
/// State of a value whose last owner has dropped it.
const ENDED: u8 = 2;

/// A value that can be on a [`SharedList`].
pub trait Listable: Send + Sync + 'static {
    /// Returns whether [`ended`](Self::ended) has anything to do. Called for a value whose last
    /// owner has dropped it, perhaps under its list's lock.
    #[inline]
    fn has_duties(&self) -> bool {
        true
    }

    /// Notes that the last owner has dropped the value. Called with no lock held, when the value is
    /// on no list any more: a thread that sees an effect of this call does not find the value on a
    /// list. The value is still at its address, which is not reused yet; it is moved, and dropped
    /// afterwards.
    fn ended(&self);
}

/// Storage of values on the lists of a [`SharedList`] whose locks are of class `C`. A value that is
/// aligned to cache lines shares none with its count.
pub struct Listed<C>(PhantomData<fn() -> C>);

type ListNode<T, C> = Counted<T, Listed<C>>;

type LockedList<T, C> = SlotLock<CpuList<T, C>, C>;

/// The extra data of a listed value. The module's page defines which thread may use it.
pub struct Links<T: Listable, C: LockClass> {
    list: *const SharedList<T, C>,
    home: *const LockedList<T, C>,
    /// The index in the table of its slot.
    place: u32,
    state: AtomicU8,
    has_moved: AtomicBool,
    /// The next ended value in a chain of them.
    next: *mut ListNode<T, C>,
    /// A reference to the list that the value has moved to.
    keeper: Option<Arc<SharedList<T, C>>>,
}

impl<T: Listable, C: LockClass> Storage<T> for Listed<C> {
    type Extra = UnsafeCell<Links<T, C>>;

    #[inline]
    unsafe fn free(node: NonNull<ListNode<T, C>>) {
        let node = node.as_ptr();
        // SAFETY: the caller was the last owner, so the value and its extra data are ours, except
        // that walks read the value until it has left the list; it is not changed before. The list
        // lives, because the value (or `keeper`) holds a reference to it, which is dropped last.
        unsafe {
            let links = (*node).extra.get();
            let home = (*(*links).list).slots.this();
            if !ptr::eq(home, (*links).home) {
                return free_elsewhere(node, home);
            }
            let mut slot = home.lock();
            slot.clear((*links).place);
            if (*node).value.has_duties() {
                drop(slot);
                (*node).value.ended();
                slot = home.lock();
            }
            let value = ptr::read(&raw const (*node).value);
            let keeper = ptr::read(&raw const (*links).keeper);
            let spare = slot.keep(node);
            drop(slot);
            if !spare.is_null() {
                free_memory(spare);
            }
            drop(value);
            drop(keeper);
        }
    }
}

/// Frees a value whose slot is not `here`, the slot of this CPU.
///
/// # Safety
/// The caller was the last owner.
unsafe fn free_elsewhere<T: Listable, C: LockClass>(
    node: *mut ListNode<T, C>,
    here: &LockedList<T, C>,
) {
    // SAFETY: the caller was the last owner, and the list lives, as in `free`. Once the value is
    // marked no thread reads it, except for a walk that reads it now and holds its slot's lock.
    // After the memory is handed to this slot, no thread uses it.
    unsafe {
        let links = (*node).extra.get();
        if (*links).state.swap(ENDED, Ordering::AcqRel) == VISITED {
            drop((*(*links).home).lock());
        }
        if (*node).value.has_duties() {
            (*node).value.ended();
        }
        let value = ptr::read(&raw const (*node).value);
        let keeper = ptr::read(&raw const (*links).keeper);
        let ended = here.lock().add_ended(node);
        clear_all(ended);
        drop(value);
        drop(keeper);
    }
}

/// Clears the table entries of ended values, and returns their memory to its slots.
///
/// # Safety
/// The values are linked by `next`, marked [`ENDED`], and their list lives. No other thread uses
/// them.
unsafe fn clear_all<T: Listable, C: LockClass>(mut node: *mut ListNode<T, C>) {
    while !node.is_null() {
        // SAFETY: promised by the caller; their location does not change any more.
        unsafe {
            let links = (*node).extra.get();
            let next = (*links).next;
            let mut slot = (*(*links).home).lock();
            slot.clear((*links).place);
            let spare = slot.keep(node);
            drop(slot);
            if !spare.is_null() {
                free_memory(spare);
            }
            node = next;
        }
    }
}

/// A cache line of table entries. An empty entry has its lowest bit set; the other bits are the
/// index of the next empty entry.
#[repr(align(64))]
struct Row<T: Listable, C: LockClass>([*mut ListNode<T, C>; ROW_LEN as usize]);

const ROW_LEN: u32 = 8;

/// The index of no entry.
const NONE: u32 = u32::MAX;

/// Returns the contents of an empty entry that is followed by `next`.
fn empty<T: Listable, C: LockClass>(next: u32) -> *mut ListNode<T, C> {
    ptr::without_provenance_mut((next as usize) << 1 | 1)
}

/// Maximum number of rows that a table retains when it becomes empty.
const ROWS_KEPT_MAX: usize = 64;

/// The list of one CPU slot, and its spare memory.
struct CpuList<T: Listable, C: LockClass> {
    rows: Vec<Row<T, C>>,
    /// The first empty entry, or [`NONE`].
    free: u32,
    /// Number of used entries.
    used: u32,
    /// Number of units taken from the bound; `u32::MAX` if there is no bound.
    paid: u32,
    /// Number of unused units above which some are given back.
    spare_max: u32,
    kept_len: u32,
    ended_len: u32,
    /// Memory of freed values, linked by `next`.
    kept: *mut ListNode<T, C>,
    /// Values of other slots that were freed on this CPU, linked by `next`.
    ended: *mut ListNode<T, C>,
    bound: Option<Arc<Bound>>,
}

// SAFETY: values may be used and dropped on any thread; the pointers are used under the slot's
// lock.
unsafe impl<T: Listable, C: LockClass> Send for CpuList<T, C> {}

impl<T: Listable, C: LockClass> CpuList<T, C> {
    /// Creates an empty list, which takes units from `bound` if there is one.
    fn new(bound: Option<Arc<Bound>>) -> Self {
        let (paid, spare_max) = match &bound {
            Some(bound) => (0, 2 * bound.batch),
            None => (u32::MAX, u32::MAX),
        };
        Self {
            rows: Vec::new(),
            free: NONE,
            used: 0,
            paid,
            spare_max,
            kept_len: 0,
            ended_len: 0,
            kept: ptr::null_mut(),
            ended: ptr::null_mut(),
            bound,
        }
    }

    /// Ensures a unit for one more value; returns `false` if there is none.
    #[inline]
    fn has_unit(&mut self) -> bool {
        self.used < self.paid || self.pay()
    }

    /// Takes a batch of units, or one unit if no batch is left.
    #[cold]
    fn pay(&mut self) -> bool {
        let Some(bound) = &self.bound else { return false };
        let paid = bound.take_batch();
        self.paid += paid;
        paid > 0
    }

    /// Gives back the unused units except for `left`.
    #[cold]
    fn give_spare(&mut self, left: u32) {
        let Some(bound) = &self.bound else { return };
        let spare = (self.paid - self.used).saturating_sub(left);
        self.paid -= spare;
        bound.give(spare);
    }

    /// Takes spare memory; returns null if there is none.
    #[inline]
    fn take_kept(&mut self) -> *mut ListNode<T, C> {
        let node = self.kept;
        if !node.is_null() {
            // SAFETY: `keep` has linked it, and the caller that takes it is its only user.
            self.kept = unsafe { (*(*node).extra.get()).next };
            self.kept_len -= 1;
        }
        node
    }

    /// Stores the memory of a freed value and returns null, or returns the memory if enough is
    /// stored already.
    ///
    /// # Safety
    /// The value has been moved out, and no other thread uses the memory.
    #[inline]
    unsafe fn keep(&mut self, node: *mut ListNode<T, C>) -> *mut ListNode<T, C> {
        if self.kept_len >= KEPT_MAX {
            return node;
        }
        // SAFETY: the caller promises that the memory is ours, and its links were initialised.
        unsafe { (*(*node).extra.get()).next = self.kept };
        self.kept = node;
        self.kept_len += 1;
        ptr::null_mut()
    }

    /// Stores the memory of another slot's value that was freed on this CPU. Returns all of them if
    /// there are many; else null.
    ///
    /// # Safety
    /// The value has been moved out and is marked [`ENDED`]; no other thread uses the memory, which
    /// still has its table entry.
    unsafe fn add_ended(&mut self, node: *mut ListNode<T, C>) -> *mut ListNode<T, C> {
        // SAFETY: the caller promises that the memory is ours, and its links were initialised.
        unsafe { (*(*node).extra.get()).next = self.ended };
        self.ended = node;
        self.ended_len += 1;
        if self.ended_len < ENDED_MAX {
            return ptr::null_mut();
        }
        self.ended_len = 0;
        std::mem::replace(&mut self.ended, ptr::null_mut())
    }

    #[inline]
    fn at(&mut self, place: u32) -> &mut *mut ListNode<T, C> {
        &mut self.rows[(place / ROW_LEN) as usize].0[(place % ROW_LEN) as usize]
    }

    /// Enters a value, and returns its table index.
    #[inline]
    fn enter(&mut self, node: *mut ListNode<T, C>) -> u32 {
        if self.free == NONE {
            self.add_row();
        }
        let place = self.free;
        let next = std::mem::replace(self.at(place), node);
        self.free = (next.addr() >> 1) as u32;
        self.used += 1;
        place
    }

    #[cold]
    fn add_row(&mut self) {
        let first = self.rows.len() as u32 * ROW_LEN;
        let next = |n| if n + 1 < ROW_LEN { first + n + 1 } else { NONE };
        self.rows.push(Row(std::array::from_fn(|n| empty(next(n as u32)))));
        self.free = first;
    }

    /// Removes the value of an entry.
    #[inline]
    fn clear(&mut self, place: u32) {
        let next = self.free;
        *self.at(place) = empty(next);
        self.free = place;
        self.used -= 1;
        if self.paid - self.used > self.spare_max {
            self.give_spare(self.spare_max / 2);
        }
        if self.used == 0 && self.rows.len() > ROWS_KEPT_MAX {
            self.rows = Vec::new();
            self.free = NONE;
        }
    }

    /// Removes the value of an entry, which takes its unit along.
    fn lose(&mut self, place: u32) {
        self.clear(place);
        if self.bound.is_some() {
            self.paid -= 1;
        }
    }

    /// Returns all values of the table.
    fn nodes(&self) -> impl Iterator<Item = *mut ListNode<T, C>> {
        self.rows.iter().flat_map(|row| row.0).filter(|node| node.addr() & 1 == 0)
    }
}

impl<T: Listable, C: LockClass> Drop for CpuList<T, C> {
    fn drop(&mut self) {
        debug_assert!(self.used == 0, "a list ends before the values on it");
        loop {
            let node = self.take_kept();
            if node.is_null() {
                return;
            }
            // SAFETY: the memory was only in this slot.
            unsafe { free_memory(node) };
        }
    }
}

/// Frees the memory of a value that was moved out.
///
/// # Safety
/// `allocate` returned the memory, and no thread uses it.
#[cold]
unsafe fn free_memory<T: Listable, C: LockClass>(node: *mut ListNode<T, C>) {
    // SAFETY: promised by the caller; a box of something uninitialised drops nothing.
    drop(unsafe { Box::from_raw(node.cast::<MaybeUninit<ListNode<T, C>>>()) });
}

#[cold]
fn allocate<T: Listable, C: LockClass>() -> *mut ListNode<T, C> {
    Box::into_raw(Box::<ListNode<T, C>>::new_uninit()).cast()
}

/// Lists of shared values, one for each CPU slot. See the [module](super).
///
/// `Send` and `Sync`.
pub struct SharedList<T: Listable, C: LockClass> {
    slots: PerCpu<LockedList<T, C>>,
}

impl<T: Listable, C: LockClass> Drop for SharedList<T, C> {
    fn drop(&mut self) {
        self.trim();
    }
}

impl<T: Listable, C: LockClass> SharedList<T, C> {
    /// Creates empty lists, in `slots` slots (at least one).
    pub fn new(slots: usize) -> Self {
        Self { slots: PerCpu::new(slots, |_| SlotLock::new(CpuList::new(None))) }
    }

    /// Creates empty lists that take a unit of `bound` for each value. Any number of lists may
    /// share a bound.
    pub fn bounded(slots: usize, bound: &Arc<Bound>) -> Self {
        let slot = |_| SlotLock::new(CpuList::new(Some(Arc::clone(bound))));
        Self { slots: PerCpu::new(slots, slot) }
    }

    /// Gives back the unused units of the bound, and the memory of ended values. Takes the locks of
    /// the slots one after the other. The caller holds none of them.
    #[cold]
    pub fn trim(&self) {
        for home in self.slots.iter() {
            let mut slot = home.lock();
            slot.ended_len = 0;
            let ended = std::mem::replace(&mut slot.ended, ptr::null_mut());
            drop(slot);
            // SAFETY: the slot has handed the values over, and `self` is borrowed.
            unsafe { clear_all(ended) };
        }
        self.slots.iter().for_each(|home| home.lock().give_spare(0));
    }

    /// Makes a shared `value`, and enters it into the list of this CPU; gives it back if the bound
    /// is reached. Takes that slot's lock; allocates if the slot has no spare memory.
    ///
    /// # Errors
    /// Returns the value if no unit is left.
    ///
    /// # Safety
    /// This list lives until the value has been dropped: the value holds a reference to it,
    /// directly or not.
    #[inline]
    pub unsafe fn insert(&self, value: T) -> Result<Shared<T, Listed<C>>, T> {
        let home = self.slots.this();
        let mut slot = home.lock();
        if !slot.has_unit() {
            return Err(value);
        }
        let mut node = slot.take_kept();
        if node.is_null() {
            // The value owns its unit from here on, even if other threads use the slot in between.
            slot.paid -= 1;
            drop(slot);
            node = allocate();
            slot = home.lock();
            slot.paid += 1;
        }
        let links = Links {
            list: ptr::from_ref(self),
            home: ptr::from_ref(home),
            place: slot.enter(node),
            state: AtomicU8::new(LIVE),
            has_moved: AtomicBool::new(false),
            next: ptr::null_mut(),
            keeper: None,
        };
        // SAFETY: the memory is ours; until the slot is unlocked, no other thread finds it. The
        // handle gets an initialised node with a count of one.
        unsafe {
            // Field by field, because a whole node would be built elsewhere, and copied.
            (&raw mut (*node).count).write(AtomicUsize::new(1));
            (&raw mut (*node).extra).write(UnsafeCell::new(links));
            (&raw mut (*node).value).write(value);
            drop(slot);
            Ok(Shared::from_counted(NonNull::new_unchecked(node)))
        }
    }

    /// Visits every value on the lists, until `visit` breaks. Takes the locks of the slots one
    /// after the other and holds each during the calls, which must be short and take no lock of
    /// this or a lower rank. A value that is on a list throughout is visited once; one that is made
    /// or freed during the walk may be visited or not.
    pub fn each(&self, mut visit: impl FnMut(&T) -> ControlFlow<()>) {
        for home in self.slots.iter() {
            let slot = home.lock();
            for node in slot.nodes() {
                // SAFETY: the memory stays allocated until its entry is cleared, for which the lock
                // is needed, and the value is not moved while it is marked as visited.
                let flow = unsafe {
                    let state = &(*(*node).extra.get()).state;
                    let (won, lost) = (Ordering::Acquire, Ordering::Relaxed);
                    if state.compare_exchange(LIVE, VISITED, won, lost).is_err() {
                        continue;
                    }
                    let flow = visit(&(*node).value);
                    // A value that was freed in between remains marked as ended.
                    let (won, lost) = (Ordering::Release, Ordering::Relaxed);
                    let _ = state.compare_exchange(VISITED, LIVE, won, lost);
                    flow
                };
                if flow.is_break() {
                    return;
                }
            }
        }
    }

    /// Returns the number of values. Exact if no value is made, freed or moved concurrently. Blocks
    /// as [`each`](Self::each) does.
    pub fn len(&self) -> usize {
        let mut len = 0;
        self.each(|_| {
            len += 1;
            ControlFlow::Continue(())
        });
        len
    }

    /// Returns whether there are no values. Blocks as [`each`](Self::each) does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Listable, C: LockClass> Shared<T, Listed<C>> {
    /// Moves the value to another list, to which it then holds a reference. Returns `false`, and
    /// does nothing, if it was moved before. Takes the lock of its slot, and then that of a slot of
    /// `list`; between the two it is on neither. If the list it leaves has a bound, the caller
    /// gives a unit back when the value is freed ([`Bound::give`]); `list` has no bound.
    pub fn move_to(&self, list: &Arc<SharedList<T, C>>) -> bool {
        let node = self.counted.as_ptr();
        // SAFETY: the node lives as long as our handle. Only the first call changes the location,
        // and no last owner frees the value while our handle exists; the tables are changed under
        // the locks.
        unsafe {
            let links = (*node).extra.get();
            if (*links).has_moved.swap(true, Ordering::AcqRel) {
                return false;
            }
            (*(*links).home).lock().lose((*links).place);
            let home = list.slots.this();
            let mut slot = home.lock();
            (*links).list = Arc::as_ptr(list);
            (*links).home = ptr::from_ref(home);
            (*links).keeper = Some(Arc::clone(list));
            (*links).place = slot.enter(node);
        }
        true
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
