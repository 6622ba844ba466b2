//! Logged objects: the interface that they implement, and the state that the journal stores in
//! them.
//!
//! # Purpose
//!
//! The journal knows no file system. An object that a transaction changes (an inode, a block of a
//! directory) implements [`LogItem`] and contains an [`ItemState`] for the journal's own use.
//!
//! # The life of an item
//!
//! ```text
//!          add, commit            push                 durable              push, flush
//!  clean ------------> in the CIL -----> in a checkpoint --------> in the AIL -----------> clean
//!                       ^      |   (pinned until durable)             |
//!                       '------' logged again: another vector         '--> logged again:
//!                                                                          in the CIL as well
//! ```
//!
//! # References and pins
//!
//! A transaction holds its caller's reference, a pin and, by the caller's promise, the item's lock
//! from the change until the commit returns. The CIL and then the checkpoint hold a reference and a
//! pin; the AIL holds a reference.
//!
//! The vector that a context logs of an item is stored in the item, so logging it again touches
//! nothing else. An item stores only one vector. A context that is being written to the log may not
//! have taken its vector yet when the item is logged in the next context. Then the newer vector is
//! stored on the list of the CIL, and so are those that replace it, as long as the older context's
//! vector is in the item. A vector in the item is therefore newer than one of the same context on
//! the list.

use std::mem;
use std::sync::Arc;

use vfscale_sync::Mutex;
use vfscale_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vfscale_sync::lock::assert_held;
use vfscale_sync::prefetch::prefetch;

use crate::ranks::{AilLock, CilItem};
use crate::{Error, Lsn, Result};

/// The identity of a logged object. The journal compares keys and does not interpret them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogKey {
    /// Kind of the object.
    pub kind: u32,
    /// Number of the object among its kind: a block number, an inode number.
    pub id: u64,
}

/// The result of an attempt to write an item back.
#[derive(Debug)]
pub enum Pushed {
    /// The item was written. It leaves the AIL once [`Hooks::flush_home`](crate::Hooks::flush_home)
    /// made that durable.
    Written,
    /// A transaction is changing the item, or it has changes that are not in the log yet
    /// ([`ItemState::is_pinned`]): the journal pushes the CIL.
    Pinned,
    /// The item can't be written now, for a reason that ends without an action of the journal. The
    /// journal tries again later.
    Busy,
}

/// An object that transactions change. Counterpart of `struct xfs_log_item`.
///
/// # Contract of an implementation
///
/// * From the first change in a transaction until the commit has returned, the caller holds the
///   item locked, so that no other transaction changes or commits it. It
///   [adds](crate::Transaction::add) the item to the transaction *before* it changes it, which pins
///   it.
/// * A thread that waits for the lock of an item that a rolling transaction may hold across a roll
///   has not changed any item yet. The rolling transaction may be waiting for log space, and
///   changed items of other transactions would prevent that from becoming free.
/// * [`format`](Self::format) writes all changes since the item was last written back, not only
///   those of the last transaction: the latest vector replaces those before it.
/// * [`push`](Self::push) checks [`ItemState::is_pinned`] under the lock that protects each single
///   change of the contents, and writes nothing if the item is pinned. A transaction that holds the
///   item locked, and has not changed it, does not prevent it from being written.
pub trait LogItem: Send + Sync {
    /// Returns the journal's state in the item.
    fn state(&self) -> &ItemState;

    /// Returns the key by which a recovery identifies it.
    fn key(&self) -> LogKey;

    /// Writes everything that a recovery needs to redo all changes into `vector`, or reports that
    /// the object no longer exists ([`LogVector::cancel`]).
    fn format(&self, vector: &mut LogVector);

    /// Returns how many bytes of memory can't be freed until the item is written back: its own, and
    /// those that only it refers to. Approximate, but constant for each item. Takes no lock.
    fn memory_bytes(&self) -> usize {
        size_of_val(self)
    }

    /// Returns how many blocks of the device [`push`](Self::push) may write. Constant for each
    /// item. Takes no lock.
    fn home_blocks(&self) -> u64 {
        1
    }

    /// Notes that a transaction with the item is in the checkpoint `sequence`
    /// ([`Committed`](crate::Committed)), in its commit. Takes no lock, and is called with those of
    /// the CIL.
    fn logged(&self, sequence: u64) {
        let _ = sequence;
    }

    /// Writes the item back to its on-disk location. `lsn` is the LSN of the version's log record,
    /// which the implementation also writes into the object as the LSN that last changed it. Called
    /// without any lock of the journal, by one thread at a time.
    ///
    /// # Errors
    /// Any error of the device; it shuts the journal down.
    fn push(&self, lsn: Lsn) -> Result<Pushed>;

    /// Notes that a checkpoint with the item is durable at `lsn`. Called without any lock, in the
    /// order of checkpoints.
    fn committed(&self, lsn: Lsn) {
        let _ = lsn;
    }

    /// Notes that the journal was shut down before the item's changes were durable.
    fn aborted(&self, why: &Error) {
        let _ = why;
    }
}

/// The journal's state in an item. Belongs to one journal at a time.
#[derive(Debug)]
pub struct ItemState {
    /// Number of transactions that are changing it, and of unfinished checkpoints that contain it,
    /// the current context included.
    pins: AtomicU32,
    /// Order id of the last transaction that logged it.
    order: AtomicU64,
    /// Its position in the AIL; written and read under the AIL's lock.
    ail_lsn: AtomicU64,
    ail_index: AtomicU32,
    /// Its position in the CIL. Changed by the committing thread, which holds the item locked.
    sequence: AtomicU64,
    slot: AtomicU32,
    index: AtomicU32,
    /// Bytes that it takes of the stream of that context. Protected like the position.
    stream_bytes: AtomicU64,
    /// Contents that the context `.0` logs of it. That may be the current context or the previous
    /// one. The committing thread stores them here, and the push of the context takes them.
    vector: Mutex<Option<(u64, LogVector)>, CilItem>,
}

/// The position of an item in the CIL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CilPosition {
    /// The context that it was put into last. If that is not the current one, the item is not in
    /// the CIL.
    pub(crate) sequence: u64,
    pub(crate) slot: usize,
    pub(crate) index: usize,
}

/// The position of an item in the AIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AilPosition {
    /// First record of its checkpoint.
    pub(crate) lsn: Lsn,
    /// Index among the items of that checkpoint.
    pub(crate) index: u32,
}

impl AilPosition {
    /// Position of an item that is not in the AIL.
    pub(crate) const NONE: Self = Self { lsn: Lsn::NONE, index: 0 };
}

impl ItemState {
    /// Creates the state of an item that was never logged.
    #[must_use]
    pub fn new() -> Self {
        Self {
            pins: AtomicU32::new(0),
            order: AtomicU64::new(0),
            ail_lsn: AtomicU64::new(0),
            ail_index: AtomicU32::new(0),
            sequence: AtomicU64::new(0),
            slot: AtomicU32::new(0),
            index: AtomicU32::new(0),
            stream_bytes: AtomicU64::new(0),
            vector: Mutex::new(None),
        }
    }

    /// Returns whether a change of it is in progress, or is not durable in the log yet. Exact under
    /// the lock that protects each change, since the item is pinned before it.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0
    }

    pub(crate) fn pin(&self) {
        self.pins.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops a pin. Release: a thread that finds the item unpinned sees it in the AIL.
    pub(crate) fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn order(&self) -> u64 {
        self.order.load(Ordering::Relaxed)
    }

    /// Stores the order id. The caller holds the item locked; order ids only grow.
    pub(crate) fn set_order(&self, order: u64) {
        self.order.store(order, Ordering::Relaxed);
    }

    /// Returns the position in the CIL. The caller holds the item locked, and so sees what the
    /// commit before has stored.
    pub(crate) fn cil_position(&self) -> CilPosition {
        CilPosition {
            sequence: self.sequence.load(Ordering::Relaxed),
            slot: self.slot.load(Ordering::Relaxed) as usize,
            index: self.index.load(Ordering::Relaxed) as usize,
        }
    }

    /// Stores the position in the CIL. The caller holds the item locked.
    pub(crate) fn set_cil_position(&self, position: CilPosition) {
        self.sequence.store(position.sequence, Ordering::Relaxed);
        self.slot.store(position.slot as u32, Ordering::Relaxed);
        self.index.store(position.index as u32, Ordering::Relaxed);
    }

    /// Stores the number of bytes that it takes of the stream now, and returns the former number.
    /// The caller holds the item locked.
    pub(crate) fn replace_stream_bytes(&self, bytes: u64) -> u64 {
        let before = self.stream_bytes.load(Ordering::Relaxed);
        self.stream_bytes.store(bytes, Ordering::Relaxed);
        before
    }

    /// Stores `vector` as the contents that the context `sequence` logs. Returns the contents that
    /// this context would have logged before, if they were stored here. Returns `vector` itself as
    /// the error if the push of an earlier context has not taken its contents yet.
    pub(crate) fn put_vector(
        &self,
        sequence: u64,
        vector: LogVector,
    ) -> std::result::Result<Option<LogVector>, LogVector> {
        let mut here = self.vector.lock();
        match &mut *here {
            Some((of, old)) if *of == sequence => Ok(Some(mem::replace(old, vector))),
            Some(_) => Err(vector),
            none => {
                *none = Some((sequence, vector));
                Ok(None)
            }
        }
    }

    /// Removes and returns the contents that the context `sequence` logs, if they are stored here.
    /// Called by the push of that context.
    pub(crate) fn take_vector(&self, sequence: u64) -> Option<LogVector> {
        let mut here = self.vector.lock();
        let is_there = here.as_ref().is_some_and(|(of, _)| *of == sequence);
        if is_there { here.take().map(|(_, vector)| vector) } else { None }
    }

    /// Returns the position in the AIL.
    pub(crate) fn ail_position(&self) -> AilPosition {
        assert_held::<AilLock>();
        AilPosition {
            lsn: Lsn::from_bits(self.ail_lsn.load(Ordering::Relaxed)),
            index: self.ail_index.load(Ordering::Relaxed),
        }
    }

    /// Stores the position in the AIL.
    pub(crate) fn set_ail_position(&self, position: AilPosition) {
        assert_held::<AilLock>();
        self.ail_lsn.store(position.lsn.to_bits(), Ordering::Relaxed);
        self.ail_index.store(position.index, Ordering::Relaxed);
    }
}

impl Default for ItemState {
    fn default() -> Self {
        Self::new()
    }
}

/// An immutable snapshot of an item: the next change of the item creates another one. So a commit
/// only takes a reference, and the bytes are encoded when the checkpoint is written, unless a newer
/// snapshot has replaced it before.
pub trait Image: Send + Sync {
    /// Returns its length in bytes. Constant.
    fn log_bytes(&self) -> usize;

    /// Returns how many of its bytes a checkpoint writes: the others, behind them, are zero, and a
    /// recovery has to add them. Constant.
    fn bytes_used(&self) -> usize {
        self.log_bytes()
    }

    /// Passes all of its bytes to `write` in one call.
    ///
    /// # Errors
    /// Errors of `write`.
    fn write(&self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// Releases the journal's reference. Called instead of dropping it, so that the implementation
    /// can reuse the memory. The caller holds no lock.
    fn release(self: Arc<Self>) {}
}

/// The contents that a commit logs of an item: a checkpoint writes them and a recovery receives
/// them. Counterpart of `struct xfs_log_vec`.
#[derive(Default)]
pub struct LogVector(VectorContents);

#[derive(Default)]
enum VectorContents {
    #[default]
    Empty,
    Cancel,
    Bytes(Vec<u8>),
    Image(Arc<dyn Image>),
}

impl LogVector {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn of(image: Arc<dyn Image>) -> Self {
        Self(VectorContents::Image(image))
    }

    /// Appends a region of the item.
    pub fn push(&mut self, region: &[u8]) {
        if let VectorContents::Bytes(bytes) = &mut self.0 {
            bytes.extend_from_slice(region);
        } else {
            self.set(VectorContents::Bytes(region.to_vec()));
        }
    }

    /// Sets a snapshot as the only contents.
    pub fn share(&mut self, image: Arc<dyn Image>) {
        self.set(VectorContents::Image(image));
    }

    /// Marks the object of this key as deleted. A recovery replays nothing that was logged under
    /// the key before this, since its on-disk location may be reused for data that is not logged.
    /// Contents that are logged under the key later, maybe by another object, are replayed if their
    /// transaction shares an item with this one, or a chain of transactions leads from one to the
    /// other: the free space that both changed.
    pub fn cancel(&mut self) {
        self.set(VectorContents::Cancel);
    }

    fn set(&mut self, contents: VectorContents) {
        if let VectorContents::Image(image) = mem::replace(&mut self.0, contents) {
            image.release();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.0, VectorContents::Empty)
    }

    pub(crate) fn is_cancel(&self) -> bool {
        matches!(self.0, VectorContents::Cancel)
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            VectorContents::Empty | VectorContents::Cancel => 0,
            VectorContents::Bytes(bytes) => bytes.len(),
            VectorContents::Image(image) => image.log_bytes(),
        }
    }

    /// Returns the number of bytes that a checkpoint writes.
    pub(crate) fn bytes_used(&self) -> usize {
        match &self.0 {
            VectorContents::Image(image) => image.bytes_used().min(image.log_bytes()),
            _ => self.len(),
        }
    }

    /// Prefetches the memory that [`write`](Self::write) reads.
    pub(crate) fn prefetch(&self) {
        if let VectorContents::Image(image) = &self.0 {
            prefetch(&**image);
        }
    }

    /// Passes its bytes to `write`.
    pub(crate) fn write(&self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match &self.0 {
            VectorContents::Empty | VectorContents::Cancel => write(&[]),
            VectorContents::Bytes(bytes) => write(bytes),
            VectorContents::Image(image) => image.write(write),
        }
    }
}

impl Drop for LogVector {
    fn drop(&mut self) {
        self.set(VectorContents::Empty);
    }
}

impl std::fmt::Debug for LogVector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogVector")
            .field("len", &self.len())
            .field("is_cancel", &self.is_cancel())
            .finish_non_exhaustive()
    }
}

/// A shared item, as the lists hold it.
pub(crate) type Item = Arc<dyn LogItem>;

/// Returns the address of an item, which identifies it.
pub(crate) fn address<I: LogItem + ?Sized>(item: &Arc<I>) -> usize {
    Arc::as_ptr(item).cast::<()>().addr()
}
