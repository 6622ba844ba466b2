//! The position of an open file: where reads and writes without an offset go on.
//!
//! # Who writes what
//!
//! The position changes under its lock, which a read or write holds until it has moved it, so that
//! two of them don't get the same bytes. It can be read without: a call that finds that it leaves
//! the position where it is takes no lock, and writes nothing. That is a read at the end of the
//! file, and `lseek` to where the file is. They look at the position, and then at the size or at
//! where there is data, within a read section of a sequence count that changes with the position:
//! if it is the same afterwards, the position was the one it was when the size was read, and was
//! not moved away and back meanwhile.

use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::lock::{Mutex, MutexGuard};
use vfscale_sync::seqcount::SeqCount;

use crate::base::lock_classes::FilePosition;

/// A position, and the lock that it changes under, on a line of their own.
#[repr(align(64))]
pub(crate) struct Position {
    lock: Mutex<(), FilePosition>,
    /// Changes with the offset.
    seq: SeqCount,
    offset: AtomicU64,
}

impl Position {
    /// Creates a position at the start of a file.
    pub(crate) fn new() -> Position {
        Position { lock: Mutex::new(()), seq: SeqCount::new(), offset: AtomicU64::new(0) }
    }

    /// Returns the current position.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.offset.load(Ordering::Acquire)
    }

    /// Returns the result of `look` for the position, or `None` if the position changed during it.
    /// Takes no lock.
    #[inline]
    pub(crate) fn look<R>(&self, look: impl FnOnce(u64) -> R) -> Option<R> {
        let seq = self.seq.try_begin()?;
        let found = look(self.get());
        (!self.seq.retry(seq)).then_some(found)
    }

    /// Keeps others from changing it. Blocks.
    #[inline]
    pub(crate) fn lock(&self) -> PositionGuard<'_> {
        PositionGuard { held: self.lock.lock(), of: self }
    }
}

/// A position that nobody else changes.
pub(crate) struct PositionGuard<'a> {
    #[expect(dead_code, reason = "released when it is dropped")]
    held: MutexGuard<'a, (), FilePosition>,
    of: &'a Position,
}

impl PositionGuard<'_> {
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.of.offset.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&mut self, offset: u64) {
        let _section = self.of.seq.write();
        self.of.offset.store(offset, Ordering::Release);
    }
}
