//! Aligned memory for direct I/O.
//!
//! Disks read and write memory themselves, and need it at addresses that are multiples of their
//! block size. A [`Device`](crate::Device) accepts any memory and copies unaligned bytes; it does
//! not copy bytes in an [`AlignedBuf`].

use std::fmt;
use std::ops::{Deref, DerefMut};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Largest alignment that any disk needs, in bytes.
pub(crate) const ALIGNMENT: usize = 4096;

/// One aligned unit of memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Unit([u8; ALIGNMENT]);

/// A buffer that begins at a multiple of 4096 bytes. `Send` and `Sync`; in everything else a slice.
#[derive(Clone)]
pub struct AlignedBuf {
    units: Vec<Unit>,
    len: usize,
}

impl AlignedBuf {
    /// Creates a buffer of `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let units = len.div_ceil(ALIGNMENT);
        // The call fails for more memory than there are addresses, like a vector would.
        let units = Unit::new_vec_zeroed(units).unwrap_or_else(|_| vec![Unit::new_zeroed(); units]);
        Self { units, len }
    }
}

impl From<&[u8]> for AlignedBuf {
    fn from(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.units.as_slice().as_bytes()[..self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.units.as_mut_slice().as_mut_bytes()[..self.len]
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests;
