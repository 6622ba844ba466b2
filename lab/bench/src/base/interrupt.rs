//! A request to stop a run, which any thread may make.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that stops a run early; any thread may raise it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Creates a flag that is not raised.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Raises the flag. The run abandons the current round, removes its files, and reports the
    /// rounds before.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the flag is raised.
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
