//! Which task waits for which, over all files.
//!
//! # Invariants
//!
//! There is one set of edges for each request that waits: from its task to every task that holds a
//! lock in its way. Since a waiting request gets its lock only when all of those are gone, a circle
//! is a deadlock, and no circle is ever stored.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use rustix::io::Errno;
use smallvec::SmallVec;
use vfscale_sync::lock::Mutex;

use super::classes::LockWaits;

/// The tasks that hold locks in the way of one request.
pub(super) type Blockers = SmallVec<[u64; 2]>;

/// Which task waits for which, over all files whose locks may wait for each other.
///
/// One graph serves a whole mount tree; it is only touched by requests that have to wait.
/// `Send + Sync`; one lock (`blocked_lock_lock`), never held for long.
#[derive(Default)]
pub struct LockGraph {
    waits: Mutex<HashMap<u64, Vec<Wait>>, LockWaits>,
}

/// One request that waits.
struct Wait {
    request: usize,
    blockers: Blockers,
}

impl LockGraph {
    /// A graph without edges.
    pub fn new() -> LockGraph {
        LockGraph::default()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waits.lock().is_empty()
    }

    /// `request` of `task` waits for `blockers`, and no longer for whom it waited before.
    ///
    /// # Errors
    /// `EDEADLK` when some of them wait for `task`, through any number of others; then the request
    /// waits for nobody.
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

    /// `request` of `task` waits no more.
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

/// Whether one of `from` is `task` or waits for it.
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
