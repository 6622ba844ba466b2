//! A work item as the threads see it.

use std::sync::Arc;

/// How soon a queued item gets a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// At once. For items that others wait for, which wait for no queued item themselves.
    High,
    /// At once, unless many items run: then when one of them ends, or when none does for 10 ms.
    Normal,
}

/// A work item.
pub(super) trait Item: Send + Sync {
    /// Executes a run that was queued.
    fn execute(self: Arc<Self>);

    /// Queues a run, because the time of the item has come.
    fn queue(self: Arc<Self>);
}
