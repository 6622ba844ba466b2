//! How far the log is: its writer, its durable end, and the threads that force it.

use std::collections::VecDeque;
use std::time::Instant;

use crate::disk::iclog::Writer;
use crate::lsn::{LOG_BLOCK_BYTES, Position};

/// Number of blocks that no transaction can reserve: for records that publish the tail, open the
/// log and close it.
pub(crate) const SET_ASIDE_BLOCKS: u32 = 32;

/// The threads that force the log together.
///
/// Callers that force, do something and force again would each arrive a moment too late for the
/// push that another one of them begins, and so would need one push each: two callers would be no
/// faster than one. So the first caller waits until as many callers force as did when the last push
/// ended, for at most the duration of a push, and the last caller to arrive pushes for all of them.
/// If they do not arrive, no caller waits again until callers have met by chance. (ext4's journal
/// waits similarly, for callers that alternate.)
#[derive(Default)]
pub(crate) struct GroupCommit {
    /// Number of checkpoints so far. The count starts again with each.
    round: u64,
    /// Number of callers that force since the last checkpoint.
    pub(crate) forcing: usize,
    /// Number of callers that forced when the last checkpoint ended.
    pub(crate) expected: usize,
}

impl GroupCommit {
    /// Counts a caller that forces the log, unless it was already counted in this round. `seen` is
    /// the round in which it was counted last.
    pub(crate) fn count(&mut self, seen: &mut Option<u64>) {
        if seen.replace(self.round) != Some(self.round) {
            self.forcing += 1;
        }
    }

    /// Begins a new round. Callers that were served no longer count, even before they are woken.
    pub(crate) fn end_round(&mut self) {
        self.round += 1;
        self.expected = std::mem::take(&mut self.forcing);
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.forcing >= self.expected
    }
}

/// The progress of the log.
pub(crate) struct LogProgress {
    /// The writer; taken by the thread that writes the log.
    pub(crate) writer: Option<Box<Writer>>,
    /// The last durable checkpoint.
    pub(crate) durable: u64,
    /// The last context that was switched.
    pub(crate) begun: u64,
    /// Context up to which there must be a push in the background.
    pub(crate) wanted: u64,
    /// When the next push is due that nothing but time is the reason for.
    pub(crate) next_push: Option<Instant>,
    pub(crate) is_stopped: bool,
    pub(crate) group: GroupCommit,
    pub(crate) head: Position,
    /// The tail that the latest durable record names: no block from there to the head may be
    /// overwritten.
    pub(crate) durable_tail: Position,
    /// Blocks after the durable tail that no transaction has reserved.
    pub(crate) unreserved: VecDeque<Position>,
    pub(crate) checkpoints: u64,
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    /// Number of times that a transaction has waited for a push before it began.
    pub(crate) push_waits: u64,
}

impl LogProgress {
    /// Creates the progress of a log whose opening record, the last one, is at `opened_at`.
    pub(crate) fn new(writer: Writer, sequence: u64, opened_at: Position) -> Self {
        Self {
            head: writer.head(),
            writes: writer.writes,
            flushes: writer.flushes,
            writer: Some(Box::new(writer)),
            durable: sequence - 1,
            begun: sequence - 1,
            wanted: 0,
            next_push: None,
            is_stopped: false,
            group: GroupCommit::default(),
            durable_tail: opened_at,
            unreserved: VecDeque::from([opened_at]),
            checkpoints: 0,
            push_waits: 0,
        }
    }

    /// Moves the durable tail to `tail`. Returns the bytes of log that this frees.
    pub(crate) fn move_tail(&mut self, tail: Position) -> u64 {
        let mut blocks = tail.saturating_sub(self.durable_tail);
        self.durable_tail = self.durable_tail.max(tail);
        while self.unreserved.front().is_some_and(|position| *position < self.durable_tail) {
            self.unreserved.pop_front();
            blocks -= 1;
        }
        blocks * LOG_BLOCK_BYTES as u64
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
