//! What a program of long runs has to notice besides: a panic in whatever thread, and work that does not end.
//!
//! # Invariants
//!
//! * A panic is told by the hook that was there before, and then known here.
//! * Work that takes longer than it may ends the process with status 3: a hang otherwise says nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A watch over the process; one is enough. `Send` and `Sync`.
#[derive(Debug)]
pub struct Watch {
    panicked: Arc<AtomicBool>,
    /// The pieces of work that have begun.
    begun: Arc<AtomicU64>,
}

impl Watch {
    /// Looks after panics from now on, and after pieces of work that take longer than `longest`; of the last
    /// one, given its number, `what` says what it is.
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

    /// The next piece of work begins.
    pub fn next(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether some thread has panicked since this was asked last.
    #[must_use]
    pub fn has_panicked(&self) -> bool {
        self.panicked.swap(false, Ordering::SeqCst)
    }
}
