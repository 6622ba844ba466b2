//! What the journal asks of its owner.

use crate::{Durable, Result};

/// The owner's part in the order of things. Every method has a default that does nothing.
///
/// All are called without any lock of the journal, by a thread of the journal or by one that forces
/// the log. They take no lock that somebody holds who forces the log or commits (an item's lock),
/// and begin no transaction: these may be waiting for the very push that calls the hook.
pub trait Hooks: Send + Sync {
    /// The last record of checkpoint `sequence` is about to be written: what its metadata refers to
    /// (file data) has to be durable when this returns.
    ///
    /// # Errors
    /// Any; it shuts the journal down.
    fn before_commit_record(&self, sequence: u64) -> Result<()> {
        let _ = sequence;
        Ok(())
    }

    /// Makes durable what [`LogItem::push`](crate::LogItem::push) has written: a flush of the device with the
    /// items' homes.
    ///
    /// # Errors
    /// Any; it shuts the journal down.
    fn flush_home(&self) -> Result<()> {
        Ok(())
    }

    /// A checkpoint is durable. Called in the order of checkpoints, before anybody who waits for it is told.
    fn on_durable(&self, checkpoint: Durable) {
        let _ = checkpoint;
    }
}

/// Hooks that do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
