//! One-word slots of a radix tree: empty, reserved, a leaf or a node, owned and freed through RCU.
//!
//! # Purpose
//!
//! A radix tree (the kernel's page cache, `lib/radix-tree.c` and its successor, the XArray) is read
//! without a lock and changed a slot at a time. A [`Slot`] is that one word: it says what it holds
//! in the low bits of its pointer, so that a tree can have leaves at any height (a file of one page
//! is a root slot that holds the page) and needs no table of types.
//!
//! # Invariants
//!
//! * A slot owns what its pointer points at: exactly one slot, or one [`Retired`], has any given
//!   box. Dropping a slot drops its contents at once, with everything below.
//! * What a [`Guard`] saw in a slot stays allocated while the guard lives: contents leave a slot
//!   only as [`Retired`], which is freed after a grace period.
//! * Readers write nothing. Writers need not be serialised for memory safety (every change is one
//!   atomic exchange); who wants a sensible tree serialises them.
//!
//! # Ordering
//!
//! Contents are published by a release and read with an acquire, so that a reader sees a leaf or
//! node as it was when it was put in, or later.

use std::fmt;
use std::marker::PhantomData;
use std::mem::{align_of, forget};
use std::ptr;

use crate::atomic::{AtomicPtr, Ordering, const_unless_loom};
use crate::rcu::Guard;

const TAG_MASK: usize = 3;
const TAG_LEAF: usize = 0;
const TAG_NODE: usize = 1;

/// The whole word of a reserved slot. It has a tag of its own, so it is no tagged pointer.
const RESERVED: usize = 2;

/// A word that holds nothing, a reservation, a leaf `L` (a box, or another owning pointer) or a
/// `Box<N>`.
///
/// `Send` and `Sync` if `L`, what it points at, and `N` are both.
pub struct Slot<L: Pointer, N> {
    word: AtomicPtr<()>,
    owns: PhantomData<(L, Box<N>)>,
}

// SAFETY: a slot is an `L` or a box of an `N`, and both may be sent.
unsafe impl<L: Leaf, N: Send + Sync> Send for Slot<L, N> {}
// SAFETY: shared access gives out references to what `L` points at and to `N`, and takes contents
// out to be dropped on another thread: all of them need `Send + Sync`.
unsafe impl<L: Leaf, N: Send + Sync> Sync for Slot<L, N> {}

/// An owning pointer that a [`Slot`] can hold.
///
/// # Safety
///
/// What `into_raw` returns is not null, and points at a valid `Target` until it is given to
/// `from_raw`, even though nobody has the pointer meanwhile.
pub unsafe trait Pointer {
    /// What it points at.
    type Target;

    /// Gives the ownership up.
    fn into_raw(self) -> *mut Self::Target;

    /// Takes the ownership back.
    ///
    /// # Safety
    ///
    /// The pointer came from [`into_raw`](Self::into_raw), and this is done once.
    unsafe fn from_raw(raw: *mut Self::Target) -> Self;
}

// SAFETY: a box owns its contents, wherever its pointer is.
unsafe impl<T> Pointer for Box<T> {
    type Target = T;

    fn into_raw(self) -> *mut T {
        Box::into_raw(self)
    }

    unsafe fn from_raw(raw: *mut T) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Box::from_raw(raw) }
    }
}

/// A [`Pointer`] that several threads may use and free: implemented for all that qualify.
pub trait Leaf: Pointer<Target: Send + Sync> + Send + Sync + 'static {}

impl<L: Pointer<Target: Send + Sync> + Send + Sync + 'static> Leaf for L {}

/// What a reader finds in a [`Slot`].
pub enum Entry<'g, L: Pointer, N> {
    /// Nothing.
    Empty,
    /// A mark that stands for a leaf yet to be made.
    Reserved,
    /// A leaf.
    Leaf(&'g L::Target),
    /// A node: whatever the tree puts its lower slots in.
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

/// What a writer puts into a [`Slot`].
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

    /// Takes back what [`into_word`](Self::into_word) made.
    ///
    /// # Safety
    ///
    /// The word came from there, and nobody else uses it or has done this.
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

/// Looks at a word without taking anything over.
///
/// # Safety
///
/// The word came from [`Contents::into_word`], and what it points at lives for `'g`, unchanged but
/// for interior mutation.
#[inline]
unsafe fn entry_of<'g, L: Pointer, N>(word: *mut ()) -> Entry<'g, L, N> {
    if word.is_null() {
        return Entry::Empty;
    }
    match word.addr() & TAG_MASK {
        // SAFETY: the tag says that it points at a leaf, and the caller that it lives.
        TAG_LEAF => Entry::Leaf(unsafe { &*word.cast::<L::Target>() }),
        // SAFETY: as above, at a node.
        TAG_NODE => Entry::Node(unsafe { &*untagged(word).cast::<N>() }),
        _ => Entry::Reserved,
    }
}

impl<L: Leaf, N: Send + Sync + 'static> Slot<L, N> {
    const_unless_loom! {
        /// An empty slot.
        #[must_use]
        pub fn empty() -> Self {
            Self { word: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
        }
    }

    /// What is in it now; it stays as long as the guard. Never blocks, writes nothing.
    #[inline]
    pub fn read<'g>(&'g self, _guard: &'g Guard) -> Entry<'g, L, N> {
        // SAFETY: the word was put here by `replace` or `nest`, whose release we acquire. What it
        // points at is freed only by a `Retired`, after this guard, or by dropping `self`, which
        // is borrowed.
        unsafe { entry_of(self.word.load(Ordering::Acquire)) }
    }

    /// Whether there is nothing in it just now. Never blocks, writes nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.word.load(Ordering::Relaxed).is_null()
    }

    /// Puts `contents` in and hands out what was there. Never blocks.
    pub fn replace<'g>(&self, contents: Contents<L, N>, guard: &'g Guard) -> Retired<'g, L, N> {
        let word = self.word.swap(contents.into_word(), Ordering::AcqRel);
        Retired { word, guard, owns: PhantomData }
    }

    /// Moves what is in this slot into a slot of `node`, and puts `node` in its place: the tree
    /// grows by a level, and no reader ever misses what was there. Never blocks.
    ///
    /// `place` chooses the slot of `node`. The guard keeps the contents' address from being used
    /// again between the look at it and the exchange.
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
            // SAFETY: as above; the borrow has ended.
            drop(unsafe { Box::from_raw(node) });
            panic!("a slot to nest in is already taken");
        }
        // From here on the inner slot is reached only through this pointer, so that `node` stays
        // whole in the eyes of the compiler.
        let inner: *mut Slot<L, N> = inner;
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            // SAFETY: `node` is not published yet, so `inner` lives and is ours. For the moment
            // two slots hold the same word; only ours can be reached.
            unsafe { (*inner).word.store(word, Ordering::Relaxed) };
            // Our release publishes the node. The one that published the contents still reaches
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
        // SAFETY: nobody else has a reference to `self`, which owns what the word points at.
        drop(unsafe { Contents::<L, N>::from_word(word) });
    }
}

impl<L: Pointer, N> fmt::Debug for Slot<L, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("word", &self.word.load(Ordering::Relaxed)).finish()
    }
}

/// What was taken out of a [`Slot`]: readers may still look at it. It is freed after a grace
/// period, which begins when this is dropped. Not `Send`.
pub struct Retired<'g, L: Leaf, N: Send + Sync + 'static> {
    word: *mut (),
    guard: &'g Guard,
    owns: PhantomData<(L, Box<N>)>,
}

/// A word on its way to the thread that frees it.
struct Doomed<L, N>(*mut (), PhantomData<(L, Box<N>)>);

// SAFETY: it stands for an `L` or a box of an `N`.
unsafe impl<L: Send, N: Send> Send for Doomed<L, N> {}

impl<L: Pointer, N> Doomed<L, N> {
    /// Frees it.
    ///
    /// # Safety
    ///
    /// A grace period has passed since it left its slot.
    unsafe fn free(self) {
        // SAFETY: nobody can have seen it in the slot, and `Retired` was its only owner.
        drop(unsafe { Contents::<L, N>::from_word(self.0) });
    }
}

impl<L: Leaf, N: Send + Sync + 'static> Retired<'_, L, N> {
    /// What it is.
    pub fn entry(&self) -> Entry<'_, L, N> {
        // SAFETY: it is freed only after the guard.
        unsafe { entry_of(self.word) }
    }

    /// Runs `after` when it has been freed: after a grace period, on some thread, inside its
    /// guard. With nothing to free, `after` waits for the grace period all the same.
    ///
    /// `after` must not panic and not wait for a grace period.
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
