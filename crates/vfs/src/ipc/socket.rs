//! Pairs of sockets (`AF_UNIX`): what is written to one is read from the other, both ways.
//!
//! A socket is an inode of a file system that no path leads to ([`crate::mount::pseudo_fs`]); it is
//! attached to nothing but its peer, and by what passes between them alone, so that making and
//! closing pairs on two CPUs has nothing in common. A socket has one open file for as long as it
//! lives: it can't be opened again, only duplicated.
//!
//! What passes are bytes (`SOCK_STREAM`), through two [`Pipe`]s, one for each direction, of which
//! each socket has an end; or [`messages`].
//!
//! # Ends of streams
//!
//! Each direction ends by itself ([`File::shutdown`]), and both end with a close. A direction that
//! has ended takes nothing more (`EPIPE`); what is in it is still read, and then it is at its end.
//! If a socket is closed before it has read everything, its peer is told once (`ECONNRESET`), when
//! there is nothing left to read.
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

use crate::base::limits::Quotas;
use crate::ipc::pipe::Pipe;
use crate::locks::wait_queue::Waiting;

use messages::Messages;

/// Buffers of each direction: as many bytes as Linux gives a socket by default
/// (`net.core.wmem_default`).
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

    /// As [`Pipe::read`], or [`Messages::read`].
    ///
    /// # Errors
    /// Those; `ECONNRESET` once, if the peer was closed before it had read everything: at the end
    /// of a stream.
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
