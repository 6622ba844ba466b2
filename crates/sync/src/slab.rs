//! Memory for objects of one type: dentries and inodes.
//!
//! # Purpose
//!
//! A general allocator has to find the size, mixes objects of all kinds in a line, and frees what
//! RCU hands it on whatever CPU the grace period happened to end. A [`Slab`] knows its type: an
//! allocation takes the most recently freed object of this CPU from an array, under a lock that
//! nobody else wants. The scheme is Bonwick's and Adams' (magazines and vmem, USENIX 2001).
//!
//! ```text
//!  CPU slot: two magazines <--> depot: full magazines <--> chunks of 64 KiB <--> system
//!            pending frees
//! ```
//!
//! # Invariants
//!
//! * A free object is in exactly one place: a magazine of a slot, a magazine of the depot, or the
//!   bitmap of its chunk.
//! * Magazines hold addresses, and a chunk marks its free objects in a bitmap: a free object's own
//!   memory is not touched, whichever CPU moves it.
//! * Objects freed through RCU wait in the slot on which they were freed, in batches with one
//!   deferred call for each, and return to the magazines of that same slot. A batch whose grace period
//!   ends on another CPU goes home undropped, and is dropped there when memory is needed; only when
//!   several wait already does the other CPU drop one itself. So two CPUs that create and remove never
//!   hand memory to each other, nor touch each other's objects. A batch that doesn't fill up is sent off by a
//!   sweep, which is deferred together with its first object, hence after at most two grace
//!   periods.
//! * A chunk that is wholly free is given back to the system (its pages, not its addresses), beyond
//!   a few that are kept.
//! * The inner part lives until the last clone is dropped **and** no deferred call is left: each
//!   slot counts its own, so that no shared count is written while the slab is in use.
//!
//! # Locks
//!
//! `SlabCache` (a slot), then `SlabDepot`. Both are leaves as seen from outside. Destructors of
//! objects run under neither.

mod chunk;

use crate::atomic::{AtomicUsize, Ordering, fence};
use crate::lock::Mutex;
use crate::lock::slot_lock::{SlotGuard, SlotLock};
use crate::percpu::{Apart, PerCpu};
use crate::rcu::Guard;
use chunk::{Chunks, Shape};
use std::fmt;
use std::ptr::NonNull;

crate::lock_class! {
    /// The magazines and pending frees of one CPU slot of a [`Slab`].
    pub SlabCache = ("slab_cache", 65010);
    /// What the slots of a [`Slab`] share.
    pub SlabDepot = ("slab_depot", 65020);
}

/// Objects in a full magazine.
const MAGAZINE: usize = 64;
/// Objects that are carved at once when no full magazine is to be had.
const CARVE: usize = 32;
/// Objects that share one deferred call.
const BATCH: usize = 32;
/// Batches that wait in a slot to be dropped on its own CPU; when that is idle, others drop the rest.
const RETURNED_MAX: usize = 8;
/// Full magazines that the depot keeps for each slot.
const DEPOT_PER_SLOT: usize = 2;

type Magazine = Vec<NonNull<u8>>;

/// A shared allocator of `T`s. Cloning it makes another handle to the same memory.
///
/// Allocation aborts the process when the system has no memory, as `Box::new` does.
///
/// Dropping the last handle releases all memory once the frees under way have run. Objects that
/// are still allocated then are never dropped, and their memory is gone: what they own is leaked,
/// and to use them would be a use after free. That drop pins RCU, so the thread must hold no ranked
/// lock unless it holds a guard already.
///
/// `Send` and `Sync` when `T` is `Send`: objects are made and dropped on any thread.
pub struct Slab<T: Send + 'static> {
    inner: NonNull<Inner<T>>,
}

// SAFETY: The inner part is used under its locks and atomics; objects are moved in by one thread
// and dropped by another, which `T: Send` allows. The slab never makes a reference to an object.
unsafe impl<T: Send + 'static> Send for Slab<T> {}
// SAFETY: As above.
unsafe impl<T: Send + 'static> Sync for Slab<T> {}

struct Inner<T> {
    caches: PerCpu<SlotLock<Cache<T>, SlabCache>>,
    /// Apart from the above, which every allocation reads.
    depot: Apart<Mutex<Depot, SlabDepot>>,
    shape: Shape,
    /// Handles; the last one closes the slots.
    handles: AtomicUsize,
    /// Slots that aren't closed or still have deferred calls, and one more for the closing handle.
    open: AtomicUsize,
}

// SAFETY: Addresses of free memory and of objects that nobody else has; the objects are `Send`.
unsafe impl<T: Send> Send for Cache<T> {}
// SAFETY: Addresses of free memory.
unsafe impl Send for Depot {}

/// What a CPU slot has.
struct Cache<T> {
    /// Where objects are taken from and put back to.
    loaded: Magazine,
    /// Either full or empty, but for the objects carved last: see `put` and `refill`.
    spare: Magazine,
    /// Objects that are to be dropped after a grace period and have no deferred call yet.
    pending: Vec<NonNull<T>>,
    /// Batches whose grace period ended on another CPU: dropped here, by whoever needs memory next, so
    /// that the objects never leave the caches of this CPU.
    returned: Vec<Vec<NonNull<T>>>,
    /// An empty vector that can become `pending`.
    recycled: Vec<NonNull<T>>,
    /// Whether a sweep is deferred.
    sweeping: bool,
    /// Deferred calls that have not run.
    deferred: usize,
    /// The last handle is gone.
    closed: bool,
    /// Allocations minus drops on this slot; only the sum over all slots means anything.
    live: isize,
    /// The same, but what is freed through RCU counts as gone at once.
    in_use: isize,
}

struct Depot {
    full: Vec<Magazine>,
    empty: Vec<Magazine>,
    full_max: usize,
    chunks: Chunks,
}

impl<T: Send + 'static> Slab<T> {
    /// An empty slab with `slots` CPU slots. No memory for objects is taken before the first
    /// allocation.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let shape = const { Shape::of::<T>() };
        let caches = PerCpu::new(slots, |_| SlotLock::new(Cache::new()));
        let slots = caches.len();
        let depot = Depot {
            full: Vec::new(),
            empty: Vec::new(),
            full_max: slots * DEPOT_PER_SLOT,
            chunks: Chunks::new(shape),
        };
        let inner = Box::new(Inner {
            caches,
            depot: Apart(Mutex::new(depot)),
            shape,
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

    /// Memory for one object, initialised with `value`. It is aligned to 64 bytes or more. Waits for
    /// nothing but, rarely, the lock of the slot or the depot.
    #[inline]
    #[must_use]
    pub fn alloc(&self, value: T) -> NonNull<T> {
        self.alloc_with(|| value)
    }

    /// As [`alloc`](Self::alloc), with a value that is made where it stays: large ones are not copied, as
    /// long as `make` is inlined and borrows no part of the value before it is whole. `make` must not
    /// panic, or the memory is lost.
    #[inline]
    #[must_use]
    pub fn alloc_with(&self, make: impl FnOnce() -> T) -> NonNull<T> {
        let inner = self.inner();
        let cache = inner.caches.this();
        let memory = {
            let mut cache = cache.lock();
            cache.live += 1;
            cache.in_use += 1;
            cache.loaded.pop()
        };
        let memory = memory.unwrap_or_else(|| inner.reload(cache));
        let object = memory.cast::<T>();
        // SAFETY: The memory is of the size and alignment of a `T`, and nobody else has it.
        unsafe { object.write(make()) };
        object
    }

    /// Drops the object at once and takes its memory back.
    ///
    /// # Safety
    ///
    /// The object came from [`alloc`](Self::alloc) of this slab (or a clone of it), hasn't been
    /// freed, and nobody uses it any more.
    pub unsafe fn free(&self, object: NonNull<T>) {
        // SAFETY: Says the caller.
        unsafe { object.drop_in_place() };
        let inner = self.inner();
        let mut cache = inner.caches.this().lock();
        cache.live -= 1;
        cache.in_use -= 1;
        inner.put(&mut cache, object.cast());
    }

    /// Drops the object and takes its memory back after a grace period. The destructor runs on
    /// any thread that uses RCU or allocates here, without locks of this slab; it takes no lock that is
    /// held around an allocation.
    ///
    /// # Safety
    ///
    /// The object came from [`alloc`](Self::alloc) of this slab (or a clone of it), hasn't been
    /// freed, and nobody who pins RCU from now on can find it.
    #[inline]
    pub unsafe fn free_rcu(&self, object: NonNull<T>, guard: &Guard) {
        let inner = self.inner();
        let slot = inner.caches.this_slot();
        let Some(cache) = inner.caches.get(slot) else { return };
        let mut cache = cache.lock();
        cache.in_use -= 1;
        cache.pending.push(object);
        if cache.pending.len() >= BATCH {
            self.send_batch(slot, cache, guard);
        } else if !cache.sweeping {
            self.send_sweep(slot, cache, guard);
        }
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
        defer_batch(self.inner, slot, objects, guard);
    }

    /// Defers a look at what is pending, so that nothing stays there for ever when this slot frees
    /// no more.
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
        // SAFETY: `deferred` keeps the inner part until the sweep has run.
        unsafe { guard.defer_unchecked(move || sweep(inner, slot)) };
    }

    /// Sends off all frees that wait for their batch to fill, so that they are done after one
    /// grace period from now.
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

    /// Gives back to the system what is free: the magazines of all slots and of the depot are
    /// emptied, and so are the chunks that are kept in reserve. Takes the locks of all slots, one
    /// after the other.
    pub fn trim(&self) {
        let inner = self.inner();
        for cache in inner.caches.iter() {
            inner.drop_returned(cache);
            let mut cache = cache.lock();
            let mut depot = inner.depot.lock();
            let Cache { loaded, spare, .. } = &mut *cache;
            for object in loaded.drain(..).chain(spare.drain(..)) {
                depot.chunks.put(object);
            }
        }
        let mut depot = inner.depot.lock();
        let Depot { full, empty, chunks, .. } = &mut *depot;
        for object in full.drain(..).flatten() {
            chunks.put(object);
        }
        *empty = Vec::new();
        chunks.discard_reserve();
    }

    /// The resident memory of chunks in bytes. Locks the depot.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner().depot.lock().chunks.bytes()
    }

    /// The number of objects that were allocated and whose memory has not come back: those freed
    /// through RCU count until they are dropped. Exact when nothing is allocated or freed meanwhile.
    /// Takes the locks of all slots, one after the other.
    #[must_use]
    pub fn live(&self) -> usize {
        let live: isize = self.inner().caches.iter().map(|cache| cache.lock().live).sum();
        live.try_into().unwrap_or(0)
    }

    /// The number of objects that were allocated and not freed yet, at once or through RCU. Exact when
    /// nothing is allocated or freed meanwhile. Takes the locks of all slots, one after the other.
    #[must_use]
    pub fn in_use(&self) -> usize {
        let in_use: isize = self.inner().caches.iter().map(|cache| cache.lock().in_use).sum();
        in_use.try_into().unwrap_or(0)
    }

    /// Marks all slots as closed. Whoever finishes the last deferred call, or this, frees the inner
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
                // The one that stands for us is left, so this can't be the last.
                self.inner().open.fetch_sub(1, Ordering::AcqRel);
            }
        }
        // Nothing more is returned to closed slots.
        for cache in self.inner().caches.iter() {
            self.inner().drop_returned(cache);
        }
        // SAFETY: We don't use the inner part after this.
        unsafe { release(self.inner) };
    }
}

impl<T> Cache<T> {
    fn new() -> Self {
        Self {
            loaded: Magazine::new(),
            spare: Magazine::new(),
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

    /// Counts a deferred call as done. True when it was the last of a closed slot.
    fn finish(&mut self) -> bool {
        self.deferred -= 1;
        self.closed && self.deferred == 0
    }
}

impl<T> Inner<T> {
    /// An object for a slot whose loaded magazine was empty.
    #[cold]
    fn reload(&self, slot: &SlotLock<Cache<T>, SlabCache>) -> NonNull<u8> {
        loop {
            let returned = {
                let mut cache = slot.lock();
                if let Some(object) = cache.loaded.pop() {
                    return object;
                }
                let returned = if cache.spare.is_empty() { cache.returned.pop() } else { None };
                match returned {
                    Some(batch) => batch,
                    None => return self.refill(&mut cache),
                }
            };
            self.drop_batch(slot, returned);
        }
    }

    /// Drops objects after their grace period and takes their memory into a slot.
    fn drop_batch(&self, slot: &SlotLock<Cache<T>, SlabCache>, mut objects: Vec<NonNull<T>>) {
        if std::mem::needs_drop::<T>() {
            for object in &objects {
                // SAFETY: Freed by their owner, and the grace period is over.
                unsafe { object.drop_in_place() };
            }
        }
        let mut cache = slot.lock();
        cache.live -= objects.len().cast_signed();
        for object in objects.drain(..) {
            self.put(&mut cache, object.cast());
        }
        cache.recycled = objects;
    }

    /// Drops what was returned to a slot and not yet dropped.
    fn drop_returned(&self, slot: &SlotLock<Cache<T>, SlabCache>) {
        let returned = std::mem::take(&mut slot.lock().returned);
        for batch in returned {
            self.drop_batch(slot, batch);
        }
    }

    /// An object for a slot whose loaded magazine is empty.
    #[cold]
    fn refill(&self, cache: &mut Cache<T>) -> NonNull<u8> {
        std::mem::swap(&mut cache.loaded, &mut cache.spare);
        if let Some(object) = cache.loaded.pop() {
            return object;
        }
        let mut depot = self.depot.lock();
        if let Some(mut full) = depot.full.pop() {
            std::mem::swap(&mut cache.loaded, &mut full);
            depot.empty.push(full);
        } else {
            cache.loaded.reserve_exact(MAGAZINE);
            depot.chunks.carve(CARVE, &mut cache.loaded);
        }
        let object = cache.loaded.pop();
        // Carving aborts when it can't get memory, and a full magazine isn't empty.
        object.unwrap_or_else(|| self.shape.out_of_memory())
    }

    /// Takes the memory of an object back into the slot.
    #[inline]
    fn put(&self, cache: &mut Cache<T>, object: NonNull<u8>) {
        if cfg!(debug_assertions) {
            // Whoever still uses it shall notice.
            // SAFETY: The memory is free and ours.
            unsafe { object.write_bytes(0x6b, self.shape.size()) };
        }
        if cache.loaded.len() >= MAGAZINE {
            self.make_room(cache);
        }
        cache.loaded.push(object);
    }

    /// Puts an empty magazine in the place of the full one.
    #[cold]
    fn make_room(&self, cache: &mut Cache<T>) {
        std::mem::swap(&mut cache.loaded, &mut cache.spare);
        if cache.loaded.len() < MAGAZINE {
            cache.loaded.reserve_exact(MAGAZINE - cache.loaded.len());
            return;
        }
        let mut depot = self.depot.lock();
        let empty = depot.empty.pop().unwrap_or_else(|| Magazine::with_capacity(MAGAZINE));
        let mut full = std::mem::replace(&mut cache.loaded, empty);
        if depot.full.len() < depot.full_max {
            depot.full.push(full);
            return;
        }
        for object in full.drain(..) {
            depot.chunks.put(object);
        }
        depot.empty.push(full);
        depot.empty.truncate(DEPOT_PER_SLOT);
    }
}

/// Defers dropping and freeing these objects. The slot has counted the call.
fn defer_batch<T: Send + 'static>(
    inner: NonNull<Inner<T>>,
    slot: usize,
    objects: Vec<NonNull<T>>,
    guard: &Guard,
) {
    // SAFETY: The count of deferred calls keeps the inner part until the batch has run; the
    // objects are out of reach for whoever pins from now on, and `Send`.
    unsafe { guard.defer_unchecked(move || free_batch(inner, slot, objects)) };
}

/// Ends a batch after its grace period: on the CPU of its slot the objects are dropped, from another
/// one they are sent home.
fn free_batch<T: Send + 'static>(inner: NonNull<Inner<T>>, slot: usize, objects: Vec<NonNull<T>>) {
    let last = {
        // SAFETY: This call has been counted, so the inner part is there.
        let shared = unsafe { inner.as_ref() };
        let Some(home) = shared.caches.get(slot) else { return };
        let away = shared.caches.this_slot() != slot;
        let mut cache = home.lock();
        if away && !cache.closed && cache.returned.len() < RETURNED_MAX {
            cache.returned.push(objects);
            cache.finish()
        } else {
            drop(cache);
            shared.drop_batch(home, objects);
            home.lock().finish()
        }
    };
    if last {
        // SAFETY: We don't use the inner part after this.
        unsafe { release(inner) };
    }
}

/// Sends off what is pending in a slot, since its batch may never fill.
fn sweep<T: Send + 'static>(inner: NonNull<Inner<T>>, slot: usize) {
    let (batch, last) = {
        // SAFETY: This call has been counted, so the inner part is there.
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
        defer_batch(inner, slot, objects, &crate::rcu::pin());
    } else if last {
        // SAFETY: We don't use the inner part after this.
        unsafe { release(inner) };
    }
}

/// Says that a closed slot, or the handle that closes, is done; the last one frees everything.
///
/// # Safety
///
/// The caller stands for one unit of `open`, and doesn't use the inner part afterwards.
unsafe fn release<T>(inner: NonNull<Inner<T>>) {
    // SAFETY: The unit of the caller keeps it until here. Release and acquire: whatever the others
    // did happens before the end.
    if unsafe { inner.as_ref() }.open.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: It came from a box, and we are the last.
        drop(unsafe { Box::from_raw(inner.as_ptr()) });
    }
}

impl<T: Send + 'static> Clone for Slab<T> {
    fn clone(&self) -> Self {
        // Relaxed: we have a handle, so it can't go away meanwhile.
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
