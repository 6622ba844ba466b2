//! Pairs of sockets (`AF_UNIX`): what is written to one is read from the other, both ways.
//!
//! A socket is an inode of a file system that no path leads to ([`crate::pseudo::pseudo_fs`]); it is attached to nothing
//! but its peer, and by what passes between them alone, so that making and closing pairs on two CPUs has
//! nothing in common. A socket has one open file for as long as it lives: it can't be opened again, only
//! duplicated.
//!
//! What passes are bytes (`SOCK_STREAM`), through two [`Pipe`]s, one for each direction, of which each socket
//! has an end; or [`messages`].
//!
//! # Ends of streams
//!
//! Each direction ends by itself ([`File::shutdown`]), and both end with a close. A direction that has
//! ended takes nothing more (`EPIPE`); what is in it is still read, and then it is at its end. If a socket
//! is closed before it has read everything, its peer is told once (`ECONNRESET`), when there is nothing
//! left to read.
//!
//! # Locks
//!
//! Those of the pipes, of which nobody has two at once, or that of the messages.

mod messages;

use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::percpu_arc::PerCpuArc;
use vfscale_sync::rcu;

use crate::base::error::{Named, Result, check_fork};
use crate::base::limits::Quotas;
use crate::base::types::{FileType, OFlags};
use crate::file::fd_table::Fd;
use crate::file::open_file::{self, File, FileMode};
use crate::locks::wait_queue::Waiting;
use crate::mount::vfsmount::{MountRef, Path};
use crate::objects::inode::InodeInit;
use crate::objects::inode_ext::Stream;
use crate::pseudo::pipe::Pipe;
use crate::pseudo::pseudo_fs::{self, Pseudo};
use crate::task::task_struct::Task;

use messages::Messages;

/// Buffers of each direction: as many bytes as Linux gives a socket by default (`net.core.wmem_default`).
const BUFFERS: usize = 52;

/// What passes between two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketType {
    /// Bytes (`SOCK_STREAM`).
    Stream,
    /// Messages, of ends that know of each other (`SOCK_SEQPACKET`).
    SeqPacket,
    /// Messages, of ends that are on their own (`SOCK_DGRAM`).
    Datagram,
}

/// One of a pair.
pub(crate) enum Socket {
    Stream { input: Arc<Pipe>, output: Arc<Pipe> },
    Messages(Messages),
}

impl Socket {
    fn pair(kind: SocketType, quotas: &PerCpuArc<Quotas>) -> [Socket; 2] {
        if kind != SocketType::Stream {
            let connected = kind == SocketType::SeqPacket;
            return Messages::pair(connected, quotas.keep()).map(Socket::Messages);
        }
        let [there, back] = [(); 2].map(|()| Arc::new(Pipe::of_sockets(BUFFERS, quotas.keep())));
        [
            Socket::Stream { input: Arc::clone(&back), output: Arc::clone(&there) },
            Socket::Stream { input: there, output: back },
        ]
    }

    /// As [`Pipe::read`], or [`Messages::read`].
    ///
    /// # Errors
    /// Those; `ECONNRESET` once, if the peer was closed before it had read everything: at the end of a
    /// stream.
    pub(crate) fn read(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        wait: Waiting<'_>,
    ) -> std::result::Result<usize, Errno> {
        match self {
            Socket::Stream { input, .. } => input.read(bufs, wait),
            Socket::Messages(messages) => messages.read(bufs, wait),
        }
    }

    /// As [`Pipe::write`], or [`Messages::write`].
    ///
    /// # Errors
    /// Those.
    pub(crate) fn write(
        &self,
        bufs: &[IoSlice<'_>],
        wait: Waiting<'_>,
    ) -> std::result::Result<usize, Errno> {
        match self {
            Socket::Stream { output, .. } => match output.write(bufs, false, wait) {
                // A pipe is not asked whether it could, for nothing; a socket is.
                Ok(0) if !output.is_open() => Err(Errno::PIPE),
                other => other,
            },
            Socket::Messages(messages) => messages.write(bufs, wait),
        }
    }

    fn shutdown(&self, how: Shutdown) {
        let (input, output) = match self {
            Socket::Stream { input, output } => (input, output),
            Socket::Messages(messages) => return messages.shutdown(how),
        };
        if how != Shutdown::Write {
            input.end();
        }
        if how != Shutdown::Read {
            output.end_writing(false);
        }
    }

    /// Its open file is closed.
    pub(crate) fn close(&self) {
        match self {
            Socket::Stream { input, output } => {
                let lost = input.end_reading();
                output.end_writing(lost);
            }
            Socket::Messages(messages) => messages.close(),
        }
    }
}

impl Task {
    /// Makes two sockets that are connected with each other. `flags`: `NONBLOCK`; `CLOEXEC` is for
    /// [`socketpair_fd`](Self::socketpair_fd). Does not block.
    ///
    /// Each direction of a stream holds 52 pages, of which every write of at most a page is whole. A message
    /// has at most 212,960 bytes; what is longer than the buffer it is read into is lost. A write to a
    /// peer that is closed fails and sends no signal.
    ///
    /// # Errors
    /// `EINVAL` for other flags; `ENFILE` if there are too many open files.
    pub fn socketpair(&self, kind: SocketType, flags: OFlags) -> Result<(File, File)> {
        self.new_sockets(kind, flags).map(|[one, other]| (one, other)).named("socketpair")
    }

    /// Makes two connected sockets and puts them under the two lowest free descriptors.
    ///
    /// # Errors
    /// As [`socketpair`](Self::socketpair); `EMFILE`.
    pub fn socketpair_fd(&self, kind: SocketType, flags: OFlags) -> Result<(Fd, Fd)> {
        let sockets = self.new_sockets(kind, flags).named("socketpair")?;
        self.install_pair(sockets, flags.contains(OFlags::CLOEXEC)).named("socketpair")
    }

    fn new_sockets(
        &self,
        kind: SocketType,
        flags: OFlags,
    ) -> std::result::Result<[File; 2], Errno> {
        check_fork()?;
        if !(OFlags::CLOEXEC | OFlags::NONBLOCK).contains(flags) {
            return Err(Errno::INVAL);
        }
        self.ns().room_for_file()?;
        let guard = rcu::pin();
        let cred = self.cred(&guard);
        let mount = Pseudo::sockets(self.ns())?;
        let open = |socket: Socket| {
            let inode = mount.sb().new_inode(InodeInit {
                mode: FileType::Socket.as_raw_mode() | 0o777,
                uid: cred.uid,
                gid: cred.gid,
                nlink: 1,
                ..InodeInit::default()
            });
            inode.stream_or_init(|| Stream::Socket(socket));
            let mode = FileMode::READ | FileMode::WRITE | open_file::kept_ids(cred, &inode);
            let dentry = pseudo_fs::new_dentry(mount.sb(), b"", inode, &guard);
            let flags = OFlags::RDWR | flags & OFlags::NONBLOCK;
            File::new_stream(Path::new(MountRef::new(mount), dentry), mode, flags)
        };
        let [one, other] = Socket::pair(kind, mount.sb().quotas());
        Ok([open(one)?, open(other)?])
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
        check_fork().named("shutdown")?;
        let socket = match self.inode().stream() {
            _ if self.is_path() => Err(Errno::BADF),
            Some(Stream::Socket(socket)) => Ok(socket),
            _ => Err(Errno::NOTSOCK),
        };
        socket.map(|socket| socket.shutdown(how)).named("shutdown")
    }
}
