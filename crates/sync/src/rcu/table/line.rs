//! Buckets, their overflow nodes, and the tagged words that lead to them.

use crate::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
use crate::lock::{LockClass, Mutex};
use crate::percpu::spread::{self, Reservation};
use crate::rcu::Guard;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::hint;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("slots of tables hold a tag above 48 bits of address");

/// Number of low bits of a hash that tell entries apart that are otherwise equal: neither the
/// bucket nor the tag depends on them.
pub(super) const FREE_BITS: u32 = 20;

/// Number of bits of a hash.
pub(super) const HASH_BITS: u32 = 63;
/// The largest hash.
pub(super) const HASH_MAX: u64 = (1 << HASH_BITS) - 1;

/// Number of slots in the line of a bucket. Models use few, so two insertions overflow.
const LINE_SLOTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 6 };
/// Number of slots in a node.
const NODE_SLOTS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 7 };

/// Alignment of buckets and nodes, which leaves six bits of their addresses.
const LINE_ALIGN: usize = 64;
const LOW_BITS: usize = LINE_ALIGN - 1;

/// Binary logarithm of the maximum number of buckets: 64 GiB, for five billion entries.
pub(super) const BITS_MAX: u32 = 30;

/// Mask of those of the six bits that hold the number of buckets.
const SIZE_BITS: usize = 31;
const _: () = assert!((BITS_MAX as usize) < SIZE_BITS);
/// Mask of the sixth bit: the array has a reservation.
const RESERVED: usize = 32;

/// Binary logarithm of the number of buckets from which an array is moved in steps: 16 KiB.
pub(super) const STEPS_FROM_BITS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 8 };

/// Number of buckets that contention alone gives a table for each CPU.
const LINES_PER_CPU: usize = 32;

/// Minimum of [`contended_bits`].
pub(super) const CONTENDED_BITS_MIN: u32 = LINES_PER_CPU.ilog2();

/// Returns the size up to which contention alone lets a table grow, and below which it does not
/// shrink: some buckets for each CPU, so two CPUs seldom meet in one.
pub(super) fn contended_bits() -> u32 {
    (crate::cpu::most_slots() as usize * LINES_PER_CPU).next_power_of_two().ilog2()
}

const ADDRESS_BITS: u32 = 48;
const ADDRESS: usize = (1 << ADDRESS_BITS) - 1;

/// Returns the tag of a hash: bits that the choice of the bucket rarely depends on. Never 0, the
/// tag of an empty slot.
#[inline]
fn tag_of(hash: u64) -> usize {
    ((hash >> FREE_BITS) & 0xffff) as usize | 1
}

/// A slot for an entry: null, or its address with a tag above.
struct EntrySlot<T>(AtomicPtr<T>);

impl<T> EntrySlot<T> {
    fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the entry, if there is one and its tag is `tag`.
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

    /// Stores an entry. Release: a reader that finds the entry sees it as it was when it was
    /// inserted.
    fn set(&self, entry: NonNull<T>, hash: u64) {
        let value = entry.as_ptr().map_addr(|addr| addr | (tag_of(hash) << ADDRESS_BITS));
        self.0.store(value, Ordering::Release);
    }

    /// Empties the slot. Release: a reader that sees the slot empty sees earlier insertions
    /// elsewhere, and their version.
    fn clear(&self) {
        self.0.store(ptr::null_mut(), Ordering::Release);
    }
}

/// An additional line of slots, for a bucket that has too few.
#[repr(C, align(64))]
pub(super) struct Node<T> {
    slots: [EntrySlot<T>; NODE_SLOTS],
    next: AtomicPtr<Node<T>>,
}

/// The contents of a bucket's chain.
pub(super) enum Link<T, C: LockClass> {
    /// The bucket is in use; this is its first node, or null.
    Chain(*mut Node<T>),
    /// The entries have been moved to these buckets.
    Moved(Word<T, C>),
}

/// The outcome of a lookup in one bucket.
pub(super) enum Seek<T, C: LockClass> {
    Found(NonNull<T>),
    Absent,
    /// An insertion happened in between: the lookup must repeat.
    Changed,
    Moved(Word<T, C>),
}

/// A suggestion of a bucket's change for the size of the table, to be followed once the lock is
/// released.
///
/// As wide as a word: a [`BucketRef`](super::BucketRef) with padding is copied in parts that
/// overlap, and a load of data that two stores have just written waits for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Hint {
    None,
    /// Another thread held the lock, or several CPUs insert in turn: more buckets would distribute
    /// the load.
    Contended,
    /// The slots of the bucket did not suffice.
    Overflow,
    /// The last entry of the bucket was removed.
    Emptied,
}

/// The unit of insertions, in the version of a bucket: above [`ANNOUNCED`].
const INSERTION: u32 = 1 << 9;
/// Flag of an announced change of several steps, in the version of a bucket: above the heat.
const ANNOUNCED: u32 = 1 << 8;
/// The position of the heat in the version.
const HEAT_SHIFT: u32 = 5;
const HEAT_MAX: u32 = 7;
/// Number of bits of a CPU's number.
const CPU_BITS: u32 = 5;
const CPU_MASK: u32 = (1 << CPU_BITS) - 1;
/// One insertion in this many compares its CPU.
const SAMPLED: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 8 };
/// The heat that an insertion by another CPU than the last one adds; one by the last subtracts 1.
const HEAT_GAIN: u32 = 3;
/// The heat from which a bucket is hot.
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
    slots: [EntrySlot<T>; LINE_SLOTS],
    /// A [`Link`]: a node has zeros in its low six bits, a word has not.
    chain: AtomicPtr<Node<T>>,
    #[cfg(any(loom, shuttle))]
    serial: usize,
}

/// Returns a number for each bucket that a model makes.
#[cfg(any(loom, shuttle))]
fn next_serial() -> usize {
    use std::sync::atomic::AtomicUsize;
    static SERIAL: AtomicUsize = AtomicUsize::new(0);
    SERIAL.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

struct AssertLayout<T, C: LockClass>(PhantomData<(T, C)>);

impl<T, C: LockClass> AssertLayout<T, C> {
    /// Asserts one line for each, as a lookup would otherwise touch two.
    const ONE_LINE: () = assert!(
        cfg!(any(loom, shuttle))
            || (size_of::<Line<T, C>>() == LINE_ALIGN && size_of::<Node<T>>() == LINE_ALIGN)
    );
}

impl<T: 'static, C: LockClass> Line<T, C> {
    /// Creates an empty bucket: all zeros, except in models.
    pub(super) fn new() -> Self {
        const { AssertLayout::<T, C>::ONE_LINE };
        Self {
            lock: Mutex::new(()),
            version: AtomicU32::new(0),
            slots: std::array::from_fn(|_| EntrySlot::new()),
            chain: AtomicPtr::new(ptr::null_mut()),
            #[cfg(any(loom, shuttle))]
            serial: next_serial(),
        }
    }

    /// Returns the key by which locks of several buckets are ordered, ascending: the address.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn order(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Returns the key by which locks of several buckets are ordered, ascending: a serial number,
    /// as addresses differ from run to run and a model must repeat exactly.
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

    /// Returns the nodes from `first` on, borrowed like the line: a thread that may walk a line may
    /// walk its nodes, since both are freed by the same rule.
    #[inline]
    fn nodes(&self, first: *mut Node<T>) -> Nodes<'_, T> {
        Nodes { next: first, line: PhantomData }
    }

    /// Looks up an entry without the lock.
    #[inline(always)]
    pub(super) fn seek(&self, hash: u64, eq: &mut impl FnMut(&T) -> bool) -> Seek<T, C> {
        // The order of these loads matters, and every one acquires to enforce it: version, chain,
        // slots, version again. The module's invariants say why.
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

    /// Returns an entry with the tag of `hash` that `eq` accepts, in the line or in the nodes from
    /// `chain` on. The caller holds the lock, or has a guard that is older than its load of
    /// `chain`.
    #[inline(always)]
    fn find(
        &self,
        chain: *mut Node<T>,
        hash: u64,
        eq: &mut impl FnMut(&T) -> bool,
    ) -> Option<NonNull<T>> {
        // One of the entries with the tag is chosen without a branch. The next step of a path
        // lookup waits for this, and would wait longer for the index of a slot and its contents;
        // and usually there is one.
        let tag = tag_of(hash);
        let mut chosen = ptr::null_mut();
        for slot in &self.slots {
            let value = slot.0.load(Ordering::Acquire);
            chosen = hint::select_unpredictable(value.addr() >> ADDRESS_BITS == tag, value, chosen);
        }
        if let Some(entry) = EntrySlot::entry_of(chosen) {
            // SAFETY: The lock protects the entry, or the caller's guard, which is older than the
            // loads above: an entry outlives its removal by a grace period.
            if eq(unsafe { entry.as_ref() }) {
                return Some(entry);
            }
        } else if chain.is_null() {
            return None;
        }
        self.find_among_all(chain, tag, eq)
    }

    /// Finds entries that share their tag with another one in the bucket, and entries of the few
    /// buckets that have more entries than slots: the slow path of [`find`](Self::find).
    #[inline(never)]
    fn find_among_all(
        &self,
        chain: *mut Node<T>,
        tag: usize,
        eq: &mut impl FnMut(&T) -> bool,
    ) -> Option<NonNull<T>> {
        let nodes = self.nodes(chain).flat_map(|node| &node.slots);
        // SAFETY: The lock protects the entry, or the caller's guard, which is older than the
        // loads.
        let mut is_it = |entry: &NonNull<T>| eq(unsafe { entry.as_ref() });
        self.slots.iter().chain(nodes).find_map(|slot| slot.tagged(tag).filter(&mut is_it))
    }

    /// Returns an entry with the tag of `hash` that `eq` accepts. The caller holds the lock.
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

    /// Returns all entries, given the result of [`link`](Self::link). Without the lock, the walk
    /// sees every entry that is present throughout, and may or may not see others. For a moved
    /// bucket (which a walker found in use and which was moved since) it sees the entries of the
    /// line only.
    pub(super) fn entries(&self, link: Link<T, C>) -> impl Iterator<Item = NonNull<T>> {
        let next = match link {
            Link::Chain(chain) => chain,
            Link::Moved(_) => ptr::null_mut(),
        };
        let nodes = self.nodes(next).flat_map(|node| &node.slots);
        self.slots.iter().chain(nodes).filter_map(EntrySlot::entry)
    }

    /// Reads the bucket without the lock, by `read`, which gets its link. Returns whether no entry
    /// was inserted and no change was announced during the call, and the bucket is still in use;
    /// otherwise the caller discards the data. The caller has a guard that is older than the call.
    pub(super) fn read_settled(&self, read: impl FnOnce(Link<T, C>)) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let link = self.link();
        if version & ANNOUNCED != 0 || matches!(link, Link::Moved(_)) {
            return false;
        }
        read(link);
        // A thread that announces a change executes a fence between the announcement and the
        // change. So if `read` saw any of the change, the announcement is seen below; and if the
        // bucket was moved and then changed elsewhere, the move is seen below.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version && matches!(self.link(), Link::Chain(_))
    }

    /// Reads the bucket under the lock, for which it waits, by `read`, which gets its link. Returns
    /// false, without calling `read`, if the bucket is not in use any more.
    pub(super) fn read_locked(&self, read: impl FnOnce(Link<T, C>)) -> bool {
        let _held = self.lock.lock();
        let link = self.link();
        let is_in_use = matches!(link, Link::Chain(_));
        if is_in_use {
            read(link);
        }
        is_in_use
    }

    /// Returns the memory of the nodes, in bytes.
    pub(super) fn chain_bytes(&self, link: Link<T, C>) -> usize {
        match link {
            Link::Chain(next) => self.nodes(next).count() * size_of::<Node<T>>(),
            Link::Moved(_) => 0,
        }
    }

    /// Returns whether the line has no entries and no nodes; empty nodes are freed, so their slots
    /// are not checked.
    #[inline]
    pub(super) fn is_vacant(&self) -> bool {
        // Without a branch for each slot: a directory that is removed is asked for all its lines.
        let union = |all, slot: &EntrySlot<T>| all | slot.0.load(Ordering::Acquire).addr();
        self.slots.iter().fold(0, union) == 0 && self.chain.load(Ordering::Relaxed).is_null()
    }

    /// Returns whether there are no entries, given the result of [`link`](Self::link). Without the
    /// lock, an entry that is present throughout is seen.
    #[inline]
    pub(super) fn is_empty(&self, link: Link<T, C>) -> bool {
        self.is_vacant() || self.entries(link).next().is_none()
    }

    /// Stores the entry in a free slot. The hint tells whether the slots of the line did not
    /// suffice, or several CPUs insert in turn. The caller holds the lock, or the line is not yet
    /// published.
    ///
    /// # Panics
    ///
    /// If the address has bits above the lower 48, as those of heaps with tagged pointers have.
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

    /// Finishes an insertion that compares its CPU.
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

    /// Begins a change of several steps: lookups that find nothing repeat until it ends. The caller
    /// holds the lock, no change is announced, and a sequentially consistent fence follows before
    /// the change modifies any entry.
    pub(super) fn begin_change(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | ANNOUNCED, Ordering::Release);
    }

    /// Ends a change of several steps; the caller still holds the lock.
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
            slots: std::array::from_fn(|_| EntrySlot::new()),
            next: AtomicPtr::new(first),
        });
        node.slots[0].set(entry, hash);
        self.chain.store(Box::into_raw(node), Ordering::Release);
    }

    /// Clears the slot of the entry; returns false if there is none. The caller holds the lock.
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
                    // SAFETY: The node came from a box; it is unlinked, so only readers that are in
                    // it now can see it, until the grace period has passed.
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
/// They have been unlinked from their bucket, are not freed elsewhere, and no reader is in them.
pub(super) unsafe fn free_nodes<T>(nodes: impl IntoIterator<Item = NonNull<Node<T>>>) {
    for node in nodes {
        // SAFETY: Nodes come from boxes; the caller promises the rest.
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
        // SAFETY: A node that was reachable is freed a grace period after it is unlinked, and the
        // borrow of the line is within an RCU section of the reader or under the lock.
        let node = unsafe { self.next.as_ref() }?;
        self.next = node.next.load(Ordering::Acquire);
        Some(node)
    }
}

/// How much of an array has been moved to another one, in front of its buckets.
pub(super) struct Progress {
    /// The number of groups that were taken in hand, of which the last may be in hand still.
    /// Continues past the number of groups, modulo that.
    pub(super) begun: AtomicUsize,
    /// The number of groups that are moved.
    pub(super) moved: AtomicUsize,
    /// The memory of the array, which begins a little before this.
    memory: NonNull<u8>,
}

/// The address of an array of buckets, with the number of them in its lowest five bits: zero for
/// null, else one more than the binary logarithm. The sixth bit is set if the array has a
/// reservation ([`spread`]).
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

    /// Returns the binary logarithm of the number of buckets. The word isn't null.
    #[inline]
    pub(super) fn bits(self) -> u32 {
        debug_assert!(!self.is_null());
        (self.0.addr() & SIZE_BITS) as u32 - 1
    }

    /// Returns the number of buckets.
    pub(super) fn len(self) -> usize {
        if self.is_null() { 0 } else { 1 << self.bits() }
    }

    pub(super) fn bytes(self) -> usize {
        if self.is_null() { 0 } else { Self::layout(self.bits()).map_or(0, |memory| memory.size()) }
    }

    /// Returns the index of the bucket of `hash`. The word isn't null.
    #[inline]
    pub(super) fn index_of(self, hash: u64) -> usize {
        ((hash & HASH_MAX) >> (HASH_BITS - self.bits())) as usize
    }

    #[inline]
    fn first(self) -> *mut Line<T, C> {
        self.0.map_addr(|addr| addr & !LOW_BITS)
    }

    /// Returns the address of bucket number `index`, which need not exist.
    #[inline]
    fn at(self, index: usize) -> *mut Line<T, C> {
        self.first().wrapping_add(index)
    }

    /// Returns whether `line` is the bucket of `hash`.
    pub(super) fn is_line_of(self, hash: u64, line: &Line<T, C>) -> bool {
        ptr::eq(self.at(self.index_of(hash)), line)
    }

    /// Returns the bucket of `hash`, or `None` for null. The word was read under the guard.
    #[inline]
    pub(super) fn line_of(self, hash: u64, _guard: &Guard) -> Option<&Line<T, C>> {
        if self.is_null() {
            return None;
        }
        // SAFETY: The index is below the number of buckets; the array is freed a grace period after
        // its word has become unreachable, and the guard is older than that.
        Some(unsafe { &*self.at(self.index_of(hash)) })
    }

    /// Returns bucket number `index`, or `None` if there is none. The word was read under the
    /// guard.
    #[inline]
    pub(super) fn line(self, index: usize, _guard: &Guard) -> Option<&Line<T, C>> {
        // SAFETY: The index is checked against the number of buckets; the array is freed a grace
        // period after its word has become unreachable, and the guard is older than that.
        (index < self.len()).then(|| unsafe { &*self.at(index) })
    }

    /// Returns the array to which the entries have been moved, if they have.
    ///
    /// # Safety
    ///
    /// The word isn't null, and the array is not freed during the call.
    pub(super) unsafe fn moved_to(self) -> Option<Self> {
        // SAFETY: There is a bucket 0, which is moved first, and the array lives.
        match unsafe { &*self.at(0) }.link() {
            Link::Moved(next) => Some(next),
            Link::Chain(_) => None,
        }
    }

    /// Returns whether an array is moved in steps. Then it has a line for the [`Progress`] in front
    /// of its buckets.
    fn has_steps(bits: u32) -> bool {
        const { assert!(size_of::<Progress>() <= size_of::<Line<T, C>>()) };
        const { assert!(align_of::<Progress>() <= LINE_ALIGN) };
        bits >= STEPS_FROM_BITS
    }

    /// Returns the memory of an array of `1 << bits` buckets.
    ///
    /// A large one is not requested with the alignment of a line but has a line more: for zeros of
    /// a larger alignment the allocator writes all of them, and for others the system makes pages
    /// when they are used.
    fn layout(bits: u32) -> Option<Layout> {
        let (more, align) = if Self::has_steps(bits) { (2, 16) } else { (0, LINE_ALIGN) };
        let lines = 1usize.checked_shl(bits)?.checked_add(more)?;
        Layout::from_size_align(lines.checked_mul(size_of::<Line<T, C>>())?, align).ok()
    }

    /// Allocates an array of `1 << bits` empty buckets; returns `None` if there is no memory for
    /// it. Writes no bucket of a large array.
    pub(super) fn allocate(bits: u32) -> Option<Self> {
        debug_assert!(bits <= BITS_MAX);
        let layout = Self::layout(bits)?;
        // SAFETY: The layout isn't empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let mut first = memory.cast::<Line<T, C>>();
        if Self::has_steps(bits) {
            let (begun, moved) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let skipped = memory.addr().get().wrapping_neg() & LOW_BITS;
            // SAFETY: The memory is two lines longer than the buckets: one for this, and one of
            // which the part is used that the alignment leaves.
            unsafe {
                let aligned = memory.add(skipped);
                aligned.cast().write(Progress { begun, moved, memory });
                first = aligned.cast::<Line<T, C>>().add(1);
            }
        }
        // An empty bucket is all zeros, but in models, whose atomics have more than a value.
        if cfg!(any(loom, shuttle)) {
            for index in 0..1 << bits {
                // SAFETY: Within the array just allocated.
                unsafe { first.add(index).write(Line::new()) };
            }
        }
        Some(Self(first.as_ptr().map_addr(|addr| addr | (bits as usize + 1))))
    }

    /// Returns how much of the array has been moved, if it is moved in steps. The word was read
    /// under the guard.
    pub(super) fn progress(self, _guard: &Guard) -> Option<&Progress> {
        let has_one = !self.is_null() && Self::has_steps(self.bits());
        // SAFETY: It was written when the array was allocated, in the line in front of the buckets,
        // and is freed together with them.
        has_one.then(|| unsafe { &*self.first().wrapping_sub(1).cast::<Progress>() })
    }

    /// Allocates an array that is larger than its entries need, because several CPUs use it: it has
    /// a reservation until it is freed. Returns `None` if there is no memory or no room in the
    /// bound.
    pub(super) fn allocate_reserved(bits: u32) -> Option<Self> {
        let reservation = Reservation::take(Self::layout(bits)?.size())?;
        let word = Self::allocate(bits)?;
        reservation.leak();
        Some(Self(word.0.map_addr(|addr| addr | RESERVED)))
    }

    /// Returns whether the array has a reservation.
    pub(super) fn is_reserved(self) -> bool {
        self.0.addr() & RESERVED != 0
    }

    /// Allocates an array; aborts if there is no memory.
    pub(super) fn allocate_or_abort(bits: u32) -> Self {
        Self::allocate(bits).unwrap_or_else(|| {
            handle_alloc_error(Self::layout(bits).unwrap_or(Layout::new::<u64>()))
        })
    }

    /// Frees the array, and the chains of those of its buckets that weren't moved.
    ///
    /// # Safety
    ///
    /// The word isn't null, and no other thread can reach the array any more.
    pub(super) unsafe fn free(self) {
        for index in 0..self.len() {
            // SAFETY: Within the array, which is ours alone.
            let line = unsafe { &*self.at(index) };
            if let Link::Chain(chain) = line.link() {
                let nodes: Vec<NonNull<Node<T>>> = line.nodes(chain).map(NonNull::from).collect();
                // SAFETY: The nodes are ours alone, like the bucket.
                unsafe { free_nodes(nodes) };
            }
        }
        // SAFETY: The caller promises that no other thread can reach the array; its chains are
        // freed.
        unsafe { self.free_moved() };
    }

    /// Frees an array without chains: all of its buckets have been moved.
    ///
    /// # Safety
    ///
    /// The word isn't null, and no other thread can reach the array any more.
    pub(super) unsafe fn free_moved(self) {
        let Some(layout) = Self::layout(self.bits()) else { return };
        let mut memory = self.first().cast();
        // SAFETY: Ours alone, and allocated with this layout; a large array has its progress, which
        // knows where the memory begins.
        unsafe {
            ptr::slice_from_raw_parts_mut(self.first(), self.len()).drop_in_place();
            if Self::has_steps(self.bits()) {
                memory = self.first().wrapping_sub(1).cast::<Progress>().read().memory.as_ptr();
            }
            dealloc(memory, layout);
        }
        if self.is_reserved() {
            spread::give(layout.size());
        }
    }
}
