//! Waiting for programs.

use std::time::{Duration, Instant};

/// Waits for a condition, which must come within half a minute.
pub fn eventually(what: &str, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !ready() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
