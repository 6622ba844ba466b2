//! The entries of a queue: memory that takes a request from the kernel, and then holds its reply.
//!
//! The kernel writes a request in three pieces: the header, the first argument, and all other
//! arguments. The last piece, the payload, shares its memory with the payload of the reply. So a
//! request that has a payload gets its reply built elsewhere, and copied when the request is no
//! longer needed. One that has none, such as a `READ`, gets its reply built in place.

use vfscale::Errno;

use crate::session::{DeferredReply, Late, Served, Service, TRANSFER_MAX, serve_one};
use crate::statistics::WorkerCounters;
use crate::wire::reply::Reply;
use crate::wire::request::{Dialect, Operation, Request};
use crate::wire::{IN_HEADER, OUT_HEADER, opcode};

/// Bytes of the header area of an entry: the header, the first argument, the kernel's own fields.
const HEAD: usize = 288;
/// Number of vectors in a registration.
pub(super) const VECTORS: u32 = 2;
/// Offset and size of the area of the first argument.
const FIRST: usize = 128;
const FIRST_MAX: usize = 128;
/// Offset of the length of the payload, behind flags and the number to commit.
const PAYLOAD_LEN: usize = 256 + 16;

/// A piece of memory, as system calls take it (`struct iovec`): its address and length.
#[derive(Debug)]
#[repr(C)]
struct Vector {
    base: usize,
    len: usize,
}

/// An entry of a queue.
///
/// While the kernel has the entry, it may write to this memory, and nothing here is accessed: the
/// queue keeps the slot as one that is lent. The memory stays at its address when the slot is
/// moved.
#[derive(Debug)]
pub(super) struct Slot {
    head: Vec<u8>,
    /// The payload is the memory behind the room for the classic header.
    reply: Reply,
    /// Head and payload, for the registration.
    vectors: Box<[Vector; 2]>,
}

/// State of a thread that serves requests in slots.
pub(super) struct Serving<'s, S: Service> {
    pub(super) service: &'s S,
    pub(super) counters: &'s WorkerCounters,
    pub(super) dialect: Dialect,
    pub(super) worker: S::Worker,
    pub(super) reply: Reply,
}

/// A request in a slot, as lengths of its pieces.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    first: usize,
    payload: usize,
}

/// Outcome of serving the request in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// The slot holds the reply.
    Reply,
    /// A [`DeferredReply`] has the outcome, later.
    Deferred,
}

impl Slot {
    pub(super) fn new() -> Slot {
        let (mut head, mut reply) = (vec![0; HEAD], Reply::fixed(TRANSFER_MAX));
        let vector = |base: *mut u8, len| Vector { base: base.expose_provenance(), len };
        let vectors =
            [vector(head.as_mut_ptr(), HEAD), vector(reply.room_address(), reply.room().len())];
        Slot { head, reply, vectors: Box::new(vectors) }
    }

    /// Returns the address of [`VECTORS`] vectors with the memory that the kernel may write to
    /// while it has the slot. The kernel reads them when the slot is registered.
    pub(super) fn vectors(&self) -> u64 {
        self.vectors.as_ptr().expose_provenance() as u64
    }

    fn u32_at(&self, at: usize) -> u32 {
        self.head[at..].first_chunk().copied().map_or(0, u32::from_ne_bytes)
    }

    fn u64_at(&self, at: usize) -> u64 {
        self.head[at..].first_chunk().copied().map_or(0, u64::from_ne_bytes)
    }

    /// Returns the number of the request.
    pub(super) fn unique(&self) -> u64 {
        self.u64_at(8)
    }

    /// Returns the node that the request concerns.
    pub(super) fn node(&self) -> u64 {
        self.u64_at(16)
    }

    /// Returns whether the request is the answer to a notification of this server, which asks for
    /// nothing.
    pub(super) fn is_notify_reply(&self) -> bool {
        self.u32_at(4) == opcode::NOTIFY_REPLY
    }

    /// Returns the pieces of the request; `None` if their lengths do not fit together.
    fn pieces(&self) -> Option<Pieces> {
        let len = self.u32_at(0) as usize;
        let payload = self.u32_at(PAYLOAD_LEN) as usize;
        let first = len.checked_sub(IN_HEADER)?.checked_sub(payload)?;
        let fits = first <= FIRST_MAX && payload <= self.reply.room().len();
        fits.then_some(Pieces { first, payload })
    }

    /// Returns whether serving the request may take long.
    pub(super) fn is_long<S: Service>(&self, service: &S, dialect: Dialect) -> bool {
        let Some(pieces) = self.pieces() else { return false };
        let (head, first) = (&self.head[..IN_HEADER], &self.head[FIRST..][..pieces.first]);
        let payload = &self.reply.room()[..pieces.payload];
        let request = Request::parse_pieces(head, first, payload, dialect);
        request.is_ok_and(|request| {
            !matches!(request.operation, Operation::SetLk { .. })
                && service.is_long(&request.operation)
        })
    }

    /// Serves the request.
    pub(super) fn serve<S: Service>(
        &mut self,
        serving: &mut Serving<'_, S>,
        later: &dyn Fn(u64) -> DeferredReply,
    ) -> Done {
        let Some(pieces) = self.pieces() else {
            tracing::error!("the pieces of a request have lengths that do not fit together");
            return self.finish(Err(Errno::IO));
        };
        let Serving { service, counters, dialect, worker, reply } = serving;
        let (head, first) = (&self.head[..IN_HEADER], &self.head[FIRST..][..pieces.first]);
        let served = if pieces.payload == 0 {
            self.reply.clear();
            let parsed = Request::parse_pieces(head, first, &[], *dialect);
            serve_one(*service, worker, parsed, &mut self.reply, later, counters)
        } else {
            reply.clear();
            let payload = &self.reply.room()[..pieces.payload];
            let parsed = Request::parse_pieces(head, first, payload, *dialect);
            let served = serve_one(*service, worker, parsed, reply, later, counters);
            self.reply.clear();
            if reply.payload_len() <= self.reply.room().len() {
                self.reply.put(reply.payload());
                served
            } else {
                service.undelivered(worker);
                served.map(|(header, _)| (header, Err(Errno::IO)))
            }
        };
        match served {
            Some((_, Ok(Served::Deferred))) => Done::Deferred,
            // Each entry is answered, for the kernel can't use it otherwise.
            Some((_, Ok(Served::Reply | Served::Silent))) => self.finish(Ok(())),
            Some((_, Err(errno))) => self.finish(Err(errno)),
            None => self.finish(Err(Errno::IO)),
        }
    }

    /// Answers the request late, or one that asks for nothing.
    pub(super) fn answer(&mut self, outcome: Result<Late, Errno>) {
        self.reply.clear();
        let outcome = outcome.map(|late| late.put(&mut self.reply));
        self.finish(outcome);
    }

    /// Writes the header of the reply, whose payload is in place.
    #[expect(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]
    fn finish(&mut self, outcome: Result<(), Errno>) -> Done {
        let unique = self.unique();
        let message = self.reply.finish_with(unique, outcome);
        let payload = (message.len() - OUT_HEADER) as u32;
        self.head[..OUT_HEADER].copy_from_slice(&message[..OUT_HEADER]);
        self.head[PAYLOAD_LEN..][..4].copy_from_slice(&payload.to_ne_bytes());
        Done::Reply
    }
}

#[cfg(test)]
mod tests;
