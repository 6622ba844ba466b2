//! Callbacks from the journal to its owner.

use crate::change_list::{ChangeList, Committed};
use crate::{Durable, Known, Result};

/// Steps of the journal's ordering that its owner performs. Every method has a default that does
/// nothing.
///
/// The journal calls them without holding any of its locks (except where stated), from one of its
/// threads or from a thread that forces the log. They must take no lock that is held across a force
/// (such as an item's lock), and begin no transaction with [`Journal::begin`]: those may be waiting
/// for the very push that calls the hook.
///
/// # Delayed changes
///
/// Transactions that change one object again and again may note their changes in memory instead,
/// with a part of their reservation ([`ChangeList::set_aside`]), and leave it to a commit at the
/// end of the context to log the object once. [`run_delayed`](Self::run_delayed) makes these
/// commits, [`has_delayed`](Self::has_delayed) tells whether more of them are needed. The owner
/// counts an object as delayed *before* the first transaction that leaves a change of it commits,
/// until the transaction that logs it has committed. So a context ends only while no change of its
/// transactions is left.
///
/// [`Journal::begin`]: crate::Journal::begin
pub trait Hooks: Send + Sync {
    /// Logs all delayed changes with `delayed`; they enter the context that is about to end. Until
    /// [`context_ended`](Self::context_ended), transactions should delay nothing more, or the push
    /// has to call this again. May take locks that are held across a commit, since commits do not
    /// wait for a push.
    ///
    /// # Errors
    /// Any error; it shuts the journal down.
    fn run_delayed(&self, delayed: &dyn Delayed) -> Result<()> {
        let _ = delayed;
        Ok(())
    }

    /// Returns whether there are delayed changes, which are not logged yet. Called while no commit
    /// is in progress, under a lock of the journal: must not block.
    fn has_delayed(&self) -> bool {
        false
    }

    /// Notes that the context has ended whose delayed changes were logged, with `items` items; 0 if
    /// there was nothing to push.
    fn context_ended(&self, items: usize) {
        let _ = items;
    }

    /// Notes that the epoch of a log that was opened late has begun
    /// ([`Options::opens_late`](crate::Options::opens_late)): the owner records the state `known`
    /// before anything else is logged, unless what it has recorded says that the log
    /// [is new](crate::Known::is_new). The first transactions wait, and no other thread writes the
    /// log in the meantime.
    ///
    /// # Errors
    /// Any error; it shuts the journal down.
    fn epoch_begun(&self, known: Known) -> Result<()> {
        let _ = known;
        Ok(())
    }

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

    /// Notes that all records of a checkpoint are written, and the device of the log is about to be
    /// flushed. If [`on_durable`](Self::on_durable) follows, that flush has covered all writes to
    /// this device which had returned before this call. One thread at a time calls the two.
    fn flush_begins(&self) {}

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

/// The commits of delayed changes, in a push ([`Hooks::run_delayed`]).
pub trait Delayed: Sync {
    /// Returns an empty list of changes without log space: the caller
    /// [takes over](ChangeList::take_over) what other transactions have set aside.
    fn begin(&self) -> ChangeList;

    /// Commits changes. Waits neither for log space nor for a thaw, and does no I/O.
    ///
    /// # Errors
    /// [`Error::Shutdown`](crate::Error::Shutdown); [`Error::Overrun`](crate::Error::Overrun),
    /// which shuts the journal down: more was logged than was set aside.
    fn commit(&self, changes: &mut ChangeList) -> Result<Committed>;
}

/// Hooks that do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
