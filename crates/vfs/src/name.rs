//! Names as bytes: where they end in a path, whether two are equal, their hash.
//!
//! Every component of every path comes through here, so all of it goes by words of eight bytes, and
//! what is left over is read as two words that overlap instead of byte by byte (as "word at a time" in
//! the kernel's `hash_name`).

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// The low bits of a hash tell apart names whose hashes are otherwise the same, so that every hash in
/// a directory is unique and can serve as a position in it.
pub(crate) const TIE_BITS: u64 = 0xf_ffff;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Makes hashes differ from process to process, so that nobody can choose names that collide.
static KEY: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0u64));

/// Has the high bit of the first zero byte set, counted from the low end, and of none before; zero if
/// no byte is zero.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Up to eight bytes as a number, the first one lowest, zeros behind the last.
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

/// Whether there is a zero byte.
#[inline]
pub(crate) fn has_nul(mut bytes: &[u8]) -> bool {
    while let Some((chunk, rest)) = bytes.split_first_chunk() {
        if zero_bytes(u64::from_le_bytes(*chunk)) != 0 {
            return true;
        }
        bytes = rest;
    }
    // Ones where there is no byte.
    !bytes.is_empty() && zero_bytes(word(bytes) | u64::MAX << (8 * bytes.len())) != 0
}

/// The number of bytes before the first slash, or all.
#[inline]
pub(crate) fn component_len(text: &[u8]) -> usize {
    const SLASHES: u64 = ONES * b'/' as u64;
    let mut rest = text;
    while let Some((chunk, behind)) = rest.split_first_chunk() {
        let found = zero_bytes(u64::from_le_bytes(*chunk) ^ SLASHES);
        if found != 0 {
            return text.len() - rest.len() + found.trailing_zeros() as usize / 8;
        }
        rest = behind;
    }
    // Behind the end are zeros, which are no slashes.
    let found = zero_bytes(word(rest) ^ SLASHES);
    let len = if found == 0 { rest.len() } else { found.trailing_zeros() as usize / 8 };
    text.len() - rest.len() + len
}

/// What is left without the slashes in front.
#[inline]
pub(crate) fn skip_slashes(mut text: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] = text {
        text = rest;
    }
    text
}

/// Whether two names are the same.
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

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// Hashes a name: multiply and fold, eight bytes at a time, keyed. The result has 63 bits, is above
/// the positions of `.` and `..`, and has its lowest [`TIE_BITS`] clear but for that.
#[inline]
pub(crate) fn hash(name: &[u8]) -> u64 {
    hash_with(*KEY, name)
}

#[inline]
fn hash_with(key: u64, name: &[u8]) -> u64 {
    const K0: u64 = 0x9e37_79b9_7f4a_7c15;
    const K1: u64 = 0xd6e8_feb8_6659_fd93;
    let mut hash = key ^ (name.len() as u64).wrapping_mul(K0);
    let mut rest = name;
    while rest.len() > 8 {
        hash = fold(hash ^ word(rest), K1);
        rest = &rest[8..];
    }
    hash = fold(hash ^ word(rest), K1);
    hash = fold(hash ^ key, K0);
    ((hash >> 1) & !TIE_BITS).max(TIE_BITS + 1)
}

#[cfg(test)]
mod tests;
