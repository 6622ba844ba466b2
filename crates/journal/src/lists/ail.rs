//! The active item list (AIL): items that are durable in the log and not yet written back, and the
//! tail of the log that follows from them. Counterpart of `struct xfs_ail`.
//!
//! # Invariants
//!
//! * Items are sorted by the first record of their last durable checkpoint. An item that is logged
//!   again moves forward only when that checkpoint is durable.
//! * The items of a checkpoint are therefore adjacent, the latest checkpoint at the end, and each
//!   item stores its index: inserting and removing it touches no other item. A removed
//!   item leaves a gap until all items of its checkpoint are removed. A gap takes less memory than
//!   the item's record takes of the log, which is not free until then either.
//! * *The tail* is the LSN of the first item; if there is none, the last durable record. An item
//!   enters in the critical section that makes its checkpoint's commit record the last durable one.
//!   So no tail passes it.
//! * An item leaves when the version that was pushed is written back and durable, and only if it
//!   was not logged again in between: that later version may not be written back.
//! * One thread at a time writes items back ([`Ail::lock_writeback`]). Otherwise an older version
//!   could overwrite a newer one.
//! * Inserting and removing only move the tail forward: an item enters after the last durable
//!   record.
//! * The memory that the items take is known exactly ([`memory`](crate::admission::memory)). Above
//!   one level the AIL push writes back the oldest of them; above a second level no transaction
//!   begins.

use std::collections::VecDeque;
use std::time::Duration;

use vfscale_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vfscale_sync::percpu::CachePadded;
use vfscale_sync::prefetch::{prefetch, soon};
use vfscale_sync::{Condvar, Mutex};

use crate::Lsn;
use crate::admission::memory::Levels;
use crate::item::{AilPosition, Item};
use crate::ranks::AilLock;

/// Number of items that are pushed before the device with their on-disk locations is flushed.
const BATCH: usize = 1024;
/// Pause before a retry of items that other threads hold locked.
const PAUSE: Duration = Duration::from_millis(1);

/// The active item list, and the requests to write it back.
pub(crate) struct Ail {
    state: Mutex<AilState, AilLock>,
    changed: Condvar,
    levels: Levels,
    /// Whether the items take more memory than they may. Every transaction reads it when it begins;
    /// it is written with the state locked.
    is_crowded: CachePadded<AtomicBool>,
    /// Home blocks of the items of contexts that are settled: written back, or replaced by a later
    /// context's.
    settled: AtomicU64,
    /// Notified when the items take no more memory than they may, or when the journal is shut down.
    uncrowded: Condvar,
}

/// The reason for which items are written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// To free log space: all items are written back.
    Tail,
    /// To free memory: the oldest items are written back, until enough memory is free.
    Memory,
}

struct AilState {
    /// Sorted by LSN; the first one has items.
    checkpoints: VecDeque<AilCheckpoint>,
    items: usize,
    /// Memory of the items, and of those that were removed and are not freed yet, in bytes.
    bytes: u64,
    /// LSN of the last durable record.
    sync_lsn: Lsn,
    /// Whether a caller has requested that the tail moves.
    is_tail_push_requested: bool,
    /// Whether the items take so much memory that the oldest must be written back.
    is_heavy: bool,
    /// Number of times that a transaction has waited for memory before it began.
    waits: u64,
    /// Whether a thread writes items back.
    is_pushing: bool,
    /// Whether the last AIL push left items for which there is no storage.
    is_full: bool,
    is_stopped: bool,
}

/// The items of a checkpoint, with gaps for items that were written back or logged again.
struct AilCheckpoint {
    lsn: Lsn,
    entries: Vec<Option<Item>>,
    /// Number of entries that are not gaps.
    left: usize,
}

impl AilState {
    /// Removes and returns the item at `position`, if it is still listed.
    fn take(&mut self, position: AilPosition) -> Option<Item> {
        let found =
            self.checkpoints.binary_search_by_key(&position.lsn, |checkpoint| checkpoint.lsn);
        let checkpoint = &mut self.checkpoints[found.ok()?];
        let item = checkpoint.entries.get_mut(position.index as usize)?.take()?;
        checkpoint.left -= 1;
        self.items -= 1;
        Some(item)
    }

    /// Removes checkpoints without items from the front.
    fn trim(&mut self) {
        while self.checkpoints.front().is_some_and(|checkpoint| checkpoint.left == 0) {
            self.checkpoints.pop_front();
        }
    }
}

impl Ail {
    /// Creates an empty list; `sync_lsn` is the last durable record.
    pub(crate) fn new(sync_lsn: Lsn, levels: Levels) -> Self {
        let state = AilState {
            checkpoints: VecDeque::new(),
            items: 0,
            bytes: 0,
            sync_lsn,
            is_tail_push_requested: false,
            is_heavy: false,
            waits: 0,
            is_pushing: false,
            is_full: false,
            is_stopped: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            levels,
            is_crowded: CachePadded::new(AtomicBool::new(false)),
            settled: AtomicU64::new(0),
            uncrowded: Condvar::new(),
        }
    }

    /// Inserts the items of the checkpoint at `lsn`, which is durable up to its last record
    /// `commit_lsn`. Checkpoints are inserted in the order of their LSNs. Returns true if the items
    /// take much memory: the caller queues the AIL push.
    pub(crate) fn insert(
        &self,
        items: impl Iterator<Item = Item>,
        lsn: Lsn,
        commit_lsn: Lsn,
    ) -> bool {
        let (mut entries, mut settled) = (Vec::with_capacity(items.size_hint().0), 0);
        // The replaced entry refers to the same item, so this can't drop the last reference.
        let mut state = self.state.lock();
        for item in items {
            let log = item.state();
            match state.take(log.ail_position()) {
                Some(_) => settled += item.home_blocks(),
                None => state.bytes += item.memory_bytes() as u64,
            }
            log.set_ail_position(AilPosition { lsn, index: entries.len() as u32 });
            entries.push(Some(item));
        }
        state.trim();
        if !entries.is_empty() {
            let left = entries.len();
            state.items += left;
            state.checkpoints.push_back(AilCheckpoint { lsn, entries, left });
        }
        self.settled.fetch_add(settled, Ordering::Release);
        state.sync_lsn = commit_lsn;
        let is_heavy = state.bytes > self.levels.heavy;
        state.is_heavy |= is_heavy;
        self.update_crowded(&state);
        is_heavy
    }

    /// Publishes to beginning transactions whether the items take more memory than they may.
    fn update_crowded(&self, state: &AilState) {
        let is_crowded = state.bytes > self.levels.crowded;
        if self.is_crowded() != is_crowded {
            self.is_crowded.store(is_crowded, Ordering::Relaxed);
            self.uncrowded.notify_all();
        }
    }

    /// Returns whether the items take more memory than they may.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Sleeps until the items take no more memory than they may, or until `is_shut` returns true.
    /// Its change must be followed by [`wake`](Self::wake). The caller holds no lock.
    #[cold]
    pub(crate) fn wait_for_memory(&self, is_shut: impl Fn() -> bool) {
        let mut state = self.state.lock();
        state.waits += 1;
        while self.is_crowded() && !is_shut() {
            state = self.uncrowded.wait(state);
        }
    }

    /// Wakes the transactions that wait for memory, because the journal is shut down.
    pub(crate) fn wake(&self) {
        let _state = self.state.lock();
        self.uncrowded.notify_all();
    }

    /// Returns the memory that the items take, in bytes, and how often a transaction has waited for
    /// memory.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.bytes, state.waits)
    }

    /// Returns the home blocks of the items that were settled since the journal was opened.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Returns whether enough items are written back for [`Goal::Memory`].
    pub(crate) fn is_light(&self) -> bool {
        self.state.lock().bytes <= self.levels.light
    }

    /// Notes that a record outside of any checkpoint is durable at `lsn`.
    pub(crate) fn set_sync_lsn(&self, lsn: Lsn) {
        self.state.lock().sync_lsn = lsn;
    }

    /// Returns the tail of the log, and whether no item is left to be written back.
    pub(crate) fn tail(&self) -> (Lsn, bool) {
        let state = self.state.lock();
        match state.checkpoints.front() {
            Some(checkpoint) => (checkpoint.lsn, false),
            None => (state.sync_lsn, true),
        }
    }

    /// Returns the LSN of the last durable record.
    pub(crate) fn sync_lsn(&self) -> Lsn {
        self.state.lock().sync_lsn
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().items
    }

    /// Returns the first items after `after`, up to `target`, with their positions.
    pub(crate) fn batch(
        &self,
        after: Option<AilPosition>,
        target: Lsn,
    ) -> Vec<(AilPosition, Item)> {
        let state = self.state.lock();
        let begin =
            after.map_or(0, |position| state.checkpoints.partition_point(|c| c.lsn < position.lsn));
        let checkpoints = state.checkpoints.range(begin..).take_while(|c| c.lsn <= target);
        let items = checkpoints.flat_map(|checkpoint| {
            let lsn = checkpoint.lsn;
            let first = after
                .filter(|position| position.lsn == lsn)
                .map_or(0, |position| position.index + 1);
            let entries = checkpoint.entries.iter().zip(0..).skip(first as usize);
            entries.filter_map(move |(entry, index)| {
                soon(&checkpoint.entries, index as usize, |later| {
                    later.iter().for_each(|item| prefetch(&**item));
                });
                entry.as_ref().map(|item| (AilPosition { lsn, index }, item.clone()))
            })
        });
        items.take(BATCH).collect()
    }

    /// Removes the items that were pushed at these positions; they are written back and durable.
    /// Frees their memory before it reduces the count that waiting transactions read.
    pub(crate) fn remove(&self, written: Vec<(AilPosition, Item)>) {
        let mut removed = Vec::with_capacity(written.len());
        let mut state = self.state.lock();
        for (position, _) in &written {
            if let Some(item) = state.take(*position) {
                item.state().set_ail_position(AilPosition::NONE);
                removed.push(item);
            }
        }
        state.trim();
        drop(state);
        let homes = removed.iter().map(|item: &Item| item.home_blocks()).sum();
        self.settled.fetch_add(homes, Ordering::Release);
        let bytes: u64 = removed.iter().map(|item: &Item| item.memory_bytes() as u64).sum();
        drop((removed, written));
        let mut state = self.state.lock();
        state.bytes -= bytes;
        self.update_crowded(&state);
    }

    /// Requests that the tail moves. Returns whether the caller has to queue the AIL push: there
    /// was no such request.
    #[must_use]
    pub(crate) fn request_tail_push(&self) -> bool {
        let mut state = self.state.lock();
        self.changed.notify_all();
        !std::mem::replace(&mut state.is_tail_push_requested, true)
    }

    /// Takes a request; returns `None` if there is none, or if the AIL push must end.
    pub(crate) fn take_request(&self) -> Option<Goal> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return None;
        }
        // Moving the tail frees memory as well.
        let is_heavy = std::mem::take(&mut state.is_heavy);
        if std::mem::take(&mut state.is_tail_push_requested) {
            return Some(Goal::Tail);
        }
        is_heavy.then_some(Goal::Memory)
    }

    /// Waits until no other thread writes items back. The right lasts until the result is dropped.
    pub(crate) fn lock_writeback(&self) -> WritebackGuard<'_> {
        let mut state = self.changed.wait_while(self.state.lock(), |state| state.is_pushing);
        state.is_pushing = true;
        WritebackGuard(self)
    }

    /// Notes whether an AIL push has left items for which there is no storage. Returns whether the
    /// one before had.
    pub(crate) fn note_full(&self, is_full: bool) -> bool {
        std::mem::replace(&mut self.state.lock().is_full, is_full)
    }

    /// Sleeps for a moment, so that threads that hold items locked can proceed.
    pub(crate) fn pause(&self) {
        drop(self.changed.wait_for(self.state.lock(), PAUSE));
    }

    /// Returns whether the AIL push must end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// Makes the AIL push end.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        self.changed.notify_all();
    }
}

/// The exclusive right to write items back.
pub(crate) struct WritebackGuard<'a>(&'a Ail);

impl Drop for WritebackGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_pushing = false;
        self.0.changed.notify_all();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
