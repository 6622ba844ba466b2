//! Pairs of sockets that pass messages (`SOCK_SEQPACKET`, `SOCK_DGRAM`): what one call writes, one
//! call reads.
//!
//! A message that is longer than the buffer of who reads it is cut, and the rest is lost. It may be
//! empty. What a socket has sent and its peer has not read takes room, the messages themselves
//! included, so that empty ones fill it up, too: as long as there is any, a message goes, whole.
//!
//! # Ends
//!
//! The two kinds differ in what they know of their peer. Packets are a connection: what one end
//! shuts down ends at the other, and a close ends both directions; then the peer reads what is
//! left, and nothing after it, or, if its own messages were lost, is told that once (`ECONNRESET`),
//! before anything else. Datagrams are none: shutting down concerns one's own end alone, and a
//! close is noticed by who writes to it: once (`ECONNREFUSED`), which loses what was not read yet,
//! and then there is nobody (`ENOTCONN`). Who reads waits, for ever if the peer is closed, as in
//! Linux.
//!
//! # One lock
//!
//! A pair has one lock (`sk_lock`) for both directions, since a close and a lost message concern
//! both. It is as much as two would be: a message is written by one end and read by the other, so
//! that both meet at each lock.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::percpu_arc::Kept;

use crate::base::limits::Quotas;
use crate::base::lock_classes::SocketLock;
use crate::ipc::pipe::{Gather, Scatter};
use crate::locks::wait_queue::{Monitor, Settle, SleepList, Waiting, Wake};

/// Room of each direction in bytes, as Linux gives a socket by default (`net.core.wmem_default`).
const ROOM: usize = 212_992;

/// The longest message in bytes; as in Linux, a little less than that.
const MESSAGE_MAX: usize = ROOM - 32;

/// What a message takes beside its bytes; about as much as in Linux.
const MESSAGE_BYTES: usize = 768;

/// One end of a pair.
pub(crate) struct Messages {
    pair: Arc<Monitor<Pair, SocketLock>>,
    side: usize,
}

struct Pair {
    sides: [Side; 2],
    /// The counts that pay for messages, from when they are sent until they are gone.
    quotas: Kept<Quotas>,
    /// Each end knows of the other's (`SOCK_SEQPACKET`).
    connected: bool,
}

#[derive(Default)]
struct Side {
    /// What it can read.
    queue: VecDeque<Vec<u8>>,
    /// What it has sent and is not read, in bytes.
    sent: usize,
    reads_ended: bool,
    writes_ended: bool,
    closed: bool,
    /// It has noticed that its peer is closed.
    is_alone: bool,
    /// It waits for memory, which its peer gives back by reading.
    starved: bool,
    /// What the next call is told.
    error: Option<Errno>,
    readers: SleepList,
    writers: SleepList,
}

impl Settle for Pair {
    fn settle(&mut self) -> Wake {
        let mut wake = Wake::default();
        self.sides.iter_mut().for_each(|side| side.settle(&mut wake));
        wake
    }
}

impl Side {
    /// Wakes who waits at this end for what is so.
    fn settle(&mut self, wake: &mut Wake) {
        if !self.queue.is_empty() || self.reads_ended || self.error.is_some() {
            self.readers.pop(wake);
        }
        if self.has_room() || self.writes_ended || self.error.is_some() {
            self.writers.pop(wake);
        }
    }

    fn has_room(&self) -> bool {
        self.sent < ROOM && !self.starved
    }

    fn shut(&mut self, reads: bool, writes: bool) {
        self.reads_ended |= reads;
        self.writes_ended |= writes;
    }
}

/// Returns how much a message of so many bytes takes.
fn cost(len: usize) -> usize {
    len + MESSAGE_BYTES
}

impl Drop for Pair {
    fn drop(&mut self) {
        for side in [0, 1] {
            self.forget(side);
        }
    }
}

impl Pair {
    /// Frees what an end has not read; returns whether that was anything but an empty first
    /// message, which is no loss: Linux takes it for out-of-band data read already.
    fn forget(&mut self, side: usize) -> bool {
        let unread = std::mem::take(&mut self.ends(side).0.queue);
        let bytes: usize = unread.iter().map(|message| cost(message.len())).sum();
        self.quotas.socket_bytes.give(bytes as u64);
        unread.iter().enumerate().any(|(at, message)| at > 0 || !message.is_empty())
    }

    /// Pays for a message of `len` bytes; `false` if there is no memory until the peer has read
    /// something.
    ///
    /// # Errors
    /// `ENOBUFS` if there is nothing that the peer could read.
    fn pay(&mut self, side: usize, len: usize) -> Result<bool, Errno> {
        let paid = self.quotas.socket_bytes.take(cost(len) as u64);
        let end = &mut self.ends(side).0;
        end.starved = !paid && end.sent > 0;
        if paid || end.starved { Ok(paid) } else { Err(Errno::NOBUFS) }
    }

    /// An end and its peer.
    fn ends(&mut self, side: usize) -> (&mut Side, &mut Side) {
        let [one, other] = &mut self.sides;
        if side == 0 { (one, other) } else { (other, one) }
    }

    /// Whether a message of `len` bytes can be sent now. Why it never can, Linux asks in this
    /// order, too: that the peer does not take it shows only when there is room.
    fn can_send(&mut self, side: usize, len: usize) -> Result<bool, Errno> {
        let connected = self.connected;
        let (end, peer) = self.ends(side);
        if let Some(error) = end.error.take() {
            return Err(error);
        }
        if len > MESSAGE_MAX {
            return Err(Errno::MSGSIZE);
        }
        if end.writes_ended {
            return Err(Errno::PIPE);
        }
        if !end.has_room() {
            return Ok(false);
        }
        if end.is_alone {
            return Err(Errno::NOTCONN);
        }
        if peer.closed && !connected {
            end.is_alone = true;
            self.forget(side);
            return Err(Errno::CONNREFUSED);
        }
        if peer.reads_ended {
            return Err(Errno::PIPE);
        }
        Ok(true)
    }
}

impl Messages {
    /// Two ends of a pair.
    pub(crate) fn pair(connected: bool, quotas: Kept<Quotas>) -> [Messages; 2] {
        let sides = [Side::default(), Side::default()];
        let pair = Arc::new(Monitor::new(Pair { sides, quotas, connected }));
        [0, 1].map(|side| Messages { pair: pair.clone(), side })
    }

    /// Reads a message, as much of it as fits; waits while there is none. A buffer of nothing reads
    /// nothing.
    ///
    /// # Errors
    /// `EAGAIN` instead of waiting, `EINTR`; `ECONNRESET` once, if the peer was closed before it
    /// had read everything and they were connected.
    pub(crate) fn read(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        wait: Waiting<'_>,
    ) -> Result<usize, Errno> {
        let mut to = Gather::new(bufs);
        if to.left == 0 {
            return Ok(0);
        }
        let mut done = 0;
        self.pair.repeat(
            wait,
            |pair| &mut pair.ends(self.side).0.readers,
            |pair| {
                let connected = pair.connected;
                let (end, peer) = pair.ends(self.side);
                if let Some(error) = end.error.take() {
                    return Err(error);
                }
                if let Some(message) = end.queue.pop_front() {
                    done = to.put(&message);
                    peer.sent = peer.sent.saturating_sub(cost(message.len()));
                    peer.starved = false;
                    pair.quotas.socket_bytes.give(cost(message.len()) as u64);
                    return Ok(true);
                }
                Ok(end.reads_ended && (connected || !wait.never))
            },
        )?;
        Ok(done)
    }

    /// Sends a message, which may be empty; waits while there is no room.
    ///
    /// # Errors
    /// `EMSGSIZE` for one that is longer than there ever is room for; `ENOBUFS` if there is no
    /// memory for it, and nothing unread that would give some back; `EPIPE` when nobody can read it
    /// any more; `EAGAIN` instead of waiting, `EINTR`; see also the [module](self).
    pub(crate) fn write(&self, bufs: &[IoSlice<'_>], wait: Waiting<'_>) -> Result<usize, Errno> {
        let mut from = Scatter::new(bufs);
        let len = from.left;
        let mut message = Vec::new();
        if len <= MESSAGE_MAX {
            // Before the lock is taken.
            from.take(len, &mut message);
        }
        self.pair.repeat(
            wait,
            |pair| &mut pair.ends(self.side).0.writers,
            |pair| {
                let can_send = pair.can_send(self.side, len)? && pair.pay(self.side, len)?;
                if can_send {
                    let (end, peer) = pair.ends(self.side);
                    peer.queue.push_back(std::mem::take(&mut message));
                    end.sent += cost(len);
                }
                Ok(can_send)
            },
        )?;
        Ok(len)
    }

    /// Ends directions of this end; of the peer as well, if they are connected.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        let (reads, writes) = (how != Shutdown::Write, how != Shutdown::Read);
        self.pair.with(|pair| {
            let connected = pair.connected;
            let (end, peer) = pair.ends(self.side);
            end.shut(reads, writes);
            if connected {
                peer.shut(writes, reads);
            }
        });
    }

    /// Its open file is closed.
    pub(crate) fn close(&self) {
        self.pair.with(|pair| {
            let loses = pair.forget(self.side);
            let connected = pair.connected;
            let (end, peer) = pair.ends(self.side);
            end.closed = true;
            peer.sent = 0;
            peer.starved = false;
            if connected {
                peer.shut(true, true);
                if loses {
                    peer.error = Some(Errno::CONNRESET);
                }
            }
        });
    }
}
