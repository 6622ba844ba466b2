//! Pairs of sockets (`AF_UNIX`, `SOCK_STREAM`): what is written to one is read from the other, both ways.
//!
//! A pair is two [`Pipe`]s, one for each direction, and each socket has an end of both. A socket is an inode
//! of a file system that no path leads to ([`crate::pseudo`]); it is attached to nothing but its peer, and by
//! the pipes alone, so that making and closing pairs on two CPUs has nothing in common. A socket has one open
//! file for as long as it lives: it can't be opened again, only duplicated.
//!
//! # Ends
//!
//! Each direction ends by itself ([`File::shutdown`]), and both end with a close. A direction that has
//! ended takes nothing more (`EPIPE`); what is in it is still read, and then it is at its end. If a socket
//! is closed before it has read everything, its peer is told once (`ECONNRESET`), when there is nothing
//! left to read.
//!
//! # Locks
//!
//! Those of the pipes, of which nobody has two at once.

use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::descriptors::Fd;
use crate::error::{Named, Result};
use crate::file::{self, File, FileMode};
use crate::inode::InodeInit;
use crate::mount::{MountRef, Path};
use crate::pipe::{Pipe, Waiting};
use crate::pseudo::{self, Pseudo};
use crate::stream::Stream;
use crate::task::Task;
use crate::types::{FileType, OFlags};

/// Buffers of each direction: as many bytes as Linux gives a socket by default (`net.core.wmem_default`).
const BUFFERS: usize = 52;

/// One of a pair.
pub(crate) struct Socket {
    input: Arc<Pipe>,
    output: Arc<Pipe>,
}

impl Socket {
    fn pair() -> [Socket; 2] {
        let [there, back] = [(); 2].map(|()| Arc::new(Pipe::with_buffers(1, 1, BUFFERS)));
        [
            Socket { input: Arc::clone(&back), output: Arc::clone(&there) },
            Socket { input: there, output: back },
        ]
    }

    /// As [`Pipe::read`].
    ///
    /// # Errors
    /// Those; `ECONNRESET` once, at the end, if the peer was closed before it had read everything.
    pub(crate) fn read(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        wait: Waiting<'_>,
    ) -> std::result::Result<usize, Errno> {
        self.input.read(bufs, wait)
    }

    /// As [`Pipe::write`].
    ///
    /// # Errors
    /// Those.
    pub(crate) fn write(
        &self,
        bufs: &[IoSlice<'_>],
        wait: Waiting<'_>,
    ) -> std::result::Result<usize, Errno> {
        self.output.write(bufs, false, wait)
    }

    fn shutdown(&self, how: Shutdown) {
        if how != Shutdown::Write {
            self.input.end();
        }
        if how != Shutdown::Read {
            self.output.end_writing(false);
        }
    }

    /// Its open file is closed.
    pub(crate) fn close(&self) {
        let lost = self.input.end_reading();
        self.output.end_writing(lost);
    }
}

impl Task {
    /// Makes two sockets that are connected with each other. `flags`: `NONBLOCK`; `CLOEXEC` is for
    /// [`socketpair_fd`](Self::socketpair_fd). Does not block.
    ///
    /// Each direction holds 52 pages, of which every write of at most a page is whole. A write to a peer that
    /// is closed fails and sends no signal.
    ///
    /// # Errors
    /// `EINVAL` for other flags.
    pub fn socketpair(&self, flags: OFlags) -> Result<(File, File)> {
        self.new_sockets(flags).map(|[one, other]| (one, other)).named("socketpair")
    }

    /// Makes two connected sockets and puts them under the two lowest free descriptors.
    ///
    /// # Errors
    /// As [`socketpair`](Self::socketpair); `EMFILE`.
    pub fn socketpair_fd(&self, flags: OFlags) -> Result<(Fd, Fd)> {
        let sockets = self.new_sockets(flags).named("socketpair")?;
        self.install_pair(sockets, flags.contains(OFlags::CLOEXEC)).named("socketpair")
    }

    fn new_sockets(&self, flags: OFlags) -> std::result::Result<[File; 2], Errno> {
        if !(OFlags::CLOEXEC | OFlags::NONBLOCK).contains(flags) {
            return Err(Errno::INVAL);
        }
        let guard = rcu::pin();
        let cred = self.cred(&guard);
        let mount = Pseudo::sockets(self.ns())?;
        let open = |socket| {
            let inode = mount.sb().new_inode(InodeInit {
                mode: FileType::Socket.as_raw_mode() | 0o777,
                uid: cred.uid,
                gid: cred.gid,
                nlink: 1,
                ..InodeInit::default()
            });
            inode.stream_or_init(|| Stream::Socket(socket));
            let mode = FileMode::READ | FileMode::WRITE | file::kept_ids(cred, &inode);
            let dentry = pseudo::new_dentry(mount.sb(), b"", inode, &guard);
            let flags = OFlags::RDWR | flags & OFlags::NONBLOCK;
            File::new_stream(Path::new(MountRef::new(mount), dentry), mode, flags)
        };
        Ok(Socket::pair().map(open))
    }
}

impl File {
    /// Ends one direction of a socket, or both: whoever waits for it goes on. What the peer has written is
    /// still read; it writes no more after `Read` or `Both`, and reads no more than what was written before
    /// after `Write` or `Both`.
    ///
    /// # Errors
    /// `ENOTSOCK` if it is no socket, `EBADF` for an `O_PATH` handle.
    pub fn shutdown(&self, how: Shutdown) -> Result<()> {
        let socket = match self.inode().stream() {
            _ if self.is_path() => Err(Errno::BADF),
            Some(Stream::Socket(socket)) => Ok(socket),
            _ => Err(Errno::NOTSOCK),
        };
        socket.map(|socket| socket.shutdown(how)).named("shutdown")
    }
}
