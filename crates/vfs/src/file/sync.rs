//! Making files durable, and what open files are told when that has failed.
//!
//! What a driver writes back later may fail when nobody asks for it. Each open file is told of that
//! once, by the first call after it that makes the file durable, whoever else was told; so is each
//! open file of the file system by `syncfs` ([`errseq`](vfscale_sync::errseq)).

use rustix::io::Errno;
use vfscale_sync::errseq::{ErrorCursor, ErrorSeq};

use crate::base::error::{Named, Result, check_fork};
use crate::base::types::OFlags;
use crate::file::open_file::File;
use crate::objects::inode::Inode;

/// Tells what `cursor` was not told yet of `errors`.
fn tell(cursor: &ErrorCursor, errors: Option<&ErrorSeq>) -> std::result::Result<(), Errno> {
    match errors.and_then(|errors| cursor.advance(errors)) {
        Some(code) => Err(Errno::from_raw_os_error(code)),
        None => Ok(()),
    }
}

impl File {
    /// Makes durable what was written, if the file was opened for that.
    #[inline(always)]
    pub(crate) fn sync_written(
        &self,
        inode: &Inode,
        flags: OFlags,
    ) -> std::result::Result<(), Errno> {
        if flags.intersects(OFlags::SYNC | OFlags::DSYNC) {
            self.sync_and_tell(inode, !flags.contains(OFlags::SYNC))?;
        }
        Ok(())
    }

    /// Makes the file durable, and tells what went wrong, now or since it was last asked for.
    fn sync_and_tell(&self, inode: &Inode, data_only: bool) -> std::result::Result<(), Errno> {
        let fs = inode.sb().fs();
        let synced = fs.sync(inode, data_only);
        // Also if this one has failed: it has told.
        let told = tell(&self.0.told().file, fs.write_errors(inode));
        synced.and(told)
    }

    /// Makes data and attributes durable, as far as the file system can.
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle, `EINVAL` for a pipe or socket, `EIO`. What could not be
    /// written back since the file was opened is told by the first call on each open file, whoever
    /// else was told; so is what nobody was told of before it was opened.
    pub fn sync_all(&self) -> Result<()> {
        self.sync_inner(false).named("fsync")
    }

    /// Makes data durable, and what is needed to find it again.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<()> {
        self.sync_inner(true).named("fdatasync")
    }

    /// Makes everything durable that was changed on the file system that this file is on
    /// (`syncfs`), as far as it can. May block.
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle, `EIO`. What could not be written back of any file of it is
    /// told once to each open file, as by [`sync_all`](Self::sync_all).
    pub fn sync_fs(&self) -> Result<()> {
        let sync = || {
            check_fork()?;
            if self.is_path() {
                return Err(Errno::BADF);
            }
            let sb = self.inode().sb();
            let synced = sb.sync();
            synced.and(tell(&self.0.told().all, sb.fs().all_write_errors()))
        };
        sync().named("syncfs")
    }

    fn sync_inner(&self, data_only: bool) -> std::result::Result<(), Errno> {
        check_fork()?;
        if self.is_path() {
            return Err(Errno::BADF);
        }
        if self.is_stream() {
            return Err(Errno::INVAL);
        }
        self.sync_and_tell(self.inode(), data_only)
    }
}
