//! Batches through io_uring: one thread submits many requests to the device and waits for them.
//!
//! # Why a pool, and not a ring for each thread or each CPU
//!
//! A thread needs exclusive use of a ring until its requests are done. With a lock for each CPU, a
//! thread that waits for a slow disk would block the next one on its CPU; rings in thread-local
//! storage would number threads times devices, and outlive the devices. So rings are in a pool with
//! a slot for each CPU: a batch takes one out, has exclusive use of it without any lock, and puts
//! it back. The slot's lock is held for moving a pointer. There are as many rings as there were
//! concurrent batches, and each slot retains a few.
//!
//! # Why the kernel never writes memory that has been freed or reused
//!
//! A request that was submitted uses its memory until its completion has arrived, whatever its
//! thread does. [`PendingBatch`] owns all pending requests of a batch: it borrows the callers'
//! buffers, owns the copies, and does not end, not even by a panic or an error of the ring, before
//! the last completion has arrived ([`Requests::drain`], from its `Drop`). It lives on the stack of
//! [`Ring::run`] and is never passed on, so it can't be leaked by `forget`. A [`BatchInFlight`] is
//! passed on, and so borrows nothing: it shares the pages that it writes, and where it is leaked
//! they are leaked with it. A signal only interrupts the wait, which is then repeated. When the
//! process is killed, the kernel cancels or finishes the requests before it frees the memory.
//!
//! A ring that failed is closed after that and never used again, so that requests which were queued
//! and not submitted can't be submitted later.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, types};
use vfscale_sync::Mutex;
use vfscale_sync::percpu::PerCpu;

use super::segment::{Segment, Transfer};
use crate::{Operation, OsError};

vfscale_sync::lock_class! {
    /// The idle rings of one CPU; a leaf.
    pub(crate) RingPool = ("ring_pool", 64860);
}

/// Largest number of pending requests of a batch.
pub(super) const DEPTH: u32 = 64;
/// Number of completed requests before new ones are submitted: each submission costs a system call,
/// and the other requests still occupy the device.
const REFILL: usize = DEPTH as usize / 4;
/// Number of idle rings that a CPU retains.
const IDLE_MAX: usize = 4;
/// Pause between checks, where the kernel could not be made to wait.
const POLL: Duration = Duration::from_micros(200);

/// The idle rings of a device.
pub(super) struct Rings {
    idle: PerCpu<Mutex<Vec<Ring>, RingPool>>,
}

impl Rings {
    /// Creates a pool with one ring in it, which shows whether this process may use io_uring, and
    /// if not, why.
    pub(super) fn new() -> io::Result<Self> {
        let first = Ring::new()?;
        let slots = vfscale_sync::cpu::slots() as usize;
        let rings = Self { idle: PerCpu::new(slots, |_| Mutex::new(Vec::new())) };
        rings.put(first);
        Ok(rings)
    }

    /// Takes a ring for the caller's exclusive use; `None` if the system has no more.
    pub(super) fn take(&self) -> Option<Ring> {
        let idle = self.idle.this().lock().pop();
        idle.or_else(|| Ring::new().ok())
    }

    /// Puts back a ring without pending requests.
    pub(super) fn put(&self, ring: Ring) {
        let mut idle = self.idle.this().lock();
        if idle.len() < IDLE_MAX {
            idle.push(ring);
        } else {
            // Closing it is a system call, and needs no lock.
            drop(idle);
            drop(ring);
        }
    }
}

/// The reason why a batch failed.
#[derive(Debug)]
pub(super) enum BatchFailure {
    /// The device failed this request.
    Request { operation: Operation, offset: u64, length: u64, error: OsError },
    /// The ring itself failed. The result of the batch is unknown, and no request of it is pending:
    /// it can be repeated by other means.
    Ring,
}

/// An io_uring without pending requests.
pub(super) struct Ring {
    uring: IoUring,
}

impl Ring {
    fn new() -> io::Result<Self> {
        // With this flag, completions don't interrupt the thread, which will wait for them anyway.
        // Kernels before 5.19 don't support it.
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

    /// Transfers all `segments` to or from `file`, up to [`DEPTH`] at a time and in any order, and
    /// waits for them. New ones are submitted when [`REFILL`] are complete. After a failure no new
    /// ones are submitted; pending ones are waited for.
    ///
    /// After [`BatchFailure::Ring`] the ring must not be used again.
    pub(super) fn run<'a>(
        &mut self,
        file: BorrowedFd<'_>,
        mut segments: impl Iterator<Item = Segment<'a>>,
    ) -> Result<(), BatchFailure> {
        let mut batch = PendingBatch { uring: &mut self.uring, requests: Requests::new(file) };
        let PendingBatch { uring, requests } = &mut batch;
        let (mut failed, mut is_last) = (None, false);
        loop {
            while failed.is_none() && !is_last && requests.has_room() {
                match segments.next() {
                    Some(segment) => {
                        requests.begin(uring, segment).map_err(|QueueFull| BatchFailure::Ring)?;
                    }
                    None => is_last = true,
                }
            }
            if requests.count == 0 {
                break;
            }
            let wanted = if is_last || failed.is_some() { requests.count } else { REFILL };
            submit_and_wait(uring, wanted.min(requests.count))?;
            requests.settle_all(uring, &mut failed).map_err(|QueueFull| BatchFailure::Ring)?;
        }
        failed.map_or(Ok(()), Err)
    }
}

/// The submission queue was unexpectedly full: the ring is out of order.
#[derive(Debug)]
struct QueueFull;

enum Settled {
    Done,
    /// A part is missing.
    Again,
}

/// The pending requests of one ring. See the [module](self).
struct Requests<'a> {
    file: types::Fd,
    /// The requests, indexed by the number that identifies them to the kernel.
    slots: Vec<Option<Segment<'a>>>,
    free: Vec<usize>,
    /// Number of used slots.
    count: usize,
}

impl<'a> Requests<'a> {
    fn new(file: BorrowedFd<'_>) -> Self {
        let slots: Vec<_> = (0..DEPTH).map(|_| None).collect();
        let free = (0..slots.len()).rev().collect();
        let file = types::Fd(file.as_raw_fd());
        Self { file, slots, free, count: 0 }
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Queues a new request; a slot is free.
    fn begin(&mut self, uring: &mut IoUring, segment: Segment<'a>) -> Result<(), QueueFull> {
        let slot = self.free.pop().ok_or(QueueFull)?;
        self.slots[slot] = Some(segment);
        self.count += 1;
        let queued = self.push(uring, slot);
        if queued.is_err() {
            self.end(slot);
        }
        queued
    }

    /// Queues the rest of the request in `slot`.
    fn push(&mut self, uring: &mut IoUring, slot: usize) -> Result<(), QueueFull> {
        let Some(segment) = self.slots[slot].as_mut() else { return Ok(()) };
        let entry = match segment.rest() {
            (offset, Transfer::Read(bytes)) => {
                let length = u32::try_from(bytes.len()).map_err(|_| QueueFull)?;
                opcode::Read::new(self.file, bytes.as_mut_ptr(), length).offset(offset).build()
            }
            (offset, Transfer::Write(bytes)) => {
                let length = u32::try_from(bytes.len()).map_err(|_| QueueFull)?;
                opcode::Write::new(self.file, bytes.as_ptr(), length).offset(offset).build()
            }
            (offset, Transfer::ReadPages(rest)) => {
                let length = u32::try_from(rest.len()).map_err(|_| QueueFull)?;
                opcode::Readv::new(self.file, rest.as_ptr(), length).offset(offset).build()
            }
            (offset, Transfer::WritePages(rest)) => {
                let length = u32::try_from(rest.len()).map_err(|_| QueueFull)?;
                opcode::Writev::new(self.file, rest.as_ptr(), length).offset(offset).build()
            }
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: the entry refers to the bytes of a segment, which it has borrowed, owns or shares
        // (or to a list of its own that refers to pages it has borrowed or shares, whose bytes may
        // be accessed by any thread), and which no code accesses while the segment waits in its
        // slot. It stays there until the completion has arrived or the entry is known never to be
        // submitted: `end` is called in these two cases only, and the owner of `self` calls
        // `drain`, which waits for all others, before it drops `self`. An owner that is leaked, as
        // only a `BatchInFlight` can be, leaks its segments and their pages with it. The file is
        // open as long as the device is, and the kernel holds it for each submitted request.
        unsafe { uring.submission().push(&entry) }.map_err(|_| QueueFull)
    }

    /// Evaluates all completions that have arrived, and queues what is missing of the requests.
    /// Stores the first failure of the device.
    fn settle_all(
        &mut self,
        uring: &mut IoUring,
        failed: &mut Option<BatchFailure>,
    ) -> Result<(), QueueFull> {
        while let Some((slot, result)) = completion(uring) {
            match self.settle(slot, result) {
                Ok(Settled::Done) => {}
                Ok(Settled::Again) => self.push(uring, slot)?,
                Err(failure) => *failed = failed.take().or(Some(failure)),
            }
        }
        Ok(())
    }

    /// Evaluates the result of the request in `slot`.
    fn settle(&mut self, slot: usize, result: i32) -> Result<Settled, BatchFailure> {
        let Some(segment) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(Settled::Done);
        };
        let settled = match usize::try_from(result) {
            Ok(count) => segment.advance(count),
            Err(_) if result == -libc::EINTR => Ok(false),
            Err(_) => Err(OsError::new(result.saturating_neg())),
        };
        let (operation, (offset, length)) = (segment.operation(), segment.rest_range());
        match settled {
            Ok(false) => return Ok(Settled::Again),
            Ok(true) | Err(_) => self.end(slot),
        }
        match settled {
            Ok(_) => Ok(Settled::Done),
            // The kernel could not make the request wait, which is no failure of the device.
            Err(error) if error == OsError::new(libc::EAGAIN) => Err(BatchFailure::Ring),
            Err(error) => Err(BatchFailure::Request { operation, offset, length, error }),
        }
    }

    /// Frees `slot`, whose request the kernel has completed or never received.
    fn end(&mut self, slot: usize) {
        if self.slots[slot].take().is_some() {
            self.free.push(slot);
            self.count -= 1;
        }
    }

    /// Waits until the kernel has no request of this batch, in any case. The ring is not used
    /// again.
    fn drain(&mut self, uring: &mut IoUring) {
        // The kernel will never take requests that are still queued: nothing is submitted from here
        // on, and the ring is closed.
        let queued = uring.submission().len();
        let mut missing = self.count.saturating_sub(queued);
        while missing > 0 {
            while missing > 0 && completion(uring).is_some() {
                missing -= 1;
            }
            if missing > 0 {
                // Not by waiting in the ring, which may have just failed. Completions are posted
                // when the thread enters or leaves the kernel, as it does for sleeping.
                thread::sleep(POLL);
            }
        }
    }
}

/// Submits all queued requests to the kernel, and waits until `wanted` completions have arrived or
/// a signal interrupts it.
fn submit_and_wait(uring: &IoUring, wanted: usize) -> Result<(), BatchFailure> {
    match uring.submit_and_wait(wanted) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(BatchFailure::Ring),
        _ => Ok(()),
    }
}

fn completion(uring: &mut IoUring) -> Option<(usize, i32)> {
    let entry = uring.completion().next()?;
    Some((entry.user_data() as usize, entry.result()))
}

/// A batch that borrows the callers' buffers.
struct PendingBatch<'r, 'a> {
    uring: &'r mut IoUring,
    requests: Requests<'a>,
}

impl Drop for PendingBatch<'_, '_> {
    fn drop(&mut self) {
        self.requests.drain(self.uring);
    }
}

/// A batch of writes that shares its pages, and so may be in flight while its caller does other
/// things. Dropping it waits for it.
pub(super) struct BatchInFlight {
    /// `None` once it has ended.
    ring: Option<Ring>,
    requests: Requests<'static>,
    failed: Option<BatchFailure>,
}

impl BatchInFlight {
    /// Submits up to [`DEPTH`] segments, and does not wait for them. A failure is told by
    /// [`wait`](Self::wait).
    pub(super) fn begin(
        mut ring: Ring,
        file: BorrowedFd<'_>,
        segments: impl Iterator<Item = Segment<'static>>,
    ) -> Self {
        let (mut requests, mut failed) = (Requests::new(file), None);
        for segment in segments {
            if requests.begin(&mut ring.uring, segment).is_err() {
                failed = Some(BatchFailure::Ring);
                break;
            }
        }
        if failed.is_none() && submit_and_wait(&ring.uring, 0).is_err() {
            failed = Some(BatchFailure::Ring);
        }
        Self { ring: Some(ring), requests, failed }
    }

    /// Waits for all requests. Returns the ring as well, unless that broke.
    pub(super) fn wait(mut self) -> (Result<(), BatchFailure>, Option<Ring>) {
        let mut failed = self.failed.take();
        if let Some(ring) = &mut self.ring {
            while self.requests.count > 0 && !matches!(failed, Some(BatchFailure::Ring)) {
                let waited = submit_and_wait(&ring.uring, self.requests.count);
                let settled = waited.and_then(|()| {
                    let settled = self.requests.settle_all(&mut ring.uring, &mut failed);
                    settled.map_err(|QueueFull| BatchFailure::Ring)
                });
                failed = settled.err().or(failed);
            }
        }
        match failed {
            // Dropping this waits for what is pending, and closes the ring.
            Some(BatchFailure::Ring) => (Err(BatchFailure::Ring), None),
            failed => (failed.map_or(Ok(()), Err), self.ring.take()),
        }
    }
}

impl Drop for BatchInFlight {
    fn drop(&mut self) {
        if let Some(ring) = &mut self.ring {
            self.requests.drain(&mut ring.uring);
        }
    }
}

#[cfg(test)]
mod tests;
