//! One-word slots of a radix tree: empty, reserved, a leaf or a node, owned and freed through RCU.
//! Counterpart of an XArray entry in Linux.
//!
//! # Purpose
//!
//! A radix tree (Linux's page cache, `lib/radix-tree.c` and its successor, the XArray) is read
//! without a lock and changed a slot at a time. A [`Slot`] is that one word: the low bits of its
//! pointer are a tag of its contents, so a tree can have leaves at any height (a file of one page
//! is a root slot that holds the page) and needs no table of types.
//!
//! # Invariants
//!
//! * A slot owns the target of its pointer: exactly one slot, or one [`Retired`], has any given
//!   box. Dropping a slot drops its contents immediately, with everything below.
//! * Contents that were read under a [`Guard`] stay allocated while the guard lives: contents leave
//!   a slot only as [`Retired`], which is freed after a grace period.
//! * Readers write nothing. Writers need not be serialised for memory safety (every change is one
//!   atomic exchange); a caller that needs a consistent tree serialises them.
//!
//! # Ordering
//!
//! Contents are published by a release and read with an acquire, so a reader sees a leaf or node as
//! it was when it was stored, or later.

use std::fmt;
use std::marker::PhantomData;
use std::mem::{align_of, forget};
use std::ptr;

use crate::atomic::{AtomicPtr, Ordering, const_unless_model};
use crate::rcu::Guard;

const TAG_MASK: usize = 3;
const TAG_LEAF: usize = 0;
const TAG_NODE: usize = 1;

/// The whole word of a reserved slot. It has a tag of its own, so it differs from every tagged
/// pointer.
const RESERVED: usize = 2;

/// A word that holds nothing, a reservation, a leaf `L` (a box, or another owning pointer) or a
/// `Box<N>`.
///
/// `Send` and `Sync` if `L`, its target, and `N` are both.
pub struct Slot<L: Pointer, N> {
    word: AtomicPtr<()>,
    owns: PhantomData<(L, Box<N>)>,
}

// SAFETY: a slot is an `L` or a box of an `N`, and both may be sent.
unsafe impl<L: Leaf, N: Send + Sync> Send for Slot<L, N> {}
// SAFETY: shared access gives out references to the target of `L` and to `N`, and takes contents
// out to be dropped on another thread: all of them need `Send + Sync`.
unsafe impl<L: Leaf, N: Send + Sync> Sync for Slot<L, N> {}

/// An owning pointer that a [`Slot`] can hold.
///
/// # Safety
///
/// The pointer that `into_raw` returns is not null, and points at a valid `Target` until it is
/// given to `from_raw`, even though no owner exists in between.
pub unsafe trait Pointer {
    /// The target of the pointer.
    type Target;

    /// Gives up the ownership.
    fn into_raw(self) -> *mut Self::Target;

    /// Takes the ownership back.
    ///
    /// # Safety
    ///
    /// The pointer came from [`into_raw`](Self::into_raw), and this is called once for it.
    unsafe fn from_raw(raw: *mut Self::Target) -> Self;
}

// SAFETY: a box owns its contents, also while only its raw pointer exists.
unsafe impl<T> Pointer for Box<T> {
    type Target = T;

    fn into_raw(self) -> *mut T {
        Box::into_raw(self)
    }

    unsafe fn from_raw(raw: *mut T) -> Self {
        // SAFETY: promised by the caller.
        unsafe { Box::from_raw(raw) }
    }
}

/// A [`Pointer`] that several threads may use and free: implemented for all that qualify.
pub trait Leaf: Pointer<Target: Send + Sync> + Send + Sync + 'static {}

impl<L: Pointer<Target: Send + Sync> + Send + Sync + 'static> Leaf for L {}

/// The contents of a [`Slot`], as a reader sees them.
pub enum Entry<'g, L: Pointer, N> {
    /// Nothing.
    Empty,
    /// A mark that stands for a leaf yet to be made.
    Reserved,
    /// A leaf.
    Leaf(&'g L::Target),
    /// A node, which holds lower slots of the tree.
    Node(&'g N),
}

impl<L: Pointer, N> Clone for Entry<'_, L, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Pointer, N> Copy for Entry<'_, L, N> {}

impl<L: Pointer, N> fmt::Debug for Entry<'_, L, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Entry::Empty => "Empty",
            Entry::Reserved => "Reserved",
            Entry::Leaf(_) => "Leaf",
            Entry::Node(_) => "Node",
        })
    }
}

/// The contents of a [`Slot`], as a writer stores them.
pub enum Contents<L: Pointer, N> {
    /// Nothing.
    Empty,
    /// A mark that stands for a leaf yet to be made.
    Reserved,
    /// A leaf.
    Leaf(L),
    /// A node.
    Node(Box<N>),
}

impl<L: Pointer, N> Contents<L, N> {
    fn into_word(self) -> *mut () {
        // Tags need two free bits in every pointer.
        const { assert!(align_of::<L::Target>() > TAG_MASK && align_of::<N>() > TAG_MASK) };
        match self {
            Contents::Empty => ptr::null_mut(),
            Contents::Reserved => ptr::without_provenance_mut(RESERVED),
            Contents::Leaf(leaf) => leaf.into_raw().cast(),
            Contents::Node(node) => node_word(Box::into_raw(node)),
        }
    }

    /// Converts the result of [`into_word`](Self::into_word) back.
    ///
    /// # Safety
    ///
    /// The word came from [`into_word`](Self::into_word), and no other code uses it or has
    /// converted it.
    unsafe fn from_word(word: *mut ()) -> Self {
        if word.is_null() {
            return Contents::Empty;
        }
        match word.addr() & TAG_MASK {
            // SAFETY: the tag says that the word is a leaf's pointer; it is ours alone.
            TAG_LEAF => Contents::Leaf(unsafe { L::from_raw(word.cast()) }),
            // SAFETY: the tag says that it is a box of a node.
            TAG_NODE => Contents::Node(unsafe { Box::from_raw(untagged(word).cast()) }),
            _ => Contents::Reserved,
        }
    }
}

fn node_word<N>(node: *mut N) -> *mut () {
    node.cast::<()>().map_addr(|addr| addr | TAG_NODE)
}

#[inline]
fn untagged(word: *mut ()) -> *mut () {
    word.map_addr(|addr| addr & !TAG_MASK)
}

/// Reads a word without taking ownership.
///
/// # Safety
///
/// The word came from [`Contents::into_word`], and its target lives for `'g`, unchanged except for
/// interior mutation.
#[inline]
unsafe fn entry_of<'g, L: Pointer, N>(word: *mut ()) -> Entry<'g, L, N> {
    if word.is_null() {
        return Entry::Empty;
    }
    match word.addr() & TAG_MASK {
        // SAFETY: the tag says that it points at a leaf, and the caller that it lives.
        TAG_LEAF => Entry::Leaf(unsafe { &*word.cast::<L::Target>() }),
        // SAFETY: the tag says that it points at a node, and the caller that it lives.
        TAG_NODE => Entry::Node(unsafe { &*untagged(word).cast::<N>() }),
        _ => Entry::Reserved,
    }
}

impl<L: Leaf, N: Send + Sync + 'static> Slot<L, N> {
    const_unless_model! {
        /// Creates an empty slot.
        pub fn empty() -> Self {
            Self { word: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
        }
    }

    /// Returns the current contents, which live as long as the guard. Never blocks, writes nothing.
    #[inline]
    pub fn read<'g>(&'g self, _guard: &'g Guard) -> Entry<'g, L, N> {
        // SAFETY: the word was stored by `replace` or `nest`, whose release we acquire. Its target
        // is freed only by a `Retired`, after this guard, or by dropping `self`, which is borrowed.
        unsafe { entry_of(self.word.load(Ordering::Acquire)) }
    }

    /// Returns whether the slot is empty at this moment. Never blocks, writes nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.word.load(Ordering::Relaxed).is_null()
    }

    /// Stores `contents` and returns the former contents. Never blocks.
    pub fn replace<'g>(&self, contents: Contents<L, N>, guard: &'g Guard) -> Retired<'g, L, N> {
        let word = self.word.swap(contents.into_word(), Ordering::AcqRel);
        Retired { word, guard, owns: PhantomData }
    }

    /// Moves the contents of this slot into a slot of `node`, and stores `node` instead: the tree
    /// grows by a level, and no reader misses the contents. Never blocks.
    ///
    /// `place` chooses the slot of `node`. The guard prevents that the contents' address is reused
    /// between the read and the exchange.
    ///
    /// # Panics
    ///
    /// If the slot that `place` chooses is not empty.
    pub fn nest(
        &self,
        node: Box<N>,
        place: impl FnOnce(&mut N) -> &mut Slot<L, N>,
        _guard: &Guard,
    ) {
        let node = Box::into_raw(node);
        // SAFETY: the box was ours alone and still is. If `place` panics it is leaked.
        let inner = place(unsafe { &mut *node });
        if !inner.is_empty() {
            // SAFETY: the box is still ours alone, and the borrow has ended.
            drop(unsafe { Box::from_raw(node) });
            panic!("a slot to nest in is already taken");
        }
        // From here on the inner slot is reached only through this pointer: no reference to it may
        // invalidate `node`.
        let inner: *mut Slot<L, N> = inner;
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            // SAFETY: `node` is not published yet, so `inner` lives and is ours. Until the exchange
            // two slots hold one word; only ours can be reached.
            unsafe { (*inner).word.store(word, Ordering::Relaxed) };
            // Our release publishes the node. The release that published the contents still reaches
            // the readers, because an exchange continues the release sequence of its slot. If it
            // succeeds, the inner slot has become the only owner.
            match self.word.compare_exchange_weak(
                word,
                node_word(node),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}

impl<L: Leaf, N: Send + Sync + 'static> Default for Slot<L, N> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<L: Pointer, N> Drop for Slot<L, N> {
    fn drop(&mut self) {
        let word = self.word.load(Ordering::Relaxed);
        // SAFETY: no other thread has a reference to `self`, which owns the target of the word.
        drop(unsafe { Contents::<L, N>::from_word(word) });
    }
}

impl<L: Pointer, N> fmt::Debug for Slot<L, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("word", &self.word.load(Ordering::Relaxed)).finish()
    }
}

/// Contents that were removed from a [`Slot`]: readers may still use them. They are freed after a
/// grace period, which begins when this is dropped. Not `Send`.
pub struct Retired<'g, L: Leaf, N: Send + Sync + 'static> {
    word: *mut (),
    guard: &'g Guard,
    owns: PhantomData<(L, Box<N>)>,
}

/// A word in deferred work, to be freed.
struct Doomed<L, N>(*mut (), PhantomData<(L, Box<N>)>);

// SAFETY: it stands for an `L` or a box of an `N`.
unsafe impl<L: Send, N: Send> Send for Doomed<L, N> {}

impl<L: Pointer, N> Doomed<L, N> {
    /// Frees the contents.
    ///
    /// # Safety
    ///
    /// A grace period has passed since the contents left their slot.
    unsafe fn free(self) {
        // SAFETY: no reader can still have the contents from the slot, and `Retired` was their only
        // owner.
        drop(unsafe { Contents::<L, N>::from_word(self.0) });
    }
}

impl<L: Leaf, N: Send + Sync + 'static> Retired<'_, L, N> {
    /// Returns the contents.
    pub fn entry(&self) -> Entry<'_, L, N> {
        // SAFETY: the contents are freed only after the guard.
        unsafe { entry_of(self.word) }
    }

    /// Frees the contents after a grace period, and then runs `after`, on some thread, inside its
    /// guard. If there is nothing to free, `after` waits for the grace period anyway.
    ///
    /// `after` must not panic and must not wait for a grace period.
    pub fn then(self, after: impl FnOnce() + Send + 'static) {
        let doomed = Doomed::<L, N>(self.word, PhantomData);
        let guard = self.guard;
        forget(self);
        guard.defer(move || {
            // SAFETY: deferred work runs after a grace period.
            unsafe { doomed.free() };
            after();
        });
    }
}

impl<L: Leaf, N: Send + Sync + 'static> Drop for Retired<'_, L, N> {
    fn drop(&mut self) {
        if matches!(self.entry(), Entry::Leaf(_) | Entry::Node(_)) {
            let doomed = Doomed::<L, N>(self.word, PhantomData);
            // SAFETY: deferred work runs after a grace period.
            self.guard.defer(move || unsafe { doomed.free() });
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
