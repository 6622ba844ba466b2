//! Detection of panics in any thread, and of hangs, for programs with long runs.
//!
//! # Invariants
//!
//! * The previous hook reports a panic first; then it is counted here.
//! * Work beyond its time limit ends the process with status 3, because a hang would report
//!   nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A watch over the process. `Send` and `Sync`.
#[derive(Debug)]
pub struct Watch {
    panicked: Arc<AtomicBool>,
    /// Number of steps that have begun.
    begun: Arc<AtomicU64>,
}

impl Watch {
    /// Watches for steps that take longer than `longest`, until it is dropped. `what` describes a
    /// step, given its number.
    pub fn begin(longest: Duration, what: impl Fn(u64) -> String + Send + 'static) -> Self {
        let watch = Self { panicked: Arc::default(), begun: Arc::default() };
        let begun = Arc::downgrade(&watch.begun);
        std::thread::spawn(move || {
            let (mut seen, mut since) = (0, Instant::now());
            while let Some(begun) = begun.upgrade().map(|begun| begun.load(Ordering::SeqCst)) {
                if begun != seen {
                    (seen, since) = (begun, Instant::now());
                } else if since.elapsed() > longest {
                    println!("FAILED: {} has not ended after {longest:?}", what(begun));
                    std::process::exit(3);
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        watch
    }

    /// Watches for panics, too.
    #[must_use]
    pub fn for_panics(self) -> Self {
        let (panicked, usual) = (self.panicked.clone(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |info| {
            panicked.store(true, Ordering::SeqCst);
            usual(info);
        }));
        self
    }

    /// Begins the next step.
    pub fn next(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether a thread has panicked since the last call.
    pub fn has_panicked(&self) -> bool {
        self.panicked.swap(false, Ordering::SeqCst)
    }
}
