//! Parts that several models of the primitives share.

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread::{self, JoinHandle};

/// Explores all executions with at most `preemptions` switches away from a thread that could
/// continue.
pub fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Starts a thread that owns `own`.
pub fn spawn<A: 'static, T: 'static>(own: A, body: impl FnOnce(A) -> T + 'static) -> JoinHandle<T> {
    thread::spawn(move || body(own))
}

/// A cell that threads may use only one at a time.
pub struct Cell(UnsafeCell<u32>);

// SAFETY: loom's cell finds every unordered access, which is what these tests look for.
unsafe impl Sync for Cell {}
// SAFETY: loom's cell finds every unordered access.
unsafe impl Send for Cell {}

impl Cell {
    pub fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    pub fn get(&self) -> u32 {
        // SAFETY: loom checks it.
        self.0.with(|value| unsafe { *value })
    }

    pub fn add(&self) {
        // SAFETY: loom checks it.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}
