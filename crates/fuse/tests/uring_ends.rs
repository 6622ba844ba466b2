//! Mounting and unmounting over io_uring; lookups and forgets; the ends of servers. A test process
//! of its own, as `lifecycle`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "uring/ends.rs"]
mod ends;
#[path = "lifecycle.rs"]
mod lifecycle;
#[path = "uring/queues.rs"]
mod queues;

use lifecycle::common;
