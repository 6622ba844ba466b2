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

/// A watch over the process; one is enough. `Send` and `Sync`.
#[derive(Debug)]
pub struct Watch {
    panicked: Arc<AtomicBool>,
    /// Number of steps that have begun.
    begun: Arc<AtomicU64>,
}

impl Watch {
    /// Watches for panics, and for steps that take longer than `longest`. `what` describes a step,
    /// given its number.
    #[must_use]
    pub fn begin(longest: Duration, what: impl Fn(u64) -> String + Send + 'static) -> Self {
        let watch = Self { panicked: Arc::default(), begun: Arc::default() };
        let (panicked, begun) = (watch.panicked.clone(), watch.begun.clone());
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            panicked.store(true, Ordering::SeqCst);
            usual(info);
        }));
        std::thread::spawn(move || {
            let (mut seen, mut since) = (0, Instant::now());
            loop {
                std::thread::sleep(Duration::from_millis(500));
                let begun = begun.load(Ordering::SeqCst);
                if begun != seen {
                    (seen, since) = (begun, Instant::now());
                } else if since.elapsed() > longest {
                    println!("FAILED: {} has not ended after {longest:?}", what(begun));
                    std::process::exit(3);
                }
            }
        });
        watch
    }

    /// Begins the next step.
    pub fn next(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether a thread has panicked since the last call.
    #[must_use]
    pub fn has_panicked(&self) -> bool {
        self.panicked.swap(false, Ordering::SeqCst)
    }
}
