//! Buckets, their overflow nodes, and the tagged words that lead to them.

use super::{FREE_BITS, HASH_BITS, HASH_MAX, Hint};
use crate::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use crate::lock::{LockClass, Mutex};
use crate::percpu::spread::{self, Room};
use crate::rcu::Guard;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::hint;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("slots of tables hold a tag above 48 bits of address");

/// Slots in the line of a bucket. Model checking wants few, so that two insertions overflow.
const LINE_SLOTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 6 };
/// Slots in a node.
const NODE_SLOTS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 7 };

/// Buckets and nodes start at multiples of this, which leaves six bits of their addresses.
const LINE_ALIGN: usize = 64;
const LOW_BITS: usize = LINE_ALIGN - 1;

/// More buckets than this (a power of two) are never made: 64 GiB, for five billion entries.
pub(super) const BITS_MAX: u32 = 30;

/// Of those six bits, the ones that hold the number of buckets.
const SIZE_BITS: usize = 31;
const _: () = assert!((BITS_MAX as usize) < SIZE_BITS);
/// The sixth: room was taken for the array.
const SPREAD: usize = 32;

const ADDRESS_BITS: u32 = 48;
const ADDRESS: usize = (1 << ADDRESS_BITS) - 1;

/// The tag of a hash: bits that the choice of the bucket rarely depends on. Never 0, which is that
/// of an empty slot.
#[inline]
fn tag_of(hash: u64) -> usize {
    ((hash >> FREE_BITS) & 0xffff) as usize | 1
}

/// A place for an entry: null, or its address with a tag above.
struct Slot<T>(AtomicPtr<T>);

impl<T> Slot<T> {
    fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The entry, if there is one and its tag is `tag`.
    #[inline]
    fn tagged(&self, tag: usize) -> Option<NonNull<T>> {
        let value = self.0.load(Ordering::Acquire);
        if value.addr() >> ADDRESS_BITS == tag { Self::entry_of(value) } else { None }
    }

    #[inline]
    fn entry(&self) -> Option<NonNull<T>> {
        Self::entry_of(self.0.load(Ordering::Acquire))
    }

    #[inline]
    fn entry_of(value: *mut T) -> Option<NonNull<T>> {
        NonNull::new(value.map_addr(|addr| addr & ADDRESS))
    }

    /// Release: whoever finds the entry sees it as it was when it was inserted.
    fn set(&self, entry: NonNull<T>, hash: u64) {
        let value = entry.as_ptr().map_addr(|addr| addr | (tag_of(hash) << ADDRESS_BITS));
        self.0.store(value, Ordering::Release);
    }

    /// Release: whoever sees the slot empty sees what was inserted before elsewhere, and its
    /// version.
    fn clear(&self) {
        self.0.store(ptr::null_mut(), Ordering::Release);
    }
}

/// A further line of slots, for a bucket that has too few.
#[repr(C, align(64))]
pub(super) struct Node<T> {
    slots: [Slot<T>; NODE_SLOTS],
    next: AtomicPtr<Node<T>>,
}

/// What the chain of a bucket says.
pub(super) enum Link<T, C: LockClass> {
    /// The bucket is in use; here is its first node, or null.
    Chain(*mut Node<T>),
    /// The entries have been moved to these buckets.
    Moved(Word<T, C>),
}

/// The outcome of a lookup in one bucket.
pub(super) enum Seek<T, C: LockClass> {
    Found(NonNull<T>),
    Absent,
    /// An insertion got in between: look again.
    Changed,
    Moved(Word<T, C>),
}

/// One insertion, in the version of a bucket: above [`ANNOUNCED`].
const INSERTION: u32 = 1 << 9;
/// A change of several steps is announced, in the version of a bucket: above the heat.
const ANNOUNCED: u32 = 1 << 8;
/// Where the heat begins, and the bits above it.
const HEAT_SHIFT: u32 = 5;
const HEAT_MAX: u32 = 7;
/// The bits of a CPU's number.
const CPU_BITS: u32 = 5;
const CPU_MASK: u32 = (1 << CPU_BITS) - 1;
/// One insertion in so many is looked at.
const SAMPLED: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 8 };
/// What an insertion by another CPU than the last one adds; one by the same takes 1.
const HEAT_GAIN: u32 = 3;
/// From here on a bucket is hot.
const HEAT_REPORTED: u32 = 6;

/// A bucket.
#[repr(C, align(64))]
pub(super) struct Line<T, C: LockClass> {
    pub(super) lock: Mutex<(), C>,
    /// Changes with every insertion, and is written by nothing else:
    ///
    /// | bits | what |
    /// | --- | --- |
    /// | 0..5 | the CPU of the last insertion that was looked at; of more than 32 CPUs some are taken for one |
    /// | 5..8 | heat: whether insertions come from several CPUs in turn |
    /// | 8 | a change of several steps is announced |
    /// | 9..32 | counts insertions; it would have to wrap within one lookup to do harm: eight million |
    version: AtomicU32,
    slots: [Slot<T>; LINE_SLOTS],
    /// A [`Link`]: a node has zeros in its low six bits, a word has not.
    chain: AtomicPtr<Node<T>>,
    #[cfg(any(loom, shuttle))]
    serial: usize,
}

/// A number for each bucket that a model makes.
#[cfg(any(loom, shuttle))]
fn next_serial() -> usize {
    use std::sync::atomic::AtomicUsize;
    static SERIAL: AtomicUsize = AtomicUsize::new(0);
    SERIAL.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

struct AssertLayout<T, C: LockClass>(PhantomData<(T, C)>);

impl<T, C: LockClass> AssertLayout<T, C> {
    /// One line for each, or a lookup would touch two.
    const ONE_LINE: () = assert!(
        cfg!(any(loom, shuttle))
            || (size_of::<Line<T, C>>() == LINE_ALIGN && size_of::<Node<T>>() == LINE_ALIGN)
    );
}

impl<T: 'static, C: LockClass> Line<T, C> {
    fn new() -> Self {
        const { AssertLayout::<T, C>::ONE_LINE };
        Self {
            lock: Mutex::new(()),
            version: AtomicU32::new(0),
            slots: std::array::from_fn(|_| Slot::new()),
            chain: AtomicPtr::new(ptr::null_mut()),
            #[cfg(any(loom, shuttle))]
            serial: next_serial(),
        }
    }

    /// Locks of several buckets are taken in ascending order of this: the address.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn order(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// As in a normal build; but addresses differ from run to run, and a model must repeat exactly.
    #[cfg(any(loom, shuttle))]
    pub(super) fn order(&self) -> usize {
        self.serial
    }

    #[inline]
    pub(super) fn link(&self) -> Link<T, C> {
        let chain = self.chain.load(Ordering::Acquire);
        if chain.addr() & LOW_BITS == 0 {
            Link::Chain(chain)
        } else {
            Link::Moved(Word(chain.cast()))
        }
    }

    /// The nodes from `first` on, borrowed like the line: whoever may walk a line may walk its
    /// nodes, since both are freed by the same rule.
    #[inline]
    fn nodes(&self, first: *mut Node<T>) -> Nodes<'_, T> {
        Nodes { next: first, line: PhantomData }
    }

    /// A lookup without the lock.
    #[inline(always)]
    pub(super) fn seek(&self, hash: u64, eq: &mut impl FnMut(&T) -> bool) -> Seek<T, C> {
        // The order of these loads matters, and every one acquires, so that it is kept: version,
        // chain, slots, version again. The module's invariants say why.
        let version = self.version.load(Ordering::Acquire);
        let chain = match self.link() {
            Link::Chain(chain) => chain,
            Link::Moved(word) => return Seek::Moved(word),
        };
        if let Some(entry) = self.find(chain, hash, eq) {
            return Seek::Found(entry);
        }
        let settled = version & ANNOUNCED == 0 && self.version.load(Ordering::Acquire) == version;
        if settled { Seek::Absent } else { Seek::Changed }
    }

    /// An entry with the tag of `hash` that `eq` accepts, in the line or in the nodes from `chain`
    /// on. The caller holds the lock, or has a guard that is older than its load of `chain`.
    #[inline(always)]
    fn find(
        &self,
        chain: *mut Node<T>,
        hash: u64,
        eq: &mut impl FnMut(&T) -> bool,
    ) -> Option<NonNull<T>> {
        // One of those with the tag is chosen without a branch. The next step of a path waits for
        // this, and would wait longer for the number of a slot and what that holds; and mostly
        // there is one.
        let tag = tag_of(hash);
        let mut chosen = ptr::null_mut();
        for slot in &self.slots {
            let value = slot.0.load(Ordering::Acquire);
            chosen = hint::select_unpredictable(value.addr() >> ADDRESS_BITS == tag, value, chosen);
        }
        if let Some(entry) = Slot::entry_of(chosen) {
            // SAFETY: The lock keeps the entry, or the caller's guard, which is older than the
            // loads above: an entry outlives its removal by a grace period.
            if eq(unsafe { entry.as_ref() }) {
                return Some(entry);
            }
        } else if chain.is_null() {
            return None;
        }
        self.find_among_all(chain, tag, eq)
    }

    /// The part of [`find`](Self::find) for entries that have their tag in common with another one
    /// in the bucket, and for the few buckets that have more entries than slots.
    #[inline(never)]
    fn find_among_all(
        &self,
        chain: *mut Node<T>,
        tag: usize,
        eq: &mut impl FnMut(&T) -> bool,
    ) -> Option<NonNull<T>> {
        let nodes = self.nodes(chain).flat_map(|node| &node.slots);
        // SAFETY: As in `find`.
        let mut is_it = |entry: &NonNull<T>| eq(unsafe { entry.as_ref() });
        self.slots.iter().chain(nodes).find_map(|slot| slot.tagged(tag).filter(&mut is_it))
    }

    /// A lookup under the lock: an entry with the tag of `hash` that `eq` accepts.
    #[inline]
    pub(super) fn find_locked(
        &self,
        hash: u64,
        mut eq: impl FnMut(&T) -> bool,
    ) -> Option<NonNull<T>> {
        match self.link() {
            Link::Chain(chain) => self.find(chain, hash, &mut eq),
            Link::Moved(_) => None,
        }
    }

    /// All entries, given what [`link`](Self::link) said. Without the lock, the walk sees every
    /// entry that is there throughout, and may or may not see others. For a moved bucket (which a
    /// walker found in use and which was moved since) those of the line only.
    pub(super) fn entries(&self, link: Link<T, C>) -> impl Iterator<Item = NonNull<T>> {
        let next = match link {
            Link::Chain(chain) => chain,
            Link::Moved(_) => ptr::null_mut(),
        };
        let nodes = self.nodes(next).flat_map(|node| &node.slots);
        self.slots.iter().chain(nodes).filter_map(Slot::entry)
    }

    /// Calls `read` with the link of the bucket, without the lock. Returns whether nothing was
    /// inserted and no change was announced meanwhile, and the bucket is still in use; else the
    /// caller forgets what was read. The caller has a guard that is older than the call.
    pub(super) fn read_settled(&self, read: impl FnOnce(Link<T, C>)) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let link = self.link();
        if version & ANNOUNCED != 0 || matches!(link, Link::Moved(_)) {
            return false;
        }
        read(link);
        // Whoever announces a change puts a fence between that and what he changes. So if `read`
        // saw any of it, the announcement is seen below; and that the bucket is moved, if it was
        // changed elsewhere.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version && matches!(self.link(), Link::Chain(_))
    }

    /// Calls `read` with the link of the bucket, under the lock, for which it waits. Returns false,
    /// without the call, if the bucket is not in use any more.
    pub(super) fn read_locked(&self, read: impl FnOnce(Link<T, C>)) -> bool {
        let _held = self.lock.lock();
        let link = self.link();
        let is_in_use = matches!(link, Link::Chain(_));
        if is_in_use {
            read(link);
        }
        is_in_use
    }

    /// The memory of the nodes, in bytes.
    pub(super) fn chain_bytes(&self, link: Link<T, C>) -> usize {
        match link {
            Link::Chain(next) => self.nodes(next).count() * size_of::<Node<T>>(),
            Link::Moved(_) => 0,
        }
    }

    /// Whether the line has no entries; the nodes are not looked at, since they are freed when they
    /// are empty.
    pub(super) fn is_vacant(&self) -> bool {
        self.slots.iter().all(|slot| slot.entry().is_none())
            && self.chain.load(Ordering::Relaxed).is_null()
    }

    /// Puts the entry into a free slot. Tells when the slots of the line did not suffice, or when
    /// several CPUs insert in turn. The caller holds the lock, or the line is not yet published.
    pub(super) fn insert(&self, entry: NonNull<T>, hash: u64) -> Hint {
        assert!(entry.addr().get() <= ADDRESS, "an address of more than 48 bits");
        let free = self.slots.iter().find(|slot| slot.entry().is_none());
        if let Some(slot) = free {
            slot.set(entry, hash);
        } else {
            self.insert_into_chain(entry, hash);
        }
        let overflow = if free.is_none() { Hint::Overflow } else { Hint::None };
        let version = self.version.load(Ordering::Relaxed).wrapping_add(INSERTION);
        if version & (INSERTION * (SAMPLED - 1)) == 0 {
            return self.insert_sampled(version, overflow);
        }
        self.version.store(version, Ordering::Release);
        overflow
    }

    /// Ends an insertion whose CPU is looked at.
    #[cold]
    fn insert_sampled(&self, version: u32, overflow: Hint) -> Hint {
        let cpu = crate::cpu::current() & CPU_MASK;
        let heat = version >> HEAT_SHIFT & HEAT_MAX;
        let warmer = if version & CPU_MASK == cpu {
            heat.saturating_sub(1)
        } else {
            (heat + HEAT_GAIN).min(HEAT_MAX)
        };
        let is_hot = warmer >= HEAT_REPORTED;
        let kept = version & !(HEAT_MAX << HEAT_SHIFT | CPU_MASK);
        let heat = if is_hot { 0 } else { warmer };
        self.version.store(kept | heat << HEAT_SHIFT | cpu, Ordering::Release);
        if is_hot && overflow == Hint::None { Hint::Contended } else { overflow }
    }

    /// Begins a change of several steps: lookups that find nothing look again until it ends. The
    /// caller holds the lock, no change is announced, and a sequentially consistent fence follows
    /// before whatever the change does to entries.
    pub(super) fn begin_change(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | ANNOUNCED, Ordering::Release);
    }

    /// Ends a change of several steps; the caller holds the lock still.
    pub(super) fn end_change(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store((version & !ANNOUNCED).wrapping_add(INSERTION), Ordering::Release);
    }

    #[cold]
    fn insert_into_chain(&self, entry: NonNull<T>, hash: u64) {
        let first = self.chain.load(Ordering::Relaxed);
        debug_assert!(first.addr() & LOW_BITS == 0, "an insertion into a moved bucket");
        let mut slots = self.nodes(first).flat_map(|n| &n.slots);
        if let Some(slot) = slots.find(|slot| slot.entry().is_none()) {
            slot.set(entry, hash);
            return;
        }
        let node = Box::new(Node {
            slots: std::array::from_fn(|_| Slot::new()),
            next: AtomicPtr::new(first),
        });
        node.slots[0].set(entry, hash);
        self.chain.store(Box::into_raw(node), Ordering::Release);
    }

    /// Clears the slot of the entry; false when there is none. The caller holds the lock.
    pub(super) fn remove(&self, entry: NonNull<T>, guard: &Guard) -> bool {
        if let Some(slot) = self.slots.iter().find(|slot| slot.entry() == Some(entry)) {
            slot.clear();
            return true;
        }
        self.remove_from_chain(entry, guard)
    }

    fn remove_from_chain(&self, entry: NonNull<T>, guard: &Guard) -> bool {
        let mut link = &self.chain;
        for node in self.nodes(self.chain.load(Ordering::Relaxed)) {
            if let Some(slot) = node.slots.iter().find(|slot| slot.entry() == Some(entry)) {
                slot.clear();
                if node.slots.iter().all(|slot| slot.entry().is_none()) {
                    let unlinked = ptr::from_ref(node).cast_mut();
                    link.store(node.next.load(Ordering::Relaxed), Ordering::Release);
                    // SAFETY: The node came from a box; it is unlinked, so that only those who are
                    // in it now can see it, until the grace period has passed.
                    unsafe { guard.defer_unchecked(move || drop(Box::from_raw(unlinked))) };
                }
                return true;
            }
            link = &node.next;
        }
        false
    }

    /// Declares the bucket moved to `next`, where its entries have been copied, and adds the nodes
    /// of its chain to `cut`, to be freed after a grace period. The caller holds the lock.
    pub(super) fn set_moved(&self, next: Word<T, C>, cut: &mut Vec<NonNull<Node<T>>>) {
        cut.extend(self.nodes(self.chain.load(Ordering::Relaxed)).map(NonNull::from));
        self.chain.store(next.0.cast(), Ordering::Release);
    }
}

/// Frees nodes.
///
/// # Safety
///
/// They have been cut off from their bucket, are not freed elsewhere, and nobody is in them.
pub(super) unsafe fn free_nodes<T>(nodes: impl IntoIterator<Item = NonNull<Node<T>>>) {
    for node in nodes {
        // SAFETY: Nodes come from boxes; the rest is the caller's promise.
        drop(unsafe { Box::from_raw(node.as_ptr()) });
    }
}

/// The nodes of a chain; see [`Line::nodes`].
struct Nodes<'a, T> {
    next: *mut Node<T>,
    line: PhantomData<&'a Node<T>>,
}

impl<'a, T> Iterator for Nodes<'a, T> {
    type Item = &'a Node<T>;

    #[inline]
    fn next(&mut self) -> Option<&'a Node<T>> {
        // SAFETY: A node that could be reached is freed a grace period after it is unlinked, and
        // the borrow of the line lies within a section of the reader or under the lock.
        let node = unsafe { self.next.as_ref() }?;
        self.next = node.next.load(Ordering::Acquire);
        Some(node)
    }
}

/// The address of an array of buckets, with the number of them in its lowest five bits: zero for
/// null, else one more than the binary logarithm. The sixth says that it has room taken for it
/// ([`spread`]).
pub(super) struct Word<T, C: LockClass>(*mut Line<T, C>);

impl<T, C: LockClass> Clone for Word<T, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, C: LockClass> Copy for Word<T, C> {}

impl<T, C: LockClass> PartialEq for Word<T, C> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl<T: 'static, C: LockClass> Word<T, C> {
    #[inline]
    pub(super) fn from_raw(raw: *mut Line<T, C>) -> Self {
        Self(raw)
    }

    #[inline]
    pub(super) fn into_raw(self) -> *mut Line<T, C> {
        self.0
    }

    #[inline]
    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The binary logarithm of the number of buckets; only for a word that isn't null.
    #[inline]
    pub(super) fn bits(self) -> u32 {
        debug_assert!(!self.is_null());
        (self.0.addr() & SIZE_BITS) as u32 - 1
    }

    /// The number of buckets.
    pub(super) fn len(self) -> usize {
        if self.is_null() { 0 } else { 1 << self.bits() }
    }

    pub(super) fn bytes(self) -> usize {
        self.len() * size_of::<Line<T, C>>()
    }

    /// The number of the bucket of `hash`; only for a word that isn't null.
    #[inline]
    pub(super) fn index_of(self, hash: u64) -> usize {
        ((hash & HASH_MAX) >> (HASH_BITS - self.bits())) as usize
    }

    #[inline]
    fn first(self) -> *mut Line<T, C> {
        self.0.map_addr(|addr| addr & !LOW_BITS)
    }

    /// The address of bucket number `index`, which need not exist.
    #[inline]
    fn at(self, index: usize) -> *mut Line<T, C> {
        self.first().wrapping_add(index)
    }

    /// Whether `line` is the bucket of `hash`.
    pub(super) fn is_line_of(self, hash: u64, line: &Line<T, C>) -> bool {
        ptr::eq(self.at(self.index_of(hash)), line)
    }

    /// The bucket of `hash`, or `None` for null. The word was read under the guard.
    #[inline]
    pub(super) fn line_of(self, hash: u64, _guard: &Guard) -> Option<&Line<T, C>> {
        if self.is_null() {
            return None;
        }
        // SAFETY: The index is below the number of buckets; the array is freed a grace period
        // after nobody can find its word any more, and the guard is older than that.
        Some(unsafe { &*self.at(self.index_of(hash)) })
    }

    /// Bucket number `index`, or `None` when there is none. The word was read under the guard.
    #[inline]
    pub(super) fn line(self, index: usize, _guard: &Guard) -> Option<&Line<T, C>> {
        // SAFETY: Checked against the number; valid as in `line_of`.
        (index < self.len()).then(|| unsafe { &*self.at(index) })
    }

    /// Where the entries have been moved, if they have.
    ///
    /// # Safety
    ///
    /// The word isn't null, and nobody frees the array meanwhile.
    pub(super) unsafe fn moved_to(self) -> Option<Self> {
        // SAFETY: There is a bucket 0, which is moved first, and the array stays.
        match unsafe { &*self.at(0) }.link() {
            Link::Moved(next) => Some(next),
            Link::Chain(_) => None,
        }
    }

    fn layout(bits: u32) -> Option<Layout> {
        Layout::array::<Line<T, C>>(1usize.checked_shl(bits)?).ok()
    }

    /// An array of `1 << bits` empty buckets, or `None` when there is no memory for it.
    pub(super) fn allocate(bits: u32) -> Option<Self> {
        debug_assert!(bits <= BITS_MAX);
        let layout = Self::layout(bits)?;
        // SAFETY: The layout isn't empty.
        let first = NonNull::new(unsafe { alloc(layout) }.cast::<Line<T, C>>())?;
        for index in 0..1 << bits {
            // SAFETY: Within the array just allocated.
            unsafe { first.add(index).write(Line::new()) };
        }
        Some(Self(first.as_ptr().map_addr(|addr| addr | (bits as usize + 1))))
    }

    /// As [`allocate`](Self::allocate), for an array that is larger than its entries need, because
    /// several CPUs use it: it takes room for itself until it is freed. `None` if there is no room,
    /// too.
    pub(super) fn allocate_spread(bits: u32) -> Option<Self> {
        let room = Room::take(size_of::<Line<T, C>>() << bits)?;
        let word = Self::allocate(bits)?;
        room.keep();
        Some(Self(word.0.map_addr(|addr| addr | SPREAD)))
    }

    /// Whether it has room taken for it.
    pub(super) fn takes_room(self) -> bool {
        self.0.addr() & SPREAD != 0
    }

    /// As [`allocate`](Self::allocate), for an array without which there is no going on.
    pub(super) fn allocate_or_abort(bits: u32) -> Self {
        Self::allocate(bits).unwrap_or_else(|| {
            handle_alloc_error(Self::layout(bits).unwrap_or(Layout::new::<u64>()))
        })
    }

    /// Frees the array, and the chains of those of its buckets that weren't moved.
    ///
    /// # Safety
    ///
    /// The word isn't null, and nobody can reach the array any more.
    pub(super) unsafe fn free(self) {
        for index in 0..self.len() {
            // SAFETY: Within the array, which is ours alone.
            let line = unsafe { &*self.at(index) };
            if let Link::Chain(chain) = line.link() {
                let nodes: Vec<NonNull<Node<T>>> = line.nodes(chain).map(NonNull::from).collect();
                // SAFETY: Ours alone, like the bucket.
                unsafe { free_nodes(nodes) };
            }
        }
        // SAFETY: Passed on to the caller.
        unsafe { self.free_moved() };
    }

    /// Frees an array without chains: all of its buckets have been moved.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free).
    pub(super) unsafe fn free_moved(self) {
        let Some(layout) = Self::layout(self.bits()) else { return };
        // SAFETY: Ours alone, and allocated with this layout.
        unsafe {
            ptr::slice_from_raw_parts_mut(self.first(), self.len()).drop_in_place();
            dealloc(self.first().cast(), layout);
        }
        if self.takes_room() {
            spread::give(layout.size());
        }
    }
}
