//! The active item list: what is durable in the log and not yet home, and the tail of the log that
//! follows from it.
//!
//! # Invariants
//!
//! * Items are sorted by the first record of their last durable checkpoint. An item that is logged
//!   again moves forward only when that checkpoint is durable.
//! * So the items of a checkpoint stand together, the latest at the end, and an item knows its place:
//!   entering and leaving touch no other item. Where one has left there is a gap until all of its checkpoint
//!   have; a gap takes less than the item's record takes of the log, which is not free until then either.
//! * *The tail* is the first item's place; if there is none, the last durable record. An item
//!   enters in the same critical section that makes its checkpoint's commit record the last durable
//!   one, so that no tail passes it.
//! * An item leaves when the version that was pushed is home and durable there, and only if it has not
//!   moved meanwhile: what it moved for may not be home.
//! * One thread at a time writes items home ([`Ail::push_alone`]): else an older version could be
//!   written over a newer one.
//! * Both can only move the tail forward: an item enters behind the last durable record.
//! * What the items take in memory is known exactly ([`memory`](crate::memory)): from one level on the
//!   oldest of them go home, from another one on nobody begins a transaction meanwhile.

use std::collections::VecDeque;
use std::time::Duration;

use vfscale_sync::atomic::{AtomicBool, Ordering};
use vfscale_sync::percpu::Apart;
use vfscale_sync::prefetch::{prefetch, soon};
use vfscale_sync::{Condvar, Mutex};

use crate::Lsn;
use crate::item::{AilPlace, Item};
use crate::memory::Levels;
use crate::ranks::AilLock;

/// How many items are pushed before their homes are flushed.
const BATCH: usize = 1024;
/// How long the worker waits for items that somebody holds locked.
const PAUSE: Duration = Duration::from_millis(1);

/// The active item list, and what its worker is asked for.
pub(crate) struct Ail {
    state: Mutex<State, AilLock>,
    changed: Condvar,
    levels: Levels,
    /// The items take more memory than they may. Read by every transaction that begins; written with the
    /// state locked.
    is_crowded: Apart<AtomicBool>,
    /// They do no more, or the journal is shut down.
    uncrowded: Condvar,
}

/// For whose sake items are written home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The log's: all that there are go home.
    Tail,
    /// The memory's: the oldest go home, until there is room.
    Memory,
}

struct State {
    /// Sorted; the first has items.
    checkpoints: VecDeque<Checkpoint>,
    items: usize,
    /// What they take in memory, and those that have left and are not freed yet.
    bytes: u64,
    /// The last durable record.
    sync_lsn: Lsn,
    /// Somebody wants the tail to move.
    is_wanted: bool,
    /// They take so much memory that some should go home.
    is_heavy: bool,
    /// How often a transaction has waited for memory before it began.
    waits: u64,
    /// Somebody writes items home.
    is_pushing: bool,
    is_stopped: bool,
}

/// The items of a checkpoint, with gaps for those that are home or were logged again.
struct Checkpoint {
    lsn: Lsn,
    entries: Vec<Option<Item>>,
    /// How many are no gaps.
    left: usize,
}

impl State {
    /// Takes the item at a place off the list, if it is still there.
    fn take(&mut self, place: AilPlace) -> Option<Item> {
        let found = self.checkpoints.binary_search_by_key(&place.lsn, |checkpoint| checkpoint.lsn);
        let checkpoint = &mut self.checkpoints[found.ok()?];
        let item = checkpoint.entries.get_mut(place.index as usize)?.take()?;
        checkpoint.left -= 1;
        self.items -= 1;
        Some(item)
    }

    /// Forgets the checkpoints at the front of which nothing is left.
    fn trim(&mut self) {
        while self.checkpoints.front().is_some_and(|checkpoint| checkpoint.left == 0) {
            self.checkpoints.pop_front();
        }
    }
}

impl Ail {
    /// Empty; `sync_lsn` is the last durable record.
    pub(crate) fn new(sync_lsn: Lsn, levels: Levels) -> Self {
        let state = State {
            checkpoints: VecDeque::new(),
            items: 0,
            bytes: 0,
            sync_lsn,
            is_wanted: false,
            is_heavy: false,
            waits: 0,
            is_pushing: false,
            is_stopped: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            levels,
            is_crowded: Apart(AtomicBool::new(false)),
            uncrowded: Condvar::new(),
        }
    }

    /// The items of the checkpoint at `lsn` are durable, and so is its last record. Checkpoints come in the
    /// order of their places.
    pub(crate) fn insert(&self, items: impl Iterator<Item = Item>, lsn: Lsn, commit_lsn: Lsn) {
        let mut entries = Vec::with_capacity(items.size_hint().0);
        // What an item replaces is the same item: its last reference can't be dropped here.
        let mut state = self.state.lock();
        for item in items {
            let log = item.state();
            if state.take(log.ail_place()).is_none() {
                state.bytes += item.memory_bytes() as u64;
            }
            log.set_ail_place(AilPlace { lsn, index: entries.len() as u32 });
            entries.push(Some(item));
        }
        state.trim();
        if !entries.is_empty() {
            let left = entries.len();
            state.items += left;
            state.checkpoints.push_back(Checkpoint { lsn, entries, left });
        }
        state.sync_lsn = commit_lsn;
        if state.bytes > self.levels.heavy {
            state.is_heavy = true;
            self.changed.notify_all();
        }
        self.look(&state);
    }

    /// Says whether the items take more memory than they may, to those who begin transactions.
    fn look(&self, state: &State) {
        let is_crowded = state.bytes > self.levels.crowded;
        if self.is_crowded() != is_crowded {
            self.is_crowded.store(is_crowded, Ordering::Relaxed);
            self.uncrowded.notify_all();
        }
    }

    /// Whether the items take more memory than they may.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Sleeps until the items take no more memory than they may, or `is_shut`, which is to be told by
    /// [`wake`](Self::wake). The caller holds nothing.
    #[cold]
    pub(crate) fn wait_for_memory(&self, is_shut: impl Fn() -> bool) {
        let mut state = self.state.lock();
        state.waits += 1;
        while self.is_crowded() && !is_shut() {
            state = self.uncrowded.wait(state);
        }
    }

    /// Wakes those who wait for memory: the journal is shut down.
    pub(crate) fn wake(&self) {
        let _state = self.state.lock();
        self.uncrowded.notify_all();
    }

    /// What the items take in memory, in bytes, and how often somebody has waited for memory.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.bytes, state.waits)
    }

    /// Whether enough has gone home for the memory's sake.
    pub(crate) fn is_light(&self) -> bool {
        self.state.lock().bytes <= self.levels.light
    }

    /// A record that is no checkpoint's is durable.
    pub(crate) fn set_sync_lsn(&self, lsn: Lsn) {
        self.state.lock().sync_lsn = lsn;
    }

    /// The tail of the log, and whether nothing is left to be written home.
    pub(crate) fn tail(&self) -> (Lsn, bool) {
        let state = self.state.lock();
        match state.checkpoints.front() {
            Some(checkpoint) => (checkpoint.lsn, false),
            None => (state.sync_lsn, true),
        }
    }

    /// The last durable record.
    pub(crate) fn sync_lsn(&self) -> Lsn {
        self.state.lock().sync_lsn
    }

    /// How many items there are.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().items
    }

    /// The first items behind `after`, up to `target`, and where they are.
    pub(crate) fn batch(&self, after: Option<AilPlace>, target: Lsn) -> Vec<(AilPlace, Item)> {
        let state = self.state.lock();
        let begin =
            after.map_or(0, |place| state.checkpoints.partition_point(|c| c.lsn < place.lsn));
        let checkpoints = state.checkpoints.range(begin..).take_while(|c| c.lsn <= target);
        let items = checkpoints.flat_map(|checkpoint| {
            let lsn = checkpoint.lsn;
            let first = after.filter(|place| place.lsn == lsn).map_or(0, |place| place.index + 1);
            let entries = checkpoint.entries.iter().zip(0..).skip(first as usize);
            entries.filter_map(move |(entry, index)| {
                soon(&checkpoint.entries, index as usize, |later| {
                    later.iter().for_each(|item| prefetch(&**item));
                });
                entry.as_ref().map(|item| (AilPlace { lsn, index }, item.clone()))
            })
        });
        items.take(BATCH).collect()
    }

    /// What was pushed at these places is home, and durable there. Its memory is given back before anybody
    /// takes what it leaves.
    pub(crate) fn remove(&self, home: Vec<(AilPlace, Item)>) {
        let mut removed = Vec::with_capacity(home.len());
        let mut state = self.state.lock();
        for (place, _) in &home {
            if let Some(item) = state.take(*place) {
                item.state().set_ail_place(AilPlace::NONE);
                removed.push(item);
            }
        }
        state.trim();
        drop(state);
        let bytes: u64 = removed.iter().map(|item: &Item| item.memory_bytes() as u64).sum();
        drop((removed, home));
        let mut state = self.state.lock();
        state.bytes -= bytes;
        self.look(&state);
    }

    /// Asks the worker to move the tail.
    pub(crate) fn want(&self) {
        let mut state = self.state.lock();
        state.is_wanted = true;
        self.changed.notify_all();
    }

    /// Sleeps until the worker has something to do; `None`: it is to end.
    pub(crate) fn wait_wanted(&self) -> Option<Goal> {
        let idle = |state: &mut State| !state.is_wanted && !state.is_heavy && !state.is_stopped;
        let mut state = self.changed.wait_while(self.state.lock(), idle);
        if state.is_stopped {
            return None;
        }
        // Who moves the tail makes room in memory as well.
        state.is_heavy = false;
        Some(if std::mem::take(&mut state.is_wanted) { Goal::Tail } else { Goal::Memory })
    }

    /// Waits until nobody else writes items home. The right lasts until the result is dropped.
    pub(crate) fn push_alone(&self) -> PushAlone<'_> {
        let mut state = self.changed.wait_while(self.state.lock(), |state| state.is_pushing);
        state.is_pushing = true;
        PushAlone(self)
    }

    /// Lets those who hold items locked go on.
    pub(crate) fn pause(&self) {
        drop(self.changed.wait_for(self.state.lock(), PAUSE));
    }

    /// Whether the worker is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// Ends the worker.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        self.changed.notify_all();
    }
}

/// The right to write items home.
pub(crate) struct PushAlone<'a>(&'a Ail);

impl Drop for PushAlone<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_pushing = false;
        self.0.changed.notify_all();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
