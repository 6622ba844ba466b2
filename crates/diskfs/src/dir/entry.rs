//! An entry of a directory, and the rules for its name and its position.

use crate::btree::Nodes;
use crate::format::Damage;
use crate::format::damage::{DirDamage, DirFault};
use crate::format::dir::{COLLISIONS_MAX, NAME_BYTES_MAX};
use crate::format::inode::block_of;
use crate::inode::core::FileKind;

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The position in the directory: 16 to 2^63 - 1.
    pub position: u64,
    /// The number of its inode.
    pub ino: u64,
    /// The file type of the inode.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
}

impl DirEntry<'_> {
    /// Returns the inode of the entry, and its position.
    #[must_use]
    pub fn found(&self) -> Found {
        Found { position: self.position, ino: self.ino, kind: self.kind }
    }
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The position of the entry in the directory.
    pub position: u64,
    /// The inode.
    pub ino: u64,
    /// The file type of the inode.
    pub kind: FileKind,
}

/// Returns whether a file can have this name: 1 to 255 bytes, without `/` and NUL, neither `.` nor
/// `..`.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !matches!(name, b"." | b"..")
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// Returns the damage of the entry at `position` of directory `ino`.
pub(super) fn damage(ino: u64, position: u64, fault: DirFault) -> Damage {
    DirDamage { ino, position, fault }.into()
}

/// Checks that the inode of an entry of directory `dir` can be in the volume.
pub(super) fn possible<N: Nodes>(dir: u64, nodes: &N, found: Found) -> Result<Found, Damage> {
    let Found { position, ino, .. } = found;
    if nodes.is_possible(block_of(ino)) {
        return Ok(found);
    }
    Err(damage(dir, position, DirFault::Inode { ino }))
}

/// Returns the bit of a position among the sixteen from `base` on; 0 for another position.
pub(super) fn taken_bit(base: u64, position: u64) -> u16 {
    match position.checked_sub(base) {
        Some(index) if index < COLLISIONS_MAX => 1 << index,
        _ => 0,
    }
}
