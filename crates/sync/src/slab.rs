//! Memory for objects of one type: dentries and inodes. Counterpart of `kmem_cache` in Linux.
//!
//! # Purpose
//!
//! A general allocator has to find the size, mixes objects of all kinds in a line, and frees memory
//! after a grace period on the CPU where that period happened to end. A [`Slab`] knows its type: an
//! allocation takes the most recently freed object of this CPU from an array, under a lock that
//! other CPUs hardly ever take. The scheme is Bonwick's and Adams' (magazines and vmem, USENIX
//! 2001).
//!
//! ```text
//!  CPU slot: two magazines <--> depot: full magazines <--> chunks of 64 KiB <--> system
//!            full magazines
//!            pending frees
//! ```
//!
//! There is a depot for each NUMA node ([`SlotNodes`]). Its chunks get their memory when a CPU of
//! the node touches them. An object that is freed on another node serves that node from then on,
//! and returns to its chunk when it leaves the magazines.
//!
//! # Invariants
//!
//! * A free object is in exactly one of: a magazine of a slot, a magazine of a depot, the bitmap of
//!   its chunk. A chunk belongs to one depot for good.
//! * Magazines hold addresses, and a chunk marks its free objects in a bitmap: a free object's own
//!   memory is not touched, whichever CPU moves it.
//! * Objects freed through RCU wait in the slot on which they were freed, in batches with one
//!   deferred call for each, and return to the magazines of that slot. A batch whose grace period
//!   ends on another CPU is returned to its slot undropped, and is dropped there with the next
//!   batch whose grace period ends there; the other CPU drops it itself only if several wait
//!   already, or if the objects own much memory, which would wait as long as the CPU of the slot
//!   frees nothing. No allocation drops any: its caller may hold locks. So two CPUs that create
//!   and remove objects never pass memory to each other, nor touch each other's objects. A batch
//!   that doesn't fill up is sent off by a sweep, which is deferred together with its first object,
//!   hence after at most two grace periods.
//! * A chunk that is wholly free is returned to the system (its pages, not its addresses), except
//!   for a few in reserve.
//! * The inner part lives until the last clone is dropped **and** no deferred call is left: each
//!   slot counts its own, so no shared count is written while the slab is in use.
//!
//! # Locks
//!
//! `SlabCache` (a slot), then `SlabDepot`, one at a time. Both are leaves for other code.
//! Destructors of objects run under neither.

mod chunk;

use crate::atomic::{AtomicI64, AtomicUsize, Ordering, fence};
use crate::caught::each_survives;
use crate::cpu::{self, SlotNodes};
use crate::lock::slot_lock::{SlotGuard, SlotLock};
use crate::lock::{Mutex, MutexGuard};
use crate::percpu::{CachePadded, PerCpu};
use crate::rcu::Guard;
use crate::reclaim;
use chunk::{Chunks, Shape};
use std::fmt;
use std::ptr::NonNull;

crate::lock_class! {
    /// Protects the magazines and pending frees of one CPU slot of a [`Slab`].
    pub SlabCache = ("slab_cache", 65010);
    /// Protects the memory that the slots of a node share in a [`Slab`].
    pub SlabDepot = ("slab_depot", 65020);
}

/// Number of objects in a full magazine.
const MAGAZINE: usize = if cfg!(shuttle) { 8 } else { 64 };
/// Number of objects that are carved from a chunk if there is no full magazine.
const CARVE: usize = if cfg!(shuttle) { 4 } else { 32 };
/// Number of objects that share one deferred call.
const BATCH: usize = if cfg!(shuttle) { 2 } else { 32 };
/// Maximum number of batches that wait in a slot to be dropped on its own CPU; if that frees
/// nothing else, other CPUs drop the rest. What the objects own comes from the allocator's memory
/// for the thread that made them, whose lock two threads would share: the batches that a busy
/// thread has in flight must fit.
const RETURNED_MAX: usize = if cfg!(shuttle) { 1 } else { 32 };
/// Number of full magazines in the depot for each slot.
const DEPOT_PER_SLOT: usize = 2;
/// Maximum number of full magazines of a slot, beside the two in use: a program that opens some
/// hundred files or pipes and closes them all does not visit the depot.
const FULL_MAX: usize = 8;
/// The byte that free memory is filled with, where it is; the same as in `atomic/freed.rs`.
const POISON: u8 = 0xdd;
/// Maximum of the memory in the full magazines of a slot, in bytes.
const FULL_BYTES: usize = 128 << 10;

type Magazine = Vec<NonNull<u8>>;

/// A shared allocator of `T`s. Cloning it makes another handle to the same memory.
///
/// Allocation aborts the process if the system has no memory, like `Box::new`.
///
/// Dropping the last handle releases all memory once the frees under way have run. Objects that are
/// still allocated then are never dropped, and their memory is released: the values they own are
/// leaked, and using them would be a use after free. That drop pins RCU, so the thread must hold no
/// ranked lock unless it holds a guard already.
///
/// `Send` and `Sync` if `T` is `Send`: objects are made and dropped on any thread.
pub struct Slab<T: Send + 'static> {
    inner: NonNull<Inner<T>>,
}

// SAFETY: The inner part is used under its locks and atomics; objects are moved in by one thread
// and dropped by another, which `T: Send` allows. The slab never makes a reference to an object.
unsafe impl<T: Send + 'static> Send for Slab<T> {}
// SAFETY: The inner part is used under its locks and atomics, and shared handles give out no
// references to objects.
unsafe impl<T: Send + 'static> Sync for Slab<T> {}

struct Inner<T> {
    caches: PerCpu<SlotLock<Cache<T>, SlabCache>>,
    /// One for each node, each on lines of its own.
    depots: Box<[CachePadded<Mutex<Depot, SlabDepot>>]>,
    shape: Shape,
    /// Objects in use, if all slots count in one word.
    one_count: Option<Box<CachePadded<AtomicI64>>>,
    /// Number of handles; the last one closes the slots.
    handles: AtomicUsize,
    /// Number of slots that aren't closed or still have deferred calls, and one more for the
    /// closing handle.
    open: AtomicUsize,
}

// SAFETY: The addresses are of free memory and of objects without another owner; the objects are
// `Send`.
unsafe impl<T: Send> Send for Cache<T> {}
// SAFETY: The addresses are of free memory.
unsafe impl Send for Depot {}

/// The free objects of a CPU slot, and its pending frees.
struct Cache<T> {
    /// The node of the slot.
    node: usize,
    /// The magazine from which allocations take objects, and to which frees return them.
    loaded: Magazine,
    /// Either full or empty, except for the objects carved last: see `put` and `refill`.
    spare: Magazine,
    /// Further full magazines.
    full: Vec<Magazine>,
    /// Empty vectors that can become magazines.
    empty: Vec<Magazine>,
    /// Objects that are to be dropped after a grace period and have no deferred call yet.
    pending: Vec<NonNull<T>>,
    /// Batches whose grace period ended on another CPU: dropped on this slot, with the next batch
    /// whose grace period ends on it, so the objects never leave the caches of this CPU.
    returned: Vec<Vec<NonNull<T>>>,
    /// An empty vector that can become `pending`.
    recycled: Vec<NonNull<T>>,
    /// Whether a sweep is deferred.
    sweeping: bool,
    /// Number of deferred calls that have not run.
    deferred: usize,
    /// Whether the last handle was dropped.
    closed: bool,
    /// Allocations minus drops on this slot; only the sum over all slots means anything.
    live: isize,
    /// Allocations minus frees on this slot, where objects freed through RCU count as freed
    /// immediately; unused if all slots count in one word.
    in_use: isize,
}

struct Depot {
    full: Vec<Magazine>,
    empty: Vec<Magazine>,
    full_max: usize,
    chunks: Chunks,
}

impl<T: Send + 'static> Slab<T> {
    /// Creates an empty slab with `slots` CPU slots. No memory for objects is taken before the
    /// first allocation.
    pub fn new(slots: usize) -> Self {
        Self::with_nodes(slots, &SlotNodes::of_machine(slots))
    }

    /// Creates an empty slab like [`new`](Self::new), whose slots are on these nodes.
    pub fn with_nodes(slots: usize, nodes: &SlotNodes) -> Self {
        Self::build(slots, nodes, None)
    }

    /// Creates an empty slab like [`new`](Self::new), all of whose slots count the objects
    /// [in use](Self::in_use) in one word: the state before counters for each CPU (Piggin 2009),
    /// for comparisons.
    pub fn with_one_count(slots: usize) -> Self {
        Self::build(
            slots,
            &SlotNodes::of_machine(slots),
            Some(Box::new(CachePadded::new(AtomicI64::new(0)))),
        )
    }

    fn build(
        slots: usize,
        nodes: &SlotNodes,
        one_count: Option<Box<CachePadded<AtomicI64>>>,
    ) -> Self {
        // The objects that a program frees last must not wait until it makes another call.
        reclaim::attend_to_bags();
        let shape = const { Shape::of::<T>() };
        let caches = PerCpu::new(slots, |slot| SlotLock::new(Cache::new(nodes.node(slot))));
        let slots = caches.len();
        let depot = |node| Depot {
            full: Vec::new(),
            empty: Vec::new(),
            full_max: nodes.slots_of(node) * DEPOT_PER_SLOT,
            chunks: Chunks::new(shape, node),
        };
        let depots = (0..nodes.count()).map(|node| CachePadded::new(Mutex::new(depot(node))));
        let inner = Box::new(Inner {
            caches,
            depots: depots.collect(),
            shape,
            one_count,
            handles: AtomicUsize::new(1),
            open: AtomicUsize::new(slots + 1),
        });
        Self { inner: NonNull::from(Box::leak(inner)) }
    }

    #[inline]
    fn inner(&self) -> &Inner<T> {
        // SAFETY: The inner part lives at least as long as its handles.
        unsafe { self.inner.as_ref() }
    }

    /// Allocates one object, initialised with `value`. It is aligned to 64 bytes or more. Waits
    /// only, and rarely, for the lock of the slot or the depot.
    #[inline]
    pub fn alloc(&self, value: T) -> NonNull<T> {
        self.alloc_at(cpu::current(), || value)
    }

    /// Allocates one object like [`alloc`](Self::alloc), from the slot of a CPU, for a caller that
    /// has [its number](cpu::current) already, and with a value that is made in place: large ones
    /// are not copied, as long as `make` is inlined and borrows no part of the value before it is
    /// whole. `make` must not panic, or the memory is lost.
    #[inline]
    pub fn alloc_at(&self, cpu: u32, make: impl FnOnce() -> T) -> NonNull<T> {
        let inner = self.inner();
        let cache = inner.caches.of(cpu);
        let memory = {
            let mut cache = cache.lock();
            cache.live += 1;
            inner.count_use(&mut cache, 1);
            cache.loaded.pop()
        };
        let memory = memory.unwrap_or_else(|| inner.reload(cache));
        let object = memory.cast::<T>();
        // SAFETY: The memory has the size and alignment of a `T`, and no other thread has it.
        unsafe { object.write(make()) };
        object
    }

    /// Drops the object immediately and frees its memory.
    ///
    /// # Safety
    ///
    /// The object came from [`alloc`](Self::alloc) of this slab (or a clone of it), hasn't been
    /// freed, and no thread uses it any more.
    pub unsafe fn free(&self, object: NonNull<T>) {
        // SAFETY: The caller promises that the object is allocated, and not used any more.
        unsafe { object.drop_in_place() };
        let inner = self.inner();
        let mut cache = inner.caches.this().lock();
        cache.live -= 1;
        inner.count_use(&mut cache, -1);
        inner.put(&mut cache, object.cast());
    }

    /// Drops the object and frees its memory after a grace period. The destructor runs as deferred
    /// work of RCU, or in [`flush`](Self::flush), [`trim`](Self::trim) and the drop of the last
    /// handle, without locks of this slab.
    ///
    /// # Safety
    ///
    /// The object came from [`alloc`](Self::alloc) of this slab (or a clone of it), hasn't been
    /// freed, and no thread that pins RCU from now on can find it.
    #[inline]
    pub unsafe fn free_rcu(&self, object: NonNull<T>, guard: &Guard) {
        let inner = self.inner();
        let slot = inner.caches.this_slot();
        let Some(cache) = inner.caches.get(slot) else { return };
        let mut cache = cache.lock();
        inner.count_use(&mut cache, -1);
        cache.pending.push(object);
        if cache.pending.len() >= BATCH {
            self.send_batch(slot, cache, guard);
        } else if !cache.sweeping {
            self.send_sweep(slot, cache, guard);
        }
    }

    /// Does what [`free_rcu`](Self::free_rcu) does, with an object that owns much memory: it is
    /// dropped where its grace period ends, and never waits for an allocation on this CPU.
    ///
    /// # Safety
    ///
    /// As for [`free_rcu`](Self::free_rcu).
    #[cold]
    pub unsafe fn free_rcu_large(&self, object: NonNull<T>, guard: &Guard) {
        let inner = self.inner();
        let slot = inner.caches.this_slot();
        let Some(cache) = inner.caches.get(slot) else { return };
        let mut cache = cache.lock();
        inner.count_use(&mut cache, -1);
        cache.deferred += 1;
        drop(cache);
        defer_batch(self.inner, slot, vec![object], Away::Drop, guard);
    }

    /// Defers the frees of the pending objects of a slot.
    #[cold]
    fn send_batch(
        &self,
        slot: usize,
        mut cache: SlotGuard<'_, Cache<T>, SlabCache>,
        guard: &Guard,
    ) {
        let objects = cache.take_pending();
        cache.deferred += 1;
        drop(cache);
        defer_batch(self.inner, slot, objects, Away::Return, guard);
    }

    /// Defers a check of the pending frees: they must not wait for ever if this slot frees no more.
    #[cold]
    fn send_sweep(
        &self,
        slot: usize,
        mut cache: SlotGuard<'_, Cache<T>, SlabCache>,
        guard: &Guard,
    ) {
        cache.sweeping = true;
        cache.deferred += 1;
        drop(cache);
        let inner = self.inner;
        // SAFETY: `deferred` keeps the inner part alive until the sweep has run.
        unsafe { guard.defer_unchecked(move || sweep(inner, slot)) };
    }

    /// Sends off all frees that wait for their batch to fill: they are done one grace period from
    /// now.
    pub fn flush(&self, guard: &Guard) {
        for (slot, cache) in self.inner().caches.iter().enumerate() {
            self.inner().drop_returned(cache);
            let cache = cache.lock();
            if !cache.pending.is_empty() {
                self.send_batch(slot, cache, guard);
            }
        }
        guard.flush();
    }

    /// Returns free memory to the system: empties the magazines of all slots and of the depot, and
    /// the reserve of chunks. Takes the locks of all slots, one after the other.
    pub fn trim(&self) {
        let inner = self.inner();
        for cache in inner.caches.iter() {
            inner.drop_returned(cache);
            let mut cache = cache.lock();
            let Cache { loaded, spare, full, empty, .. } = &mut *cache;
            let free = loaded.drain(..).chain(spare.drain(..)).chain(full.drain(..).flatten());
            inner.put_in_chunks(free);
            *empty = Vec::new();
        }
        for depot in &inner.depots {
            let mut depot = depot.lock();
            depot.empty = Vec::new();
            let full = std::mem::take(&mut depot.full);
            drop(depot);
            inner.put_in_chunks(full.into_iter().flatten());
        }
        inner.depots.iter().for_each(|depot| depot.lock().chunks.discard_reserve());
    }

    /// Returns the resident memory of chunks in bytes. Locks each depot.
    pub fn bytes(&self) -> usize {
        self.inner().depots.iter().map(|depot| depot.lock().chunks.bytes()).sum()
    }

    /// Returns the number of objects that were allocated and whose memory is not free yet: objects
    /// freed through RCU count until they are dropped. Exact if there are no concurrent allocations
    /// or frees. Takes the locks of all slots, one after the other.
    pub fn live(&self) -> usize {
        let live: isize = self.inner().caches.iter().map(|cache| cache.lock().live).sum();
        live.try_into().unwrap_or(0)
    }

    /// Returns the number of objects that were allocated and not freed yet, immediately or through
    /// RCU. Exact if there are no concurrent allocations or frees. Takes the locks of all slots,
    /// one after the other.
    pub fn in_use(&self) -> usize {
        let inner = self.inner();
        let in_use = match &inner.one_count {
            Some(count) => count.load(Ordering::Relaxed) as isize,
            None => inner.caches.iter().map(|cache| cache.lock().in_use).sum(),
        };
        in_use.try_into().unwrap_or(0)
    }

    /// Marks all slots as closed. The last of the deferred calls and this call frees the inner
    /// part.
    #[cold]
    fn close(&self) {
        let guard = crate::rcu::pin();
        let slots = self.inner().caches.len();
        for slot in 0..slots {
            let Some(cache) = self.inner().caches.get(slot) else { continue };
            let mut cache = cache.lock();
            cache.closed = true;
            if !cache.pending.is_empty() {
                self.send_batch(slot, cache, &guard);
            } else if cache.deferred == 0 {
                drop(cache);
                // The closing handle's unit is left, so this can't be the last.
                self.inner().open.fetch_sub(1, Ordering::AcqRel);
            }
        }
        // No more batches are returned to closed slots.
        for cache in self.inner().caches.iter() {
            self.inner().drop_returned(cache);
        }
        // SAFETY: We don't use the inner part after this.
        unsafe { release(self.inner) };
    }
}

impl Shape {
    /// Returns the maximum number of full magazines of a slot.
    fn full_max(&self) -> usize {
        (FULL_BYTES / (MAGAZINE * self.stride())).min(FULL_MAX)
    }
}

impl<T> Cache<T> {
    fn new(node: usize) -> Self {
        Self {
            node,
            loaded: Magazine::new(),
            spare: Magazine::new(),
            full: Vec::new(),
            empty: Vec::new(),
            pending: Vec::new(),
            returned: Vec::new(),
            recycled: Vec::new(),
            sweeping: false,
            deferred: 0,
            closed: false,
            live: 0,
            in_use: 0,
        }
    }

    fn take_pending(&mut self) -> Vec<NonNull<T>> {
        let mut empty = std::mem::take(&mut self.recycled);
        empty.reserve(BATCH);
        std::mem::replace(&mut self.pending, empty)
    }

    /// Counts a deferred call as done. Returns true if it was the last of a closed slot.
    fn finish(&mut self) -> bool {
        self.deferred -= 1;
        self.closed && self.deferred == 0
    }
}

impl<T> Inner<T> {
    /// Adds to the number of objects in use.
    #[inline]
    fn count_use(&self, cache: &mut Cache<T>, by: isize) {
        match &self.one_count {
            Some(count) => _ = count.fetch_add(by as i64, Ordering::Relaxed),
            None => cache.in_use += by,
        }
    }

    /// Returns an object for a slot whose loaded magazine was empty.
    #[cold]
    fn reload(&self, slot: &SlotLock<Cache<T>, SlabCache>) -> NonNull<u8> {
        let mut cache = slot.lock();
        match cache.loaded.pop() {
            Some(object) => object,
            None => self.refill(&mut cache),
        }
    }

    /// Drops objects after their grace period and takes their memory into a slot.
    fn drop_batch(&self, slot: &SlotLock<Cache<T>, SlabCache>, mut objects: Vec<NonNull<T>>) {
        if std::mem::needs_drop::<T>() {
            // SAFETY: Their owner has freed them, and the grace period is over.
            each_survives(&objects, |object| unsafe { object.drop_in_place() });
        }
        let mut cache = slot.lock();
        cache.live -= objects.len().cast_signed();
        for object in objects.drain(..) {
            self.put(&mut cache, object.cast());
        }
        cache.recycled = objects;
    }

    /// Drops the batches that were returned to a slot.
    fn drop_returned(&self, slot: &SlotLock<Cache<T>, SlabCache>) {
        let returned = std::mem::take(&mut slot.lock().returned);
        for batch in returned {
            self.drop_batch(slot, batch);
        }
    }

    /// Returns an object for a slot whose loaded magazine is empty.
    #[cold]
    fn refill(&self, cache: &mut Cache<T>) -> NonNull<u8> {
        std::mem::swap(&mut cache.loaded, &mut cache.spare);
        if let Some(object) = cache.loaded.pop() {
            return object;
        }
        if let Some(full) = cache.full.pop() {
            cache.empty.push(std::mem::replace(&mut cache.loaded, full));
            return self.pop(cache);
        }
        let mut depot = self.depots[cache.node].lock();
        if let Some(mut full) = depot.full.pop() {
            std::mem::swap(&mut cache.loaded, &mut full);
            depot.empty.push(full);
        } else {
            cache.loaded.reserve_exact(MAGAZINE);
            depot.chunks.carve(CARVE, &mut cache.loaded);
        }
        self.pop(cache)
    }

    /// Takes an object from the loaded magazine, which was filled.
    fn pop(&self, cache: &mut Cache<T>) -> NonNull<u8> {
        let object = cache.loaded.pop();
        // Carving aborts when it can't get memory, and a full magazine isn't empty.
        object.unwrap_or_else(|| self.shape.out_of_memory())
    }

    /// Takes the memory of an object back into the slot.
    #[inline]
    fn put(&self, cache: &mut Cache<T>, object: NonNull<u8>) {
        if cfg!(any(debug_assertions, shuttle)) {
            // The pattern exposes a use after free.
            // SAFETY: The memory is free and ours.
            unsafe { object.write_bytes(POISON, self.shape.size()) };
        }
        if cache.loaded.len() >= MAGAZINE {
            self.make_room(cache);
        }
        if cfg!(shuttle) {
            // A model rather finds a use of free memory than one of another object.
            cache.loaded.insert(0, object);
        } else {
            cache.loaded.push(object);
        }
    }

    /// Replaces the full magazine with an empty one.
    #[cold]
    fn make_room(&self, cache: &mut Cache<T>) {
        std::mem::swap(&mut cache.loaded, &mut cache.spare);
        if cache.loaded.len() < MAGAZINE {
            cache.loaded.reserve_exact(MAGAZINE - cache.loaded.len());
            return;
        }
        if cache.full.len() < self.shape.full_max() {
            let empty = cache.empty.pop().unwrap_or_else(|| Magazine::with_capacity(MAGAZINE));
            cache.full.push(std::mem::replace(&mut cache.loaded, empty));
            return;
        }
        let mut depot = self.depots[cache.node].lock();
        let empty = depot.empty.pop().unwrap_or_else(|| Magazine::with_capacity(MAGAZINE));
        let mut full = std::mem::replace(&mut cache.loaded, empty);
        if depot.full.len() < depot.full_max {
            depot.full.push(full);
            return;
        }
        drop(depot);
        self.put_in_chunks(full.drain(..));
        let mut depot = self.depots[cache.node].lock();
        depot.empty.push(full);
        depot.empty.truncate(DEPOT_PER_SLOT);
    }

    /// Puts free objects, which are in no magazine, into their chunks. The caller holds no depot's
    /// lock.
    fn put_in_chunks(&self, objects: impl Iterator<Item = NonNull<u8>>) {
        let mut depot: Option<(usize, MutexGuard<'_, Depot, SlabDepot>)> = None;
        for object in objects {
            // One depot has all chunks, which need not be asked.
            let home = if self.depots.len() == 1 { 0 } else { chunk::depot_of(object) };
            match &mut depot {
                Some((locked, depot)) if *locked == home => depot.chunks.put(object),
                other => {
                    // Unlocks the former one first.
                    *other = None;
                    let (_, depot) = other.insert((home, self.depots[home].lock()));
                    depot.chunks.put(object);
                }
            }
        }
    }
}

/// The treatment of a batch whose grace period ends on another CPU than that of its slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Away {
    /// The batch returns to the slot, which drops it with its next one.
    Return,
    /// The objects are dropped right there, since they own much memory.
    Drop,
}

/// Defers dropping and freeing these objects. The slot has counted the call.
fn defer_batch<T: Send + 'static>(
    inner: NonNull<Inner<T>>,
    slot: usize,
    objects: Vec<NonNull<T>>,
    away: Away,
    guard: &Guard,
) {
    // SAFETY: The count of deferred calls keeps the inner part alive until the batch has run; no
    // thread that pins from now on can reach the objects, and they are `Send`.
    unsafe { guard.defer_unchecked(move || free_batch(inner, slot, objects, away)) };
}

/// Finishes a batch after its grace period: on the CPU of its slot the objects are dropped, on
/// another one they are treated as `away` says.
fn free_batch<T: Send + 'static>(
    inner: NonNull<Inner<T>>,
    slot: usize,
    objects: Vec<NonNull<T>>,
    away: Away,
) {
    let last = {
        // SAFETY: This call has been counted, so the inner part lives.
        let shared = unsafe { inner.as_ref() };
        let Some(home) = shared.caches.get(slot) else { return };
        let is_home = shared.caches.this_slot() == slot;
        let returns = away == Away::Return && !is_home;
        let mut cache = home.lock();
        if returns && !cache.closed && cache.returned.len() < RETURNED_MAX {
            cache.returned.push(objects);
            cache.finish()
        } else {
            drop(cache);
            shared.drop_batch(home, objects);
            if is_home {
                shared.drop_returned(home);
            }
            home.lock().finish()
        }
    };
    if last {
        // SAFETY: We don't use the inner part after this.
        unsafe { release(inner) };
    }
}

/// Sends off the pending frees of a slot, since their batch may never fill.
fn sweep<T: Send + 'static>(inner: NonNull<Inner<T>>, slot: usize) {
    let (batch, last) = {
        // SAFETY: This call has been counted, so the inner part lives.
        let shared = unsafe { inner.as_ref() };
        let Some(cache) = shared.caches.get(slot) else { return };
        let mut cache = cache.lock();
        cache.sweeping = false;
        if cache.pending.is_empty() {
            (None, cache.finish())
        } else {
            // The count of this call passes to the batch.
            (Some(cache.take_pending()), false)
        }
    };
    if let Some(objects) = batch {
        defer_batch(inner, slot, objects, Away::Return, &crate::rcu::pin());
    } else if last {
        // SAFETY: We don't use the inner part after this.
        unsafe { release(inner) };
    }
}

/// Releases the unit of a closed slot, or of the handle that closes; the last one frees everything.
///
/// # Safety
///
/// The caller owns one unit of `open`, and doesn't use the inner part afterwards.
unsafe fn release<T>(inner: NonNull<Inner<T>>) {
    // SAFETY: The caller's unit keeps the inner part alive until here. Release and acquire:
    // everything that other threads did happens before it is freed.
    if unsafe { inner.as_ref() }.open.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: It came from a box, and we are the last.
        drop(unsafe { Box::from_raw(inner.as_ptr()) });
    }
}

impl<T: Send + 'static> Clone for Slab<T> {
    fn clone(&self) -> Self {
        // Relaxed suffices, because this handle keeps the inner part alive.
        self.inner().handles.fetch_add(1, Ordering::Relaxed);
        Self { inner: self.inner }
    }
}

impl<T: Send + 'static> Drop for Slab<T> {
    fn drop(&mut self) {
        if self.inner().handles.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            self.close();
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("size", &self.inner().shape.size()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
