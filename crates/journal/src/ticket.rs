//! Reservations: how much log a transaction may need, and what became of it.
//!
//! # How much log a number of bytes is
//!
//! Transactions log bytes of a checkpoint's stream; the log is written in records of whole blocks,
//! each with a stamp, a record with a header. A record of `M` blocks carries `P` = 4080 `M` - 112
//! bytes. A stream of `S` bytes has `S / P` full records and a rest `r < P` of
//! `1 + ceil((r - 3968) / 4080)` blocks at most, so that
//!
//! ```text
//! log bytes  <=  S * 4096 M / P  +  2 * 4096
//!             =  S  +  S * (16 M + 112) / P  +  8192
//! ```
//!
//! The second term is the *split reservation*: one more header per so many bytes. The third is the
//! *unit reservation of the checkpoint*, which its first transaction gives.
//!
//! # Why it is never too few
//!
//! A commit that makes the stream longer by `len` gives `len` and its share of the second term,
//! rounded up. Sums of numbers that are rounded up are no less than the rounded sum: whatever the
//! sizes of the transactions, in whatever order and on whatever CPU they come, the shares of a
//! checkpoint cover all of its headers. Nobody has to know where in a record a commit ends up,
//! which is what seed 003 could not know without a shared sum; and what is reserved too much is
//! below one byte per commit and the rest of a block. The share is taken by the first transaction
//! of a checkpoint as by any other: a single large one may be all there is (Foster's case in the
//! discussion of patch 3).

use crate::checkpoint::{CHECKPOINT_HEADER_BYTES, op_bytes};
use crate::lsn::LOG_BLOCK_BYTES;
use crate::record::{blocks_of, payload_of};

/// What a transaction may log at most.
///
/// A worst case: a transaction that logs more shuts the journal down, and what it does not use is
/// given back when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The sum of [`Reservation::item_bytes`] over all items that it may log between two commits.
    pub bytes: u64,
    /// How many times it can [roll](crate::Transaction::roll) without asking again, itself
    /// included; at least 1.
    pub count: u32,
}

impl Reservation {
    /// For a transaction of one commit.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { bytes, count: 1 }
    }

    /// For a rolling transaction of `count` commits.
    #[must_use]
    pub fn permanent(bytes: u64, count: u32) -> Self {
        Self { bytes, count: count.max(1) }
    }

    /// What an item takes whose vector has `len` bytes at most.
    #[must_use]
    pub fn item_bytes(len: u64) -> u64 {
        op_bytes(len)
    }
}

/// What the records of a log cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    record_blocks: usize,
}

impl Costs {
    pub(crate) fn new(record_blocks: usize) -> Self {
        Self { record_blocks }
    }

    /// What the first transaction of a checkpoint gives for it, in bytes of log: a partial record,
    /// and the checkpoint's header (which costs less than its share of the slack of the page's
    /// formula).
    #[expect(clippy::unused_self, reason = "the costs of one log belong together")]
    pub(crate) fn unit(self) -> u64 {
        2 * LOG_BLOCK_BYTES as u64
    }

    /// The share of record headers and stamps of `len` bytes of stream, in bytes of log.
    pub(crate) fn split(self, len: u64) -> u64 {
        let payload = payload_of(self.record_blocks) as u64;
        let overhead = (self.record_blocks * LOG_BLOCK_BYTES) as u64 - payload;
        let whole = len / payload * overhead;
        whole + (len % payload * overhead).div_ceil(payload)
    }

    /// Everything that a transaction may have to give for `bytes` of stream.
    pub(crate) fn transaction(self, bytes: u64) -> u64 {
        self.unit().saturating_add(bytes).saturating_add(self.split(bytes))
    }

    /// The log that a stream of `bytes` really takes, in bytes.
    pub(crate) fn stream(self, bytes: u64) -> u64 {
        let payload = payload_of(self.record_blocks) as u64;
        let rest = usize::try_from(bytes % payload).unwrap_or(0);
        let rest = if rest == 0 { 0 } else { blocks_of(rest) as u64 };
        (bytes / payload * self.record_blocks as u64 + rest) * LOG_BLOCK_BYTES as u64
    }
}

const _: () = assert!(CHECKPOINT_HEADER_BYTES * 4 < 3968 - 128);

/// What became of the reservation of one checkpoint: a row of the table in the discussion of seed
/// 003, patch 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketTrace {
    /// The checkpoint.
    pub sequence: u64,
    /// Items in it.
    pub items: u64,
    /// Log space that its transactions gave, in bytes (`t_unit_res`).
    pub reserved: u64,
    /// Log space that it took, in bytes.
    pub used: u64,
    /// What was given back (`t_curr_res` when the ticket is ungranted).
    pub returned: u64,
    /// Records that it was written in.
    pub records: u64,
}

#[cfg(all(test, not(shuttle)))]
mod tests;
