//! The byte stream of a checkpoint: a header, and one operation for each item. `docs/FORMAT.md`
//! specifies every byte.
//!
//! # Invariants
//!
//! * The stream is cut into the payloads of data records wherever a record is full. Its header
//!   contains its length, so a reader can check that no record is missing.
//! * [`Operations`] accepts any bytes. Where they stop making sense it ends with a reason.

use crate::disk::record::{get_u32, get_u64};
use crate::item::LogVector;
use crate::{LogKey, Lsn};

/// Size of a checkpoint's header, in bytes.
pub(crate) const CHECKPOINT_HEADER_BYTES: usize = 32;
/// Size of an operation's header, in bytes.
pub(crate) const OP_HEADER_BYTES: usize = 24;
/// Alignment of operations in the stream, in bytes.
pub(crate) const OP_ALIGN: usize = 8;
/// Magic number of a checkpoint: "vfsC".
const CHECKPOINT_MAGIC: u32 = u32::from_le_bytes(*b"vfsC");

const OP_ITEM: u32 = 1;
const OP_CANCEL: u32 = 2;

/// Returns the number of bytes that an item of `len` bytes takes in the stream.
pub(crate) const fn op_bytes(len: u64) -> u64 {
    OP_HEADER_BYTES as u64 + len.next_multiple_of(OP_ALIGN as u64)
}

/// Returns the number of bytes that an item with `vector` takes in the stream.
pub(crate) fn stream_bytes(vector: &LogVector) -> u64 {
    op_bytes(vector.len() as u64)
}

/// Encodes the header of a checkpoint with `items` operations in `stream_bytes` bytes, itself
/// included.
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

/// Encodes the header of an item's operation that has the first `len` bytes of `vector`.
pub(crate) fn op_header(key: LogKey, vector: &LogVector, len: usize) -> [u8; OP_HEADER_BYTES] {
    let mut header = [0; OP_HEADER_BYTES];
    let operation = if vector.is_cancel() { OP_CANCEL } else { OP_ITEM };
    header[0..4].copy_from_slice(&operation.to_le_bytes());
    header[4..8].copy_from_slice(&key.kind.to_le_bytes());
    header[8..16].copy_from_slice(&key.id.to_le_bytes());
    header[16..24].copy_from_slice(&(len as u64).to_le_bytes());
    header
}

/// The effect of a checkpoint on one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The item gets these contents.
    Item {
        /// Key of the item.
        key: LogKey,
        /// Bytes that [`LogItem::format`](crate::LogItem::format) wrote.
        bytes: &'a [u8],
    },
    /// No contents that were logged earlier under this key are replayed.
    Cancel {
        /// The cancelled key.
        key: LogKey,
    },
}

/// The reason why bytes are not a checkpoint.
pub(crate) type Malformed = &'static str;

/// The operations of a checkpoint's stream, in order.
#[derive(Clone, Debug)]
pub struct Operations<'a> {
    rest: &'a [u8],
    left: u64,
}

impl<'a> Operations<'a> {
    /// Checks the header of the checkpoint `sequence`, and returns its operations.
    pub(crate) fn new(stream: &'a [u8], sequence: u64) -> Result<Self, Malformed> {
        let Some((header, rest)) = stream.split_at_checked(CHECKPOINT_HEADER_BYTES) else {
            return Err("it ends in its header");
        };
        if get_u32(header, 0) != CHECKPOINT_MAGIC {
            return Err("it has no header");
        }
        if get_u64(header, 8) != sequence {
            return Err("its header belongs to another checkpoint");
        }
        if get_u64(header, 24) != stream.len() as u64 {
            return Err("its length differs from the one in its header");
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
            // No bytes after the damage can be trusted.
            (self.left, self.rest) = (0, &[]);
        }
        Some(parsed)
    }
}

/// A durable checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durable {
    /// Sequence number that the commits of its transactions returned.
    pub sequence: u64,
    /// LSN of its first record, which identifies its items in the AIL and in a recovery.
    pub lsn: Lsn,
    /// LSN of its last record.
    pub commit_lsn: Lsn,
}

#[cfg(all(test, not(shuttle)))]
mod tests;
