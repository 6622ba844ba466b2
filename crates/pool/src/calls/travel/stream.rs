//! The bytes of a stream; docs/POOL.md has the tables.
//!
//! A stream is a row of records. Each tells where in the stream it begins, and its checksum goes on
//! from that of the record before: so a part that is missing, doubled or of another stream is found
//! where it begins.

use std::io::{BufWriter, ErrorKind, Read, Write};
use std::ops::Range;

use vfscale_block::OsError;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Error;
use crate::disk::format::{NAME_MAX, PLACE_BYTES};
use crate::disk::record::{self, BLOCKS_MAX};

/// Most blocks that a record has: 1 MiB.
pub(super) const RECORD_BLOCKS: u64 = 256;

/// Bytes that are written together.
const BUFFER_BYTES: usize = 128 << 10;

const MAGIC: [u8; 4] = *b"vfsS";
const VERSION: u32 = 1;

/// Kinds of records.
const HEAD: u32 = 1;
const DATA: u32 = 2;
const ZEROS: u32 = 3;
const END: u32 = 4;

/// The beginning of each record.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    /// CRC-32C of the checksum of the record before, of this header with zero here, and of what
    /// follows it.
    checksum: U32,
    kind: U32,
    /// How many bytes follow the header.
    bytes: U32,
    /// Where the record begins in the stream.
    at: U64,
    /// The first block; at the end, how many blocks there were with contents.
    first: U64,
    /// The number of blocks; at the end, that of the records before.
    count: U64,
}

/// The contents of the first record.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    version: U32,
    name_bytes: U32,
    text_bytes: U32,
    base_name_bytes: U32,
    state: U64,
    base: U64,
    blocks: U64,
    /// The name, and then the text.
    name: [u8; NAME_MAX],
    base_name: [u8; NAME_MAX],
}

const _: () = assert!(size_of::<RawHeader>() == 40 && size_of::<RawHead>() == 296);

/// The first part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The number of the contents.
    pub(super) state: u64,
    /// The number of the contents that they are told from, and the name that these had; `None` for
    /// a whole branch.
    pub(super) base: Option<(u64, String)>,
    /// The size of the branch.
    pub(super) blocks: u64,
    pub(super) name: String,
    pub(super) text: String,
}

/// Any other part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'b> {
    /// Contents, from a block on.
    Data(u64, &'b [u8]),
    /// Blocks that read as zeros.
    Zeros(Range<u64>),
    End,
}

impl Head {
    fn encode(&self) -> RawHead {
        let (base, base_name) = self.base.as_ref().map_or((0, ""), |(base, name)| (*base, name));
        let mut raw = RawHead {
            version: VERSION.into(),
            name_bytes: (self.name.len() as u32).into(),
            text_bytes: (self.text.len() as u32).into(),
            base_name_bytes: (base_name.len() as u32).into(),
            state: self.state.into(),
            base: base.into(),
            blocks: self.blocks.into(),
            ..RawHead::new_zeroed()
        };
        let both = [self.name.as_bytes(), self.text.as_bytes()].concat();
        raw.name[..both.len()].copy_from_slice(&both);
        raw.base_name[..base_name.len()].copy_from_slice(base_name.as_bytes());
        raw
    }

    fn decode(raw: &RawHead) -> Result<Self, Error> {
        let wrong = |what| Error::Stream { at: 0, what };
        if raw.version.get() != VERSION {
            return Err(wrong("another version of vfscale has made it, which this one can't read"));
        }
        let text = |bytes: &[u8], length: U32| -> Option<String> {
            let bytes = bytes.get(..length.get() as usize)?;
            str::from_utf8(bytes)
                .ok()
                .filter(|it| !it.contains(char::is_control))
                .map(str::to_owned)
        };
        let names = || {
            let name = text(&raw.name, raw.name_bytes).filter(|name| record::is_name(name))?;
            let told = text(&raw.name[name.len()..], raw.text_bytes)?;
            Some((name, told, text(&raw.base_name, raw.base_name_bytes)?))
        };
        let (name, told, base_name) = names().ok_or_else(|| wrong("the name of the branch"))?;
        let (state, base, blocks) = (raw.state.get(), raw.base.get(), raw.blocks.get());
        if state == 0 || state == base {
            return Err(wrong("the number of its contents"));
        }
        if blocks == 0 || blocks > BLOCKS_MAX {
            return Err(wrong("the size of the branch"));
        }
        let base = (base != 0).then_some((base, base_name));
        Ok(Self { state, base, blocks, name, text: told })
    }
}

fn sum(previous: u32, header: &RawHeader, payload: &[u8]) -> u32 {
    let header = RawHeader { checksum: 0.into(), ..*header };
    let sum = crc32c::crc32c(&previous.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(sum, header.as_bytes()), payload)
}

/// Writes a stream, but for its first bytes, which may be there already.
pub(super) struct Writer<'w> {
    /// Single blocks are written together.
    out: BufWriter<&'w mut dyn Write>,
    /// How many bytes are left out.
    skip: u64,
    at: u64,
    previous: u32,
    records: u64,
    /// How many blocks with contents were told.
    pub(super) blocks: u64,
}

impl<'w> Writer<'w> {
    pub(super) fn new(out: &'w mut dyn Write, skip: u64) -> Self {
        let out = BufWriter::with_capacity(BUFFER_BYTES, out);
        Self { out, skip, at: 0, previous: 0, records: 0, blocks: 0 }
    }

    pub(super) fn head(&mut self, head: &Head) -> Result<(), Error> {
        self.record(HEAD, 0, 0, head.encode().as_bytes())
    }

    /// Tells contents, from a block on.
    pub(super) fn data(&mut self, first: u64, bytes: &[u8]) -> Result<(), Error> {
        let count = (bytes.len() / PLACE_BYTES) as u64;
        self.blocks += count;
        self.record(DATA, first, count, bytes)
    }

    /// Tells that blocks read as zeros.
    pub(super) fn zeros(&mut self, blocks: &Range<u64>) -> Result<(), Error> {
        self.record(ZEROS, blocks.start, blocks.end - blocks.start, &[])
    }

    /// Ends the stream. Returns its length.
    pub(super) fn end(mut self) -> Result<u64, Error> {
        self.record(END, self.blocks, self.records, &[])?;
        self.out.flush().map_err(|error| self.failed(&error))?;
        Ok(self.at)
    }

    fn record(&mut self, kind: u32, first: u64, count: u64, payload: &[u8]) -> Result<(), Error> {
        let mut header = RawHeader {
            magic: MAGIC,
            checksum: 0.into(),
            kind: kind.into(),
            bytes: (payload.len() as u32).into(),
            at: self.at.into(),
            first: first.into(),
            count: count.into(),
        };
        self.previous = sum(self.previous, &header, payload);
        header.checksum = self.previous.into();
        self.records += 1;
        self.put(header.as_bytes())?;
        self.put(payload)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let left_out = self.skip.saturating_sub(self.at).min(bytes.len() as u64);
        let written = self.out.write_all(&bytes[left_out as usize..]);
        written.map_err(|error| self.failed(&error))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::StreamFailed { at: self.at, what: "written", source: OsError::from(error) }
    }
}

/// Reads a stream, and nothing behind it.
pub(super) struct Reader<'r> {
    input: &'r mut dyn Read,
    pub(super) at: u64,
    previous: u32,
    records: u64,
    blocks: u64,
    /// The block behind the last one that was told.
    next: u64,
    /// The size of the branch.
    size: u64,
    payload: Vec<u8>,
}

impl<'r> Reader<'r> {
    pub(super) fn new(input: &'r mut dyn Read) -> Self {
        let payload = vec![0; RECORD_BLOCKS as usize * PLACE_BYTES];
        Self { input, at: 0, previous: 0, records: 0, blocks: 0, next: 0, size: 0, payload }
    }

    /// Reads the first record.
    ///
    /// # Errors
    /// [`Error::Stream`] and [`Error::StreamFailed`].
    pub(super) fn head(&mut self) -> Result<Head, Error> {
        let header = self.record()?;
        let raw = RawHead::read_from_bytes(&self.payload[..header.bytes.get() as usize]);
        let raw = raw.ok().filter(|_| header.kind.get() == HEAD);
        let head = raw.ok_or(Error::Stream { at: 0, what: "it does not begin with its head" })?;
        let head = Head::decode(&head)?;
        self.size = head.blocks;
        Ok(head)
    }

    /// Reads the next record.
    ///
    /// # Errors
    /// [`Error::Stream`] and [`Error::StreamFailed`].
    pub(super) fn part(&mut self) -> Result<Part<'_>, Error> {
        let at = self.at;
        let header = self.record()?;
        let wrong = |what| Err(Error::Stream { at, what });
        let (first, count) = (header.first.get(), header.count.get());
        if header.kind.get() == END {
            // This record counts as well.
            return match (first, count) == (self.blocks, self.records - 1) {
                true => Ok(Part::End),
                false => wrong("it ends otherwise than it was"),
            };
        }
        let end = first.checked_add(count).filter(|end| *end <= self.size);
        let end = end.filter(|_| first >= self.next && count > 0);
        let Some(end) = end else { return wrong("blocks that can't follow") };
        self.next = end;
        match header.kind.get() {
            DATA => {
                self.blocks += count;
                Ok(Part::Data(first, &self.payload[..count as usize * PLACE_BYTES]))
            }
            ZEROS => Ok(Part::Zeros(first..end)),
            _ => wrong("a second head"),
        }
    }

    /// Reads a record, and checks all that does not depend on others.
    fn record(&mut self) -> Result<RawHeader, Error> {
        let at = self.at;
        let wrong = |what| Err(Error::Stream { at, what });
        let mut header = RawHeader::new_zeroed();
        self.fill(header.as_mut_bytes())?;
        if header.magic != MAGIC {
            let what = if at == 0 { "it is none of a branch" } else { "it is damaged" };
            return wrong(what);
        }
        let (bytes, count) = (u64::from(header.bytes.get()), header.count.get());
        let is_possible = match header.kind.get() {
            HEAD => bytes == size_of::<RawHead>() as u64,
            DATA => count <= RECORD_BLOCKS && bytes == count * PLACE_BYTES as u64,
            ZEROS | END => bytes == 0,
            _ => false,
        };
        if !is_possible || header.at.get() != at {
            return wrong("it is damaged");
        }
        self.fill_payload(bytes as usize)?;
        self.previous = sum(self.previous, &header, &self.payload[..bytes as usize]);
        if self.previous != header.checksum.get() {
            return wrong("it is damaged: a checksum is wrong");
        }
        self.records += 1;
        Ok(header)
    }

    fn fill_payload(&mut self, bytes: usize) -> Result<(), Error> {
        let mut payload = std::mem::take(&mut self.payload);
        let filled = self.fill(&mut payload[..bytes]);
        self.payload = payload;
        filled
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let read = self.input.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                Error::Stream { at: self.at, what: "it was cut: it ends in this part" }
            }
            _ => Error::StreamFailed { at: self.at, what: "read", source: OsError::from(&error) },
        });
        self.at += bytes.len() as u64;
        read
    }
}
