//! Log items that cancel earlier records of objects that no longer have an item of their own.

use std::sync::Arc;

use vfscale_journal::{ItemState, LogItem, LogKey, LogVector, Lsn, Pushed};

/// The cancellation of all earlier records of its key. `Send` and `Sync`.
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
