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
//!                              '------' relogged: another vector           '--> relogged: in the CIL as well
//! ```
//!
//! # Who holds what
//!
//! A transaction holds its caller's reference, a pin and, by the caller's promise, the item's lock
//! from the change until the commit returns. The CIL and then the checkpoint hold a reference and a
//! pin; the AIL holds a reference.
//!
//! What a context logs of an item is in the item, so whoever logs it again touches nothing else.
//! There is one such place, and a context that is on its way to the log may not have taken its
//! vector yet when the item is logged in the next one: then the newer vector goes to the list of
//! the CIL, and so do those that replace it, as long as the older context has the place. A vector
//! that is in the place is therefore newer than one of the same context that is on the list.

use std::mem;
use std::sync::Arc;

use vfscale_sync::Mutex;
use vfscale_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vfscale_sync::prefetch::prefetch;

use crate::ranks::CilItem;
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

    /// How many bytes of memory are kept from being given back for as long as the item is not home: its
    /// own, and what only it leads to. About; but always the same for one item. Takes no lock.
    fn memory_bytes(&self) -> usize {
        size_of_val(self)
    }

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
    /// Its place in the AIL; written and read under the AIL's lock.
    ail_lsn: AtomicU64,
    ail_index: AtomicU32,
    /// Where in the CIL it is. Changed by who commits the item, and has it locked for that.
    sequence: AtomicU64,
    slot: AtomicU32,
    index: AtomicU32,
    /// What it takes of the stream of that context, in bytes. The same.
    stream_bytes: AtomicU64,
    /// What that context logs of it, or the one before. Whoever commits it puts it here, and the push of the
    /// context takes it.
    vector: Mutex<Option<(u64, LogVector)>, CilItem>,
}

/// Where in the CIL an item is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The context that it was put into last. If that is not the current one, the item is not in the CIL.
    pub(crate) sequence: u64,
    pub(crate) slot: usize,
    pub(crate) index: usize,
}

/// Where in the AIL an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AilPlace {
    /// The first record of its checkpoint.
    pub(crate) lsn: Lsn,
    /// Among the items of that.
    pub(crate) index: u32,
}

impl AilPlace {
    /// Of an item that is not there.
    pub(crate) const NONE: Self = Self { lsn: Lsn::NONE, index: 0 };
}

impl ItemState {
    /// Of an item that was never logged.
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

    /// For who has the item locked; orders only become larger.
    pub(crate) fn set_order(&self, order: u64) {
        self.order.store(order, Ordering::Relaxed);
    }

    /// For who has the item locked, and so sees what the commit before has stored.
    pub(crate) fn place(&self) -> Place {
        Place {
            sequence: self.sequence.load(Ordering::Relaxed),
            slot: self.slot.load(Ordering::Relaxed) as usize,
            index: self.index.load(Ordering::Relaxed) as usize,
        }
    }

    /// The same.
    pub(crate) fn set_place(&self, place: Place) {
        self.sequence.store(place.sequence, Ordering::Relaxed);
        self.slot.store(place.slot as u32, Ordering::Relaxed);
        self.index.store(place.index as u32, Ordering::Relaxed);
    }

    /// Notes how many bytes of the stream it takes now, and gives how many it took before. The same.
    pub(crate) fn replace_stream_bytes(&self, bytes: u64) -> u64 {
        let before = self.stream_bytes.load(Ordering::Relaxed);
        self.stream_bytes.store(bytes, Ordering::Relaxed);
        before
    }

    /// The context `sequence` logs this of the item. Gives what it would have logged until now, if that
    /// was here; or gives `vector` back, if the push of an earlier context has not come by yet.
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

    /// What the context logs of the item, if that is here. For the push of that context.
    pub(crate) fn take_vector(&self, sequence: u64) -> Option<LogVector> {
        let mut here = self.vector.lock();
        let is_there = here.as_ref().is_some_and(|(of, _)| *of == sequence);
        if is_there { here.take().map(|(_, vector)| vector) } else { None }
    }

    /// Under the lock of the AIL.
    pub(crate) fn ail_place(&self) -> AilPlace {
        AilPlace {
            lsn: Lsn::from_bits(self.ail_lsn.load(Ordering::Relaxed)),
            index: self.ail_index.load(Ordering::Relaxed),
        }
    }

    /// The same.
    pub(crate) fn set_ail_place(&self, place: AilPlace) {
        self.ail_lsn.store(place.lsn.to_bits(), Ordering::Relaxed);
        self.ail_index.store(place.index, Ordering::Relaxed);
    }
}

impl Default for ItemState {
    fn default() -> Self {
        Self::new()
    }
}

/// What an item is, in a form that never changes any more: the next change of the item makes another one.
/// So a commit only takes a reference, and the bytes are made when the checkpoint is written, if nothing
/// newer has replaced them by then.
pub trait Image: Send + Sync {
    /// How many bytes it is. Always the same.
    fn log_bytes(&self) -> usize;

    /// Calls `write` once with all of them.
    ///
    /// # Errors
    /// Those of `write`.
    fn write(&self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// The journal needs it no more. Called in place of dropping the reference, for who can use its memory
    /// again; holding no lock.
    fn release(self: Arc<Self>) {}
}

/// What a commit logs of an item: what a checkpoint writes and a recovery gets.
#[derive(Default)]
pub struct LogVector(Contents);

#[derive(Default)]
enum Contents {
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

    /// Appends a region of the item.
    pub fn push(&mut self, region: &[u8]) {
        if let Contents::Bytes(bytes) = &mut self.0 {
            bytes.extend_from_slice(region);
        } else {
            self.set(Contents::Bytes(region.to_vec()));
        }
    }

    /// The item is this, and nothing else.
    pub fn share(&mut self, image: Arc<dyn Image>) {
        self.set(Contents::Image(image));
    }

    /// Says that what this key stood for is gone: a recovery replays nothing that was logged under
    /// the key before this, since the place may be used for something that is not logged. What is
    /// logged under the key later, maybe by another object, is replayed if its transaction shares
    /// an item with this one, or a chain of transactions leads from one to the other: the free
    /// space that both changed.
    pub fn cancel(&mut self) {
        self.set(Contents::Cancel);
    }

    fn set(&mut self, contents: Contents) {
        if let Contents::Image(image) = mem::replace(&mut self.0, contents) {
            image.release();
        }
    }

    pub(crate) fn is_cancel(&self) -> bool {
        matches!(self.0, Contents::Cancel)
    }

    /// How many bytes it is.
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Contents::Empty | Contents::Cancel => 0,
            Contents::Bytes(bytes) => bytes.len(),
            Contents::Image(image) => image.log_bytes(),
        }
    }

    /// Asks for the memory that [`write`](Self::write) reads.
    pub(crate) fn prefetch(&self) {
        if let Contents::Image(image) = &self.0 {
            prefetch(&**image);
        }
    }

    /// Calls `write` with its bytes.
    pub(crate) fn write(&self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match &self.0 {
            Contents::Empty | Contents::Cancel => write(&[]),
            Contents::Bytes(bytes) => write(bytes),
            Contents::Image(image) => image.write(write),
        }
    }

    /// Bytes in a checkpoint's stream.
    pub(crate) fn stream_bytes(&self) -> u64 {
        crate::checkpoint::op_bytes(self.len() as u64)
    }
}

impl Drop for LogVector {
    fn drop(&mut self) {
        self.set(Contents::Empty);
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

/// A shared item: what lists hold.
pub(crate) type Item = Arc<dyn LogItem>;

/// The address of an item, for telling items apart.
pub(crate) fn address(item: &Item) -> usize {
    Arc::as_ptr(item).cast::<()>().addr()
}
