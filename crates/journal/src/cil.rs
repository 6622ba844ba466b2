//! The committed item list: what is committed and not yet in the log.
//!
//! # Purpose
//!
//! A commit puts each of its items on the list of its CPU, and into the item what a recovery needs; an
//! item that is on a list already, of whatever CPU, stays there. A push takes all lists at once, as the
//! checkpoint of this context, and then what is in the items.
//!
//! # Invariants
//!
//! * Commits hold the reader's side of the context lock (a brlock: its slots are all that they
//!   write of it), the push takes the writer's side for as long as it needs to take the lists: a number of
//!   moves that depends on the slots, not on the items. So a transaction is in one context, whole.
//! * An item is on one list at most, at the place that its [`Place`](crate::item::Place) tells, and
//!   holds one pin for it. A commit whose items are all on lists already takes the lock of none.
//! * The push visits every slot there is. That no CPU runs on it any more does not matter: nothing
//!   is lost with a CPU.
//! * *Order*: each commit gets an order id above those of all its items' former ones and, if it
//!   puts something on its list, of the latest there. So of two transactions that share an item, or
//!   a list, or are connected by a chain of such, the later one has the larger id, and no line is
//!   shared for it (Lamport's clocks, 1978, instead of the counter of the kernel's final version).
//!   Transactions that are not connected commute. A checkpoint is written in the order of the ids;
//!   an item keeps its first one.
//! * *Empty* is exact: the flag is cleared by the first commit of a context, under the reader's
//!   side, by test and then test-and-clear, so that all later ones only read it (the rule that
//!   ended the discussion of seed 003, patch 4); it is set and looked at under the writer's side.
//! * What transactions have freed (their callbacks: the file system's busy extents) waits on the list of the
//!   CPU beside its items, and goes with them (seed 003, patch 5). So it comes back with the checkpoint
//!   that has the freeing, and not before. Without that patch it waits on one list for all.
//! * The commit that clears the flag gives the unit reservation of the checkpoint; every commit
//!   gives what it adds, and its share of record headers ([`ticket`](crate::ticket)).

use std::mem;

use smallvec::SmallVec;
use vfscale_sync::Mutex;
use vfscale_sync::atomic::{AtomicI64, AtomicU64, Ordering};
use vfscale_sync::brlock::BrLock;
use vfscale_sync::percpu::{Apart, PerCpu};
use vfscale_sync::prefetch::{prefetch, soon};

use crate::central::Central;
use crate::checkpoint::{CHECKPOINT_HEADER_BYTES, Durable};
use crate::item::{Item, LogVector, Place};
use crate::memory::Levels;
use crate::options::Scaling;
use crate::ranks::{CilBusy, CilContext, CilSlot};
use crate::ticket::Costs;
use crate::{Error, LogKey, Result};

/// Called once when a transaction's checkpoint is durable, or will never be.
pub(crate) type Callback = Box<dyn FnOnce(Result<Durable>) + Send>;

/// An item in a context.
pub(crate) struct Entry {
    order: u64,
    /// That of the item, which no cache of a CPU has any more when the checkpoint is written.
    pub(crate) key: LogKey,
    pub(crate) item: Item,
    /// What is logged of it. Before the switch it is mostly in the item ([`ItemState`]).
    ///
    /// [`ItemState`]: crate::ItemState
    pub(crate) vector: LogVector,
}

impl Entry {
    /// Asks for the memory that it leads to.
    pub(crate) fn prefetch(&self) {
        prefetch(self.item.state());
        self.vector.prefetch();
    }
}

#[derive(Default)]
struct List {
    entries: Vec<Entry>,
    callbacks: Vec<Callback>,
    /// The largest order id that was given out here.
    order: u64,
    /// What entries take in memory that the common sum does not have yet, in bytes.
    memory: u64,
}

impl List {
    /// Gives an item that is on the list another vector, and gives the one that it had.
    fn replace(&mut self, item: &Item, vector: LogVector) -> Option<LogVector> {
        let entry = self.entries.get_mut(item.state().place().index)?;
        Some(mem::replace(&mut entry.vector, vector))
    }
}

/// What a CPU has given to the current context.
struct Counters {
    stream_bytes: AtomicI64,
    reserved: AtomicU64,
    /// Transactions that were committed here, ever.
    commits: AtomicU64,
}

/// The committed item list.
pub(crate) struct Cil {
    context: BrLock<CilContext>,
    lists: PerCpu<Mutex<List, CilSlot>>,
    /// The callbacks of all CPUs; none where they are on the lists.
    busy: Option<Mutex<Vec<Callback>, CilBusy>>,
    counters: PerCpu<Counters>,
    /// What the entries of all lists take in memory, without what lists have not added yet.
    memory: Apart<AtomicU64>,
    levels: Levels,
    /// How much a list adds to that at once.
    memory_batch: u64,
    costs: Costs,
}

/// Items of a transaction, as they are after it.
pub(crate) type Items = SmallVec<[(Item, LogVector); 8]>;
/// Vectors that newer ones have replaced.
type Replaced = SmallVec<[LogVector; 8]>;

/// What is committed by one transaction.
#[derive(Default)]
pub(crate) struct Commit {
    pub(crate) items: Items,
    pub(crate) callbacks: Vec<Callback>,
    /// What the transaction has left of its reservation, in bytes of log.
    pub(crate) reserved: u64,
}

/// What became of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inserted {
    /// The context it is in.
    pub(crate) sequence: u64,
    /// What it has given of its reservation.
    pub(crate) given: u64,
}

/// Everything that was committed in one context.
pub(crate) struct Context {
    pub(crate) sequence: u64,
    /// In order.
    pub(crate) entries: Vec<Entry>,
    pub(crate) callbacks: Vec<Callback>,
    /// Log space that its transactions gave, in bytes.
    pub(crate) reserved: u64,
    /// The length of its stream.
    pub(crate) stream_bytes: u64,
}

impl Cil {
    pub(crate) fn new(scaling: &Scaling, costs: Costs, levels: Levels) -> Self {
        let counters = |_| Counters {
            stream_bytes: AtomicI64::new(0),
            reserved: AtomicU64::new(0),
            commits: AtomicU64::new(0),
        };
        Self {
            context: BrLock::new(scaling.context_slots),
            lists: PerCpu::new(scaling.cil_list_slots, |_| Mutex::new(List::default())),
            busy: (!scaling.busy_extents).then(|| Mutex::new(Vec::new())),
            counters: PerCpu::new(scaling.cil_counter_slots, counters),
            memory: Apart(AtomicU64::new(0)),
            levels,
            memory_batch: (levels.cil / (8 * scaling.cil_list_slots.max(1) as u64)).max(1),
            costs,
        }
    }

    /// Puts a transaction into the current context, and leaves nothing in it; each of its items has a pin
    /// for it. Waits for a push only while that takes the lists.
    ///
    /// # Errors
    /// [`Error::Overrun`]: the reservation was too small. The items are in the context all the
    /// same, and the journal has to be shut down.
    pub(crate) fn insert(&self, central: &Central, commit: &mut Commit) -> Result<Inserted> {
        // Replaced vectors are freed when no lock is held any more.
        let mut replaced = Replaced::new();
        let context = self.context.read();
        let sequence = central.read.sequence.load(Ordering::Relaxed);
        let empty = &central.read.is_empty;
        let is_first = empty.load(Ordering::Relaxed) && empty.swap(false, Ordering::Relaxed);
        if let Some(busy) = &self.busy {
            busy.lock().append(&mut commit.callbacks);
        }
        let longer = self.put(sequence, commit, &mut replaced);
        let added = u64::try_from(longer).unwrap_or(0);
        let unit = if is_first { self.costs.unit() } else { 0 };
        let given = if added == 0 { unit } else { unit + added + self.costs.split(added) };
        // Even an overrun is accounted for in full: what the checkpoint needs does not depend on it.
        self.account(central, longer, given);
        drop(context);
        if given > commit.reserved {
            return Err(Error::Overrun { used: given, reserved: commit.reserved });
        }
        Ok(Inserted { sequence, given })
    }

    /// Puts items into the context, and says how much longer the stream became.
    fn put(&self, sequence: u64, commit: &mut Commit, replaced: &mut Replaced) -> i64 {
        let Commit { items, callbacks, .. } = commit;
        let mut order = items.iter().map(|(item, _)| item.state().order()).max().unwrap_or(0) + 1;
        let is_new = |item: &Item| item.state().place().sequence != sequence;
        // One list is that of before patch 4, whose lock every commit took.
        let needs_list = !callbacks.is_empty()
            || self.lists.len() == 1
            || items.iter().any(|(item, _)| is_new(item));
        let slot = self.lists.this_slot();
        let mut list = self.lists.get(slot).filter(|_| needs_list).map(|list| list.lock());
        if let Some(list) = &mut list {
            list.callbacks.append(callbacks);
            order = order.max(list.order + 1);
            list.order = order;
        }
        let (mut longer, mut late) = (0, Items::new());
        for (item, vector) in items.drain(..) {
            let state = item.state();
            let bytes = vector.stream_bytes();
            state.set_order(order);
            let before = state.replace_stream_bytes(bytes);
            let put = state.put_vector(sequence, vector);
            if let Some(list) = list.as_mut().filter(|_| is_new(&item)) {
                // The transaction's pin becomes that of the context.
                longer += signed(bytes);
                list.memory += item.memory_bytes() as u64;
                state.set_place(Place { sequence, slot, index: list.entries.len() });
                let (key, vector) = (item.key(), put.err().unwrap_or_default());
                list.entries.push(Entry { order, key, item, vector });
                continue;
            }
            // The context has a pin of its own: the transaction's is given back.
            state.unpin();
            longer += signed(bytes) - signed(before);
            match put {
                Ok(old) => replaced.extend(old),
                Err(vector) => late.push((item, vector)),
            }
        }
        if let Some(list) = list.as_mut().filter(|list| list.memory >= self.memory_batch) {
            self.memory.fetch_add(mem::take(&mut list.memory), Ordering::Relaxed);
        }
        drop(list);
        for (item, vector) in late {
            let list = self.lists.get(item.state().place().slot);
            replaced.extend(list.and_then(|list| list.lock().replace(&item, vector)));
        }
        longer
    }

    /// Adds to the counters of this CPU, and to the common sum whenever a batch is full.
    fn account(&self, central: &Central, longer: i64, given: u64) {
        let mine = self.counters.this();
        mine.commits.fetch_add(1, Ordering::Relaxed);
        if longer == 0 && given == 0 {
            return;
        }
        mine.reserved.fetch_add(given, Ordering::Relaxed);
        let before = mine.stream_bytes.fetch_add(longer, Ordering::Relaxed);
        let batch = signed(central.read.cil_batch);
        let batches = (before + longer).div_euclid(batch) - before.div_euclid(batch);
        if let Ok(batches @ 1..) = u64::try_from(batches) {
            let bytes = batches * central.read.cil_batch;
            central.written().cil_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Takes everything that is committed, and begins a new context. Nothing if the current one is empty.
    pub(crate) fn switch(&self, central: &Central) -> Option<Context> {
        let exclusive = self.context.write();
        if central.read.is_empty.load(Ordering::Relaxed) {
            return None;
        }
        let take = |list: &Mutex<List, CilSlot>| {
            let mut list = list.lock();
            let room = Vec::with_capacity(list.entries.len().min(1024));
            list.memory = 0;
            (mem::replace(&mut list.entries, room), mem::take(&mut list.callbacks))
        };
        let taken: Vec<_> = self.lists.iter().map(take).collect();
        let busy = self.busy.as_ref().map(|busy| mem::take(&mut *busy.lock()));
        let reserved = self.counters.iter().map(|c| c.reserved.swap(0, Ordering::Relaxed)).sum();
        for counters in self.counters.iter() {
            counters.stream_bytes.store(0, Ordering::Relaxed);
        }
        central.written().cil_bytes.store(0, Ordering::Relaxed);
        self.memory.store(0, Ordering::Relaxed);
        central.read.is_empty.store(true, Ordering::Relaxed);
        let sequence = central.read.sequence.fetch_add(1, Ordering::Relaxed);
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
        // Stable: on one list, equal ids (one transaction) keep their order.
        entries.sort_by_key(|entry| entry.order);
        let stream_bytes = entries.iter().map(|entry| entry.vector.stream_bytes()).sum::<u64>()
            + CHECKPOINT_HEADER_BYTES as u64;
        Some(Context { sequence, entries, callbacks, reserved, stream_bytes })
    }

    /// What each slot has of the reservation of the current context.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn reserved_parts(&self) -> Vec<u64> {
        self.counters.iter().map(|c| c.reserved.load(Ordering::Relaxed)).collect()
    }

    /// Whether what is committed takes `times` as much memory as is to be pushed.
    #[inline]
    pub(crate) fn is_heavy(&self, times: u64) -> bool {
        self.memory.load(Ordering::Relaxed) >= self.levels.cil.saturating_mul(times)
    }

    /// Transactions that were committed. Those that are being committed may be among them.
    pub(crate) fn commits(&self) -> u64 {
        self.counters.iter().map(|counters| counters.commits.load(Ordering::Relaxed)).sum()
    }

    /// Whether anything is committed that no push has taken, at one moment during the call.
    pub(crate) fn is_empty(&self, central: &Central) -> bool {
        let _exclusive = self.context.write();
        central.read.is_empty.load(Ordering::Relaxed)
    }
}

/// Sizes of vectors are far below the limit.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(all(test, not(shuttle)))]
mod tests;
