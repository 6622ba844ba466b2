//! The inode that has a number.

use vfscale_diskfs::InodeCore;

/// Number, generation and type: they tell whether two inodes are the same one.
pub(crate) type Object = (u64, u32, u32);

pub(super) fn object(ino: u64, core: &InodeCore) -> Object {
    (ino, core.generation, core.file_type())
}

/// Returns whether two inodes with one number are the same one.
pub(crate) fn is_same(ino: u64, one: &InodeCore, other: &InodeCore) -> bool {
    object(ino, one) == object(ino, other)
}
