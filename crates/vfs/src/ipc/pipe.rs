//! Pipes, with or without a name (fifos): data written at one end is read at the other.
//!
//! # Buffers
//!
//! A pipe holds a ring of buffers of a page each, as in Linux, because programs can observe it. A
//! write that fits into the rest of the last buffer is appended there; any other begins with a new
//! buffer. The pipe is full when all buffers are in use, however full each is. So a write of at
//! most [`PIPE_BUF`] bytes is never split. In packet mode (`O_DIRECT`) each buffer is a packet, and
//! a read returns one. Buffers are allocated as data arrives; an emptied buffer is reused by the
//! next write.
//!
//! A pipe is charged for its capacity while an end is open, and gets a smaller one if there are too
//! many pipes ([`crate::base::limits`]). A direction of a socket pair is charged for the buffers
//! that it uses. If no memory is left for another buffer, its writers wait until the reader empties
//! one, and then reuse it.
//!
//! # Wake-ups
//!
//! One lock (`pipe_mutex`, a [`Monitor`]) protects everything. It is held during copies and never
//! while waiting. The thread that releases it wakes one sleeping reader if there is data, and one
//! sleeping writer if there is room.
//!
//! The close of the last writer counts as data (the end of file), the close of the last reader as
//! room (for `EPIPE`).
//!
//! # Fifos
//!
//! Opening one end of a fifo waits until the other end *was* opened since the wait began, not until
//! it *is* open. Otherwise the reader would miss a writer that opens, writes and closes. So a pipe
//! counts openings, and the opener waits for a change of the other count.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use rustix::io::Errno;
use vfscale_sync::percpu_arc::Kept;

use crate::base::limits::{PipePages, Quotas};
use crate::base::lock_classes::PipeMutex;
use crate::locks::wait_queue::{Monitor, Settle, SleepList, Waiting, Wake};

/// The most bytes of a write that a pipe never splits.
pub const PIPE_BUF: usize = 4096;

/// The size of a buffer in bytes.
const BUFFER_BYTES: usize = 4096;

/// The initial number of buffers of a pipe.
const BUFFERS: usize = 16;

/// The largest capacity in bytes that an unprivileged task may set (`fs.pipe-max-size`).
const SIZE_MAX_UNPRIVILEGED: u32 = 1 << 20;

/// The largest capacity in bytes.
const SIZE_MAX: u32 = 1 << 31;

/// A buffer of written data.
struct Buffer {
    data: Vec<u8>,
    /// The number of bytes of `data` that were read.
    read: usize,
    /// Whether the buffer is a packet: it ends the read that reaches it, and its unread rest is
    /// dropped.
    packet: bool,
}

impl Buffer {
    fn left(&self) -> &[u8] {
        &self.data[self.read..]
    }
}

/// The ends of a pipe that an open file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// A pipe, shared by its readers and writers. Counterpart of `struct pipe_inode_info` in Linux.
pub(crate) struct Pipe(Monitor<PipeState, PipeMutex>);

struct PipeState {
    ring: VecDeque<Buffer>,
    /// The capacity, in buffers.
    buffers_max: usize,
    quotas: Kept<Quotas>,
    paid: Paid,
    /// Open files with the reading end, and the number of its openings.
    readers: u32,
    readings: u32,
    /// Open files with the writing end, and the number of its openings.
    writers: u32,
    writings: u32,
    /// The memory of an emptied buffer.
    spare: Vec<u8>,
    /// Whether an end was opened since the lock was taken.
    opened: bool,
    /// Whether writers wait for memory, which the reader frees.
    starved: bool,
    /// Whether the reader that reaches the end gets `ECONNRESET`, because the peer was closed with
    /// unread data.
    reset: bool,
    sleeping_readers: SleepList,
    sleeping_writers: SleepList,
    sleeping_openers: SleepList,
}

/// The charge for the buffers of a pipe.
enum Paid {
    /// The capacity, while an end is open.
    Capacity(PipePages),
    /// Each buffer in use, and the spare one.
    Use,
}

impl Drop for PipeState {
    fn drop(&mut self) {
        self.clear();
        if let Paid::Capacity(pages) = &mut self.paid {
            pages.give(&self.quotas);
        }
    }
}

impl PipeState {
    /// Charges the capacity of a pipe of which an end is opened, and reduces it to the available
    /// pages.
    ///
    /// # Errors
    /// `ENFILE` if no page is available.
    fn pay_capacity(&mut self) -> Result<(), Errno> {
        if let Paid::Capacity(pages) = &mut self.paid
            && pages.len() == 0
        {
            *pages = PipePages::take(&self.quotas, BUFFERS as u64)?;
            self.buffers_max = pages.len();
        }
        Ok(())
    }

    /// Returns memory for a buffer; `None` if none is left.
    fn buffer(&mut self) -> Option<Vec<u8>> {
        let spare = std::mem::take(&mut self.spare);
        let has_none = matches!(self.paid, Paid::Use)
            && spare.capacity() == 0
            && !self.quotas.socket_bytes.take(BUFFER_BYTES as u64);
        if has_none { None } else { Some(spare) }
    }

    /// Uncharges `buffers` buffers, whose memory was freed.
    fn give_buffers(&self, buffers: usize) {
        if matches!(self.paid, Paid::Use) {
            self.quotas.socket_bytes.give((buffers * BUFFER_BYTES) as u64);
        }
    }

    /// Frees all buffers.
    fn clear(&mut self) {
        let spare = std::mem::take(&mut self.spare);
        let ring = std::mem::take(&mut self.ring);
        self.give_buffers(ring.len() + usize::from(spare.capacity() > 0));
        self.starved = false;
    }

    /// Returns whether a read would not wait.
    fn is_readable(&self) -> bool {
        !self.ring.is_empty() || self.writers == 0
    }

    fn is_full(&self) -> bool {
        self.ring.len() >= self.buffers_max
    }

    /// Reads available data into the rest of `to`.
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

    /// Appends the odd bytes of a write to the last buffer, if they fit into its rest.
    fn merge(&mut self, from: &mut Scatter<'_, '_>) -> usize {
        let odd = from.left % BUFFER_BYTES;
        match self.ring.back_mut() {
            Some(last) if !last.packet && odd > 0 && last.data.len() + odd <= BUFFER_BYTES => {
                from.take(odd, &mut last.data)
            }
            _ => 0,
        }
    }

    /// Writes into new buffers while the pipe has room and memory for them.
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
            // Drops unread data, so the next opening of a fifo finds it empty.
            self.clear();
            if let Paid::Capacity(pages) = &mut self.paid {
                pages.give(&self.quotas);
                self.buffers_max = BUFFERS;
            }
        }
    }
}

impl Settle for PipeState {
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
    /// Creates a pipe without an open end.
    pub(crate) fn new(quotas: Kept<Quotas>) -> Pipe {
        Pipe::make(0, BUFFERS, Paid::Capacity(PipePages::default()), quotas)
    }

    /// Creates a pipe with both ends open.
    ///
    /// # Errors
    /// `ENFILE` if there are too many pipes.
    pub(crate) fn opened(quotas: Kept<Quotas>) -> Result<Pipe, Errno> {
        let pages = PipePages::take(&quotas, BUFFERS as u64)?;
        Ok(Pipe::make(1, pages.len(), Paid::Capacity(pages), quotas))
    }

    /// Creates one direction of a socket pair, with both ends open, whose buffers are charged as
    /// they are used.
    pub(crate) fn of_sockets(buffers_max: usize, quotas: Kept<Quotas>) -> Pipe {
        Pipe::make(1, buffers_max, Paid::Use, quotas)
    }

    /// Creates a pipe with `ends` readers and `ends` writers.
    fn make(ends: u32, buffers_max: usize, paid: Paid, quotas: Kept<Quotas>) -> Pipe {
        Pipe(Monitor::new(PipeState {
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

    /// Opens ends of a fifo. An opener of one end waits for the other, unless `wait` is set to
    /// never: then a reader proceeds, and a writer without readers fails. The caller holds no lock
    /// and no RCU guard.
    ///
    /// # Errors
    /// `ENXIO`, `EINTR`; `EINVAL` for neither end; `ENFILE` if there are too many pipes.
    pub(crate) fn open(&self, ends: Ends, wait: Waiting<'_>) -> Result<(), Errno> {
        let mut seen = 0;
        let other = |state: &PipeState| if ends.read { state.writings } else { state.readings };
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
            .or_else(|errno| {
                self.0.with(|state| {
                    if other(state) != seen {
                        // The other end came first: it is open, and counts on this one.
                        return Ok(());
                    }
                    state.remove(ends);
                    Err(errno)
                })
            })
    }

    /// Adds an open file to a pipe that has no name; never waits.
    ///
    /// # Errors
    /// `EINVAL` for neither end; `ENFILE` if no end was open, and there are too many pipes.
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

    /// Removes an open file with these ends, which is closed.
    pub(crate) fn close(&self, ends: Ends) {
        self.0.with(|state| state.remove(ends));
    }

    /// Ends writing and reading; data written before can still be read. For one direction of a
    /// socket pair, as the two methods below, which replace [`close`](Self::close) there.
    pub(crate) fn end(&self) {
        self.0.with(|state| (state.readers, state.writers) = (0, 0));
    }

    /// Ends writing. With `reset`, a reader that has read all data gets an error once.
    pub(crate) fn end_writing(&self, reset: bool) {
        self.0.with(|state| {
            state.writers = 0;
            state.reset |= reset;
        });
    }

    /// Ends reading. Returns whether data is lost.
    pub(crate) fn end_reading(&self) -> bool {
        self.0.with(|state| {
            state.readers = 0;
            let lost = !state.ring.is_empty();
            state.clear();
            lost
        })
    }

    /// Reads; waits while there is no data and a writer exists.
    ///
    /// # Errors
    /// `EAGAIN` instead of waiting, `EINTR`; `ECONNRESET` once at the end after a
    /// [reset](Self::end_writing).
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

    /// Writes all of `bufs`, as packets if `packet`; waits while there is no room.
    ///
    /// # Errors
    /// `EPIPE` if no reader is left; `EAGAIN` instead of waiting, `EINTR`; `ENOBUFS` if there is no
    /// memory, and no unread data whose reading would free some. If some bytes were written
    /// already, returns their number instead of an error.
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
                // A socket that shut down this direction itself has no writers.
                if state.readers == 0 || state.writers == 0 {
                    return Err(Errno::PIPE);
                }
                // Only at first: after a wait, no odd bytes are left.
                if std::mem::take(&mut first) {
                    done += state.merge(&mut from);
                }
                done += state.push(&mut from, packet);
                // The pipe is empty and has no memory.
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

    /// Returns whether both ends are open.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.0.look();
        state.readers > 0 && state.writers > 0
    }

    /// Returns the capacity in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.look().buffers_max * BUFFER_BYTES
    }

    /// Changes the capacity to `bytes`, rounded up to a power of two, and returns it.
    ///
    /// # Errors
    /// `EINVAL` for more than 2 GiB, `EPERM` for more than an unprivileged task may set, unless
    /// `privileged`, or more than the tree has left for all pipes; `EBUSY` if it holds more data.
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
            let PipeState { paid, quotas, .. } = state;
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
    /// The number of filled bytes of the first slice.
    at: usize,
    pub(crate) left: usize,
}

impl<'a, 'b> Gather<'a, 'b> {
    pub(crate) fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Gather<'a, 'b> {
        let left = bufs.iter().map(|buf| buf.len()).sum();
        Gather { bufs, at: 0, left }
    }

    /// Copies as much of `data` as fits; returns the number of bytes.
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
    /// The number of written bytes of the first slice.
    at: usize,
    pub(crate) left: usize,
}

impl<'a, 'b> Scatter<'a, 'b> {
    pub(crate) fn new(bufs: &'a [IoSlice<'b>]) -> Scatter<'a, 'b> {
        let left = bufs.iter().map(|buf| buf.len()).sum();
        Scatter { bufs, at: 0, left }
    }

    /// Appends the next `len` bytes, or the rest, to `to`; returns their number.
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
