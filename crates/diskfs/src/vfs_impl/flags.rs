//! The flags of inodes: their bits on disk, and the feature of a volume that has guarded files.

use vfscale_vfs::types::InodeFlags;

use super::disk_fs::DiskFs;
use crate::base::fault::Fault;
use crate::format::inode::{
    FLAG_APPEND, FLAG_DIRSYNC, FLAG_IMMUTABLE, FLAG_NOATIME, FLAG_NODUMP, FLAG_SYNC,
};
use crate::format::superblock::Features;
use crate::inode::core::InodeCore;

/// Each flag, and its bit in a record.
const BITS: [(InodeFlags, u16); InodeFlags::COUNT] = [
    (InodeFlags::SYNC, FLAG_SYNC),
    (InodeFlags::IMMUTABLE, FLAG_IMMUTABLE),
    (InodeFlags::APPEND, FLAG_APPEND),
    (InodeFlags::NODUMP, FLAG_NODUMP),
    (InodeFlags::NOATIME, FLAG_NOATIME),
    (InodeFlags::DIRSYNC, FLAG_DIRSYNC),
];

/// Returns the flags that a record stores. Bits without a meaning are no flags.
pub(super) fn of_record(bits: u16) -> InodeFlags {
    let set = BITS.into_iter().filter(|(_, bit)| bits & bit != 0);
    set.fold(InodeFlags::empty(), |flags, (flag, _)| flags | flag)
}

/// Returns the flags of an inode. Only files and directories have those that guard them: of others
/// a damaged record may have the bits, and no call could clear them.
pub(super) fn flags_of(core: &InodeCore) -> InodeFlags {
    let flags = of_record(core.flags);
    let has_all = core.is_regular() || core.is_directory();
    if has_all { flags } else { flags.difference(InodeFlags::PRIVILEGED) }
}

/// Returns the bits of a record after a change to `flags`. Bits without a meaning stay.
pub(super) fn in_record(before: u16, flags: InodeFlags) -> u16 {
    BITS.into_iter().fold(
        before,
        |bits, (flag, bit)| {
            if flags.contains(flag) { bits | bit } else { bits & !bit }
        },
    )
}

impl InodeCore {
    /// Returns the flags of the inode. Bits without a meaning are no flags.
    #[must_use]
    pub fn inode_flags(&self) -> InodeFlags {
        flags_of(self)
    }
}

impl DiskFs {
    /// Returns whether the volume may have files that are immutable or only appended to.
    pub(super) fn has_immutable(&self) -> bool {
        self.volume.superblock().features.has_immutable()
    }

    /// Notes in the superblock that the volume may have such files, if `flags` make one. Durable
    /// when it returns, and so before the flags are: a program that does not know them only reads
    /// the volume. Blocks for I/O.
    pub(super) fn note_immutable(&self, flags: InodeFlags) -> Result<(), Fault> {
        if !flags.intersects(InodeFlags::PRIVILEGED) || self.has_immutable() {
            return Ok(());
        }
        self.volume
            .update_superblock(|superblock| superblock.features.ro_compat |= Features::IMMUTABLE)
    }
}

#[cfg(test)]
mod tests;
