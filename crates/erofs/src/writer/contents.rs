//! Where the contents of a file are: the addresses that its inode has.

use zerocopy::IntoBytes;

use super::output::Output;
use crate::error::Error;
use crate::format::{BLOCK, CHUNK_BITS_MAX, INDEX_BYTES, NO_ADDRESS, ON_DEVICE, RawIndex};
use crate::{INDEX_BYTES_MAX, Run};

/// The addresses of a file.
#[derive(Debug)]
pub(super) enum Addresses {
    /// One block after the other in the file that is written, from this one on.
    Row(u32),
    /// Chunks.
    Table(Table),
}

/// Chunks of `1 << bits` blocks.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) bits: u32,
    count: u64,
    /// The number of the device.
    device: u16,
    /// In ascending order.
    runs: Vec<Run>,
}

/// Returns the addresses of a file of `blocks` blocks, whose runs lie on a device of
/// `device_blocks`.
///
/// # Errors
/// [`Error::Place`] and [`Error::TooSparse`].
pub(super) fn on_device(blocks: u64, runs: &[Run], device_blocks: u32) -> Result<Table, Error> {
    let mut joined: Vec<Run> = Vec::new();
    let mut free = 0;
    for run in runs {
        let end = run.place.checked_add(run.blocks);
        let is_inside = end.is_some_and(|end| end <= device_blocks.into());
        if run.blocks == 0 || run.at < free || !is_inside {
            return Err(Error::Place);
        }
        free = run.at.checked_add(run.blocks).ok_or(Error::Place)?;
        let length = run.blocks.min(blocks.saturating_sub(run.at));
        match joined.last_mut() {
            _ if length == 0 => {}
            Some(last)
                if last.at + last.blocks == run.at && last.place + last.blocks == run.place =>
            {
                last.blocks += length;
            }
            _ => joined.push(Run { blocks: length, ..*run }),
        }
    }
    Table::new(blocks, ON_DEVICE, joined)
}

/// Returns the addresses of a file that begins with `bytes` and has zeros up to its end. The bytes
/// get blocks of the file that is written.
///
/// # Errors
/// [`Error::TooSparse`] and errors of the file.
pub(super) fn in_metadata(
    blocks: u64,
    bytes: &[u8],
    output: &mut Output<'_>,
) -> Result<Addresses, Error> {
    let filled = (bytes.len() as u64).div_ceil(BLOCK);
    let mut bits = filled.next_power_of_two().trailing_zeros();
    // Zeros of a chunk cost nothing on most file systems, but no more than the table all the same.
    let table = |bits: u32| blocks.div_ceil(1 << bits) * INDEX_BYTES;
    while blocks > filled && table(bits) > BLOCK << bits && bits < CHUNK_BITS_MAX {
        bits += 1;
    }
    let length = if blocks > filled { 1 << bits } else { filled };
    let first = output.place_blocks(length);
    output.write(first * BLOCK, bytes)?;
    let address = u32::try_from(first).map_err(|_| Error::TooLarge)?;
    if blocks <= length {
        return Ok(Addresses::Row(address));
    }
    let run = Run { at: 0, blocks: length, place: first };
    Table::new(blocks, 0, vec![run]).map(Addresses::Table)
}

impl Table {
    /// Makes the table with the largest chunks.
    fn new(blocks: u64, device: u16, runs: Vec<Run>) -> Result<Self, Error> {
        let whole = blocks.next_power_of_two().trailing_zeros();
        // A chunk may reach beyond the end of the file.
        let edges = runs.iter().flat_map(|run| [run.at, run.at + run.blocks]);
        let bits = edges.filter(|edge| *edge < blocks).map(u64::trailing_zeros).min();
        let bits = bits.unwrap_or(whole).min(whole).min(CHUNK_BITS_MAX);
        let table = Self { bits, count: blocks.div_ceil(1 << bits), device, runs };
        match table.bytes() {
            bytes if bytes > INDEX_BYTES_MAX => Err(Error::TooSparse(bytes)),
            _ => Ok(table),
        }
    }

    /// Returns the bytes that it has on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.count.saturating_mul(INDEX_BYTES)
    }

    /// Calls `each` with its bytes, in pieces.
    ///
    /// # Errors
    /// Any error of `each`.
    pub(super) fn write(
        &self,
        mut each: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut piece = Vec::new();
        let mut runs = self.runs.iter().peekable();
        for chunk in 0..self.count {
            let at = chunk << self.bits;
            while runs.next_if(|run| run.at + run.blocks <= at).is_some() {}
            let (device, address) = match runs.peek() {
                // All places of a device fit into 32 bits.
                Some(run) if run.at <= at => (self.device, (run.place + at - run.at) as u32),
                _ => (0, NO_ADDRESS),
            };
            let index =
                RawIndex { advice: 0.into(), device: device.into(), address: address.into() };
            piece.extend_from_slice(index.as_bytes());
            if piece.len() >= 1 << 16 {
                each(&piece)?;
                piece.clear();
            }
        }
        each(&piece)
    }
}
