//! An entry of a directory, and the rules for its name and its position.

use crate::format::Damage;
use crate::format::dir::{COLLISIONS_MAX, DirDamage, DirFault, NAME_BYTES_MAX};
use crate::inode::core::FileKind;

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Where it is in the directory: 16 to 2^63 - 1.
    pub position: u64,
    /// The inode that it leads to.
    pub ino: u64,
    /// What that is.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
}

impl DirEntry<'_> {
    /// What it leads to, and where it is.
    #[must_use]
    pub fn found(&self) -> Found {
        Found { position: self.position, ino: self.ino, kind: self.kind }
    }
}

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where the entry is in the directory.
    pub position: u64,
    /// The inode.
    pub ino: u64,
    /// What that is.
    pub kind: FileKind,
}

/// Whether a file can have this name: 1 to 255 bytes, without `/` and NUL, neither `.` nor `..`.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !matches!(name, b"." | b"..")
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// What is wrong with the entry at `position` of directory `ino`.
pub(super) fn damage(ino: u64, position: u64, fault: DirFault) -> Damage {
    DirDamage { ino, position, fault }.into()
}

/// The bit of a position among the sixteen from `base` on; none if it is another.
pub(super) fn taken_bit(base: u64, position: u64) -> u16 {
    match position.checked_sub(base) {
        Some(index) if index < COLLISIONS_MAX => 1 << index,
        _ => 0,
    }
}
