//! One queue: its io_uring, its entries, and the thread that serves its requests.
//!
//! # Who owns the memory of an entry
//!
//! The kernel writes a request to an entry's memory when the thread is in `io_uring_enter`, or has
//! other work done for it by the kernel, from the moment when the entry is registered or committed
//! until its completion arrives. In that time the queue has the [`Slot`] at [`Place::Lent`], and
//! neither reads nor writes its memory. With the completion it takes the slot back. If the thread
//! ends with slots still lent, because its ring has failed, their memory is leaked: the kernel may
//! still write to it.
//!
//! # Requests that wait
//!
//! A request for a lock that is not free keeps its entry until it is answered. There may be any
//! number of them, so each gets the queue another entry. The kernel gives a request that it could
//! not hand out at once only to an entry that commits, not to a new one. So the queue asks the
//! kernel for a part of the file's cached data, of no bytes: the answer comes through the new
//! entry, which then commits. The answer goes to the queue of the CPU on which the thread runs. A
//! thread that may not run on its CPU asks in vain; its queue goes on with the next request of
//! that CPU.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;

use super::helpers::{Hand, Job};
use super::inbox::{Inbox, Message};
use super::slot::{Done, Serving, Slot, VECTORS};
use crate::base::device::Device;
use crate::session::{DeferredReply, Late, Service};
use crate::wire::notify;
use crate::wire::reply::Reply;

/// Entries of a queue: that many requests of one CPU are in the server at a time.
const DEPTH: usize = 8;
/// Commands of the device.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Offset of the field `len` in a submission.
const LEN_OFFSET: usize = 24;
/// The user data of the inbox's completions; others are indices of slots.
const INBOX: u64 = u64::MAX;
/// Numbers of answers to notifications, which the server chooses: the kernel's own count up from 0,
/// and leave out the odd ones.
const NOTIFY_BASE: u64 = 1 << 63;

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// State of an entry.
#[derive(Debug)]
enum Place {
    /// The kernel has it, and may write to its memory.
    Lent(Slot),
    /// Its request waits for a lock.
    Waiting(Slot),
    /// A helper or this thread has the slot, and serves its request.
    Away,
    /// The connection has ended, and the kernel no longer knows it.
    Gone,
}

/// A queue, on its own thread.
pub(super) struct Queue {
    ring: Ring,
    id: u16,
    device: Arc<Device>,
    inbox: Arc<Inbox>,
    places: Vec<Place>,
    lent: usize,
    /// Slots that helpers have.
    helped: usize,
    /// Indices of waiting slots, by numbers of their requests.
    waiting: HashMap<u64, usize>,
    /// The file of a request that got the queue another entry since the last notification.
    grown_for: Option<u64>,
    notified: u64,
    /// Completions to be handled.
    arrived: VecDeque<cqueue::Entry>,
}

impl Queue {
    /// Makes the ring of queue `id`. The calling thread is the only one that may use it.
    ///
    /// # Errors
    /// Any error of `io_uring_setup(2)` or `io_uring_register(2)`.
    pub(super) fn new(id: u16, device: &Arc<Device>) -> io::Result<Queue> {
        // More entries than any batch: commits of all slots, a few registrations, the inbox.
        let entries = (4 * DEPTH) as u32;
        let mut builder = Ring::builder();
        // Completions arrive when the thread waits for them, on its CPU and without an interrupt.
        builder.setup_single_issuer().setup_defer_taskrun().setup_submit_all();
        let ring = builder.setup_cqsize(4 * entries).build(entries)?;
        // A registered file is looked up faster.
        ring.submitter().register_files(&[device.as_fd().as_raw_fd()])?;
        Ok(Queue {
            ring,
            id,
            device: Arc::clone(device),
            inbox: Arc::new(Inbox::new()?),
            places: Vec::new(),
            lent: 0,
            helped: 0,
            waiting: HashMap::new(),
            grown_for: None,
            notified: 0,
            arrived: VecDeque::new(),
        })
    }

    /// Registers the entries. The kernel has got the reply to `INIT`.
    ///
    /// # Errors
    /// Any error of the registration.
    pub(super) fn register(&mut self) -> io::Result<()> {
        for _ in 0..DEPTH {
            self.add_slot()?;
        }
        self.watch_inbox()?;
        self.submit()?;
        // A registration that fails does so at once.
        self.arrived.extend(self.ring.completion());
        let failed = self.arrived.iter().map(cqueue::Entry::result).find(|result| *result < 0);
        failed.map_or(Ok(()), |result| Err(io::Error::from_raw_os_error(-result)))
    }

    /// Serves requests until the connection ends. Long ones go to the helpers at `hand`.
    pub(super) fn run<S: Service>(mut self, mut serving: Serving<'_, S>, hand: &Hand) {
        while self.lent + self.helped > 0 {
            if let Err(e) = self.turn(&mut serving, hand) {
                tracing::error!(queue = self.id, "a FUSE queue stops, for its ring failed: {e}");
                return;
            }
        }
    }

    /// Handles all completions that have arrived, then submits and waits for more.
    fn turn<S: Service>(&mut self, serving: &mut Serving<'_, S>, hand: &Hand) -> io::Result<()> {
        while let Some(entry) = self.arrived.pop_front() {
            self.take(&entry, serving, hand)?;
        }
        self.notify_if_grown()?;
        if self.lent + self.helped > 0 { self.wait() } else { Ok(()) }
    }

    /// Submits, and waits for completions.
    fn wait(&mut self) -> io::Result<()> {
        without_transient(self.ring.submit_and_wait(1))?;
        self.arrived.extend(self.ring.completion());
        Ok(())
    }

    /// Handles a completion.
    fn take<S: Service>(
        &mut self,
        entry: &cqueue::Entry,
        serving: &mut Serving<'_, S>,
        hand: &Hand,
    ) -> io::Result<()> {
        if entry.user_data() == INBOX {
            if entry.result() < 0 {
                return Err(io::Error::from_raw_os_error(-entry.result()));
            }
            if !cqueue::more(entry.flags()) {
                self.watch_inbox()?;
            }
            return self.take_messages();
        }
        let index = entry.user_data() as usize;
        let Some(place) = self.places.get_mut(index) else { return Ok(()) };
        let Place::Lent(slot) = std::mem::replace(place, Place::Away) else {
            return Err(io::Error::other("a completion of an entry that is not lent"));
        };
        self.lent -= 1;
        if entry.result() < 0 {
            *place = Place::Gone;
            self.report(-entry.result());
            return Ok(());
        }
        self.serve(index, slot, serving, hand)
    }

    /// Notes why the kernel has given up an entry.
    fn report(&self, error: i32) {
        match Errno::from_raw_os_error(error) {
            Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED | Errno::NODEV => {}
            errno => tracing::error!(queue = self.id, "an entry of a FUSE queue failed: {errno}"),
        }
    }

    /// Serves the request in a slot, or has it served.
    fn serve<S: Service>(
        &mut self,
        index: usize,
        mut slot: Slot,
        serving: &mut Serving<'_, S>,
        hand: &Hand,
    ) -> io::Result<()> {
        if slot.is_notify_reply() {
            slot.answer(Ok(Late::Nothing));
            return self.commit(index, slot);
        }
        if slot.is_long(serving.service, serving.dialect) {
            self.helped += 1;
            hand.0.put(Job { index, slot, inbox: Arc::clone(&self.inbox) });
            return Ok(());
        }
        let inbox = &self.inbox;
        let later = |unique| DeferredReply::new(Arc::clone(inbox) as _, unique);
        match slot.serve(serving, &later) {
            Done::Reply => self.commit(index, slot),
            Done::Deferred => {
                self.waiting.insert(slot.unique(), index);
                self.grown_for = Some(slot.node());
                self.places[index] = Place::Waiting(slot);
                self.add_slot()
            }
        }
    }

    fn take_messages(&mut self) -> io::Result<()> {
        for message in self.inbox.take() {
            match message {
                Message::Served(index, slot) => {
                    self.helped -= 1;
                    self.commit(index, slot)?;
                }
                Message::Answer(unique, outcome) => {
                    let Some(index) = self.waiting.remove(&unique) else { continue };
                    let place = std::mem::replace(&mut self.places[index], Place::Away);
                    if let Place::Waiting(mut slot) = place {
                        slot.answer(outcome);
                        self.commit(index, slot)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the kernel send something through a new entry; see the [module](self).
    fn notify_if_grown(&mut self) -> io::Result<()> {
        let Some(node) = self.grown_for.take() else { return Ok(()) };
        self.submit()?;
        self.notified += 2;
        let mut message = Reply::new();
        // No byte of the file: number of the answer, node, offset, size and padding.
        message.u64(NOTIFY_BASE + self.notified);
        message.u64(node);
        message.u64(0);
        message.u64(0);
        if let Err(e) = self.device.send(message.finish(0, -notify::RETRIEVE)) {
            tracing::warn!(queue = self.id, "the kernel was not notified: {e}");
        }
        Ok(())
    }

    /// Registers another entry.
    fn add_slot(&mut self) -> io::Result<()> {
        self.places.push(Place::Away);
        self.lend(self.places.len() - 1, Slot::new(), REGISTER)
    }

    /// Passes a reply to the kernel, and the entry with it.
    fn commit(&mut self, index: usize, slot: Slot) -> io::Result<()> {
        self.lend(index, slot, COMMIT_AND_FETCH)
    }

    /// Queues a command of the device that lends a slot to the kernel.
    #[expect(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]
    fn lend(&mut self, index: usize, slot: Slot, command: u32) -> io::Result<()> {
        // Flags, the number to commit, and the queue.
        let mut parameters = [0; 80];
        parameters[16..18].copy_from_slice(&self.id.to_ne_bytes());
        let is_new = command == REGISTER;
        if !is_new {
            parameters[8..16].copy_from_slice(&slot.unique().to_ne_bytes());
        }
        let built = opcode::UringCmd80::new(types::Fixed(0), command).cmd(parameters);
        let mut entry = built.addr(is_new.then(|| slot.vectors())).build().user_data(index as u64);
        if is_new {
            set_len(&mut entry, VECTORS);
        }
        self.places[index] = Place::Lent(slot);
        self.lent += 1;
        self.push(&entry)
    }

    /// Has the inbox's events reported.
    fn watch_inbox(&mut self) -> io::Result<()> {
        /// `POLLIN`.
        const READABLE: u32 = 1;
        let event = types::Fd(self.inbox.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(event, READABLE).multi(true).build().user_data(INBOX);
        self.push(&entry.into())
    }

    fn push(&mut self, entry: &squeue::Entry128) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.submit()?;
        }
        // SAFETY: the entry is of one of two kinds. A command of the device refers to the memory of
        // a slot that is `Lent` from before this call until its completion has been taken, or that
        // is leaked; nothing else accesses a slot in that time (see the module). The other kind
        // refers to the inbox's descriptor only, and no memory.
        unsafe { self.ring.submission().push(entry) }
            .map_err(|_| io::Error::other("the submission queue is full"))
    }

    fn submit(&mut self) -> io::Result<()> {
        without_transient(self.ring.submit())
    }
}

/// Leaves out the errors after which the rest is submitted later: a signal, completions that must
/// be taken first, a lack of memory.
fn without_transient(submitted: io::Result<usize>) -> io::Result<()> {
    match submitted.map_err(|e| (Errno::from_io_error(&e), e)) {
        Ok(_) | Err((Some(Errno::INTR | Errno::AGAIN | Errno::BUSY), _)) => Ok(()),
        Err((_, e)) => Err(e),
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        for place in self.places.drain(..) {
            if let Place::Lent(slot) = place {
                std::mem::forget(slot);
            }
        }
    }
}

/// Sets the field `len` of a command, for which the library has no call.
fn set_len(entry: &mut squeue::Entry128, len: u32) {
    const { assert!(size_of::<squeue::Entry128>() == 128) }
    let start = std::ptr::from_mut(entry).cast::<u8>();
    // SAFETY: the type is laid out as the kernel's 128 bytes of a submission, as its
    // `repr(C)` says; at this offset they have an aligned field of this type. The reference is
    // exclusive.
    unsafe { start.add(LEN_OFFSET).cast::<u32>().write(len) };
}
