//! `lseek`, and reads at the end of a file: calls that may leave the position where it is; see
//! [`crate::objects::f_pos`].

use rustix::io::Errno;

use crate::base::error::{Outcome, Result, check_fork};
use crate::base::types::Whence;
use crate::file::failed::OnFile;
use crate::file::open_file::File;
use crate::objects::file_description::FileMode;
use crate::objects::inode::Inode;

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
    pub fn seek(&self, to: impl Into<Whence>) -> Result<u64> {
        self.seek_inner(to.into()).of("lseek", &self.0)
    }

    fn seek_inner(&self, to: Whence) -> Outcome<u64> {
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
fn seek_target(inode: &Inode, to: Whence, pos: u64) -> Outcome<u64> {
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
