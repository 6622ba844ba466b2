//! Pairs of sockets (`AF_UNIX`): data written to one is read from the other, in both directions.
//!
//! A socket is an inode of a file system that no path leads to ([`crate::mount::pseudo_fs`]). Only
//! the buffers connect it to its peer, so making and closing pairs on two CPUs share no cache line.
//! A socket has one open file during its lifetime: it can be duplicated, but not opened again.
//!
//! A pair transports bytes (`SOCK_STREAM`) through two [`Pipe`]s, one for each direction, or
//! [`messages`].
//!
//! # Ends of streams
//!
//! [`File::shutdown`](crate::File::shutdown) ends a direction, a close both. Writes to an ended
//! direction fail (`EPIPE`); readers read the rest of its data, and then its end. If a socket is
//! closed with unread data, its peer gets `ECONNRESET` once, after it has read all data.
//!
//! # Locks
//!
//! The locks of the pipes, of which no thread holds two, or the lock of the messages.

mod messages;

use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::percpu_arc::PerCpuArc;

use crate::base::error::Outcome;
use crate::base::limits::Quotas;
use crate::ipc::pipe::Pipe;
use crate::locks::wait_queue::Waiting;

use messages::Messages;

/// The number of buffers of each direction, which hold the default buffer size of a socket in Linux
/// (`net.core.wmem_default`).
const BUFFERS: usize = 52;

/// The type of a pair of sockets.
///
/// ```
/// # use vfscale_vfs::{OFlags, SocketType};
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let (one, other) = task.posix().socketpair(SocketType::Stream, OFlags::empty())?;
/// one.write(b"x")?;
/// other.read(&mut [0])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketType {
    /// Bytes (`SOCK_STREAM`).
    Stream,
    /// Messages of connected ends (`SOCK_SEQPACKET`).
    SeqPacket,
    /// Messages of unconnected ends (`SOCK_DGRAM`).
    Datagram,
}

/// One socket of a pair.
pub(crate) enum Socket {
    Stream { input: Arc<Pipe>, output: Arc<Pipe> },
    Messages(Messages),
}

impl Socket {
    pub(crate) fn pair(kind: SocketType, quotas: &PerCpuArc<Quotas>) -> [Socket; 2] {
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

    /// Reads by [`Pipe::read`] or [`Messages::read`].
    ///
    /// # Errors
    /// Their errors; `ECONNRESET` once, if the peer was closed with unread data: at the end of a
    /// stream.
    pub(crate) fn read(&self, bufs: &mut [IoSliceMut<'_>], wait: Waiting<'_>) -> Outcome<usize> {
        match self {
            Socket::Stream { input, .. } => input.read(bufs, wait),
            Socket::Messages(messages) => messages.read(bufs, wait),
        }
    }

    /// Writes by [`Pipe::write`] or [`Messages::write`].
    ///
    /// # Errors
    /// Their errors.
    pub(crate) fn write(&self, bufs: &[IoSlice<'_>], wait: Waiting<'_>) -> Outcome<usize> {
        match self {
            Socket::Stream { output, .. } => match output.write(bufs, false, wait) {
                // An empty write to a pipe makes no check; to a socket it checks the peer.
                Ok(0) if !output.is_open() => Err(Errno::PIPE),
                other => other,
            },
            Socket::Messages(messages) => messages.write(bufs, wait),
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) {
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

    /// Ends both directions, because the open file is closed.
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
