//! Names as bytes: their end in a path, their equality, their hash.
//!
//! Every component of every path passes through here. So names are processed in words of eight
//! bytes, and a rest is read as two overlapping words instead of byte by byte (like "word at a
//! time" in `hash_name` of Linux).

use vfscale_sync::random::{self, HashKeys};

/// Maximum length of a name in bytes.
pub const NAME_MAX: usize = 255;

/// Low bits of a hash that distinguish names with otherwise equal hashes. So every hash in a
/// directory is unique and can serve as a position in it.
pub(crate) const TIE_BITS: u64 = 0xf_ffff;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
const SLASHES: u64 = ONES * b'/' as u64;

/// Returns a word with the high bit of the first zero byte set, counted from the low end, and of
/// none before; zero if no byte is zero.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Returns up to eight bytes as a number, the first one lowest, with zeros after the last.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let Some(all) = bytes.first_chunk() {
        u64::from_le_bytes(*all)
    } else if let (Some(low), Some(high)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let high = u64::from(u32::from_le_bytes(*high));
        u64::from(u32::from_le_bytes(*low)) | high << (8 * (len - 4))
    } else if let (Some(low), Some(high)) = (bytes.first_chunk(), bytes.last()) {
        u64::from(u16::from_le_bytes(*low)) | u64::from(*high) << (8 * (len - 1))
    } else {
        bytes.first().copied().map_or(0, u64::from)
    }
}

/// Returns whether there is a zero byte.
#[inline]
pub(crate) fn has_nul(mut bytes: &[u8]) -> bool {
    while let Some((chunk, rest)) = bytes.split_first_chunk() {
        if zero_bytes(u64::from_le_bytes(*chunk)) != 0 {
            return true;
        }
        bytes = rest;
    }
    // Missing bytes are filled with ones.
    !bytes.is_empty() && zero_bytes(word(bytes) | u64::MAX << (8 * bytes.len())) != 0
}

/// Returns the text without leading slashes.
#[inline]
pub(crate) fn skip_slashes(mut text: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] = text {
        text = rest;
    }
    text
}

/// Returns whether two names are equal.
#[inline]
pub(crate) fn is_same(mut a: &[u8], mut b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    while let (Some((first, rest)), Some((other, others))) =
        (a.split_first_chunk::<8>(), b.split_first_chunk::<8>())
    {
        if first != other {
            return false;
        }
        (a, b) = (rest, others);
    }
    word(a) == word(b)
}

/// Number of bytes of a name that fit into its head.
const HEAD_BYTES: usize = 7;

/// Returns the memory that a stored name needs for comparisons: its length byte, its bytes, and
/// zeros up to a full word.
pub(crate) const fn stored_len(len: usize) -> usize {
    if len < HEAD_BYTES { HEAD_BYTES + 1 } else { len + 1 }
}

/// A name to look up, with its hash and its head, which a comparison checks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    bytes: &'a [u8],
    /// The length in the lowest byte, then the first seven bytes, as a name is stored. Names of
    /// seven bytes or less are equal if their heads are.
    head: u64,
    hash: u64,
}

/// A name that outlives its walk, with its hash.
pub(crate) struct KeptName {
    bytes: Box<[u8]>,
    head: u64,
    hash: u64,
}

impl KeptName {
    pub(crate) fn new(name: &Name<'_>) -> KeptName {
        KeptName { bytes: name.bytes.into(), head: name.head, hash: name.hash }
    }

    pub(crate) fn name(&self) -> Name<'_> {
        Name { bytes: &self.bytes, head: self.head, hash: self.hash }
    }
}

impl<'a> Name<'a> {
    /// The empty name.
    pub(crate) const EMPTY: Name<'static> = Name { bytes: b"", head: 0, hash: 0 };

    /// Creates a name from bytes that are known to be one component.
    pub(crate) fn new(bytes: &'a [u8]) -> Name<'a> {
        let mut name = Name::EMPTY;
        name.set(bytes, head_word(bytes));
        name
    }

    /// Sets all fields one by one: building a name on the stack and copying it takes longer than
    /// the hash.
    #[inline(always)]
    fn set(&mut self, bytes: &'a [u8], first: u64) {
        let head = first << 8 | bytes.len() as u64 & 0xff;
        self.bytes = bytes;
        self.head = head;
        self.hash = hash_with(random::hash_keys(), head, bytes);
    }

    /// Sets the name to the first component of a path that doesn't begin with a slash. Returns the
    /// rest, which is empty or begins with a slash.
    #[inline(always)]
    pub(crate) fn split_off(&mut self, text: &'a [u8]) -> &'a [u8] {
        // After the end of a short text are zeros, which are no slashes.
        let first = word(text);
        let found = zero_bytes(first ^ SLASHES);
        let len = if found != 0 {
            found.trailing_zeros() as usize / 8
        } else if text.len() <= HEAD_BYTES {
            text.len()
        } else {
            return self.split_off_long(text);
        };
        let (bytes, after) = text.split_at(len);
        self.set(bytes, first & !(u64::MAX << (8 * len)));
        after
    }

    /// Does what [`split_off`](Self::split_off) does for a name of eight bytes or more.
    #[inline(never)]
    fn split_off_long(&mut self, text: &'a [u8]) -> &'a [u8] {
        let (bytes, after) = text.split_at(component_len(text));
        self.set(bytes, head_word(bytes));
        after
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the hash: 63 bits, greater than the positions of `.` and `..`, with its [`TIE_BITS`]
    /// clear.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns whether the name is `.` or `..`.
    #[inline]
    pub(crate) fn is_dots(&self) -> bool {
        const DOT: u64 = 1 | (b'.' as u64) << 8;
        const DOTS: u64 = 2 | (b'.' as u64) << 8 | (b'.' as u64) << 16;
        (self.head == DOT || self.head == DOTS) && self.bytes.len() <= HEAD_BYTES
    }

    /// Returns whether a stored name is equal. Its first eight bytes are `head`, as a little-endian
    /// number, and `rest` returns all of it but the length byte.
    #[inline(always)]
    pub(crate) fn is_stored<'s>(&self, head: u64, rest: impl FnOnce() -> &'s [u8]) -> bool {
        self.head == head && (self.bytes.len() <= HEAD_BYTES || is_same(self.bytes, rest()))
    }
}

/// Returns the bytes of a name that its head contains, as a word.
fn head_word(bytes: &[u8]) -> u64 {
    word(&bytes[..bytes.len().min(HEAD_BYTES)])
}

/// Returns the number of bytes before the first slash, or of all bytes.
fn component_len(text: &[u8]) -> usize {
    let mut rest = text;
    while let Some((chunk, behind)) = rest.split_first_chunk() {
        let found = zero_bytes(u64::from_le_bytes(*chunk) ^ SLASHES);
        if found != 0 {
            return text.len() - rest.len() + found.trailing_zeros() as usize / 8;
        }
        rest = behind;
    }
    let found = zero_bytes(word(rest) ^ SLASHES);
    let len = if found == 0 { rest.len() } else { found.trailing_zeros() as usize / 8 };
    text.len() - rest.len() + len
}

/// Multiplies two words and combines both halves of the product.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// Hashes a name: multiply and fold, eight bytes at a time after the head. Salts and multipliers
/// are secret: a user sees the upper 43 bits of hashes of names of his choice.
#[inline(always)]
fn hash_with(keys: &HashKeys, head: u64, bytes: &[u8]) -> u64 {
    let HashKeys { salts: [first, last], factors: [factor, last_factor] } = *keys;
    let mut hash = fold(head ^ first, factor);
    if bytes.len() > HEAD_BYTES {
        hash = hash_rest(hash ^ bytes.len() as u64, &bytes[HEAD_BYTES..], factor);
    }
    hash = fold(hash ^ last, last_factor);
    ((hash >> 1) & !TIE_BITS).max(TIE_BITS + 1)
}

/// Hashes the bytes after the head.
#[inline]
fn hash_rest(mut hash: u64, mut rest: &[u8], factor: u64) -> u64 {
    while rest.len() > 8 {
        hash = fold(hash ^ word(rest), factor);
        rest = &rest[8..];
    }
    fold(hash ^ word(rest), factor)
}

/// Allocates a stored name: a length byte and that many bytes, and zeros up to eight.
pub(super) fn heap_name(name: &[u8]) -> *mut u8 {
    debug_assert!(name.len() <= NAME_MAX);
    let mut bytes = Vec::with_capacity(stored_len(name.len()));
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(name);
    bytes.resize(stored_len(name.len()), 0);
    Box::into_raw(bytes.into_boxed_slice()).cast()
}

#[cfg(test)]
mod tests;
