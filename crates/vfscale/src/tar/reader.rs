//! Reading an archive.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;

use super::header::{Header, is_header, kind};
use super::{BLOCK, Entry, Kind, pax};

/// The longest extended header, in bytes: some hundred extended attributes.
const RECORDS_MAX: u64 = 16 << 20;
/// The most ranges of a file with holes.
const RANGES_MAX: u64 = 1 << 20;

/// The reason why an archive can't be read.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The input can't be read.
    Io(io::Error),
    /// The bytes are no archive.
    Form {
        /// The first byte of the entry.
        at: u64,
        what: &'static str,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Form { at, what } => write!(f, "at byte {at}: {what}"),
        }
    }
}

type Result<T> = std::result::Result<T, Fault>;

/// Returns whether input that begins with these bytes is an archive.
pub(crate) fn is_archive(first: &[u8]) -> bool {
    first.first_chunk().is_some_and(|block| is_header(block) || *block == [0; BLOCK])
}

/// An archive that is read from its beginning to its end.
pub(crate) struct Reader<'r> {
    input: &'r mut dyn Read,
    /// Bytes that were read, and where the entry begins.
    at: u64,
    start: u64,
    /// The contents of the entry that are still to be read, and what fills the last block.
    left: u64,
    filling: u64,
    global: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl<'r> Reader<'r> {
    pub(crate) fn new(input: &'r mut dyn Read) -> Self {
        Self { input, at: 0, start: 0, left: 0, filling: 0, global: BTreeMap::new() }
    }

    fn form(&self, what: &'static str) -> Fault {
        Fault::Form { at: self.start, what }
    }

    /// Fills `buf`, or fails.
    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        self.input.read_exact(buf).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.form("it is cut off"),
            _ => Fault::Io(error),
        })?;
        self.at += buf.len() as u64;
        Ok(())
    }

    fn block(&mut self) -> Result<[u8; BLOCK]> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        Ok(block)
    }

    /// Reads the next bytes of the contents. Returns how many there are, at most `buf.len()`.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let length = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.fill(&mut buf[..length])?;
        self.left -= length as u64;
        Ok(length)
    }

    /// Passes over what is left of an entry.
    fn skip(&mut self) -> Result<()> {
        let mut buf = [0; 16 * BLOCK];
        self.left = self.left.saturating_add(std::mem::take(&mut self.filling));
        while self.read(&mut buf)? > 0 {}
        Ok(())
    }

    /// Reads an extended header or a long name.
    fn long(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > RECORDS_MAX {
            return Err(self.form("an extended header is larger than 16 MiB"));
        }
        let mut bytes = vec![0; size as usize];
        self.read(&mut bytes)?;
        self.skip()?;
        Ok(bytes)
    }

    /// Returns the next entry, whose contents are read next; `None` at the end.
    ///
    /// # Errors
    /// Errors of the input, and of bytes that are no archive.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>> {
        self.skip()?;
        self.start = self.at;
        let mut keys = self.global.clone();
        let (mut name, mut target) = (None, None);
        loop {
            let block = self.block()?;
            if block == [0; BLOCK] {
                let is_between = self.at - self.start > BLOCK as u64;
                let lost = self.form("an extended header belongs to no file");
                return if is_between { Err(lost) } else { Ok(None) };
            }
            let header = Header::decode(&block);
            let header = header.ok_or_else(|| self.form("it has no header, or a damaged one"))?;
            self.left = header.size;
            self.filling = header.size.wrapping_neg() % BLOCK as u64;
            let cut =
                |bytes: Vec<u8>| bytes.split(|it| *it == 0).next().unwrap_or_default().to_vec();
            match header.kind {
                b'x' | b'g' => {
                    let bytes = self.long(header.size)?;
                    let records = pax::records(&bytes);
                    let wrong = "an extended header is damaged";
                    let records = records.ok_or_else(|| self.form(wrong))?;
                    let to = if header.kind == b'g' { &mut self.global } else { &mut keys };
                    to.extend(records.into_iter().map(|(key, value)| (key.into(), value.into())));
                    if header.kind == b'g' {
                        keys.extend(self.global.clone());
                    }
                }
                b'L' => name = Some(cut(self.long(header.size)?)),
                b'K' => target = Some(cut(self.long(header.size)?)),
                _ => {
                    let name = name.unwrap_or_else(|| header.name.clone());
                    let target = target.unwrap_or_else(|| header.target.clone());
                    return self.entry(Header { name, target, ..header }, &keys).map(Some);
                }
            }
        }
    }

    /// Returns the entry with a header, and the keys of its extended header.
    fn entry(&mut self, header: Header, keys: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Entry> {
        let text = |key: &str| keys.get(key.as_bytes()).map(|value| str::from_utf8(value));
        let number = |this: &Self, key: &str, other: u64| match text(key) {
            None => Ok(other),
            Some(value) => {
                let value = value.ok().and_then(|value| value.parse().ok());
                value.ok_or_else(|| this.form("a number of an extended header is wrong"))
            }
        };
        let path = keys.get(pax::PATH.as_bytes()).cloned().unwrap_or(header.name);
        let kind = if header.kind == b'S' { None } else { kind(header.kind, &path) };
        let kind = kind.ok_or_else(|| {
            self.form("a file has an unknown type, or holes in a form older than 1.0 of pax")
        })?;
        let stored = number(self, pax::SIZE, header.size)?;
        let has_data = kind == Kind::File;
        self.left = if has_data { stored } else { 0 };
        self.filling = if has_data { stored.wrapping_neg() % BLOCK as u64 } else { 0 };
        let id = |this: &Self, key: &str, other: u64| {
            let id = number(this, key, other)?;
            u32::try_from(id).map_err(|_| this.form("the number of an owner is too large"))
        };
        let device = |number: u64| {
            u32::try_from(number).map_err(|_| self.form("the number of a device is too large"))
        };
        let mtime = match text(pax::MTIME) {
            None => header.mtime.checked_mul(1_000_000_000),
            Some(value) => value.ok().and_then(pax::parse_time),
        };
        let is_xattr = |key: &[u8]| key.strip_prefix(pax::XATTR.as_bytes()).map(<[u8]>::to_vec);
        let xattrs = keys.iter().filter_map(|(key, value)| Some((is_xattr(key)?, value.clone())));
        let mut entry = Entry {
            path,
            kind,
            mode: header.mode & 0o7777,
            uid: id(self, pax::IDS[0], header.uid)?,
            gid: id(self, pax::IDS[1], header.gid)?,
            size: self.left,
            data: Vec::new(),
            mtime: mtime.ok_or_else(|| self.form("a time is out of range"))?,
            target: keys.get(pax::TARGET.as_bytes()).cloned().unwrap_or(header.target),
            device: (device(header.device.0)?, device(header.device.1)?),
            xattrs: xattrs.collect(),
            flags: keys.get(pax::FLAGS.as_bytes()).cloned().unwrap_or_default(),
        };
        if keys.keys().any(|key| key.starts_with(pax::SPARSE.as_bytes())) && has_data {
            let has = |key: &str, value: &str| text(key) == Some(Ok(value));
            if !has(pax::SPARSE_MAJOR, "1") || !has(pax::SPARSE_MINOR, "0") {
                return Err(self.form("a file has holes in a form older than 1.0 of pax"));
            }
            entry.size = number(self, pax::SPARSE_SIZE, entry.size)?;
            if let Some(name) = keys.get(pax::SPARSE_NAME.as_bytes()) {
                entry.path.clone_from(name);
            }
            entry.data = self.map(entry.size)?;
        } else if entry.size > 0 {
            entry.data.push(0..entry.size);
        }
        Ok(entry)
    }

    /// Reads the map of a file with holes.
    fn map(&mut self, size: u64) -> Result<Vec<Range<u64>>> {
        let wrong = "the places of the data of a file with holes are wrong";
        let mut digits = Digits { block: [0; BLOCK], next: BLOCK };
        let count = digits.number(self)?;
        if count > RANGES_MAX {
            return Err(self.form("a file has more than a million holes"));
        }
        let (mut ranges, mut end, mut bytes) = (Vec::<Range<u64>>::new(), 0, 0_u64);
        for _ in 0..count {
            let (start, length) = (digits.number(self)?, digits.number(self)?);
            let next = start.checked_add(length).filter(|next| start >= end && *next <= size);
            end = next.ok_or_else(|| self.form(wrong))?;
            bytes += length;
            // An empty one says where the file ends.
            if length > 0 {
                ranges.push(start..end);
            }
        }
        if bytes != self.left {
            return Err(self.form(wrong));
        }
        Ok(ranges)
    }
}

/// The decimal numbers at the beginning of the contents, which take whole blocks.
struct Digits {
    block: [u8; BLOCK],
    next: usize,
}

impl Digits {
    fn number(&mut self, reader: &mut Reader<'_>) -> Result<u64> {
        let wrong = "the places of the data of a file with holes are wrong";
        let mut text = String::new();
        loop {
            if self.next == BLOCK {
                if reader.read(&mut self.block)? < BLOCK {
                    return Err(reader.form(wrong));
                }
                self.next = 0;
            }
            let byte = self.block[self.next];
            self.next += 1;
            match byte {
                b'\n' => return text.parse().map_err(|_| reader.form(wrong)),
                b'0'..=b'9' if text.len() < 20 => text.push(char::from(byte)),
                _ => return Err(reader.form(wrong)),
            }
        }
    }
}
