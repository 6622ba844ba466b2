//! Lists of shared values, one for each CPU slot.
//!
//! # Purpose
//!
//! Every open file is on a list of its superblock, which is walked when somebody wants to know what
//! is open (a remount to read-only), and which every open and close changes. Seed 004 ("files lock")
//! makes it a list for each CPU with a lock for each CPU: the common call takes its own, the rare
//! walk takes all. One slot is the kernel before that.
//!
//! The lists also keep the memory of values that have ended, up to [`KEPT_MAX`] for each slot, so that
//! beginning one takes memory and enters the list under one lock, as does ending one.
//!
//! # Invariants
//!
//! * A value is on exactly one list from its beginning until its last owner ends it, but for a moment
//!   while it moves to another ([`Shared::move_to`]), which it does once at most.
//! * It is told of its end ([`Listable::ended`]) when it has left its list, and before its memory is used
//!   again: what the end takes back (a count of what is on the list, say) is taken back late rather than
//!   early.
//! * It is on the list of the slot on which it began, whatever CPU its last owner is on: the value
//!   remembers the slot, and ending it there takes that slot's lock.
//! * A value's neighbours and slot are read and written under the lock of the slot it is on. The slot
//!   itself changes only while it moves.
//! * A walk holds a slot's lock and so sees only values that have not ended: their memory is not
//!   reused before they have left the list.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::{Counted, Keep, Shared};
use crate::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::lock::LockClass;
use crate::lock::slot_lock::SlotLock;
use crate::percpu::PerCpu;

/// Pieces of memory that each slot keeps for values to come.
const KEPT_MAX: u32 = 32;

/// A value that can be on a [`SharedList`].
pub trait Listable: Send + Sync + 'static {
    /// Whether [`ended`](Self::ended) has anything to do. Asked of a value whose last owner is gone, under
    /// its list's lock.
    #[inline]
    fn has_duties(&self) -> bool {
        true
    }

    /// The last owner is gone. Called when the value is on no list any more, so that whoever sees what this
    /// does does not find the value there; with no lock held. It is still at its address, which is
    /// nobody else's; it is dropped somewhere else afterwards.
    fn ended(&self);
}

/// Values on the lists of a [`SharedList`] whose locks are of class `C`.
pub struct Listed<C>(PhantomData<fn() -> C>);

type Node<T, C> = Counted<T, Listed<C>>;

type Home<T, C> = SlotLock<Slot<T, C>, C>;

/// What is kept beside a value: see the module's page for who may use it.
pub struct Links<T: Listable, C: LockClass> {
    next: *mut Node<T, C>,
    prev: *mut Node<T, C>,
    home: *const Home<T, C>,
    /// Keeps the list that the value has moved to.
    keeper: Option<Arc<SharedList<T, C>>>,
    has_moved: AtomicBool,
}

impl<T: Listable, C: LockClass> Keep<T> for Listed<C> {
    type Beside = UnsafeCell<Links<T, C>>;

    #[inline]
    unsafe fn free(node: NonNull<Node<T, C>>) {
        let node = node.as_ptr();
        // SAFETY: the caller was the last owner, so the value and what is beside it are ours, except that
        // walks read the value until it has left the list; it is not changed before. The list lives,
        // for the value, or the keeper, keeps it until it is dropped at the end.
        unsafe {
            let links = (*node).beside.get();
            let home = &*(*links).home;
            let mut slot = home.lock();
            slot.unlink(node);
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

/// The list of one slot, and its spare memory.
struct Slot<T: Listable, C: LockClass> {
    first: *mut Node<T, C>,
    /// Memory of ended values, linked by `next`.
    kept: *mut Node<T, C>,
    kept_len: u32,
}

// SAFETY: values may be used and dropped on any thread; the pointers are used under the slot's lock.
unsafe impl<T: Listable, C: LockClass> Send for Slot<T, C> {}

impl<T: Listable, C: LockClass> Slot<T, C> {
    fn new() -> Self {
        Self { first: ptr::null_mut(), kept: ptr::null_mut(), kept_len: 0 }
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

    /// # Safety
    /// The node is on no list, and lives until it is unlinked.
    #[inline]
    unsafe fn link(&mut self, node: *mut Node<T, C>) {
        // SAFETY: nodes on the list live, and this slot's lock is held, which guards their links.
        unsafe {
            let links = (*node).beside.get();
            (*links).next = self.first;
            (*links).prev = ptr::null_mut();
            if !self.first.is_null() {
                (*(*self.first).beside.get()).prev = node;
            }
        }
        self.first = node;
    }

    /// # Safety
    /// The node is on this list.
    #[inline]
    unsafe fn unlink(&mut self, node: *mut Node<T, C>) {
        // SAFETY: as in `link`.
        unsafe {
            let links = (*node).beside.get();
            let (next, prev) = ((*links).next, (*links).prev);
            if prev.is_null() {
                self.first = next;
            } else {
                (*(*prev).beside.get()).next = next;
            }
            if !next.is_null() {
                (*(*next).beside.get()).prev = prev;
            }
        }
    }
}

impl<T: Listable, C: LockClass> Drop for Slot<T, C> {
    fn drop(&mut self) {
        debug_assert!(self.first.is_null(), "a list ends before the values on it");
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

impl<T: Listable, C: LockClass> SharedList<T, C> {
    /// Empty lists, in `slots` slots (at least one).
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { slots: PerCpu::new(slots, |_| SlotLock::new(Slot::new())) }
    }

    /// Owns `value`, and enters it into the list of this CPU. Takes that slot's lock; allocates if the
    /// slot has no memory left.
    ///
    /// # Safety
    /// This list lives until the value has been dropped: the value keeps it, directly or not.
    #[inline]
    pub unsafe fn insert(&self, value: T) -> Shared<T, Listed<C>> {
        let home = self.slots.this();
        let mut slot = home.lock();
        let mut node = slot.take_kept();
        if node.is_null() {
            drop(slot);
            node = allocate();
            slot = home.lock();
        }
        let links = Links {
            next: ptr::null_mut(),
            prev: ptr::null_mut(),
            home: ptr::from_ref(home),
            keeper: None,
            has_moved: AtomicBool::new(false),
        };
        // SAFETY: the memory is ours; `link` and the handle get an initialised node with a count of one.
        unsafe {
            let count = AtomicUsize::new(1);
            node.write(Counted { count, beside: UnsafeCell::new(links), value });
            slot.link(node);
            drop(slot);
            Shared::from_counted(NonNull::new_unchecked(node))
        }
    }

    /// Calls `visit` for every value on the lists, until it breaks. Takes the locks of the slots one after
    /// the other and holds each during the calls, which therefore should be short and take no lock of
    /// the same or a lower rank. A value that is there throughout is visited once; one that begins or ends
    /// meanwhile is visited or not.
    pub fn each(&self, mut visit: impl FnMut(&T) -> ControlFlow<()>) {
        for home in self.slots.iter() {
            let slot = home.lock();
            let mut node = slot.first;
            while !node.is_null() {
                // SAFETY: nodes on the list live as long as its lock is held, and values don't change.
                let (value, next) = unsafe { (&(*node).value, (*(*node).beside.get()).next) };
                if visit(value).is_break() {
                    return;
                }
                node = next;
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
    /// Moves the value to another list, which it keeps from now on. `false`, and nothing done, if it has
    /// moved before. Takes the lock of the slot it is on, and then that of a slot of `list`; between the
    /// two it is on neither.
    pub fn move_to(&self, list: &Arc<SharedList<T, C>>) -> bool {
        let node = self.counted.as_ptr();
        // SAFETY: our handle keeps the node. The first to come here is the only one to change the home, and
        // no last owner can, as long as we have a handle; the neighbours are changed under the locks.
        unsafe {
            let links = (*node).beside.get();
            if (*links).has_moved.swap(true, Ordering::AcqRel) {
                return false;
            }
            (*(*links).home).lock().unlink(node);
            let home = list.slots.this();
            let mut slot = home.lock();
            (*links).home = ptr::from_ref(home);
            (*links).keeper = Some(Arc::clone(list));
            slot.link(node);
        }
        true
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[path = "list_tests.rs"]
mod tests;
