//! Making files durable, and the errors that open files report if that failed.
//!
//! A driver's later write-back may fail when no call waits for it. Each open file reports such an
//! error once, by the first later call that makes the file durable, independent of other open
//! files. In the same sense `syncfs` reports it once to each open file of the file system
//! ([`errseq`](vfscale_sync::errseq)).

use rustix::io::Errno;
use vfscale_sync::errseq::{ErrorCursor, ErrorSeq};

use crate::base::error::{Outcome, Result, check_fork};
use crate::base::types::OFlags;
use crate::file::failed::OnFile;
use crate::file::open_file::File;
use crate::objects::inode::Inode;

/// Reports an error of `errors` that `cursor` has not yet reported.
fn tell(cursor: &ErrorCursor, errors: Option<&ErrorSeq>) -> Outcome<()> {
    match errors.and_then(|errors| cursor.advance(errors)) {
        Some(code) => Err(Errno::from_raw_os_error(code)),
        None => Ok(()),
    }
}

impl File {
    /// Makes a write durable, if the file was opened with `O_SYNC` or `O_DSYNC`, or those flags
    /// stand for [`InodeFlags::SYNC`](crate::types::InodeFlags::SYNC).
    #[inline(always)]
    pub(crate) fn sync_written(&self, inode: &Inode, flags: OFlags) -> Outcome<()> {
        if flags.intersects(OFlags::SYNC | OFlags::DSYNC) {
            self.sync_and_tell(inode, !flags.contains(OFlags::SYNC))?;
        }
        Ok(())
    }

    /// Makes the file durable, and reports errors of this call and of write-back since the last
    /// report.
    fn sync_and_tell(&self, inode: &Inode, data_only: bool) -> Outcome<()> {
        let fs = inode.sb().fs();
        let synced = fs.sync(inode, data_only);
        // Advances the cursor even if this sync failed, because its error counts as the report.
        let told = tell(&self.0.told().file, fs.write_errors(inode));
        synced.and(told)
    }

    /// Makes data and attributes durable, as far as the file system can.
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle, `EINVAL` for a pipe or socket, `EIO`. The first call on each
    /// open file reports an error of write-back since the file was opened, independent of other
    /// open files; and also an earlier error that no open file has reported.
    pub fn sync_all(&self) -> Result<()> {
        self.sync_inner(false).of("fsync", &self.0)
    }

    /// Makes data durable, and the metadata that is needed to find it again.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<()> {
        self.sync_inner(true).of("fdatasync", &self.0)
    }

    /// Makes all changes of the file system of this file durable (`syncfs`), as far as it can. May
    /// block.
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle, `EIO`. Each open file reports an error of write-back of any
    /// file of the file system once, as [`sync_all`](Self::sync_all) does.
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
        sync().of("syncfs", &self.0)
    }

    fn sync_inner(&self, data_only: bool) -> Outcome<()> {
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
