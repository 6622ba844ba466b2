//! The stream of a checkpoint: a header, and one operation for each item. `docs/FORMAT.md` gives every byte.
//!
//! # Invariants
//!
//! * The stream is cut into the payloads of data records wherever a record is full. Its length stands in
//!   its header, so that the parts are known to be complete.
//! * [`Operations`] takes any bytes and ends with a reason where they stop making sense.

use crate::item::LogVector;
use crate::record::{get_u32, get_u64};
use crate::{LogKey, Lsn};

/// Bytes of a checkpoint's header.
pub(crate) const CHECKPOINT_HEADER_BYTES: usize = 32;
/// Bytes of an operation's header.
pub(crate) const OP_HEADER_BYTES: usize = 24;
/// Operations begin at multiples of this many bytes of the stream.
pub(crate) const OP_ALIGN: usize = 8;
/// What a checkpoint begins with: "vfsC".
const CHECKPOINT_MAGIC: u32 = u32::from_le_bytes(*b"vfsC");

const OP_ITEM: u32 = 1;
const OP_CANCEL: u32 = 2;

/// Bytes that an item of `len` bytes takes in the stream.
pub(crate) const fn op_bytes(len: u64) -> u64 {
    OP_HEADER_BYTES as u64 + len.next_multiple_of(OP_ALIGN as u64)
}

/// The header of a checkpoint of `items` operations in `stream_bytes` bytes, itself included.
pub(crate) fn checkpoint_header(
    sequence: u64,
    items: u64,
    stream_bytes: u64,
) -> [u8; CHECKPOINT_HEADER_BYTES] {
    let mut header = [0; CHECKPOINT_HEADER_BYTES];
    header[0..4].copy_from_slice(&CHECKPOINT_MAGIC.to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    header[16..24].copy_from_slice(&items.to_le_bytes());
    header[24..32].copy_from_slice(&stream_bytes.to_le_bytes());
    header
}

/// The header of an item's operation.
pub(crate) fn op_header(key: LogKey, vector: &LogVector) -> [u8; OP_HEADER_BYTES] {
    let mut header = [0; OP_HEADER_BYTES];
    let operation = if vector.is_cancel() { OP_CANCEL } else { OP_ITEM };
    header[0..4].copy_from_slice(&operation.to_le_bytes());
    header[4..8].copy_from_slice(&key.kind.to_le_bytes());
    header[8..16].copy_from_slice(&key.id.to_le_bytes());
    header[16..24].copy_from_slice(&(vector.len() as u64).to_le_bytes());
    header
}

/// What a checkpoint did to one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The item is to become this.
    Item {
        /// Its name.
        key: LogKey,
        /// What [`LogItem::format`](crate::LogItem::format) wrote.
        bytes: &'a [u8],
    },
    /// Nothing that was logged before under this name is to be replayed.
    Cancel {
        /// The name.
        key: LogKey,
    },
}

/// Why bytes are no checkpoint.
pub(crate) type Malformed = &'static str;

/// The operations of a checkpoint's stream, in order.
#[derive(Clone, Debug)]
pub struct Operations<'a> {
    rest: &'a [u8],
    left: u64,
}

impl<'a> Operations<'a> {
    /// Checks the header of the checkpoint `sequence`.
    pub(crate) fn new(stream: &'a [u8], sequence: u64) -> Result<Self, Malformed> {
        let Some((header, rest)) = stream.split_at_checked(CHECKPOINT_HEADER_BYTES) else {
            return Err("it ends in its header");
        };
        if get_u32(header, 0) != CHECKPOINT_MAGIC {
            return Err("it has no header");
        }
        if get_u64(header, 8) != sequence {
            return Err("its header is that of another one");
        }
        if get_u64(header, 24) != stream.len() as u64 {
            return Err("it has not the length that its header says");
        }
        Ok(Self { rest, left: get_u64(header, 16) })
    }

    fn parse(&mut self) -> Result<Operation<'a>, Malformed> {
        let cut = "an operation reaches beyond its end";
        let (header, rest) = self.rest.split_at_checked(OP_HEADER_BYTES).ok_or(cut)?;
        let key = LogKey { kind: get_u32(header, 4), id: get_u64(header, 8) };
        let len = usize::try_from(get_u64(header, 16)).map_err(|_| cut)?;
        let padded = len.checked_next_multiple_of(OP_ALIGN).ok_or(cut)?;
        let (bytes, rest) = rest.split_at_checked(padded).ok_or(cut)?;
        self.rest = rest;
        self.left -= 1;
        match get_u32(header, 0) {
            OP_ITEM => Ok(Operation::Item { key, bytes: &bytes[..len] }),
            OP_CANCEL if len == 0 => Ok(Operation::Cancel { key }),
            _ => Err("an operation is of no known kind"),
        }
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let trailing = !self.rest.is_empty();
            self.rest = &[];
            return trailing.then_some(Err("bytes follow its last operation"));
        }
        let parsed = self.parse();
        if parsed.is_err() {
            // Nothing behind the damage means anything.
            (self.left, self.rest) = (0, &[]);
        }
        Some(parsed)
    }
}

/// A checkpoint that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durable {
    /// The sequence number that its transactions' commits returned.
    pub sequence: u64,
    /// Its first record: what its items are known by in the AIL and in a recovery.
    pub lsn: Lsn,
    /// Its last record.
    pub commit_lsn: Lsn,
}

#[cfg(all(test, not(shuttle)))]
mod tests;
