//! Items of the log that say that something is gone, for things that have no item of their own
//! then.

use std::sync::Arc;

use vfscale_journal::{ItemState, LogItem, LogKey, LogVector, Lsn, Pushed};

/// Says in the log that what its key stood for is gone. `Send` and `Sync`.
#[derive(Debug)]
pub(crate) struct Cancel {
    key: LogKey,
    log: ItemState,
}

impl Cancel {
    pub(crate) fn new(key: LogKey) -> Arc<Self> {
        Arc::new(Self { key, log: ItemState::new() })
    }
}

impl LogItem for Cancel {
    fn state(&self) -> &ItemState {
        &self.log
    }

    fn key(&self) -> LogKey {
        self.key
    }

    fn format(&self, vector: &mut LogVector) {
        vector.cancel();
    }

    /// Writes nothing.
    fn push(&self, _: Lsn) -> vfscale_journal::Result<Pushed> {
        Ok(if self.log.is_pinned() { Pushed::Pinned } else { Pushed::Written })
    }
}
