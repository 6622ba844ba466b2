//! Tests of slots: requests as the kernel writes them, and the replies that it then finds.

#![allow(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]

use std::sync::{Arc, Mutex};

use super::*;
use crate::base::polling::PollingChoice;
use crate::session::{Late, LateReplies};
use crate::statistics::Counters;
use crate::wire::InitFlags;
use crate::wire::request::Offer;

/// A file system that answers with what it was asked.
struct Echo;

impl Service for Echo {
    type Worker = ();

    fn settings(&self, _offer: &Offer) -> InitFlags {
        InitFlags::empty()
    }

    fn serve(
        &self,
        _worker: &mut (),
        request: &Request<'_>,
        reply: &mut Reply,
        later: &dyn Fn() -> DeferredReply,
    ) -> Result<Served, Errno> {
        match request.operation {
            Operation::Lookup { name } => reply.put(name.as_encoded_bytes()),
            Operation::Read(at) => reply.space(at.size as usize).fill(9),
            Operation::Write(write) => reply.count(write.data.iter().map(|b| u32::from(*b)).sum()),
            Operation::StatFs => return Err(Errno::NOENT),
            Operation::SetLk { .. } => {
                later().answer(Err(Errno::INTR));
                return Ok(Served::Deferred);
            }
            _ => panic!("{request:?}"),
        }
        Ok(Served::Reply)
    }

    fn is_long(&self, operation: &Operation<'_>) -> bool {
        matches!(operation, Operation::Write(write) if write.data.len() > 4)
    }

    fn undelivered(&self, _worker: &mut ()) {}

    fn ended(&self) {}
}

#[derive(Debug, Default)]
struct LateOnes(Mutex<Vec<(u64, Result<Late, Errno>)>>);

impl LateReplies for LateOnes {
    fn answer(&self, unique: u64, outcome: Result<Late, Errno>) {
        self.0.lock().unwrap().push((unique, outcome));
    }
}

/// Writes a request into a slot, as the kernel does.
fn request(slot: &mut Slot, number: u32, first: &[u8], payload: &[u8]) {
    let len = (IN_HEADER + first.len() + payload.len()) as u32;
    slot.head[..4].copy_from_slice(&len.to_ne_bytes());
    slot.head[4..8].copy_from_slice(&number.to_ne_bytes());
    slot.head[8..16].copy_from_slice(&46_u64.to_ne_bytes());
    slot.head[16..FIRST].fill(0);
    slot.head[FIRST..][..first.len()].copy_from_slice(first);
    slot.head[PAYLOAD_LEN..][..4].copy_from_slice(&(payload.len() as u32).to_ne_bytes());
    slot.reply.clear();
    slot.reply.put(payload);
    slot.reply.clear();
}

/// Serves the request in a slot. Returns whether it is deferred, and otherwise error and payload.
fn serve(slot: &mut Slot, late: &Arc<LateOnes>) -> Option<(i32, Vec<u8>)> {
    let counters = Counters::new(1, PollingChoice::Never);
    let mut serving = Serving {
        service: &Echo,
        counters: counters.of_worker(0),
        dialect: Dialect::default(),
        worker: (),
        reply: Reply::new(),
    };
    let later = |unique| DeferredReply::new(Arc::clone(late) as _, unique);
    let done = slot.serve(&mut serving, &later);
    assert_eq!(slot.unique(), 46);
    let payload = slot.u32_at(PAYLOAD_LEN) as usize;
    let reply = (slot.u32_at(4).cast_signed(), slot.reply.room()[..payload].to_vec());
    (done == Done::Reply).then_some(reply)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

#[test]
fn replies_take_the_place_of_requests() {
    let (mut slot, late) = (Slot::new(), Arc::default());
    let [head, payload] = &*slot.vectors;
    let known = [(head.base, head.len), (payload.base, payload.len)];
    request(&mut slot, opcode::LOOKUP, b"", b"name\0");
    assert_eq!(serve(&mut slot, &late), Some((0, b"name".to_vec())));
    request(&mut slot, opcode::READ, &words(&[0, 0, 0, 0, 1 << 20, 0, 0, 0, 0, 0]), b"");
    assert_eq!(serve(&mut slot, &late), Some((0, vec![9; 1 << 20])));
    request(&mut slot, opcode::WRITE, &words(&[0, 0, 0, 0, 4, 0, 0, 0, 0, 0]), &[1, 2, 3, 4]);
    assert!(!slot.is_long(&Echo, Dialect::default()));
    assert_eq!(serve(&mut slot, &late), Some((0, words(&[10, 0]))));
    request(&mut slot, opcode::WRITE, &words(&[0, 0, 0, 0, 5, 0, 0, 0, 0, 0]), &[1; 5]);
    assert!(slot.is_long(&Echo, Dialect::default()));
    request(&mut slot, opcode::STATFS, b"", b"");
    assert_eq!(serve(&mut slot, &late), Some((-Errno::NOENT.raw_os_error(), vec![])));
    let room = slot.reply.room();
    let used = [(slot.head.as_ptr().addr(), HEAD), (room.as_ptr().addr(), room.len())];
    assert_eq!(used, known);
}

/// A reply beyond the memory that the kernel knows is an error, and so is a request that lies.
#[test]
fn replies_and_requests_stay_in_their_memory() {
    let (mut slot, late) = (Slot::new(), Arc::default());
    let refused = |errno: Errno| Some((-errno.raw_os_error(), vec![]));
    request(&mut slot, opcode::READ, &words(&[0, 0, 0, 0, (1 << 20) + 1, 0, 0, 0, 0, 0]), b"");
    assert_eq!(serve(&mut slot, &late), refused(Errno::IO));
    request(&mut slot, opcode::READ, &words(&[0, 0]), b"");
    assert_eq!(serve(&mut slot, &late), refused(Errno::INVAL));
    for (len, payload) in [(39, 0), (45, 6), (40 + 129, 0), (41 + (1 << 20), 1 + (1 << 20))] {
        request(&mut slot, opcode::LOOKUP, b"", b"name\0");
        slot.head[..4].copy_from_slice(&u32::to_ne_bytes(len));
        slot.head[PAYLOAD_LEN..][..4].copy_from_slice(&u32::to_ne_bytes(payload));
        assert!(!slot.is_long(&Echo, Dialect::default()));
        assert_eq!(serve(&mut slot, &late), refused(Errno::IO), "{len} {payload}");
    }
}

#[test]
fn requests_are_answered_later() {
    let (mut slot, late) = (Slot::new(), Arc::<LateOnes>::default());
    request(&mut slot, opcode::SETLKW, &words(&[0; 12]), b"");
    assert_eq!(serve(&mut slot, &late), None);
    assert_eq!(*late.0.lock().unwrap(), [(46, Err(Errno::INTR))]);
    slot.answer(Err(Errno::INTR));
    assert_eq!(slot.u32_at(4).cast_signed(), -Errno::INTR.raw_os_error());
    assert_eq!(slot.u32_at(PAYLOAD_LEN), 0);
}
