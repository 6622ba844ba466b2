//! The graph of tasks that wait for tasks, over all files.
//!
//! # Invariants
//!
//! Each waiting request has one set of edges: from its task to every task that holds a conflicting
//! lock. A waiting request gets its lock only after all of these are released, so a cycle is a
//! deadlock, and the graph never contains one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use rustix::io::Errno;
use smallvec::SmallVec;
use vfscale_sync::lock::Mutex;

use super::classes::LockWaits;

/// The tasks whose locks conflict with one request.
pub(super) type Blockers = SmallVec<[u64; 2]>;

/// The graph of waiting tasks, over all files whose locks may wait for each other.
///
/// One graph serves a whole mount tree; only requests that have to wait touch it. `Send + Sync`;
/// one lock (`blocked_lock_lock`), never held for long.
#[derive(Default)]
pub struct LockGraph {
    waits: Mutex<HashMap<u64, Vec<Wait>>, LockWaits>,
}

/// A waiting request.
struct Wait {
    request: usize,
    blockers: Blockers,
}

impl LockGraph {
    /// Creates a graph without edges.
    pub fn new() -> LockGraph {
        LockGraph::default()
    }

    /// Returns whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.waits.lock().is_empty()
    }

    /// Sets the tasks that `request` of `task` waits for to `blockers`.
    ///
    /// # Errors
    /// `EDEADLK` if one of them waits for `task`, directly or through others; then the request has
    /// no edges.
    pub(super) fn wait_for(
        &self,
        task: u64,
        request: usize,
        blockers: Blockers,
    ) -> Result<(), Errno> {
        let mut waits = self.waits.lock();
        if blockers.is_empty() || waits_for(&waits, &blockers, task) {
            forget(&mut waits, task, request);
            return if blockers.is_empty() { Ok(()) } else { Err(Errno::DEADLK) };
        }
        let own = waits.entry(task).or_default();
        match own.iter_mut().find(|wait| wait.request == request) {
            Some(wait) => wait.blockers = blockers,
            None => own.push(Wait { request, blockers }),
        }
        Ok(())
    }

    /// Removes the edges of `request` of `task`.
    pub(super) fn done(&self, task: u64, request: usize) {
        forget(&mut self.waits.lock(), task, request);
    }
}

fn forget(waits: &mut HashMap<u64, Vec<Wait>>, task: u64, request: usize) {
    if let Entry::Occupied(mut own) = waits.entry(task) {
        own.get_mut().retain(|wait| wait.request != request);
        if own.get().is_empty() {
            own.remove();
        }
    }
}

/// Returns whether one of `from` is `task` or waits for it.
fn waits_for(waits: &HashMap<u64, Vec<Wait>>, from: &[u64], task: u64) -> bool {
    let mut seen = HashSet::new();
    let mut open = from.to_vec();
    while let Some(next) = open.pop() {
        if next == task {
            return true;
        }
        if seen.insert(next) {
            let of_next = waits.get(&next).into_iter().flatten();
            open.extend(of_next.flat_map(|wait| &wait.blockers));
        }
    }
    false
}
