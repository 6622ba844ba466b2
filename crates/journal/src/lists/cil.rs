//! The committed item list (CIL): items that are committed and not yet in the log.
//!
//! # Purpose
//!
//! A commit puts each of its items on the list of its CPU, and stores in the item what a recovery
//! needs. An item that is already on a list, of any CPU, stays there. A push takes all lists in one
//! step as the checkpoint of this context, and then the vectors stored in the items.
//!
//! # Invariants
//!
//! * Commits hold the reader's side of the context lock (a brlock: they write only their slot of
//!   it). The push holds the writer's side while it takes the lists: a number of moves that depends
//!   on the slots, not on the items. So a transaction is in one context as a whole.
//! * An item is on at most one list, at the index that its
//!   [`CilPosition`](crate::item::CilPosition) gives, and holds one pin for it. A commit whose
//!   items are all on lists already takes no list's lock.
//! * The push visits every slot that has been used in this context, including those of CPUs that no
//!   longer run: no entry is lost with a CPU. A commit notes its slot before it uses it, under the
//!   reader's side (the mask `cil_pcpmask` of XFS, 2023).
//! * *Order*: each commit gets an order id above the former ids of all its items and of the commit
//!   that it [follows](crate::ChangeList::follow), and, if it puts anything on its list, above the
//!   latest id there. So of two transactions that share an item or
//!   a list, or are connected by a chain of such transactions, the later one has the larger id, and
//!   no cache line is shared for it (Lamport's clocks, 1978, instead of the counter of Linux's
//!   final version). Transactions that are not connected commute. A checkpoint is written in the
//!   order of the ids; an item retains the first id that it gets in a context.
//! * *Empty* is exact: the first commit of a context clears the flag under the reader's side, by
//!   test and then test-and-clear, so that all later commits only read it (the rule that ended the
//!   discussion of Chinner's per-CPU CIL patches, 2020, patch 4). The push sets and checks it under
//!   the writer's side.
//! * Callbacks of transactions (which return the file system's busy extents) wait on the list of
//!   the CPU next to its items, and are taken with them (Chinner, 2020, patch 5). So extents become
//!   free with the checkpoint that contains the freeing transaction, and not before. Without that
//!   patch they wait on one list for all CPUs.
//! * The commit that clears the flag gives the unit reservation of the checkpoint. Every commit
//!   gives the bytes that it adds, and its share of record headers, or takes back what its items no
//!   longer need ([`ticket`](crate::admission::ticket)).

use std::mem;

use smallvec::SmallVec;
use vfscale_sync::Mutex;
use vfscale_sync::atomic::{AtomicI64, AtomicU64, Ordering};
use vfscale_sync::brlock::BrLock;
use vfscale_sync::percpu::{CachePadded, PerCpu};
use vfscale_sync::prefetch::{prefetch, soon};
use vfscale_sync::scaling::Scaling;

use crate::admission::memory::Levels;
use crate::admission::ticket::{Costs, signed};
use crate::change_list::{Callback, ChangeList, Items};
use crate::disk::checkpoint::{CHECKPOINT_HEADER_BYTES, op_bytes, stream_bytes};
use crate::item::{CilPosition, Item, LogVector};
use crate::ranks::{CilBusy, CilContext, CilSlot};
use crate::read_mostly::SharedFields;
use crate::{Error, LogKey, Result};

/// An item in a context.
pub(crate) struct Entry {
    order: u64,
    /// Key of the item. A copy, because the item is no longer in any CPU cache when the checkpoint
    /// is written.
    pub(crate) key: LogKey,
    pub(crate) item: Item,
    /// Contents to log. Until the switch of contexts they are mostly in the item ([`ItemState`]).
    ///
    /// [`ItemState`]: crate::ItemState
    pub(crate) vector: LogVector,
    /// How many bytes of them are written. Known from the switch of contexts on.
    pub(crate) bytes: usize,
}

impl Entry {
    /// Prefetches the memory that it refers to.
    pub(crate) fn prefetch(&self) {
        prefetch(self.item.state());
        self.vector.prefetch();
    }
}

#[derive(Default)]
struct List {
    entries: Vec<Entry>,
    callbacks: Vec<Callback>,
    /// The largest order id that was assigned on this list.
    order: u64,
    /// Memory of the entries that the common sum does not include yet, in bytes.
    memory: u64,
}

impl List {
    /// Replaces the vector of an item that is on the list, and returns the former one.
    fn replace(&mut self, item: &Item, vector: LogVector) -> Option<LogVector> {
        let entry = self.entries.get_mut(item.state().cil_position().index)?;
        Some(mem::replace(&mut entry.vector, vector))
    }
}

/// The slots that were used since they were last taken.
struct Used(Box<[CachePadded<AtomicU64>]>);

impl Used {
    fn new(slots: usize) -> Self {
        Self((0..slots.div_ceil(64)).map(|_| CachePadded::new(AtomicU64::new(0))).collect())
    }

    /// Notes a slot. Writes only if it is not noted yet.
    #[inline]
    fn note(&self, slot: usize) {
        let bit = 1 << (slot % 64);
        if let Some(word) = self.0.get(slot / 64)
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Takes the slots. None is noted during the call.
    fn take(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(number, word)| {
            let bits = word.swap(0, Ordering::Relaxed);
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| number * 64 + bit)
        })
    }
}

/// Contributions of a CPU to the current context.
struct Counters {
    /// Bytes that the common sum does not include yet; negative if it includes too many.
    stream_bytes: AtomicI64,
    /// Log space that commits gave less what they took back, in bytes. Only the sum over all CPUs
    /// is never negative: an item may grow on one and shrink on another.
    reserved: AtomicI64,
    /// Home blocks of the items that were put into a context on this CPU since the journal was
    /// opened.
    homes: AtomicU64,
    /// Number of transactions that were committed on this CPU since the journal was opened.
    commits: AtomicU64,
}

/// The committed item list. Counterpart of `struct xfs_cil`.
pub(crate) struct Cil {
    context: BrLock<CilContext>,
    lists: PerCpu<Mutex<List, CilSlot>>,
    used_lists: Used,
    /// The callbacks of all CPUs; `None` if they are on the lists.
    busy: Option<Mutex<Vec<Callback>, CilBusy>>,
    counters: PerCpu<Counters>,
    used_counters: Used,
    /// Memory of the entries of all lists, except bytes that lists have not added yet.
    memory: CachePadded<AtomicU64>,
    levels: Levels,
    /// Number of bytes that a list adds to that sum in one step.
    memory_batch: u64,
    costs: Costs,
}

/// Vectors that newer ones have replaced.
type Replaced = SmallVec<[LogVector; 8]>;

/// The result of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inserted {
    /// Sequence number of the context that the transaction is in.
    pub(crate) sequence: u64,
    /// Log space that it gave to the context out of its reservation, in bytes; negative if it took
    /// more back than it gave. At most its reservation.
    pub(crate) given: i64,
    /// Its order id.
    pub(crate) order: u64,
}

/// The result of an attempt to end the current context.
pub(crate) enum Switch {
    /// The context has ended, and another one has begun.
    Taken(Context),
    /// The context is empty, and continues.
    Empty,
    /// The context continues, for there are delayed changes that belong to it.
    Delayed,
}

/// The transactions that were committed in one context. Counterpart of `struct xfs_cil_ctx`.
pub(crate) struct Context {
    pub(crate) sequence: u64,
    /// Sorted by order id.
    pub(crate) entries: Vec<Entry>,
    pub(crate) callbacks: Vec<Callback>,
    /// Log space that its transactions gave, in bytes.
    pub(crate) reserved: u64,
    /// Length of its stream, in bytes.
    pub(crate) stream_bytes: u64,
    /// Number of zeros at the end of items that its transactions counted, and the stream lacks.
    pub(crate) spared_bytes: u64,
}

impl Cil {
    pub(crate) fn new(scaling: &Scaling, costs: Costs, levels: Levels) -> Self {
        let counters = |_| Counters {
            stream_bytes: AtomicI64::new(0),
            reserved: AtomicI64::new(0),
            homes: AtomicU64::new(0),
            commits: AtomicU64::new(0),
        };
        Self {
            context: BrLock::new(scaling.cil_context_slots()),
            lists: PerCpu::new(scaling.cil_list_slots(), |_| Mutex::new(List::default())),
            used_lists: Used::new(scaling.cil_list_slots()),
            busy: (!scaling.busy_extents()).then(|| Mutex::new(Vec::new())),
            counters: PerCpu::new(scaling.cil_counter_slots(), counters),
            used_counters: Used::new(scaling.cil_counter_slots()),
            memory: CachePadded::new(AtomicU64::new(0)),
            levels,
            memory_batch: (levels.cil / (8 * scaling.cil_list_slots().max(1) as u64)).max(1),
            costs,
        }
    }

    /// Moves the items and callbacks of a transaction into the current context, on the list of a
    /// CPU; each of its items has a pin for it, and is formatted. Waits for a push only while that
    /// takes the lists.
    ///
    /// # Errors
    /// [`Error::Overrun`]: the reservation was too small. The items are in the context
    /// nevertheless, and the journal must be shut down.
    pub(crate) fn insert(
        &self,
        cpu: u32,
        shared: &SharedFields,
        commit: &mut ChangeList,
    ) -> Result<Inserted> {
        // Replaced vectors are freed after all locks are released.
        let mut replaced = Replaced::new();
        let context = self.context.read_at(cpu);
        let sequence = shared.read.sequence.load(Ordering::Relaxed);
        let empty = &shared.read.is_empty;
        let is_first = empty.load(Ordering::Relaxed) && empty.swap(false, Ordering::Relaxed);
        if let Some(busy) = &self.busy {
            busy.lock().append(&mut commit.callbacks);
        }
        let (longer, order) = self.put(cpu, sequence, commit, &mut replaced);
        let unit = if is_first { signed(self.costs.unit()) } else { 0 };
        let given = unit + self.costs.share(longer);
        // An overrun is accounted for in full as well: the checkpoint's needs do not depend on it.
        self.account(cpu, shared, longer, given);
        drop(context);
        if let Ok(used) = u64::try_from(given)
            && used > commit.left
        {
            return Err(Error::Overrun { used, reserved: commit.left });
        }
        Ok(Inserted { sequence, given, order })
    }

    /// Puts items into the context, and returns by how much the stream grew, and the order id.
    fn put(
        &self,
        cpu: u32,
        sequence: u64,
        commit: &mut ChangeList,
        replaced: &mut Replaced,
    ) -> (i64, u64) {
        let ChangeList { items, callbacks, follows, .. } = commit;
        let orders = items.iter().map(|(item, _)| item.state().order());
        let mut order = orders.fold(*follows, u64::max) + 1;
        let is_new = |item: &Item| item.state().cil_position().sequence != sequence;
        // A single list is the state before patch 4, when every commit took its lock.
        let needs_list = !callbacks.is_empty()
            || self.lists.len() == 1
            || items.iter().any(|(item, _)| is_new(item));
        let slot = self.lists.slot_of(cpu);
        let mut list = self.lists.get(slot).filter(|_| needs_list).map(|list| list.lock());
        if let Some(list) = &mut list {
            self.used_lists.note(slot);
            list.callbacks.append(callbacks);
            order = order.max(list.order + 1);
            list.order = order;
        }
        let (mut longer, mut homes, mut late) = (0, 0, Items::new());
        for (item, vector) in items.drain(..) {
            let state = item.state();
            let bytes = stream_bytes(&vector);
            state.set_order(order);
            item.logged(sequence);
            let before = state.replace_stream_bytes(bytes);
            let put = state.put_vector(sequence, vector);
            if let Some(list) = list.as_mut().filter(|_| is_new(&item)) {
                // The context takes over the transaction's pin.
                longer += signed(bytes);
                homes += item.home_blocks();
                list.memory += item.memory_bytes() as u64;
                state.set_cil_position(CilPosition { sequence, slot, index: list.entries.len() });
                let (key, vector) = (item.key(), put.err().unwrap_or_default());
                list.entries.push(Entry { order, key, item, vector, bytes: 0 });
                continue;
            }
            // The context already has a pin, so the transaction's is dropped.
            state.unpin();
            longer += signed(bytes) - signed(before);
            match put {
                Ok(Some(old)) => replaced.push(old),
                Ok(None) => {}
                Err(vector) => late.push((item, vector)),
            }
        }
        if let Some(list) = list.as_mut().filter(|list| list.memory >= self.memory_batch) {
            self.memory.fetch_add(mem::take(&mut list.memory), Ordering::Relaxed);
        }
        drop(list);
        if homes > 0 {
            self.counters.of(cpu).homes.fetch_add(homes, Ordering::Release);
        }
        // Seldom any: not even moved then.
        if !late.is_empty() {
            for (item, vector) in late {
                let list = self.lists.get(item.state().cil_position().slot);
                replaced.extend(list.and_then(|list| list.lock().replace(&item, vector)));
            }
        }
        (longer, order)
    }

    /// Adds to the counters of a CPU, and to the common sum whenever a batch is full, also if it is
    /// a negative one (`percpu_counter_add_batch`).
    fn account(&self, cpu: u32, shared: &SharedFields, longer: i64, given: i64) {
        let slot = self.counters.slot_of(cpu);
        let Some(mine) = self.counters.get(slot) else { return };
        mine.commits.fetch_add(1, Ordering::Relaxed);
        if longer == 0 && given == 0 {
            return;
        }
        self.used_counters.note(slot);
        mine.reserved.fetch_add(given, Ordering::Relaxed);
        let mine = &mine.stream_bytes;
        let rest = mine.fetch_add(longer, Ordering::Relaxed) + longer;
        if rest.unsigned_abs() >= shared.read.cil_batch {
            let rest = mine.swap(0, Ordering::Relaxed);
            shared.written().cil_bytes.fetch_add(rest, Ordering::Relaxed);
        }
    }

    /// Takes all committed entries and callbacks, and begins a new context, unless `has_delayed`
    /// returns true while no commit is in progress.
    pub(crate) fn switch(
        &self,
        shared: &SharedFields,
        has_delayed: impl FnOnce() -> bool,
    ) -> Switch {
        let exclusive = self.context.write();
        if has_delayed() {
            return Switch::Delayed;
        }
        if shared.read.is_empty.load(Ordering::Relaxed) {
            return Switch::Empty;
        }
        let take = |list: &Mutex<List, CilSlot>| {
            let mut list = list.lock();
            let room = Vec::with_capacity(list.entries.len().min(1024));
            list.memory = 0;
            (mem::replace(&mut list.entries, room), mem::take(&mut list.callbacks))
        };
        let used = self.used_lists.take().filter_map(|slot| self.lists.get(slot));
        let taken: Vec<_> = used.map(take).collect();
        let busy = self.busy.as_ref().map(|busy| mem::take(&mut *busy.lock()));
        let mut reserved = 0;
        for counters in self.used_counters.take().filter_map(|slot| self.counters.get(slot)) {
            reserved += counters.reserved.swap(0, Ordering::Relaxed);
            counters.stream_bytes.store(0, Ordering::Relaxed);
        }
        let reserved = u64::try_from(reserved).unwrap_or(0);
        shared.written().cil_bytes.store(0, Ordering::Relaxed);
        self.memory.store(0, Ordering::Relaxed);
        shared.read.is_empty.store(true, Ordering::Relaxed);
        let sequence = shared.read.sequence.fetch_add(1, Ordering::Relaxed);
        drop(exclusive);
        let (mut entries, mut callbacks) = (Vec::new(), busy.unwrap_or_default());
        for (list, called) in taken {
            entries.extend(list);
            callbacks.extend(called);
        }
        for at in 0..entries.len() {
            soon(&entries, at, |later| prefetch(later.item.state()));
            let entry = &mut entries[at];
            if let Some(vector) = entry.item.state().take_vector(sequence) {
                entry.vector = vector;
            }
        }
        // Stable: entries of one list with equal ids (one transaction) stay in their order.
        entries.sort_by_key(|entry| entry.order);
        let (stream_bytes, spared_bytes) = measure(&mut entries);
        Switch::Taken(Context {
            sequence,
            entries,
            callbacks,
            reserved,
            stream_bytes,
            spared_bytes,
        })
    }

    /// Returns the reservation of the current context in each slot.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn reserved_parts(&self) -> Vec<i64> {
        self.counters.iter().map(|c| c.reserved.load(Ordering::Relaxed)).collect()
    }

    /// Returns whether the entries take at least `times` as much memory as triggers a push.
    #[inline]
    pub(crate) fn is_heavy(&self, times: u64) -> bool {
        self.memory.load(Ordering::Relaxed) >= self.levels.cil.saturating_mul(times)
    }

    /// Returns the number of committed transactions. Transactions that are just committing may be
    /// included.
    pub(crate) fn commits(&self) -> u64 {
        self.counters.iter().map(|counters| counters.commits.load(Ordering::Relaxed)).sum()
    }

    /// Returns the home blocks of the items that were put into contexts since the journal was
    /// opened.
    pub(crate) fn homes(&self) -> u64 {
        self.counters.iter().map(|counters| counters.homes.load(Ordering::Acquire)).sum()
    }

    /// Returns whether no transaction is committed that no push has taken, at one moment during the
    /// call.
    pub(crate) fn is_empty(&self, shared: &SharedFields) -> bool {
        let _exclusive = self.context.write();
        shared.read.is_empty.load(Ordering::Relaxed)
    }
}

/// Sets how many bytes of each entry are written. Returns the length of their stream, and how much
/// shorter that is than what was counted.
fn measure(entries: &mut [Entry]) -> (u64, u64) {
    let (mut bytes, mut counted) = (CHECKPOINT_HEADER_BYTES as u64, CHECKPOINT_HEADER_BYTES as u64);
    for at in 0..entries.len() {
        soon(entries, at, |later| later.vector.prefetch());
        let entry = &mut entries[at];
        entry.bytes = entry.vector.bytes_used();
        bytes += op_bytes(entry.bytes as u64);
        counted += stream_bytes(&entry.vector);
    }
    (bytes, counted - bytes)
}

#[cfg(all(test, not(shuttle)))]
mod tests;
