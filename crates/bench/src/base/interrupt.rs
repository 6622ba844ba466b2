//! A request to stop, which any thread may make.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks a run to stop early: whoever asks, from whatever thread.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Nobody has asked yet.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Asks. The round under way is given up, everything that was made is removed, and the rounds
    /// before are reported.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has asked.
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
