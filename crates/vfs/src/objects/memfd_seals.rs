//! Seals of memfds (`F_ADD_SEALS`): operations that are forbidden on a file from then on, through
//! every open file.
//!
//! A program that receives memory from another one can check the seals and then trust that the
//! size, or the contents, won't change. A seal is never removed.
//!
//! # Invariants
//!
//! * Seals are added, and checked for a change, under the inode's lock: a change that passed the
//!   check is complete before a seal is added.
//! * Files that can't be sealed have no extra cost: a write checks for seals and for a backed
//!   driver with one read of the inode's flags.

use rustix::io::Errno;

use crate::base::error::Outcome;
use crate::base::lock_classes::InodeData;
use crate::base::types::FallocateFlags;
use crate::objects::inode::Inode;
use crate::objects::inode_ext::InodeExt;
use crate::objects::seals::{AS_IT_IS, NO_WRITES, SealFlags, Seals};
use vfscale_sync::lock::assert_held;

/// Unit of a partial write to a file whose size is sealed.
const PAGE_BYTES: u64 = 4096;

impl Seals {
    /// Returns the seals of an inode, if it can have any.
    #[cold]
    pub(crate) fn of(inode: &Inode) -> Option<&Seals> {
        match inode.stream() {
            Some(InodeExt::Memory(seals)) => Some(seals),
            _ => None,
        }
    }

    /// Adds seals.
    ///
    /// # Errors
    /// `EPERM` if the file is sealed against seals.
    pub(crate) fn add(&self, inode: &Inode, mut seals: SealFlags) -> Outcome<()> {
        assert_held::<InodeData>();
        let now = self.get();
        if now.contains(SealFlags::SEAL) {
            return Err(Errno::PERM);
        }
        if seals.contains(SealFlags::EXEC) && inode.mode() & 0o111 != 0 {
            seals |= AS_IT_IS;
        }
        self.set(now | seals);
        Ok(())
    }
}

/// Returns the seals of an inode, none for most.
#[inline]
fn sealed(inode: &Inode) -> SealFlags {
    assert_held::<InodeData>();
    seals_now(inode)
}

/// Returns the present seals of an inode; another thread may add some meanwhile.
#[inline]
fn seals_now(inode: &Inode) -> SealFlags {
    if inode.is_sealable() {
        Seals::of(inode).map_or(SealFlags::empty(), Seals::get)
    } else {
        SealFlags::empty()
    }
}

/// Returns the number of bytes of `len` that may be written at `offset`: with a size that may not
/// grow, whole pages, as in Linux.
///
/// # Errors
/// Returns `EPERM` if there are none.
pub(crate) fn check_write(inode: &Inode, offset: u64, len: usize) -> Outcome<usize> {
    let seals = sealed(inode);
    if seals.intersects(NO_WRITES) {
        return Err(Errno::PERM);
    }
    let size = inode.size();
    if !seals.contains(SealFlags::GROW) || offset.saturating_add(len as u64) <= size {
        return Ok(len);
    }
    let pages_end = size - size % PAGE_BYTES;
    match usize::try_from(pages_end.saturating_sub(offset)) {
        Ok(0) | Err(_) => Err(Errno::PERM),
        Ok(some) => Ok(some),
    }
}

/// Checks that the size may become `size`.
///
/// # Errors
/// Returns `EPERM` if a seal forbids it.
#[inline]
pub(crate) fn check_size(inode: &Inode, size: u64) -> Outcome<()> {
    let (seals, before) = (sealed(inode), inode.size());
    let shrinks = size < before && seals.contains(SealFlags::SHRINK);
    let grows = size > before && seals.contains(SealFlags::GROW);
    if shrinks || grows { Err(Errno::PERM) } else { Ok(()) }
}

/// Checks that a range may be allocated, punched or zeroed.
///
/// # Errors
/// Returns `EPERM` if a seal forbids it.
#[inline]
pub(crate) fn check_fallocate(inode: &Inode, mode: FallocateFlags, end: u64) -> Outcome<()> {
    let seals = sealed(inode);
    let punches = mode.contains(FallocateFlags::PUNCH_HOLE);
    let changes = punches || mode.contains(FallocateFlags::ZERO_RANGE);
    // Space past the end is room to grow, too.
    let grows = !punches && end > inode.size();
    let forbidden = changes && seals.intersects(NO_WRITES);
    if forbidden || (grows && seals.contains(SealFlags::GROW)) { Err(Errno::PERM) } else { Ok(()) }
}

/// Checks that the permission bits may become `mode`. Without the inode's lock only a refusal is
/// certain, because seals stay.
///
/// # Errors
/// Returns `EPERM` if a seal forbids it.
#[inline]
pub(crate) fn check_mode(inode: &Inode, mode: u32) -> Outcome<()> {
    let changes = (inode.mode() ^ mode) & 0o111 != 0;
    if changes && seals_now(inode).contains(SealFlags::EXEC) { Err(Errno::PERM) } else { Ok(()) }
}
