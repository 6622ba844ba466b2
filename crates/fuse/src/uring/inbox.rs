//! The messages of other threads to the thread of a queue: served requests, and late replies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use vfscale::Errno;

use super::slot::Slot;
use crate::session::{Late, LateReplies};

/// A message to the thread of a queue.
#[derive(Debug)]
pub(super) enum Message {
    /// A helper has served the request in the slot with this index.
    Served(usize, Slot),
    /// The request with this number has waited, and has an outcome.
    Answer(u64, Result<Late, Errno>),
}

/// The messages to the thread of a queue.
#[derive(Debug)]
pub(super) struct Inbox {
    messages: Mutex<Vec<Message>>,
    /// Readable while there are messages.
    event: OwnedFd,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Inbox> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox { messages: Mutex::new(Vec::new()), event })
    }

    fn messages(&self) -> MutexGuard<'_, Vec<Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message, and wakes the thread if it has none.
    #[expect(clippy::host_endian_bytes, reason = "the counter has the machine's byte order")]
    pub(super) fn put(&self, message: Message) {
        let mut messages = self.messages();
        messages.push(message);
        let is_first = messages.len() == 1;
        drop(messages);
        if is_first {
            // The counter is far below its maximum, so this can't fail.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Takes all messages.
    pub(super) fn take(&self) -> Vec<Message> {
        // Before the messages, so that none is left behind without a wake-up.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        std::mem::take(&mut *self.messages())
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl LateReplies for Inbox {
    fn answer(&self, unique: u64, outcome: Result<Late, Errno>) {
        self.put(Message::Answer(unique, outcome));
    }
}
