//! The journal's work in the background.

use vfscale_sync::worker::{Priority, WorkItem};

/// The work items of a journal. Transactions wait for both, and neither waits for an item that is
/// queued ([`push`](super::push)).
pub(crate) struct LogWork {
    /// Pushes when the CIL is full, and in time.
    pub(crate) push: WorkItem,
    /// Writes items of the AIL back.
    pub(crate) ail_push: WorkItem,
}

impl LogWork {
    pub(crate) fn new(
        push: impl Fn() + Send + Sync + 'static,
        ail_push: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            push: WorkItem::new(Priority::High, 1, push),
            ail_push: WorkItem::new(Priority::High, 1, ail_push),
        }
    }

    /// Cancels the items, and waits for the runs that execute.
    pub(crate) fn cancel(&self) {
        self.push.cancel();
        self.ail_push.cancel();
    }
}
