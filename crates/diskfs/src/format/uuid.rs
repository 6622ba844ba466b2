//! Ids of volumes: 16 random bytes (RFC 9562, version 4).

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::rand::{GetRandomFlags, getrandom};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The id of a volume. Stored on disk as it is, byte for byte in the order of its text.
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct Uuid([u8; 16]);

/// Positions of the hyphens in the text, by the number of bytes before them.
const HYPHENS: [usize; 4] = [4, 6, 8, 10];

impl Uuid {
    /// The nil id.
    pub const NIL: Self = Self([0; 16]);

    /// Returns a new id from the system's random numbers. Blocks only right after the boot of a
    /// system.
    ///
    /// # Errors
    /// Returns the error of the system if it has no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        let mut filled = 0;
        while filled < bytes.len() {
            match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Version and variant.
        bytes[6] = bytes[6] & 0x0F | 0x40;
        bytes[8] = bytes[8] & 0x3F | 0x80;
        Ok(Self(bytes))
    }

    /// Returns the id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the id.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, byte) in self.0.iter().enumerate() {
            if HYPHENS.contains(&number) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

/// Error of parsing a text that is no id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an id such as 12345678-1234-4234-8234-123456789abc")]
pub struct NoUuid;

impl FromStr for Uuid {
    type Err = NoUuid;

    /// Parses the text that [`Display`](fmt::Display) writes, with letters of either case.
    fn from_str(text: &str) -> Result<Self, NoUuid> {
        let (mut bytes, mut rest) = ([0; 16], text);
        for (number, byte) in bytes.iter_mut().enumerate() {
            if HYPHENS.contains(&number) {
                rest = rest.strip_prefix('-').ok_or(NoUuid)?;
            }
            let (digits, behind) = rest.split_at_checked(2).ok_or(NoUuid)?;
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(NoUuid);
            }
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NoUuid)?;
            rest = behind;
        }
        if rest.is_empty() { Ok(Self(bytes)) } else { Err(NoUuid) }
    }
}

#[cfg(test)]
mod tests;
