//! Pairs of sockets that pass messages (`SOCK_SEQPACKET`, `SOCK_DGRAM`): one call reads the message
//! that one call wrote.
//!
//! A message longer than the reader's buffer is truncated, and the rest is lost. A message may be
//! empty. Unread messages use room, with an overhead for each, so empty messages fill it, too.
//! While any room is left, a message is sent as a whole.
//!
//! # Ends
//!
//! Packet sockets are connected: a shutdown of one end takes effect at the other, and a close ends
//! both directions. The peer then reads the remaining messages and the end, or, if its own messages
//! were lost, first gets `ECONNRESET` once. Datagram sockets are not connected: a shutdown affects
//! the caller's end only, and a writer detects the close of its peer: once by `ECONNREFUSED`, which
//! drops its unread messages, and then by `ENOTCONN`. A reader waits, forever if the peer is
//! closed, as in Linux.
//!
//! # One lock
//!
//! A pair has one lock (`sk_lock`) for both directions, because a close and a lost message concern
//! both. Two locks would not reduce contention: one end writes a message and the other reads it, so
//! both ends would contend for each lock.

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

/// Room of each direction in bytes: the default of Linux (`net.core.wmem_default`).
const ROOM: usize = 212_992;

/// The longest message in bytes: as in Linux, a little less than the room.
const MESSAGE_MAX: usize = ROOM - 32;

/// The overhead of a message in bytes, about as much as in Linux.
const MESSAGE_BYTES: usize = 768;

/// One end of a pair.
pub(crate) struct Messages {
    pair: Arc<Monitor<Pair, SocketLock>>,
    side: usize,
}

struct Pair {
    sides: [PairEnd; 2],
    /// The quotas that messages are charged to, from sending until they are read or dropped.
    quotas: Kept<Quotas>,
    /// Whether the ends are connected (`SOCK_SEQPACKET`).
    connected: bool,
}

#[derive(Default)]
struct PairEnd {
    /// Messages to read.
    queue: VecDeque<Vec<u8>>,
    /// The number of bytes that this end sent and its peer has not read.
    sent: usize,
    reads_ended: bool,
    writes_ended: bool,
    closed: bool,
    /// Whether this end detected that its peer is closed.
    is_alone: bool,
    /// Whether this end waits for memory, which its peer frees by reading.
    starved: bool,
    /// The error that the next call returns.
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

impl PairEnd {
    /// Wakes the sleepers of this end that can proceed.
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

/// Returns the room that a message of `len` bytes takes.
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
    /// Drops the unread messages of an end. Returns whether data was lost; a single empty first
    /// message is no loss, because Linux treats it as out-of-band data that was already read.
    fn forget(&mut self, side: usize) -> bool {
        let unread = std::mem::take(&mut self.ends(side).0.queue);
        let bytes: usize = unread.iter().map(|message| cost(message.len())).sum();
        self.quotas.socket_bytes.give(bytes as u64);
        unread.iter().enumerate().any(|(at, message)| at > 0 || !message.is_empty())
    }

    /// Charges a message of `len` bytes. Returns false if no memory is available until the peer
    /// reads a message.
    ///
    /// # Errors
    /// `ENOBUFS` if the peer has no unread message.
    fn pay(&mut self, side: usize, len: usize) -> Result<bool, Errno> {
        let paid = self.quotas.socket_bytes.take(cost(len) as u64);
        let end = &mut self.ends(side).0;
        end.starved = !paid && end.sent > 0;
        if paid || end.starved { Ok(paid) } else { Err(Errno::NOBUFS) }
    }

    /// Returns an end and its peer.
    fn ends(&mut self, side: usize) -> (&mut PairEnd, &mut PairEnd) {
        let [one, other] = &mut self.sides;
        if side == 0 { (one, other) } else { (other, one) }
    }

    /// Returns whether a message of `len` bytes can be sent now. The order of the errors is that of
    /// Linux: a peer that does not accept messages is an error only if there is room.
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
    /// Creates the two ends of a pair.
    pub(crate) fn pair(connected: bool, quotas: Kept<Quotas>) -> [Messages; 2] {
        let sides = [PairEnd::default(), PairEnd::default()];
        let pair = Arc::new(Monitor::new(Pair { sides, quotas, connected }));
        [0, 1].map(|side| Messages { pair: pair.clone(), side })
    }

    /// Reads a message, or as much of it as fits; waits while there is none. An empty buffer reads
    /// nothing.
    ///
    /// # Errors
    /// `EAGAIN` instead of waiting, `EINTR`; `ECONNRESET` once, if the ends are connected and the
    /// peer was closed with unread messages.
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
    /// `EMSGSIZE` for a message longer than the room; `ENOBUFS` if there is no memory for it, and
    /// no unread message that would free some; `EPIPE` if no reader is left; `EAGAIN` instead of
    /// waiting, `EINTR`; see also the [module](self).
    pub(crate) fn write(&self, bufs: &[IoSlice<'_>], wait: Waiting<'_>) -> Result<usize, Errno> {
        let mut from = Scatter::new(bufs);
        let len = from.left;
        let mut message = Vec::new();
        if len <= MESSAGE_MAX {
            // Copies the message before it takes the lock.
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

    /// Ends directions of this end, and of the peer if they are connected.
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

    /// Closes this end, because its open file is closed.
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
