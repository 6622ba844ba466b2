//! Files without positions: the ends of pipes and fifos, and sockets.
//!
//! The pipe or socket of such a file belongs to its inode ([`Inode::stream`]), and counts the open
//! files of each end. (The field also stores three other kinds: the text of a file that is
//! generated when it is read, see [`crate::objects::seq_file`]; the seals of a file of memory, see
//! [`crate::objects::memfd_seals`]; and the sharded link count of a directory, see
//! [`Inode::nlink`].) The mode of a [`File`] of this kind has separate bits for reading and writing
//! ([`FileMode::STREAM`]). Calls with a position check the usual bits, so they fail on it without
//! another check, and cost other files nothing.
//!
//! A caller waits without a lock and outside of RCU sections. Its file holds the inode.

use std::io::{IoSlice, IoSliceMut};

use rustix::io::Errno;

use crate::base::error::{Outcome, Result, check_fork};
use crate::base::types::{Capabilities, OFlags};
use crate::file::failed::OnFile;
use crate::file::open_file::File;
use crate::ipc::pipe::Pipe;
use crate::locks::WaitToken;
use crate::locks::wait_queue::Waiting;
use crate::objects::file_description::FileMode;
use crate::objects::inode::Inode;
use crate::objects::inode_ext::InodeExt;
use crate::objects::vfsmount::WriteAccess;
use crate::security::cred::Credentials;

/// Returns the pipe of a fifo, which the first call makes.
pub(crate) fn fifo(inode: &Inode) -> Outcome<&Pipe> {
    let make = || InodeExt::Pipe(Pipe::new(inode.sb().quotas().keep()));
    inode.ext_or_init(make).pipe().ok_or(Errno::NXIO)
}

impl File {
    fn stream(&self) -> Outcome<&InodeExt> {
        self.inode().stream().ok_or(Errno::BADF)
    }

    fn waiting<'a>(&self, token: Option<&'a WaitToken>) -> Waiting<'a> {
        Waiting { never: self.flags().contains(OFlags::NONBLOCK), token, until: None }
    }

    /// Returns whether reads and writes change the times: of a fifo, but not of a pipe or socket.
    fn keeps_times(&self) -> bool {
        !self.path().dentry().is_pseudo()
    }

    /// Reads from a stream. The caller holds no lock and no RCU guard.
    pub(crate) fn read_stream(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        token: Option<&WaitToken>,
    ) -> Outcome<usize> {
        check_fork()?;
        if !self.mode().contains(FileMode::STREAM_READ) {
            return Err(Errno::BADF);
        }
        let n = match self.stream()? {
            InodeExt::Pipe(pipe) => pipe.read(bufs, self.waiting(token))?,
            InodeExt::Socket(socket) => socket.read(bufs, self.waiting(token))?,
            InodeExt::Text(_) | InodeExt::Memory(_) | InodeExt::Directories(_) => {
                return Err(Errno::INVAL);
            }
        };
        if n > 0 && self.keeps_times() {
            self.accessed(self.inode());
        }
        Ok(n)
    }

    /// Writes to a stream. The caller holds no lock and no RCU guard.
    pub(crate) fn write_stream(
        &self,
        bufs: &[IoSlice<'_>],
        token: Option<&WaitToken>,
    ) -> Outcome<usize> {
        check_fork()?;
        if !self.mode().contains(FileMode::STREAM_WRITE) {
            return Err(Errno::BADF);
        }
        let n = match self.stream()? {
            InodeExt::Pipe(pipe) => {
                pipe.write(bufs, self.flags().contains(OFlags::DIRECT), self.waiting(token))?
            }
            InodeExt::Socket(socket) => socket.write(bufs, self.waiting(token))?,
            InodeExt::Text(_) | InodeExt::Memory(_) | InodeExt::Directories(_) => {
                return Err(Errno::INVAL);
            }
        };
        // A fifo on a read-only mount may be written to, but its times must not change.
        if n > 0
            && self.keeps_times()
            && let Ok(_change) = WriteAccess::new(self.path().mount())
        {
            self.inode().touch_in_passing();
        }
        Ok(n)
    }

    /// Writes as [`write_stream`](Self::write_stream), from several buffers. If all are empty,
    /// writes nothing, whereas one empty buffer would be a message.
    pub(crate) fn writev_stream(&self, bufs: &[IoSlice<'_>]) -> Outcome<usize> {
        let is_nothing = bufs.iter().all(|buf| buf.is_empty());
        if is_nothing && self.mode().contains(FileMode::STREAM_WRITE) {
            return Ok(0);
        }
        self.write_stream(bufs, None)
    }

    /// Reads as [`read`](Self::read); `token` can interrupt it while it blocks.
    ///
    /// # Errors
    /// As [`read`](Self::read); `EINTR` if the token is cancelled while there is no data.
    pub fn read_interruptible(&self, buf: &mut [u8], token: &WaitToken) -> Result<usize> {
        if !self.is_stream() {
            return self.read(buf);
        }
        self.read_stream(&mut [IoSliceMut::new(buf)], Some(token)).of("read", &self.0)
    }

    /// Writes as [`write`](Self::write); `token` can interrupt it while it blocks. It then returns
    /// the number of bytes already written, if any.
    ///
    /// # Errors
    /// As [`write`](Self::write); `EINTR` if the token is cancelled before the first byte is
    /// written.
    pub fn write_interruptible(&self, buf: &[u8], token: &WaitToken) -> Result<usize> {
        if !self.is_stream() {
            return self.write(buf);
        }
        self.write_stream(&[IoSlice::new(buf)], Some(token)).of("write", &self.0)
    }

    /// Returns the capacity of a pipe in bytes (`F_GETPIPE_SZ`).
    ///
    /// # Errors
    /// `EBADF` if it is no pipe.
    pub fn pipe_size(&self) -> Result<usize> {
        self.open_pipe().map(Pipe::size).of("fcntl", &self.0)
    }

    /// Sets the capacity of a pipe (`F_SETPIPE_SZ`) to at least `bytes`, and returns it. The
    /// capacity counts pages, and each write may leave a page partly filled.
    ///
    /// # Errors
    /// `EBADF` if it is no pipe, `EINVAL` for more than 2 GiB, `EPERM` for more than 1 MiB without
    /// `CAP_SYS_RESOURCE` or more than the limit of all pipes allows ([`Limits`](crate::Limits)),
    /// `EBUSY` if it currently holds more data.
    pub fn set_pipe_size(&self, bytes: u32, credentials: &Credentials) -> Result<usize> {
        let privileged = credentials.has(Capabilities::SYS_RESOURCE);
        self.open_pipe().and_then(|pipe| pipe.set_size(bytes, privileged)).of("fcntl", &self.0)
    }

    fn open_pipe(&self) -> Outcome<&Pipe> {
        check_fork()?;
        if self.is_path() {
            return Err(Errno::BADF);
        }
        self.stream()?.pipe().ok_or(Errno::BADF)
    }
}
