//! Reservations: how much log a transaction may need, and how much of it a checkpoint used.
//!
//! # Log space of a number of bytes
//!
//! Transactions log bytes of a checkpoint's stream. The log is written in records of whole blocks,
//! each block with a stamp, each record with a header. A record of `M` blocks carries `P` = 4080
//! `M` - 112 bytes. A stream of `S` bytes has `S / P` full records and a rest `r < P` of at most `1
//! + ceil((r - 3968) / 4080)` blocks. So
//!
//! ```text
//! log bytes  <=  S * 4096 M / P  +  2 * 4096
//!             =  S  +  S * (16 M + 112) / P  +  8192
//! ```
//!
//! The second term is the *split reservation*: one more header for each `P` bytes. The third is the
//! *unit reservation of the checkpoint*, which its first transaction gives.
//!
//! # Why it is never too small
//!
//! A commit that makes the stream longer by `len` gives `len` and its share of the second term,
//! rounded up. A sum of rounded numbers is no less than the rounded sum: whatever the sizes of the
//! transactions, in whatever order and on whatever CPU they commit, the shares of a checkpoint
//! cover all of its headers. A commit need not know at which offset of a record it will be written,
//! which Chinner's patches (2020) could not know without a shared sum. The first transaction of a
//! checkpoint gives its share like any other: a single large one may be the only one (Foster's case
//! in the discussion of patch 3).
//!
//! A commit that makes the stream shorter, because an item has less to log than before or is
//! deleted, takes the bytes back, and their share rounded down. So what a checkpoint has is never
//! below the formula for its present stream, and above it by less than one byte per commit.

use crate::disk::checkpoint::{CHECKPOINT_HEADER_BYTES, op_bytes};
use crate::disk::record::{blocks_of, payload_of};
use crate::lsn::LOG_BLOCK_BYTES;

/// The log space that a transaction may need at most.
///
/// A worst case: a transaction that logs more shuts the journal down, and unused space is returned
/// when the transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Sum of [`Reservation::item_bytes`] over all items that it may log between two commits.
    pub bytes: u64,
    /// Number of times that it can [roll](crate::Transaction::roll) without reserving again, itself
    /// included; at least 1.
    pub count: u32,
}

impl Reservation {
    /// Returns the reservation of a transaction with one commit.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { bytes, count: 1 }
    }

    /// Returns the reservation of a rolling transaction with `count` commits.
    #[must_use]
    pub fn permanent(bytes: u64, count: u32) -> Self {
        Self { bytes, count: count.max(1) }
    }

    /// Returns the bytes of an item whose vector has at most `len` bytes.
    #[must_use]
    pub fn item_bytes(len: u64) -> u64 {
        op_bytes(len)
    }
}

/// The log space that the records of a log need besides their payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    record_blocks: usize,
}

impl Costs {
    pub(crate) fn new(record_blocks: usize) -> Self {
        Self { record_blocks }
    }

    /// Returns the log space that the first transaction of a checkpoint gives for it, in bytes: a
    /// partial record, and the checkpoint's header (which costs less than its share of the slack in
    /// the formula above).
    #[expect(clippy::unused_self, reason = "the costs of one log belong together")]
    pub(crate) fn unit(self) -> u64 {
        2 * LOG_BLOCK_BYTES as u64
    }

    /// Returns the share of record headers and stamps of `len` bytes of stream, in bytes of log.
    pub(crate) fn split(self, len: u64) -> u64 {
        let payload = payload_of(self.record_blocks) as u64;
        let overhead = (self.record_blocks * LOG_BLOCK_BYTES) as u64 - payload;
        let whole = len / payload * overhead;
        whole + (len % payload * overhead).div_ceil(payload)
    }

    /// Returns the log space that a commit gives its checkpoint if it makes the stream longer by
    /// `longer` bytes; negative if it takes space back, because the stream gets shorter.
    pub(crate) fn share(self, longer: i64) -> i64 {
        let len = longer.unsigned_abs();
        if longer >= 0 {
            return signed(len + self.split(len));
        }
        let payload = payload_of(self.record_blocks) as u64;
        let overhead = (self.record_blocks * LOG_BLOCK_BYTES) as u64 - payload;
        -signed(len + len / payload * overhead + len % payload * overhead / payload)
    }

    /// Returns the worst-case log space of a transaction with `bytes` of stream.
    pub(crate) fn transaction(self, bytes: u64) -> u64 {
        self.unit().saturating_add(bytes).saturating_add(self.split(bytes))
    }

    /// Returns the exact log space that a stream of `bytes` takes, in bytes.
    pub(crate) fn stream(self, bytes: u64) -> u64 {
        let payload = payload_of(self.record_blocks) as u64;
        let rest = usize::try_from(bytes % payload).unwrap_or(0);
        let rest = if rest == 0 { 0 } else { blocks_of(rest) as u64 };
        (bytes / payload * self.record_blocks as u64 + rest) * LOG_BLOCK_BYTES as u64
    }
}

/// Converts a size; sizes of vectors are far below the limit.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

const _: () = assert!(CHECKPOINT_HEADER_BYTES * 4 < 3968 - 128);

/// The use of the reservation of one checkpoint: a row of the table in the discussion of Chinner's
/// patch 3 (2020). Counterpart of `struct xlog_ticket`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketTrace {
    /// Sequence number of the checkpoint.
    pub sequence: u64,
    /// Number of items in it.
    pub items: u64,
    /// Log space that its transactions gave, in bytes (`t_unit_res`).
    pub reserved: u64,
    /// Log space that it took, in bytes.
    pub used: u64,
    /// Log space that zeros at the ends of its items would have taken, in bytes: commits give it
    /// without a look at the contents.
    pub spared: u64,
    /// Log space that was returned beside that, in bytes (`t_curr_res` when the ticket is
    /// ungranted).
    pub returned: u64,
    /// Number of records in which it was written.
    pub records: u64,
}

#[cfg(all(test, not(shuttle)))]
mod tests;
