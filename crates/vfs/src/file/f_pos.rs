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

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::lock::{Mutex, MutexGuard};
use vfscale_sync::seqcount::SeqCount;

use crate::base::error::{Named, Result, check_fork};
use crate::base::lock_classes::FilePosition;
use crate::base::types::Whence;
use crate::file::open_file::{File, FileMode};
use crate::objects::inode::Inode;

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

impl File {
    /// Returns whether a read at the position returns nothing, for a file whose data exists before
    /// it is read.
    #[inline]
    pub(crate) fn is_at_end(&self) -> bool {
        let inode = self.inode();
        let is_beyond = |pos| pos >= inode.size();
        is_beyond(self.0.pos.get())
            && inode.is_file()
            && inode.stream().is_none()
            && self.0.pos.look(is_beyond).unwrap_or(false)
    }

    /// Moves the file's position; returns the new one. Waits for reads and writes in progress,
    /// unless it does not change the position.
    ///
    /// # Errors
    /// `EINVAL` for a position before the start or past the largest file, `ENXIO` for data or a
    /// hole past the end, `EBADF` for an `O_PATH` handle, `ESPIPE` for a pipe or socket.
    pub fn seek(&self, to: Whence) -> Result<u64> {
        self.seek_inner(to).named("lseek")
    }

    fn seek_inner(&self, to: Whence) -> std::result::Result<u64, Errno> {
        check_fork()?;
        let mode = self.0.mode();
        if mode.intersects(FileMode::PATH.union(FileMode::STREAM)) {
            return Err(mode.no_position());
        }
        let inode = self.inode();
        match to {
            // The target depends on neither the position nor the size.
            Whence::Set(offset) if offset == self.0.pos.get() => return Ok(offset),
            Whence::Set(_) => {}
            _ => {
                let stays = |pos| seek_target(inode, to, pos).map(|target| (target, target == pos));
                if let Some((target, true)) = self.0.pos.look(stays).transpose()? {
                    return Ok(target);
                }
            }
        }
        let mut locked = self.0.pos.lock();
        // Size and position may have changed since the read without the lock.
        let target = seek_target(inode, to, locked.get())?;
        locked.set(target);
        Ok(target)
    }
}

/// Computes the target of `lseek` from `pos`.
fn seek_target(inode: &Inode, to: Whence, pos: u64) -> std::result::Result<u64, Errno> {
    let fs = inode.sb().fs();
    let target = match to {
        Whence::Set(offset) => offset,
        Whence::Current(0) => return Ok(pos),
        Whence::Current(delta) => pos.checked_add_signed(delta).ok_or(Errno::INVAL)?,
        Whence::End(_) | Whence::Data(_) | Whence::Hole(_) if inode.is_dir() => {
            return Err(Errno::INVAL);
        }
        Whence::End(delta) => inode.size().checked_add_signed(delta).ok_or(Errno::INVAL)?,
        Whence::Data(offset) => {
            let _locked = inode.lock_shared();
            fs.seek_data(inode, offset)?
        }
        Whence::Hole(offset) => {
            let _locked = inode.lock_shared();
            fs.seek_hole(inode, offset)?
        }
    };
    if target > fs.size_max() { Err(Errno::INVAL) } else { Ok(target) }
}
