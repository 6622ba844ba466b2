//! Lists of shared values, one for each CPU slot.
//!
//! # Purpose
//!
//! Every open file is on a list of its superblock, which is walked when somebody wants to know what
//! is open (a remount to read-only), and which every open and close changes. Seed 004 ("files
//! lock") makes it a list for each CPU with a lock for each CPU: the common call takes its own, the
//! rare walk takes all. One slot is the kernel before that.
//!
//! A list is a table of pointers rather than a chain of neighbours, so that who begins or ends a
//! value writes nothing of another. And who ends one on another CPU than it began on does not touch
//! that CPU's table: it marks the value as ended, and keeps its memory for itself. When there are
//! [`ENDED_MAX`] of those in a slot, their places are cleared together, and the memory goes back to
//! where it came from.
//!
//! The lists also keep the memory of values that have ended, up to [`KEPT_MAX`] for each slot, so
//! that beginning one takes memory and enters the list under one lock, as does ending one.
//!
//! # A bound on all lists together
//!
//! Lists may share a [`Bound`], with a unit for each value ([`SharedList::bounded`]). A slot takes
//! units in batches and keeps some for values to come, under the lock that it has anyway, so that a
//! value costs one comparison. When no batch is left, slots of other lists may still keep units:
//! the bound says that it is low, and the caller calls those in ([`SharedList::trim`]) before it
//! gives up.
//!
//! # Invariants
//!
//! * A slot has taken as many units as it has places that are not empty, and at most two batches
//!   more. The unit of a value that moves to another list goes with it: whoever moves it gives it
//!   back at its end.
//! * A value is on exactly one list from its beginning until its last owner ends it, but for a
//!   moment while it moves to another ([`Shared::move_to`]), which it does once at most.
//! * It is told of its end ([`Listable::ended`]) when it has left its list, and before its memory
//!   is used again: what the end takes back (a count of what is on the list, say) is taken back
//!   late rather than early.
//! * It has left its list when its place was cleared under its slot's lock, or, on another CPU,
//!   when it is marked [`ENDED`], which walks pass over. Its memory is not used again before its
//!   place was cleared.
//! * A walk holds a slot's lock, and marks each value [`VISITED`] while it looks at it. Who ends a
//!   value on another CPU and finds that mark waits for the lock once: a walk that comes after that
//!   finds [`ENDED`]. Who ends one on the CPU where it began has the lock, and need not look.
//! * Where a value is (list, slot and place) changes only while it moves, under the locks of both
//!   slots in turn.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::bound::Bound;
use super::{Counted, Keep, Shared};
use crate::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use crate::lock::LockClass;
use crate::lock::slot_lock::SlotLock;
use crate::percpu::PerCpu;

/// Pieces of memory that each slot keeps for values to come.
const KEPT_MAX: u32 = 32;

/// Values that have ended on another CPU than they began on, of each slot, before their places are
/// cleared.
const ENDED_MAX: u32 = 32;

/// Anybody may look at the value.
const LIVE: u8 = 0;
/// A walk looks at it.
const VISITED: u8 = 1;
/// Its last owner is gone.
const ENDED: u8 = 2;

/// A value that can be on a [`SharedList`].
pub trait Listable: Send + Sync + 'static {
    /// Whether [`ended`](Self::ended) has anything to do. Asked of a value whose last owner is
    /// gone, perhaps under its list's lock.
    #[inline]
    fn has_duties(&self) -> bool {
        true
    }

    /// The last owner is gone. Called when the value is on no list any more, so that whoever sees
    /// what this does does not find the value there; with no lock held. It is still at its address,
    /// which is nobody else's; it is dropped somewhere else afterwards.
    fn ended(&self);
}

/// Values on the lists of a [`SharedList`] whose locks are of class `C`. One that is aligned to
/// cache lines has none in common with its count.
pub struct Listed<C>(PhantomData<fn() -> C>);

type Node<T, C> = Counted<T, Listed<C>>;

type Home<T, C> = SlotLock<Slot<T, C>, C>;

/// What is kept beside a value: see the module's page for who may use it.
pub struct Links<T: Listable, C: LockClass> {
    list: *const SharedList<T, C>,
    home: *const Home<T, C>,
    /// In the table of its slot.
    place: u32,
    state: AtomicU8,
    has_moved: AtomicBool,
    /// The next one of those that have ended.
    next: *mut Node<T, C>,
    /// Keeps the list that the value has moved to.
    keeper: Option<Arc<SharedList<T, C>>>,
}

impl<T: Listable, C: LockClass> Keep<T> for Listed<C> {
    type Beside = UnsafeCell<Links<T, C>>;

    #[inline]
    unsafe fn free(node: NonNull<Node<T, C>>) {
        let node = node.as_ptr();
        // SAFETY: the caller was the last owner, so the value and what is beside it are ours,
        // except that walks read the value until it has left the list; it is not changed before.
        // The list lives, for the value, or the keeper, keeps it until it is dropped at the end.
        unsafe {
            let links = (*node).beside.get();
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

/// Ends a value whose home is another slot than `here`, that of this CPU.
///
/// # Safety
/// The caller was the last owner.
unsafe fn free_elsewhere<T: Listable, C: LockClass>(node: *mut Node<T, C>, here: &Home<T, C>) {
    // SAFETY: as in `free`. Nobody looks at the value after it is marked, but for a walk that is at
    // it now, which holds its home's lock. Its memory is nobody's from when it is handed to this
    // slot.
    unsafe {
        let links = (*node).beside.get();
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

/// Clears the places of values that have ended, and gives their memory back to where it came from.
///
/// # Safety
/// They are linked by `next`, marked [`ENDED`], and their list lives. The caller has them alone.
unsafe fn clear_all<T: Listable, C: LockClass>(mut node: *mut Node<T, C>) {
    while !node.is_null() {
        // SAFETY: said by the caller; where they are does not change any more.
        unsafe {
            let links = (*node).beside.get();
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

/// Places of a table: a cache line of them. Of one that is empty the lowest bit is set, and the
/// others are the number of the next.
#[repr(align(64))]
struct Row<T: Listable, C: LockClass>([*mut Node<T, C>; ROW_LEN as usize]);

const ROW_LEN: u32 = 8;

/// No place.
const NONE: u32 = u32::MAX;

/// What is at an empty place.
fn empty<T: Listable, C: LockClass>(next: u32) -> *mut Node<T, C> {
    ptr::without_provenance_mut((next as usize) << 1 | 1)
}

/// A table with no more rows than this keeps them when nothing is in it.
const ROWS_KEPT_MAX: usize = 64;

/// The list of one slot, and its spare memory.
struct Slot<T: Listable, C: LockClass> {
    rows: Vec<Row<T, C>>,
    /// The first empty place, or [`NONE`].
    free: u32,
    /// Places that are not empty.
    used: u32,
    /// Units taken from the budget; as many as can be where there is none.
    paid: u32,
    /// Units beyond those in use from which on some go back.
    spare_max: u32,
    kept_len: u32,
    ended_len: u32,
    /// Memory of ended values, linked by `next`.
    kept: *mut Node<T, C>,
    /// Values of other slots that have ended here, linked by `next`.
    ended: *mut Node<T, C>,
    bound: Option<Arc<Bound>>,
}

// SAFETY: values may be used and dropped on any thread; the pointers are used under the slot's
// lock.
unsafe impl<T: Listable, C: LockClass> Send for Slot<T, C> {}

impl<T: Listable, C: LockClass> Slot<T, C> {
    /// An empty list, which takes units from `bound` if there is one.
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

    /// Has a unit for one more value; `false` if there is none.
    #[inline]
    fn has_unit(&mut self) -> bool {
        self.used < self.paid || self.pay()
    }

    /// Takes a batch of units, or one if there are no more.
    #[cold]
    fn pay(&mut self) -> bool {
        let Some(bound) = &self.bound else { return false };
        let paid = bound.take_batch();
        self.paid += paid;
        paid > 0
    }

    /// Gives back the units beyond those in use, but for `left`.
    #[cold]
    fn give_spare(&mut self, left: u32) {
        let Some(bound) = &self.bound else { return };
        let spare = (self.paid - self.used).saturating_sub(left);
        self.paid -= spare;
        bound.give(spare);
    }

    /// Takes spare memory; null if there is none.
    #[inline]
    fn take_kept(&mut self) -> *mut Node<T, C> {
        let node = self.kept;
        if !node.is_null() {
            // SAFETY: `keep` has linked it, and whoever takes it has it alone.
            self.kept = unsafe { (*(*node).beside.get()).next };
            self.kept_len -= 1;
        }
        node
    }

    /// Keeps the memory of an ended value, or returns it if there is enough already; else null.
    ///
    /// # Safety
    /// The value has been moved out, and nobody uses the memory.
    #[inline]
    unsafe fn keep(&mut self, node: *mut Node<T, C>) -> *mut Node<T, C> {
        if self.kept_len >= KEPT_MAX {
            return node;
        }
        // SAFETY: the memory is ours, says the caller, and its links were initialised.
        unsafe { (*(*node).beside.get()).next = self.kept };
        self.kept = node;
        self.kept_len += 1;
        ptr::null_mut()
    }

    /// Takes over a value that has ended here, and returns all of them if there are many; else
    /// null.
    ///
    /// # Safety
    /// The value has been moved out and is marked [`ENDED`]; nobody uses the memory, which stays at
    /// its place.
    unsafe fn add_ended(&mut self, node: *mut Node<T, C>) -> *mut Node<T, C> {
        // SAFETY: the memory is ours, says the caller, and its links were initialised.
        unsafe { (*(*node).beside.get()).next = self.ended };
        self.ended = node;
        self.ended_len += 1;
        if self.ended_len < ENDED_MAX {
            return ptr::null_mut();
        }
        self.ended_len = 0;
        std::mem::replace(&mut self.ended, ptr::null_mut())
    }

    #[inline]
    fn at(&mut self, place: u32) -> &mut *mut Node<T, C> {
        &mut self.rows[(place / ROW_LEN) as usize].0[(place % ROW_LEN) as usize]
    }

    /// Enters a value, and returns its place.
    #[inline]
    fn enter(&mut self, node: *mut Node<T, C>) -> u32 {
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

    /// Empties a place.
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

    /// Empties the place of a value that leaves with its unit.
    fn lose(&mut self, place: u32) {
        self.clear(place);
        if self.bound.is_some() {
            self.paid -= 1;
        }
    }

    /// What is in the table.
    fn nodes(&self) -> impl Iterator<Item = *mut Node<T, C>> {
        self.rows.iter().flat_map(|row| row.0).filter(|node| node.addr() & 1 == 0)
    }
}

impl<T: Listable, C: LockClass> Drop for Slot<T, C> {
    fn drop(&mut self) {
        debug_assert!(self.used == 0, "a list ends before the values on it");
        loop {
            let node = self.take_kept();
            if node.is_null() {
                return;
            }
            // SAFETY: nobody else has it.
            unsafe { free_memory(node) };
        }
    }
}

/// Frees the memory of a value that was moved out.
///
/// # Safety
/// The memory came from `allocate`, and nobody uses it.
#[cold]
unsafe fn free_memory<T: Listable, C: LockClass>(node: *mut Node<T, C>) {
    // SAFETY: said by the caller; a box of something uninitialised drops nothing.
    drop(unsafe { Box::from_raw(node.cast::<MaybeUninit<Node<T, C>>>()) });
}

#[cold]
fn allocate<T: Listable, C: LockClass>() -> *mut Node<T, C> {
    Box::into_raw(Box::<Node<T, C>>::new_uninit()).cast()
}

/// Lists of shared values, one for each CPU slot. See the [module](super).
///
/// `Send` and `Sync`.
pub struct SharedList<T: Listable, C: LockClass> {
    slots: PerCpu<Home<T, C>>,
}

impl<T: Listable, C: LockClass> Drop for SharedList<T, C> {
    fn drop(&mut self) {
        self.trim();
    }
}

impl<T: Listable, C: LockClass> SharedList<T, C> {
    /// Empty lists, in `slots` slots (at least one).
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { slots: PerCpu::new(slots, |_| SlotLock::new(Slot::new(None))) }
    }

    /// As [`new`](Self::new), with a unit of `bound` for each value. Any number of lists may have
    /// the same bound.
    #[must_use]
    pub fn bounded(slots: usize, bound: &Arc<Bound>) -> Self {
        let slot = |_| SlotLock::new(Slot::new(Some(Arc::clone(bound))));
        Self { slots: PerCpu::new(slots, slot) }
    }

    /// Gives back the units of the bound that no value has, and the memory of those that have
    /// ended. Takes the locks of the slots one after the other. The caller holds none of them.
    #[cold]
    pub fn trim(&self) {
        for home in self.slots.iter() {
            let mut slot = home.lock();
            slot.ended_len = 0;
            let ended = std::mem::replace(&mut slot.ended, ptr::null_mut());
            drop(slot);
            // SAFETY: the slot has handed them over, and the list is still there.
            unsafe { clear_all(ended) };
        }
        self.slots.iter().for_each(|home| home.lock().give_spare(0));
    }

    /// Owns `value`, and enters it into the list of this CPU; gives it back if the bound is
    /// reached. Takes that slot's lock; allocates if the slot has no memory left.
    ///
    /// # Errors
    /// The value.
    ///
    /// # Safety
    /// This list lives until the value has been dropped: the value keeps it, directly or not.
    #[inline]
    pub unsafe fn insert(&self, value: T) -> Result<Shared<T, Listed<C>>, T> {
        let home = self.slots.this();
        let mut slot = home.lock();
        if !slot.has_unit() {
            return Err(value);
        }
        let mut node = slot.take_kept();
        if node.is_null() {
            // The unit is the value's from here on, whoever comes meanwhile.
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
        // SAFETY: the memory is ours; until the slot is unlocked, nobody finds it. The handle gets
        // an initialised node with a count of one.
        unsafe {
            // Part by part, or all of it would be made elsewhere, and copied.
            (&raw mut (*node).count).write(AtomicUsize::new(1));
            (&raw mut (*node).beside).write(UnsafeCell::new(links));
            (&raw mut (*node).value).write(value);
            drop(slot);
            Ok(Shared::from_counted(NonNull::new_unchecked(node)))
        }
    }

    /// Calls `visit` for every value on the lists, until it breaks. Takes the locks of the slots
    /// one after the other and holds each during the calls, which therefore should be short and
    /// take no lock of the same or a lower rank. A value that is there throughout is visited once;
    /// one that begins or ends meanwhile is visited or not.
    pub fn each(&self, mut visit: impl FnMut(&T) -> ControlFlow<()>) {
        for home in self.slots.iter() {
            let slot = home.lock();
            for node in slot.nodes() {
                // SAFETY: the memory stays as long as its place is not cleared, for which the lock
                // is needed, and the value as long as it is marked as visited.
                let flow = unsafe {
                    let state = &(*(*node).beside.get()).state;
                    let (won, lost) = (Ordering::Acquire, Ordering::Relaxed);
                    if state.compare_exchange(LIVE, VISITED, won, lost).is_err() {
                        continue;
                    }
                    let flow = visit(&(*node).value);
                    // If it has ended meanwhile, it stays so.
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

    /// The number of values. Exact if none begins, ends or moves meanwhile. Blocks as
    /// [`each`](Self::each) does.
    #[must_use]
    pub fn len(&self) -> usize {
        let mut len = 0;
        self.each(|_| {
            len += 1;
            ControlFlow::Continue(())
        });
        len
    }

    /// Whether there are no values. As [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Listable, C: LockClass> Shared<T, Listed<C>> {
    /// Moves the value to another list, which it keeps from now on. `false`, and nothing done, if
    /// it has moved before. Takes the lock of the slot it is on, and then that of a slot of `list`;
    /// between the two it is on neither. The caller gives a unit back when the value has ended
    /// ([`Bound::give`]), if the list it leaves has a bound; `list` has none.
    pub fn move_to(&self, list: &Arc<SharedList<T, C>>) -> bool {
        let node = self.counted.as_ptr();
        // SAFETY: our handle keeps the node. The first to come here is the only one to change the
        // home, and no last owner can, as long as we have a handle; the tables are changed under
        // the locks.
        unsafe {
            let links = (*node).beside.get();
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
