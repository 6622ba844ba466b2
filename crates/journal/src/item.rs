//! Logged things: what the journal asks of them, and what it keeps in them.
//!
//! # Purpose
//!
//! The journal knows no file system. Whatever a transaction changes (an inode, a block of a
//! directory) implements [`LogItem`] and has an [`ItemState`] in it for the journal's own use.
//!
//! # The life of an item
//!
//! ```text
//!            add + commit            push                   durable                push, flush
//!  clean  ------------------> in the CIL ----> in a checkpoint ------> in the AIL ------------> clean
//!                              ^      |  (pinned until durable)            |
//!                              '------' relogged: vector replaced          '--> relogged: in the CIL as well
//! ```
//!
//! # Who holds what
//!
//! A transaction holds its caller's reference, a pin and, by the caller's promise, the item's lock
//! from the change until the commit returns. The CIL and then the checkpoint hold a reference and a
//! pin; the AIL holds a reference.

use std::sync::Arc;

use vfscale_sync::Mutex;
use vfscale_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::ranks::ItemPlace;
use crate::{Error, Lsn, Result};

/// What is logged under one name. The journal compares keys and knows nothing else about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogKey {
    /// What kind of thing it is.
    pub kind: u32,
    /// Which one of that kind: a block number, an inode number.
    pub id: u64,
}

/// What became of an attempt to write an item home.
#[derive(Debug)]
pub enum Pushed {
    /// It was written. It leaves the AIL once [`Hooks::flush_home`](crate::Hooks::flush_home) made
    /// that durable.
    Written,
    /// It is being changed, or has changes that are not in the log yet ([`ItemState::is_pinned`]):
    /// the journal pushes the CIL.
    Pinned,
    /// It can't be written at the moment, for a reason that passes without the journal's doing. The
    /// journal comes again.
    Busy,
}

/// Something that transactions change.
///
/// # What an implementation promises
///
/// * From the first change in a transaction until the commit has returned the caller keeps the item
///   locked, so that no other transaction changes or commits it. It [adds](crate::Transaction::add)
///   the item to the transaction *before* it changes it, which pins it.
/// * Whoever waits for the lock of an item that a rolling transaction may hold across a roll has
///   changed nothing yet: that one may be waiting for log space, which changed items of others
///   would keep from becoming free.
/// * [`format`](Self::format) gives everything that has changed since the item was last home, not
///   only what the last transaction changed: the latest vector replaces those before it.
/// * [`push`](Self::push) looks at [`ItemState::is_pinned`] under the lock that each single change
///   of the contents is made under, and writes nothing if it is. That somebody holds the item for a
///   transaction, and has not changed it, does not keep it from being written.
pub trait LogItem: Send + Sync {
    /// The journal's own part of the item.
    fn state(&self) -> &ItemState;

    /// The name under which recovery finds it.
    fn key(&self) -> LogKey;

    /// Writes what a recovery needs to redo all changes into `vector`, or says that the thing
    /// is gone ([`LogVector::cancel`]).
    fn format(&self, vector: &mut LogVector);

    /// Writes the item home: the version whose log record is at `lsn`, which is also what to write into it as
    /// the place that last changed it. Called without any lock of the journal, by one thread at a time.
    ///
    /// # Errors
    /// Whatever the device says; it shuts the journal down.
    fn push(&self, lsn: Lsn) -> Result<Pushed>;

    /// A checkpoint with the item is durable at `lsn`. Called without any lock, in the order of checkpoints.
    fn committed(&self, lsn: Lsn) {
        let _ = lsn;
    }

    /// The journal was shut down before the item's changes were durable.
    fn aborted(&self, why: &Error) {
        let _ = why;
    }
}

/// What the journal keeps in an item. Belongs to one journal at a time.
#[derive(Debug)]
pub struct ItemState {
    /// Transactions that are changing it, and unfinished checkpoints that have it, the current
    /// context among them.
    pins: AtomicU32,
    /// The order of the last transaction that logged it.
    order: AtomicU64,
    /// Its place in the AIL; written and read under the AIL's lock. Zero: it is not there.
    ail_lsn: AtomicU64,
    place: Mutex<Place, ItemPlace>,
}

/// Where in the CIL an item is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The context that it was put into last. If that is not the current one, the item is not in the CIL.
    pub(crate) sequence: u64,
    pub(crate) slot: usize,
    pub(crate) index: usize,
}

impl ItemState {
    /// Of an item that was never logged.
    #[must_use]
    pub fn new() -> Self {
        Self {
            pins: AtomicU32::new(0),
            order: AtomicU64::new(0),
            ail_lsn: AtomicU64::new(0),
            place: Mutex::new(Place::default()),
        }
    }

    /// Whether some change of it is under way, or not durable in the log yet. Exact under the lock
    /// that each change is made under: it was pinned before.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0
    }

    pub(crate) fn pin(&self) {
        self.pins.fetch_add(1, Ordering::Relaxed);
    }

    /// Release: whoever finds the item unpinned sees it in the AIL.
    pub(crate) fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn order(&self) -> u64 {
        self.order.load(Ordering::Relaxed)
    }

    pub(crate) fn set_order(&self, order: u64) {
        self.order.fetch_max(order, Ordering::Relaxed);
    }

    pub(crate) fn place(&self) -> &Mutex<Place, ItemPlace> {
        &self.place
    }

    pub(crate) fn ail_lsn(&self) -> Lsn {
        Lsn::from_bits(self.ail_lsn.load(Ordering::Relaxed))
    }

    pub(crate) fn set_ail_lsn(&self, lsn: Lsn) {
        self.ail_lsn.store(lsn.to_bits(), Ordering::Relaxed);
    }
}

impl Default for ItemState {
    fn default() -> Self {
        Self::new()
    }
}

/// An item as bytes: what a checkpoint writes and a recovery gets.
#[derive(Debug, Default)]
pub struct LogVector {
    bytes: Vec<u8>,
    is_cancel: bool,
}

impl LogVector {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Appends a region of the item.
    pub fn push(&mut self, region: &[u8]) {
        self.bytes.extend_from_slice(region);
    }

    /// Says that what this key stood for is gone: a recovery replays nothing that was logged under
    /// the key before this, since the place may be used for something that is not logged. What is
    /// logged under the key later, maybe by another object, is replayed if its transaction shares
    /// an item with this one, or a chain of transactions leads from one to the other: the free
    /// space that both changed.
    pub fn cancel(&mut self) {
        self.bytes.clear();
        self.is_cancel = true;
    }

    pub(crate) fn is_cancel(&self) -> bool {
        self.is_cancel
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes in a checkpoint's stream.
    pub(crate) fn stream_bytes(&self) -> u64 {
        crate::checkpoint::op_bytes(self.bytes.len() as u64)
    }
}

/// A shared item: what lists hold.
pub(crate) type Item = Arc<dyn LogItem>;

/// The address of an item, for telling items apart.
pub(crate) fn address(item: &Item) -> usize {
    Arc::as_ptr(item).cast::<()>().addr()
}
