//! Pipes: what is written at one end is read at the other. Also what is behind a named fifo.
//!
//! # What a pipe holds
//!
//! A ring of buffers of a page each, as in Linux, since programs can see it: a write that fits into
//! what the last buffer has left goes there, any other begins with a new one, and the pipe is full
//! when all buffers are in use, whatever is in them. So a write of [`PIPE_BUF`] bytes or less is
//! whole or not at all. In packet mode (`O_DIRECT`) each buffer is a packet, of which a read gets
//! one. Buffers take memory as data comes, and one that was emptied is kept for the next write.
//!
//! A pipe pays for all buffers that it may have while an end is open, and gets fewer if there are
//! too many pipes ([`crate::base::limits`]). A direction of sockets pays for the buffers that it
//! has. If there is no memory for another, its writers wait until the reader has emptied one: that
//! one is theirs then.
//!
//! # Who wakes whom
//!
//! Everything is behind one lock (`pipe_mutex`, a [`Monitor`]), which is held for copying and never
//! while waiting. Whoever releases it with something to read and readers asleep wakes one of them,
//! and with room and writers asleep one of those.
//!
//! The end of the last writer counts as something to read (the end of file), the end of the last
//! reader as room (for `EPIPE`).
//!
//! # Fifos
//!
//! Opening one end of a fifo waits until the other end *was* opened since, not until it *is* open:
//! a writer that comes, writes and goes must not be overlooked. So openings are counted, and the
//! opener waits for the other count to change.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use rustix::io::Errno;
use vfscale_sync::percpu_arc::Kept;

use crate::base::limits::{PipePages, Quotas};
use crate::base::lock_classes::PipeMutex;
use crate::locks::wait_queue::{Monitor, Settle, SleepList, Waiting, Wake};

/// Bytes up to which a write to a pipe is never split.
pub const PIPE_BUF: usize = 4096;

/// Bytes of a buffer.
const BUFFER_BYTES: usize = 4096;

/// Buffers that a pipe has to begin with.
const BUFFERS: usize = 16;

/// The capacity in bytes up to which anybody may raise that of a pipe (`fs.pipe-max-size`).
const SIZE_MAX_UNPRIVILEGED: u32 = 1 << 20;

/// The largest capacity of all in bytes.
const SIZE_MAX: u32 = 1 << 31;

/// A piece of what was written.
struct Buffer {
    data: Vec<u8>,
    /// How much of it was read.
    read: usize,
    /// It ends the read that gets to it, and whatever that leaves is lost.
    packet: bool,
}

impl Buffer {
    fn left(&self) -> &[u8] {
        &self.data[self.read..]
    }
}

/// Which ends an open file has of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// What readers and writers share.
pub(crate) struct Pipe(Monitor<State, PipeMutex>);

struct State {
    ring: VecDeque<Buffer>,
    /// The most buffers.
    buffers_max: usize,
    quotas: Kept<Quotas>,
    paid: Paid,
    /// Open files with the reading end, and how many there ever were.
    readers: u32,
    readings: u32,
    /// The same for the writing end.
    writers: u32,
    writings: u32,
    /// An emptied buffer's memory.
    spare: Vec<u8>,
    /// Somebody has opened an end since the lock was taken.
    opened: bool,
    /// Writers wait for memory, which the reader gives back.
    starved: bool,
    /// Whoever reads to the end is to be told that the writer has not read what was written to it.
    reset: bool,
    sleeping_readers: SleepList,
    sleeping_writers: SleepList,
    sleeping_openers: SleepList,
}

/// How a pipe pays for its buffers.
enum Paid {
    /// For as many as it may have, while an end is open.
    Capacity(PipePages),
    /// For each that it has, and for the one it keeps.
    Use,
}

impl Drop for State {
    fn drop(&mut self) {
        self.clear();
        if let Paid::Capacity(pages) = &mut self.paid {
            pages.give(&self.quotas);
        }
    }
}

impl State {
    /// Pays for the buffers of a pipe of which an end is opened, as many as it can get.
    ///
    /// # Errors
    /// `ENFILE` if it gets none.
    fn pay_capacity(&mut self) -> Result<(), Errno> {
        if let Paid::Capacity(pages) = &mut self.paid
            && pages.len() == 0
        {
            *pages = PipePages::take(&self.quotas, BUFFERS as u64)?;
            self.buffers_max = pages.len();
        }
        Ok(())
    }

    /// Memory for a buffer; `None` if there is none left.
    fn buffer(&mut self) -> Option<Vec<u8>> {
        let spare = std::mem::take(&mut self.spare);
        let has_none = matches!(self.paid, Paid::Use)
            && spare.capacity() == 0
            && !self.quotas.socket_bytes.take(BUFFER_BYTES as u64);
        if has_none { None } else { Some(spare) }
    }

    /// Gives back as many buffers, whose memory is gone.
    fn give_buffers(&self, buffers: usize) {
        if matches!(self.paid, Paid::Use) {
            self.quotas.socket_bytes.give((buffers * BUFFER_BYTES) as u64);
        }
    }

    /// Frees all that is in it.
    fn clear(&mut self) {
        let spare = std::mem::take(&mut self.spare);
        let ring = std::mem::take(&mut self.ring);
        self.give_buffers(ring.len() + usize::from(spare.capacity() > 0));
        self.starved = false;
    }

    /// Whether a read would not wait.
    fn is_readable(&self) -> bool {
        !self.ring.is_empty() || self.writers == 0
    }

    fn is_full(&self) -> bool {
        self.ring.len() >= self.buffers_max
    }

    /// Reads what there is, into what `to` has left.
    fn take(&mut self, to: &mut Gather<'_, '_>) -> usize {
        let mut done = 0;
        while to.left > 0
            && let Some(buffer) = self.ring.front_mut()
        {
            let n = to.put(buffer.left());
            buffer.read += n;
            done += n;
            let packet = buffer.packet;
            if (packet || buffer.left().is_empty())
                && let Some(empty) = self.ring.pop_front()
            {
                self.keep(empty.data);
            }
            if packet {
                break;
            }
        }
        done
    }

    fn keep(&mut self, mut memory: Vec<u8>) {
        self.starved = false;
        if self.spare.capacity() < memory.capacity() {
            memory.clear();
            std::mem::swap(&mut self.spare, &mut memory);
        }
        if memory.capacity() > 0 {
            self.give_buffers(1);
        }
    }

    /// Puts the odd bytes of a write into what the last buffer has left, if they fit there.
    fn merge(&mut self, from: &mut Scatter<'_, '_>) -> usize {
        let odd = from.left % BUFFER_BYTES;
        match self.ring.back_mut() {
            Some(last) if !last.packet && odd > 0 && last.data.len() + odd <= BUFFER_BYTES => {
                from.take(odd, &mut last.data)
            }
            _ => 0,
        }
    }

    /// Writes into new buffers as long as there are any, and memory for them.
    fn push(&mut self, from: &mut Scatter<'_, '_>, packet: bool) -> usize {
        let mut done = 0;
        while from.left > 0 && !self.is_full() {
            let Some(mut data) = self.buffer() else {
                self.starved = !self.ring.is_empty();
                break;
            };
            done += from.take(BUFFER_BYTES, &mut data);
            self.ring.push_back(Buffer { data, read: 0, packet });
        }
        done
    }

    fn add(&mut self, ends: Ends) {
        if ends.read {
            self.readers += 1;
            self.readings = self.readings.wrapping_add(1);
        }
        if ends.write {
            self.writers += 1;
            self.writings = self.writings.wrapping_add(1);
        }
        self.opened = true;
    }

    fn remove(&mut self, ends: Ends) {
        self.readers -= u32::from(ends.read);
        self.writers -= u32::from(ends.write);
        if self.readers == 0 && self.writers == 0 {
            // What nobody has read is lost, and a fifo begins anew.
            self.clear();
            if let Paid::Capacity(pages) = &mut self.paid {
                pages.give(&self.quotas);
                self.buffers_max = BUFFERS;
            }
        }
    }
}

impl Settle for State {
    fn settle(&mut self) -> Wake {
        let mut wake = Wake::default();
        if self.is_readable() {
            self.sleeping_readers.pop(&mut wake);
        }
        let has_room = !self.is_full() && !self.starved;
        if has_room || self.readers == 0 || self.writers == 0 {
            self.sleeping_writers.pop(&mut wake);
        }
        if std::mem::take(&mut self.opened) {
            self.sleeping_openers.pop_all(&mut wake);
        }
        wake
    }
}

impl Pipe {
    /// A pipe that has no end open yet.
    pub(crate) fn new(quotas: Kept<Quotas>) -> Pipe {
        Pipe::make(0, BUFFERS, Paid::Capacity(PipePages::default()), quotas)
    }

    /// A pipe with both ends open.
    ///
    /// # Errors
    /// `ENFILE` if there are too many pipes.
    pub(crate) fn opened(quotas: Kept<Quotas>) -> Result<Pipe, Errno> {
        let pages = PipePages::take(&quotas, BUFFERS as u64)?;
        Ok(Pipe::make(1, pages.len(), Paid::Capacity(pages), quotas))
    }

    /// One direction of a pair of sockets, with both ends open, and buffers that are paid for as
    /// they are used.
    pub(crate) fn of_sockets(buffers_max: usize, quotas: Kept<Quotas>) -> Pipe {
        Pipe::make(1, buffers_max, Paid::Use, quotas)
    }

    /// With as many readers, and as many writers.
    fn make(ends: u32, buffers_max: usize, paid: Paid, quotas: Kept<Quotas>) -> Pipe {
        Pipe(Monitor::new(State {
            ring: VecDeque::new(),
            buffers_max,
            quotas,
            paid,
            readers: ends,
            readings: ends,
            writers: ends,
            writings: ends,
            spare: Vec::new(),
            opened: false,
            starved: false,
            reset: false,
            sleeping_readers: SleepList::default(),
            sleeping_writers: SleepList::default(),
            sleeping_openers: SleepList::default(),
        }))
    }

    /// Opens ends of a fifo. An opener of one end waits for the other, unless `wait` says never:
    /// then a reader goes on, and a writer without readers fails. The caller holds no lock and no
    /// RCU guard.
    ///
    /// # Errors
    /// `ENXIO`, `EINTR`; `EINVAL` for neither end; `ENFILE` if there are too many pipes.
    pub(crate) fn open(&self, ends: Ends, wait: Waiting<'_>) -> Result<(), Errno> {
        let mut seen = 0;
        let other = |state: &State| if ends.read { state.writings } else { state.readings };
        let waits = self.0.with(|state| {
            let (here, alone) = match ends {
                Ends { read: true, write: true } => (true, false),
                Ends { read: true, write: false } => (true, state.writers == 0),
                Ends { read: false, write: true } => {
                    let alone = state.readers == 0;
                    (!(alone && wait.never), alone)
                }
                Ends { read: false, write: false } => return Err(Errno::INVAL),
            };
            if !here {
                return Err(Errno::NXIO);
            }
            state.pay_capacity()?;
            seen = other(state);
            state.add(ends);
            Ok(alone && !wait.never)
        })?;
        if !waits {
            return Ok(());
        }
        self.0
            .repeat(wait, |state| &mut state.sleeping_openers, |state| Ok(other(state) != seen))
            .inspect_err(|_| self.close(ends))
    }

    /// Another open file of a pipe that has no name: never waits.
    ///
    /// # Errors
    /// `EINVAL` for neither end; `ENFILE` if it has none yet, and there are too many pipes.
    pub(crate) fn add(&self, ends: Ends) -> Result<(), Errno> {
        if !ends.read && !ends.write {
            return Err(Errno::INVAL);
        }
        self.0.with(|state| {
            state.pay_capacity()?;
            state.add(ends);
            Ok(())
        })
    }

    /// An open file with these ends is closed.
    pub(crate) fn close(&self, ends: Ends) {
        self.0.with(|state| state.remove(ends));
    }

    /// Nobody writes any more, nor could read what would be written; what was is still read. For
    /// one direction of a pair of sockets, as the two that follow, which are called instead of
    /// [`close`](Self::close).
    pub(crate) fn end(&self) {
        self.0.with(|state| (state.readers, state.writers) = (0, 0));
    }

    /// Nobody writes any more. With `reset`, whoever has read everything is told so once by an
    /// error.
    pub(crate) fn end_writing(&self, reset: bool) {
        self.0.with(|state| {
            state.writers = 0;
            state.reset |= reset;
        });
    }

    /// Nobody reads any more. Returns whether something is lost by that.
    pub(crate) fn end_reading(&self) -> bool {
        self.0.with(|state| {
            state.readers = 0;
            let lost = !state.ring.is_empty();
            state.clear();
            lost
        })
    }

    /// Reads; waits while there is nothing to read and somebody could write.
    ///
    /// # Errors
    /// `EAGAIN` instead of waiting, `EINTR`; `ECONNRESET` once at the end, where that was
    /// [said](Self::end_writing).
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
        self.0.repeat(
            wait,
            |state| &mut state.sleeping_readers,
            |state| {
                done = state.take(&mut to);
                if done == 0 && std::mem::take(&mut state.reset) {
                    return Err(Errno::CONNRESET);
                }
                Ok(done > 0 || state.writers == 0)
            },
        )?;
        Ok(done)
    }

    /// Writes all of it; waits while there is no room. As packets, if `packet`.
    ///
    /// # Errors
    /// `EPIPE` when nobody can read it any more; `EAGAIN` instead of waiting, `EINTR`; `ENOBUFS` if
    /// there is no memory for it, and nothing in it that would give some back. None of them when
    /// some of it was written already: then that is the result.
    pub(crate) fn write(
        &self,
        bufs: &[IoSlice<'_>],
        packet: bool,
        wait: Waiting<'_>,
    ) -> Result<usize, Errno> {
        let mut from = Scatter::new(bufs);
        if from.left == 0 {
            return Ok(0);
        }
        let mut done = 0;
        let mut first = true;
        let written = self.0.repeat(
            wait,
            |state| &mut state.sleeping_writers,
            |state| {
                // The latter is for a socket that has ended this direction itself.
                if state.readers == 0 || state.writers == 0 {
                    return Err(Errno::PIPE);
                }
                // Only to begin with: what follows a wait is none of the odd bytes any more.
                if std::mem::take(&mut first) {
                    done += state.merge(&mut from);
                }
                done += state.push(&mut from, packet);
                // It is empty and has no memory.
                if from.left > 0 && state.ring.is_empty() {
                    return Err(Errno::NOBUFS);
                }
                Ok(from.left == 0)
            },
        );
        match written {
            Err(_) if done > 0 => Ok(done),
            other => other.map(|()| done),
        }
    }

    /// Whether both ends are open.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.0.look();
        state.readers > 0 && state.writers > 0
    }

    /// The capacity in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.look().buffers_max * BUFFER_BYTES
    }

    /// Changes the capacity to `bytes` or the next power of two; returns what it is then.
    ///
    /// # Errors
    /// `EINVAL` for more than 2 GiB, `EPERM` for more than anybody may have unless `privileged`, or
    /// more than the tree has left for all pipes; `EBUSY` if it holds more at the moment.
    pub(crate) fn set_size(&self, bytes: u32, privileged: bool) -> Result<usize, Errno> {
        if bytes > SIZE_MAX {
            return Err(Errno::INVAL);
        }
        let size = bytes.max(BUFFER_BYTES as u32).next_power_of_two();
        let buffers = size as usize / BUFFER_BYTES;
        self.0.with(|state| {
            if buffers > state.buffers_max && size > SIZE_MAX_UNPRIVILEGED && !privileged {
                return Err(Errno::PERM);
            }
            if buffers < state.ring.len() {
                return Err(Errno::BUSY);
            }
            let State { paid, quotas, .. } = state;
            if let Paid::Capacity(pages) = paid {
                pages.resize(quotas, buffers as u64)?;
            }
            state.buffers_max = buffers;
            Ok(size as usize)
        })
    }
}

/// Memory to read into, one slice after the other.
pub(crate) struct Gather<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    /// How much of the first is full.
    at: usize,
    pub(crate) left: usize,
}

impl<'a, 'b> Gather<'a, 'b> {
    pub(crate) fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Gather<'a, 'b> {
        let left = bufs.iter().map(|buf| buf.len()).sum();
        Gather { bufs, at: 0, left }
    }

    /// Copies as much of `data` as fits; returns how much.
    pub(crate) fn put(&mut self, data: &[u8]) -> usize {
        let mut rest = &data[..data.len().min(self.left)];
        let done = rest.len();
        self.left -= done;
        while !rest.is_empty()
            && let Some(buf) = self.bufs.first_mut()
        {
            let n = rest.len().min(buf.len() - self.at);
            buf[self.at..self.at + n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            self.at += n;
            if self.at == buf.len() {
                self.bufs = &mut std::mem::take(&mut self.bufs)[1..];
                self.at = 0;
            }
        }
        done
    }
}

/// Memory to write from, one slice after the other.
pub(crate) struct Scatter<'a, 'b> {
    bufs: &'a [IoSlice<'b>],
    /// How much of the first is written.
    at: usize,
    pub(crate) left: usize,
}

impl<'a, 'b> Scatter<'a, 'b> {
    pub(crate) fn new(bufs: &'a [IoSlice<'b>]) -> Scatter<'a, 'b> {
        let left = bufs.iter().map(|buf| buf.len()).sum();
        Scatter { bufs, at: 0, left }
    }

    /// Appends the next `len` bytes, or what is left, to `to`; returns how many.
    pub(crate) fn take(&mut self, len: usize, to: &mut Vec<u8>) -> usize {
        let done = len.min(self.left);
        self.left -= done;
        let mut rest = done;
        while rest > 0
            && let Some(buf) = self.bufs.first()
        {
            let n = rest.min(buf.len() - self.at);
            to.extend_from_slice(&buf[self.at..self.at + n]);
            rest -= n;
            self.at += n;
            if self.at == buf.len() {
                self.bufs = &self.bufs[1..];
                self.at = 0;
            }
        }
        done
    }
}
