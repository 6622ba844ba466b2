//! The header of an entry: 512 bytes.

use super::{BLOCK, Kind};

/// The places of the fields, from and to.
const NAME: (usize, usize) = (0, 100);
const MODE: (usize, usize) = (100, 108);
const UID: (usize, usize) = (108, 116);
const GID: (usize, usize) = (116, 124);
const SIZE: (usize, usize) = (124, 136);
const MTIME: (usize, usize) = (136, 148);
const SUM: (usize, usize) = (148, 156);
const TYPE: usize = 156;
const TARGET: (usize, usize) = (157, 257);
const MAGIC: (usize, usize) = (257, 265);
const MAJOR: (usize, usize) = (329, 337);
const MINOR: (usize, usize) = (337, 345);
const PREFIX: (usize, usize) = (345, 500);

/// The magic number and the version of POSIX.
const USTAR: &[u8] = b"ustar\x0000";

/// The longest name in a header.
pub(super) const NAME_MAX: usize = NAME.1 - NAME.0;
/// The greatest number of an owner in a header.
pub(super) const ID_MAX: u32 = 0o777_7777;
/// The greatest size and time in a header.
pub(super) const SIZE_MAX: u64 = 0o777_7777_7777;

/// The fields of a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    /// Bytes that follow.
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) mtime: i64,
    pub(super) kind: u8,
    pub(super) target: Vec<u8>,
    pub(super) device: (u64, u64),
}

/// Returns the letter of a kind.
pub(super) fn letter(kind: Kind) -> u8 {
    match kind {
        Kind::File => b'0',
        Kind::Link => b'1',
        Kind::Symlink => b'2',
        Kind::CharacterDevice => b'3',
        Kind::BlockDevice => b'4',
        Kind::Directory => b'5',
        Kind::Fifo => b'6',
    }
}

/// Returns the kind that a letter stands for; the name of a directory may say so alone.
pub(super) fn kind(letter: u8, name: &[u8]) -> Option<Kind> {
    Some(match letter {
        b'0' | 0 | b'7' if name.ends_with(b"/") => Kind::Directory,
        b'0' | 0 | b'7' => Kind::File,
        b'1' => Kind::Link,
        b'2' => Kind::Symlink,
        b'3' => Kind::CharacterDevice,
        b'4' => Kind::BlockDevice,
        b'5' => Kind::Directory,
        b'6' => Kind::Fifo,
        _ => return None,
    })
}

fn field(block: &[u8; BLOCK], (from, to): (usize, usize)) -> &[u8] {
    &block[from..to]
}

/// Returns a text up to its end.
fn text(block: &[u8; BLOCK], at: (usize, usize)) -> Vec<u8> {
    let bytes = field(block, at);
    bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

/// Returns a number in octal digits, or in bytes as GNU has it, whose first bit is set.
fn number(block: &[u8; BLOCK], at: (usize, usize)) -> Option<i128> {
    let bytes = field(block, at);
    if bytes[0] & 0x80 != 0 {
        let is_negative = bytes[0] == 0xff;
        if bytes.len() > 8
            && bytes[1..bytes.len() - 8].iter().any(|byte| *byte != 0)
            && !is_negative
        {
            return None;
        }
        let first = if is_negative { -1 } else { i128::from(bytes[0] & 0x7f) };
        return Some(
            bytes[1..]
                .iter()
                .fold(first, |all, byte| all.wrapping_mul(256).wrapping_add(i128::from(*byte))),
        );
    }
    let digits = bytes.split(|byte| matches!(byte, 0 | b' ')).find(|part| !part.is_empty());
    let digits = str::from_utf8(digits.unwrap_or(b"0")).ok()?;
    u64::from_str_radix(digits, 8).ok().map(i128::from)
}

/// Returns the sum of all bytes, with spaces in place of the sum.
fn sum(block: &[u8; BLOCK]) -> u32 {
    let all: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let own: u32 = field(block, SUM).iter().map(|byte| u32::from(*byte)).sum();
    all - own + 8 * u32::from(b' ')
}

/// Returns whether a block is a header.
pub(super) fn is_header(block: &[u8; BLOCK]) -> bool {
    number(block, SUM) == Some(i128::from(sum(block)))
}

impl Header {
    /// Reads a header; `None` if it is none.
    pub(super) fn decode(block: &[u8; BLOCK]) -> Option<Self> {
        if !is_header(block) {
            return None;
        }
        let unsigned = |at| number(block, at).and_then(|number| u64::try_from(number).ok());
        let mut name = text(block, NAME);
        let prefix = if field(block, MAGIC) == USTAR { text(block, PREFIX) } else { Vec::new() };
        if !prefix.is_empty() {
            name = [&prefix[..], b"/", &name].concat();
        }
        Some(Self {
            name,
            mode: u32::try_from(number(block, MODE)?).ok()?,
            uid: unsigned(UID)?,
            gid: unsigned(GID)?,
            size: unsigned(SIZE)?,
            mtime: i64::try_from(number(block, MTIME)?).ok()?,
            kind: block[TYPE],
            target: text(block, TARGET),
            device: (unsigned(MAJOR)?, unsigned(MINOR)?),
        })
    }

    /// Returns the bytes. What has no room is cut: an extended header has it.
    pub(super) fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut put = |(from, to): (usize, usize), bytes: &[u8]| {
            let length = bytes.len().min(to - from);
            block[from..from + length].copy_from_slice(&bytes[..length]);
        };
        put(NAME, &self.name);
        put(TARGET, &self.target);
        put(MAGIC, USTAR);
        let mtime = u64::try_from(self.mtime).unwrap_or(0).min(SIZE_MAX);
        let size = if self.size > SIZE_MAX { 0 } else { self.size };
        let id = |id: u64| if id > u64::from(ID_MAX) { 0 } else { id };
        for (at, number, digits) in [
            (MODE, u64::from(self.mode & 0o7777), 7),
            (UID, id(self.uid), 7),
            (GID, id(self.gid), 7),
            (SIZE, size, 11),
            (MTIME, mtime, 11),
            (MAJOR, self.device.0, 7),
            (MINOR, self.device.1, 7),
        ] {
            put(at, format!("{number:0digits$o}").as_bytes());
        }
        block[TYPE] = self.kind;
        let sum = sum(&block);
        block[SUM.0..SUM.1].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }
}
