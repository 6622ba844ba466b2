//! Callbacks from the journal to its owner.

use crate::{Durable, Result};

/// Steps of the journal's ordering that its owner performs. Every method has a default that does
/// nothing.
///
/// The journal calls them without holding any of its locks, from one of its threads or from a
/// thread that forces the log. They must take no lock that is held across a force or a commit (such
/// as an item's lock), and begin no transaction: those may be waiting for the very push that calls
/// the hook.
pub trait Hooks: Send + Sync {
    /// Makes the data durable that the metadata of checkpoint `sequence` refers to (file data).
    /// Called before the last record of the checkpoint is written; the data must be durable when
    /// this returns.
    ///
    /// # Errors
    /// Any error; it shuts the journal down.
    fn before_commit_record(&self, sequence: u64) -> Result<()> {
        let _ = sequence;
        Ok(())
    }

    /// Makes the writes of [`LogItem::push`](crate::LogItem::push) durable: flushes the device with
    /// the items' on-disk locations.
    ///
    /// # Errors
    /// Any error; it shuts the journal down.
    fn flush_home(&self) -> Result<()> {
        Ok(())
    }

    /// Receives a durable checkpoint. Called in the order of checkpoints, before the threads that
    /// wait for it are woken.
    fn on_durable(&self, checkpoint: Durable) {
        let _ = checkpoint;
    }
}

/// Hooks that do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
