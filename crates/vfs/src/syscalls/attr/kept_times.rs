//! Calls of a server whose client keeps the times of its files.
//!
//! A client that gathers writes, such as the kernel with FUSE, decides the times of a change when
//! the program makes it, and sends data and times later. The server then must not stamp the change
//! with the time at which it arrives. Counterpart of `FMODE_NOCMTIME` in Linux, which also takes
//! `CAP_SYS_ADMIN`.

use vfscale_sync::rcu;

use super::{Change, may_keep_times};
use crate::base::error::Result;
use crate::base::types::{AtFlags, SetTime, Timestamp};
use crate::file::failed::OnFile;
use crate::file::open_file::File;
use crate::syscalls::posix::Calls;
use crate::task::task_struct::At;

impl Calls<'_> {
    /// Writes at `offset`, although the file may append, and leaves the times of the last change
    /// alone. It removes set-id bits and capabilities as every write does. Returns the number of
    /// bytes written: less than requested only if space runs out.
    ///
    /// For a server whose client keeps the times; see [`set_kept_times`](Self::set_kept_times).
    ///
    /// # Errors
    /// As [`File::pwrite`]; `EPERM` without `CAP_SYS_ADMIN`.
    pub fn pwrite_unstamped(&self, file: &File, buf: &[u8], offset: u64) -> Result<usize> {
        let write = || {
            may_keep_times(self.task.cred(&rcu::pin()))?;
            file.write_unstamped(offset, buf)
        };
        write().of("pwrite", &file.0)
    }

    /// Sets the times of a file: those of access and of the last change of the data, and the time
    /// of the last change of the inode, which no other call sets.
    ///
    /// For a server whose client keeps the times. A reader of the library may then see a change
    /// without a later time: the file should have no other users.
    ///
    /// # Errors
    /// As `utimensat(2)`; `EPERM` without `CAP_SYS_ADMIN`.
    pub fn set_kept_times(&self, file: &File, times: [SetTime; 2], ctime: Timestamp) -> Result<()> {
        let change = Change::KeptTimes(times, ctime);
        self.task.change(At::File(file), "".as_ref(), AtFlags::EMPTY_PATH, "utimensat", change)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
