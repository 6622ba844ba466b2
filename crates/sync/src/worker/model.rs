//! Threads for work items in a model: one for each run.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use super::item::{Item, Priority};
use crate::atomic::thread::{self, JoinHandle};
use crate::thread::Instant;

/// The threads of an item.
///
/// The lock is the standard library's: no thread of a model is switched while it holds it.
pub(super) struct Runs(Mutex<Vec<JoinHandle<()>>>);

impl Runs {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    fn with<T>(&self, change: impl FnOnce(&mut Vec<JoinHandle<()>>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a thread for a queued run.
    pub(super) fn start(&self, item: Arc<dyn Item>, _priority: Priority) {
        let thread = thread::spawn(move || item.execute());
        self.with(|runs| runs.push(thread));
    }

    /// Waits until the threads have ended, except for the calling one.
    pub(super) fn join_others(&self) {
        let me = thread::current().id();
        for run in self.with(mem::take) {
            if run.thread().id() != me {
                // A panic was reported already.
                let _ = run.join();
            }
        }
    }

    /// Does nothing: time does not pass.
    pub(super) fn set_timer(&self, _item: Arc<dyn Item>, _earliest: Instant, _latest: Instant) {}

    /// Does nothing: there is no timer.
    pub(super) fn clear_timer(&self, _item: &dyn Item) {}
}

/// Does nothing: no thread waits for items.
pub(super) fn add() {}

/// Does nothing: no thread waits for items.
pub(super) fn remove() {}
