//! The active item list: what is durable in the log and not yet home, and the tail of the log that
//! follows from it.
//!
//! # Invariants
//!
//! * Items are sorted by the first record of their last durable checkpoint. An item that is logged
//!   again moves forward only when that checkpoint is durable.
//! * *The tail* is the first item's place; if there is none, the last durable record. An item
//!   enters in the same critical section that makes its checkpoint's commit record the last durable
//!   one, so that no tail passes it.
//! * An item leaves when the version that was pushed is home and durable there, and only if it has not
//!   moved meanwhile: what it moved for may not be home.
//! * One thread at a time writes items home ([`Ail::push_alone`]): else an older version could be
//!   written over a newer one.
//! * Both can only move the tail forward: an item enters behind the last durable record.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use vfscale_sync::{Condvar, Mutex};

use crate::Lsn;
use crate::item::{Item, address};
use crate::ranks::AilLock;

/// How many items are pushed before their homes are flushed.
const BATCH: usize = 1024;
/// How long the worker waits for items that somebody holds locked.
const PAUSE: Duration = Duration::from_millis(1);

/// Where in the list an item is.
type Key = (Lsn, usize);

/// The active item list, and what its worker is asked for.
pub(crate) struct Ail {
    state: Mutex<State, AilLock>,
    changed: Condvar,
}

struct State {
    items: BTreeMap<Key, Item>,
    /// The last durable record.
    sync_lsn: Lsn,
    /// Somebody wants the tail to move.
    is_wanted: bool,
    /// Somebody writes items home.
    is_pushing: bool,
    is_stopped: bool,
}

impl Ail {
    /// Empty; `sync_lsn` is the last durable record.
    pub(crate) fn new(sync_lsn: Lsn) -> Self {
        let state = State {
            items: BTreeMap::new(),
            sync_lsn,
            is_wanted: false,
            is_pushing: false,
            is_stopped: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The items of the checkpoint at `lsn` are durable, and so is its last record.
    pub(crate) fn insert(&self, items: impl Iterator<Item = Item>, lsn: Lsn, commit_lsn: Lsn) {
        // What an item replaces is the same item: its last reference can't be dropped here.
        let mut state = self.state.lock();
        for item in items {
            let (log, id) = (item.state(), address(&item));
            state.items.remove(&(log.ail_lsn(), id));
            log.set_ail_lsn(lsn);
            state.items.insert((lsn, id), item);
        }
        state.sync_lsn = commit_lsn;
    }

    /// A record that is no checkpoint's is durable.
    pub(crate) fn set_sync_lsn(&self, lsn: Lsn) {
        self.state.lock().sync_lsn = lsn;
    }

    /// The tail of the log, and whether nothing is left to be written home.
    pub(crate) fn tail(&self) -> (Lsn, bool) {
        let state = self.state.lock();
        match state.items.first_key_value() {
            Some(((lsn, _), _)) => (*lsn, false),
            None => (state.sync_lsn, true),
        }
    }

    /// The last durable record.
    pub(crate) fn sync_lsn(&self) -> Lsn {
        self.state.lock().sync_lsn
    }

    /// How many items there are.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().items.len()
    }

    /// The first items behind `after`, up to `target`, and where they are.
    pub(crate) fn batch(&self, after: Option<Key>, target: Lsn) -> Vec<(Key, Item)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.state.lock();
        let items = state.items.range((from, Bound::Included((target, usize::MAX))));
        items.take(BATCH).map(|(key, item)| (*key, item.clone())).collect()
    }

    /// What was pushed at these places is home, and durable there.
    pub(crate) fn remove(&self, home: &[(Key, Item)]) {
        let mut removed = Vec::with_capacity(home.len());
        let mut state = self.state.lock();
        for (key, _) in home {
            if let Some(item) = state.items.remove(key) {
                item.state().set_ail_lsn(Lsn::NONE);
                removed.push(item);
            }
        }
        drop(state);
    }

    /// Asks the worker to move the tail.
    pub(crate) fn want(&self) {
        let mut state = self.state.lock();
        state.is_wanted = true;
        self.changed.notify_all();
    }

    /// Sleeps until the worker is asked for something: `true`; or is to end: `false`.
    pub(crate) fn wait_wanted(&self) -> bool {
        let idle = |state: &mut State| !state.is_wanted && !state.is_stopped;
        let mut state = self.changed.wait_while(self.state.lock(), idle);
        state.is_wanted = false;
        !state.is_stopped
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
