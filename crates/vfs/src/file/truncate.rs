//! Truncation of a file by its inode, and the set-id bits that a change of data preserves.

use rustix::io::Errno;
use vfscale_sync::lock::assert_held;
use vfscale_sync::rcu;

use crate::base::error::{Outcome, Result, check_fork};
use crate::base::lock_classes::InodeData;
use crate::base::types::Capabilities;
use crate::file::failed::OnFile;
use crate::file::open_file::{File, check_offset, drop_privileges, keeps_privileges};
use crate::file::synchronous::sync_change;
use crate::objects::file_description::FileMode;
use crate::objects::inode::Inode;
use crate::objects::memfd_seals;
use crate::security::cred::Credentials;

/// The minimum number of truncated bytes for which this thread passes freed memory on immediately.
const FLUSH_BYTES: u64 = 1 << 20;

/// Truncates or extends a regular file. `keep_ids` contains the rights to preserve set-id bits;
/// `always` sets the times even if the size does not change.
pub(crate) fn truncate_inode(
    inode: &Inode,
    size: u64,
    keep_ids: FileMode,
    always: bool,
) -> Outcome<()> {
    if truncate_unlocked(inode, size, keep_ids, always)? {
        return Ok(());
    }
    let locked = inode.lock();
    let freed = truncate_locked(inode, size, keep_ids, always)?;
    drop(locked);
    hand_over(inode, freed);
    sync_change(inode)
}

/// Truncates or extends a regular file of a driver without directories, for a caller that is in the
/// RCU section of its walk and holds no reference. Returns false, and changes nothing, if it would
/// have to wait for the lock, whose holder may take long.
pub(crate) fn truncate_in_section(inode: &Inode, size: u64, keep_ids: FileMode) -> Outcome<bool> {
    if truncate_unlocked(inode, size, keep_ids, false)? {
        return Ok(true);
    }
    let Some(locked) = inode.try_lock() else { return Ok(false) };
    let freed = truncate_locked(inode, size, keep_ids, false)?;
    drop(locked);
    hand_over(inode, freed);
    Ok(true)
}

/// Truncates a file without its lock, if that changes only the times. Returns whether it does.
#[inline]
fn truncate_unlocked(inode: &Inode, size: u64, keep_ids: FileMode, always: bool) -> Outcome<bool> {
    if size > inode.sb().fs().size_max() {
        return Err(Errno::FBIG);
    }
    let is_done = has_that_size(inode, size, keep_ids);
    if is_done && (always || inode.blocks() > 0) {
        inode.touch();
    }
    Ok(is_done)
}

/// Truncates a file. Returns the number of bytes that were cut off.
fn truncate_locked(inode: &Inode, size: u64, keep_ids: FileMode, always: bool) -> Outcome<u64> {
    assert_held::<InodeData>();
    memfd_seals::check_size(inode, size)?;
    let before = inode.size();
    // Setting the current size also frees preallocated space beyond it, and counts as a change of
    // the data if there could be any.
    let has_space = inode.blocks() > 0;
    inode.sb().fs().set_size(inode, size)?;
    drop_privileges(inode, keep_ids)?;
    if size != before || has_space || always {
        inode.touch_in_passing();
    }
    Ok(before.saturating_sub(size))
}

/// Passes deferred work on to other threads if a truncation freed much memory: otherwise that
/// memory would wait until this thread frees memory again. The caller holds no lock.
fn hand_over(inode: &Inode, freed: u64) {
    if freed >= FLUSH_BYTES && !inode.is_backed() {
        rcu::pin().hand_over();
    }
}

/// Returns whether truncating a file to `size` changes only its times. Needs no lock: the file has
/// that size before and after the check for space beyond it, and no privileges that a change
/// removes.
fn has_that_size(inode: &Inode, size: u64, keep_ids: FileMode) -> bool {
    !inode.is_backed()
        && !inode.is_sealable()
        && inode.size() == size
        && !inode.sb().fs().has_space_beyond(inode, size)
        && inode.size() == size
        && keeps_privileges(inode, keep_ids)
}

/// Returns the rights of `cred` to preserve the set-id bits of `inode` when it changes the data.
pub(crate) fn preserved_ids(cred: &Credentials, inode: &Inode) -> FileMode {
    let mut kept = FileMode::empty();
    kept.set(FileMode::FSETID, cred.has(Capabilities::FSETID));
    // A caller that preserves all of them needs no further checks.
    if !kept.contains(FileMode::FSETID) {
        kept.set(FileMode::GROUP, cred.in_group(inode.gid()));
    }
    kept
}

impl File {
    /// Truncates or extends the file to `size` bytes (`ftruncate`).
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle, `EINVAL` if not a regular file open for writing or for a
    /// size above `i64::MAX`, `EPERM` if the file is only appended to, `EFBIG`, `ENOSPC`.
    pub fn truncate(&self, size: u64) -> Result<()> {
        let truncate = || {
            check_fork()?;
            check_offset(size)?;
            if self.is_path() {
                return Err(Errno::BADF);
            }
            let inode = self.inode();
            if !inode.is_file() {
                return Err(Errno::INVAL);
            }
            if !self.mode().contains(FileMode::WRITE) {
                return Err(Errno::INVAL);
            }
            if inode.is_append() {
                return Err(Errno::PERM);
            }
            truncate_inode(inode, size, self.mode(), true)?;
            self.0.changed();
            Ok(())
        };
        self.with_space(truncate).of("ftruncate", &self.0)
    }
}
