//! The position of an open file: the offset at which reads and writes without an offset continue.
//!
//! # Writes of the position
//!
//! The position changes under its lock, which a read or write holds until it has advanced the
//! position, so two reads never return the same bytes. Reading the position needs no lock: a call
//! that does not change the position takes no lock and writes no memory. Such calls are a read at
//! the end of the file, and an `lseek` to the current position. They read the position and then the
//! size, or search for data, within a read section of a sequence count that changes with the
//! position. If the count is unchanged afterwards, the position had this value when the size was
//! read, and did not move away and back during the section.

use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::lock::{Mutex, MutexGuard};
use vfscale_sync::seqcount::SeqCount;

use crate::base::lock_classes::FilePosition;

/// A position and its lock, on a separate cache line.
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

    /// Prevents other threads from changing it. Blocks.
    #[inline]
    pub(crate) fn lock(&self) -> PositionGuard<'_> {
        PositionGuard { held: self.lock.lock(), of: self }
    }
}

/// A locked position, which no other thread changes.
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
