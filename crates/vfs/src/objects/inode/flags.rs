//! The flags of an inode that `chattr(1)` sets.
//!
//! They lie in `kind`, next to the type: every check of them finds them on a cache line that the
//! walk has read, and that hardly anything writes.

use vfscale_sync::atomic::Ordering;

use super::{Inode, SYNC};
use crate::base::types::{InodeFlags, OFlags};

/// Each flag, and its bit in `kind`.
const BITS: [(InodeFlags, u32); InodeFlags::COUNT] = [
    (InodeFlags::IMMUTABLE, IMMUTABLE),
    (InodeFlags::APPEND, APPEND),
    (InodeFlags::NOATIME, NOATIME),
    (InodeFlags::NODUMP, 1 << 24),
    (InodeFlags::SYNC, SYNC),
    (InodeFlags::DIRSYNC, DIRSYNC),
];

const IMMUTABLE: u32 = 1 << 21;
const APPEND: u32 = 1 << 22;
const NOATIME: u32 = 1 << 23;
const DIRSYNC: u32 = 1 << 26;
/// All of these bits.
const ALL: u32 = {
    let (mut all, mut at) = (0, 0);
    while at < BITS.len() {
        all |= BITS[at].1;
        at += 1;
    }
    all
};

/// Returns the bits of `flags` in `kind`.
fn kind_of(flags: InodeFlags) -> u32 {
    let of = |(flag, bit)| if flags.contains(flag) { bit } else { 0 };
    BITS.into_iter().map(of).fold(0, |all, bit| all | bit)
}

impl Inode {
    #[inline]
    fn has_bit(&self, bits: u32) -> bool {
        self.kind.load(Ordering::Relaxed) & bits != 0
    }

    /// Returns its flags.
    #[inline]
    pub fn flags(&self) -> InodeFlags {
        let kind = self.kind.load(Ordering::Relaxed);
        if kind & ALL == 0 { InodeFlags::empty() } else { Inode::flags_of(kind) }
    }

    /// Returns the flags with these bits in `kind`.
    #[cold]
    fn flags_of(kind: u32) -> InodeFlags {
        let set = BITS.into_iter().filter(|(_, bit)| kind & bit != 0);
        set.fold(InodeFlags::empty(), |flags, (flag, _)| flags | flag)
    }

    /// Replaces its flags. The caller holds the lock, or no other thread has seen the inode.
    #[cold]
    #[inline(never)]
    pub(crate) fn set_flags(&self, flags: InodeFlags) {
        let changed = (self.kind.load(Ordering::Relaxed) ^ kind_of(flags)) & ALL;
        if changed != 0 {
            self.kind.fetch_xor(changed, Ordering::Relaxed);
        }
    }

    /// Returns whether nobody gets write access to it.
    #[inline]
    pub(crate) fn is_immutable(&self) -> bool {
        self.has_bit(IMMUTABLE)
    }

    /// Returns whether it is only appended to.
    #[inline]
    pub(crate) fn is_append(&self) -> bool {
        self.has_bit(APPEND)
    }

    /// Returns whether its names, owner, permissions and extended attributes are fixed.
    #[inline]
    pub(crate) fn is_immutable_or_append(&self) -> bool {
        self.has_bit(IMMUTABLE | APPEND)
    }

    /// Returns whether the flags of a directory, this one, or those of `victim` forbid the removal
    /// of a name of `victim`.
    #[inline]
    pub(crate) fn keeps_names_of(&self, victim: &Inode) -> bool {
        let kind = |inode: &Inode| inode.kind.load(Ordering::Relaxed);
        (kind(self) & APPEND) | (kind(victim) & (IMMUTABLE | APPEND)) != 0
    }

    /// Returns whether reads leave its access time alone.
    #[inline]
    pub(crate) fn keeps_atime(&self) -> bool {
        self.has_bit(NOATIME)
    }

    /// Returns whether its changes are durable when their calls return.
    #[inline]
    pub(crate) fn is_sync(&self) -> bool {
        self.has_bit(SYNC)
    }

    /// Returns the flags of open files that make writes as durable as the flag of the inode does.
    #[inline]
    pub(crate) fn sync_flags(&self) -> OFlags {
        if self.is_sync() { OFlags::SYNC } else { OFlags::empty() }
    }

    /// Returns whether changes of the names in it are durable when their calls return.
    #[inline]
    pub(crate) fn is_dirsync(&self) -> bool {
        self.has_bit(SYNC | DIRSYNC)
    }
}
