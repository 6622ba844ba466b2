//! Batches by io_uring: many requests in the hands of the device at once, by one thread that waits.
//!
//! # Why a pool, and not a ring for each thread or each CPU
//!
//! A ring that a thread uses must be its own until its requests are done. Behind a lock for
//! each CPU, a thread that waits for a slow disk would keep the next one on its CPU out; rings in
//! thread-local storage would be as many as threads times devices, and outlive the devices. So rings lie
//! in a pool with a slot for each CPU: a batch takes one out, has it to itself without any lock, and puts
//! it back. The slot's lock is held for moving a pointer. There are as many rings as there were
//! batches at once, and each slot keeps a few.
//!
//! # Why the kernel never writes memory that somebody else has
//!
//! A request that was submitted uses its memory until its completion is there, whatever its thread
//! does. [`Flights`] is the owner of all requests of a batch that are under way: it borrows the callers'
//! buffers, owns the copies, and does not end, not even by a panic or an error of the ring, before the last
//! completion has arrived ([`Flights::drain`], from its `Drop`). It lives on the stack of
//! [`Ring::run`] and is handed to nobody, so that it can't be forgotten. A signal only interrupts
//! the wait, which goes on. When the process is killed, the kernel cancels or finishes the requests
//! before it takes the memory apart.
//!
//! A ring that failed is closed after that and never used again, so that requests which were queued and not
//! submitted can't come to life later.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, types};
use vfscale_sync::Mutex;
use vfscale_sync::percpu::PerCpu;

use super::piece::{Piece, Rest};
use crate::{Operation, OsError};

vfscale_sync::lock_class! {
    /// The idle rings of one CPU; a leaf.
    pub(crate) RingPool = ("ring_pool", 64860);
}

/// How many requests of a batch the device has at once.
const DEPTH: u32 = 64;
/// How many of them must be done before new ones follow: each time costs a system call, and the
/// device still has the others.
const REFILL: usize = DEPTH as usize / 4;
/// How many idle rings a CPU keeps.
const IDLE_MAX: usize = 4;
/// How long to wait before looking again, where the kernel could not be made to wait.
const POLL: Duration = Duration::from_micros(200);

/// The idle rings of a device.
pub(super) struct Rings {
    idle: PerCpu<Mutex<Vec<Ring>, RingPool>>,
}

impl Rings {
    /// A pool with one ring in it, which shows that this process may have rings, or why it may not.
    pub(super) fn new() -> io::Result<Self> {
        let first = Ring::new()?;
        let slots = vfscale_sync::cpu::possible() as usize;
        let rings = Self { idle: PerCpu::new(slots, |_| Mutex::new(Vec::new())) };
        rings.put(first);
        Ok(rings)
    }

    /// A ring of the caller's own; none if the system has no more.
    pub(super) fn take(&self) -> Option<Ring> {
        let idle = self.idle.this().lock().pop();
        idle.or_else(|| Ring::new().ok())
    }

    /// Puts a ring back that has nothing under way.
    pub(super) fn put(&self, ring: Ring) {
        let mut idle = self.idle.this().lock();
        if idle.len() < IDLE_MAX {
            idle.push(ring);
        } else {
            // Closing it is a system call, and nothing to hold a lock for.
            drop(idle);
            drop(ring);
        }
    }
}

/// Why a batch did not go through.
#[derive(Debug)]
pub(super) enum Failure {
    /// The device failed this request.
    Request { operation: Operation, offset: u64, length: u64, error: OsError },
    /// The ring itself failed. What became of the batch is unknown, and nothing of it is under way
    /// any more: it can be done again by other means.
    Ring,
}

/// An io_uring with nothing under way.
pub(super) struct Ring {
    uring: IoUring,
}

impl Ring {
    fn new() -> io::Result<Self> {
        // With it, completions don't interrupt the thread that is going to wait for them anyway; kernels
        // before 5.19 don't know it.
        let uring = IoUring::builder().setup_coop_taskrun().build(DEPTH);
        let uring = uring.or_else(|_| IoUring::new(DEPTH))?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        let codes =
            [opcode::Read::CODE, opcode::Write::CODE, opcode::Readv::CODE, opcode::Writev::CODE];
        if codes.iter().all(|code| probe.is_supported(*code)) {
            Ok(Self { uring })
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Does all `pieces` on `file`, up to [`DEPTH`] at a time and in any order, and waits for them.
    /// New ones follow when [`REFILL`] are done. After a failure no new ones are begun; those under
    /// way are waited for.
    ///
    /// On [`Failure::Ring`] the ring must not be used again.
    pub(super) fn run<'a>(
        &mut self,
        file: BorrowedFd<'_>,
        mut pieces: impl Iterator<Item = Piece<'a>>,
    ) -> Result<(), Failure> {
        let mut flights = Flights::new(&mut self.uring, file);
        let (mut failed, mut is_last) = (None, false);
        loop {
            while failed.is_none() && !is_last && flights.has_room() {
                match pieces.next() {
                    Some(piece) => flights.begin(piece).map_err(|Full| Failure::Ring)?,
                    None => is_last = true,
                }
            }
            if flights.count == 0 {
                break;
            }
            let wanted = if is_last || failed.is_some() { flights.count } else { REFILL };
            flights.submit_and_wait(wanted.min(flights.count)).map_err(|_| Failure::Ring)?;
            while let Some((slot, result)) = flights.completion() {
                match flights.settle(slot, result) {
                    Ok(Settled::Done) => {}
                    Ok(Settled::Again) => flights.push(slot).map_err(|Full| Failure::Ring)?,
                    Err(failure) => failed = failed.or(Some(failure)),
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// The submission queue had no room where it must have: a ring out of order.
#[derive(Debug)]
struct Full;

enum Settled {
    Done,
    /// A part is missing.
    Again,
}

/// The requests of one batch that are under way. See the [module](self).
struct Flights<'r, 'a> {
    uring: &'r mut IoUring,
    file: types::Fd,
    /// The requests, by the number that the kernel knows them by.
    slots: Vec<Option<Piece<'a>>>,
    free: Vec<usize>,
    /// How many slots are taken.
    count: usize,
}

impl<'r, 'a> Flights<'r, 'a> {
    fn new(uring: &'r mut IoUring, file: BorrowedFd<'_>) -> Self {
        let slots: Vec<_> = (0..DEPTH).map(|_| None).collect();
        let free = (0..slots.len()).rev().collect();
        let file = types::Fd(file.as_raw_fd());
        Self { uring, file, slots, free, count: 0 }
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Queues a new request; there is room.
    fn begin(&mut self, piece: Piece<'a>) -> Result<(), Full> {
        let slot = self.free.pop().ok_or(Full)?;
        self.slots[slot] = Some(piece);
        self.count += 1;
        let queued = self.push(slot);
        if queued.is_err() {
            self.end(slot);
        }
        queued
    }

    /// Queues what is left of the request in `slot`.
    fn push(&mut self, slot: usize) -> Result<(), Full> {
        let Some(piece) = self.slots[slot].as_mut() else { return Ok(()) };
        let entry = match piece.rest() {
            (offset, Rest::Read(bytes)) => {
                let length = u32::try_from(bytes.len()).map_err(|_| Full)?;
                opcode::Read::new(self.file, bytes.as_mut_ptr(), length).offset(offset).build()
            }
            (offset, Rest::Write(bytes)) => {
                let length = u32::try_from(bytes.len()).map_err(|_| Full)?;
                opcode::Write::new(self.file, bytes.as_ptr(), length).offset(offset).build()
            }
            (offset, Rest::ReadPages(rest)) => {
                let length = u32::try_from(rest.len()).map_err(|_| Full)?;
                opcode::Readv::new(self.file, rest.as_ptr(), length).offset(offset).build()
            }
            (offset, Rest::WritePages(rest)) => {
                let length = u32::try_from(rest.len()).map_err(|_| Full)?;
                opcode::Writev::new(self.file, rest.as_ptr(), length).offset(offset).build()
            }
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: the entry names the bytes of a piece, which it has borrowed or owns (or a list of its own
        // that names pages it has borrowed, whose bytes anybody may touch), and which nobody looks at while
        // it waits in its slot. It stays there, and `self` alive, until the completion
        // has arrived or the entry is known never to be submitted: `end` is called in these two
        // cases only, and `drain` waits for all others. The file is open as long as the device is.
        unsafe { self.uring.submission().push(&entry) }.map_err(|_| Full)
    }

    /// Hands everything queued to the kernel, and waits until so many completions are there or a
    /// signal comes.
    fn submit_and_wait(&mut self, wanted: usize) -> io::Result<()> {
        match self.uring.submit_and_wait(wanted) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => other.map(|_| ()),
        }
    }

    fn completion(&mut self) -> Option<(usize, i32)> {
        let entry = self.uring.completion().next()?;
        Some((entry.user_data() as usize, entry.result()))
    }

    /// Takes the result of the request in `slot`.
    fn settle(&mut self, slot: usize, result: i32) -> Result<Settled, Failure> {
        let Some(piece) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(Settled::Done);
        };
        let settled = match usize::try_from(result) {
            Ok(count) => piece.advance(count),
            Err(_) if result == -libc::EINTR => Ok(false),
            Err(_) => Err(OsError::new(result.saturating_neg())),
        };
        let (operation, (offset, length)) = (piece.operation(), piece.rest_range());
        match settled {
            Ok(false) => return Ok(Settled::Again),
            Ok(true) | Err(_) => self.end(slot),
        }
        match settled {
            Ok(_) => Ok(Settled::Done),
            // The kernel could not make it wait, which is no failure of the device.
            Err(error) if error == OsError::new(libc::EAGAIN) => Err(Failure::Ring),
            Err(error) => Err(Failure::Request { operation, offset, length, error }),
        }
    }

    /// The kernel is done with the request in `slot`, or never had it.
    fn end(&mut self, slot: usize) {
        if self.slots[slot].take().is_some() {
            self.free.push(slot);
            self.count -= 1;
        }
    }

    /// Waits until the kernel has nothing of this batch any more, whatever happens.
    fn drain(&mut self) {
        // What the kernel has not taken from the queue it never will: nothing is submitted from here
        // on, and the ring is closed, for only a ring that failed has anything left to drain.
        let queued = self.uring.submission().len();
        let mut missing = self.count.saturating_sub(queued);
        while missing > 0 {
            while missing > 0 && self.completion().is_some() {
                missing -= 1;
            }
            if missing > 0 {
                // Not by waiting in the ring, which has just failed. Completions are posted when the
                // thread enters or leaves the kernel, as it does for sleeping.
                thread::sleep(POLL);
            }
        }
    }
}

impl Drop for Flights<'_, '_> {
    fn drop(&mut self) {
        self.drain();
    }
}

#[cfg(test)]
mod tests;
