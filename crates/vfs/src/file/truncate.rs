//! Truncation of a file by its inode, and the set-id bits that a change of data preserves.

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Named, Result, check_fork};
use crate::base::types::Capabilities;
use crate::file::open_file::{File, check_offset, drop_privileges, keeps_privileges};
use crate::objects::file_description::FileMode;
use crate::objects::inode::Inode;
use crate::objects::memfd_seals;
use crate::security::cred::Credentials;

/// A cut of this many bytes is worth handing freed memory over at once.
const FLUSH_BYTES: u64 = 1 << 20;

/// Cuts or extends a regular file. `keep_ids` tells of the rights to keep set-id bits; `always`
/// sets the times even when the size stays.
pub(crate) fn truncate_inode(
    inode: &Inode,
    size: u64,
    keep_ids: FileMode,
    always: bool,
) -> std::result::Result<(), Errno> {
    let fs = inode.sb().fs();
    if size > fs.size_max() {
        return Err(Errno::FBIG);
    }
    if has_that_size(inode, size, keep_ids) {
        if always || inode.blocks() > 0 {
            inode.touch();
        }
        return Ok(());
    }
    let locked = inode.lock();
    memfd_seals::check_size(inode, size)?;
    let before = inode.size();
    // Setting the current size also frees preallocated space beyond it, and counts as a change of
    // the data if there could be any.
    let has_space = inode.blocks() > 0;
    fs.set_size(inode, size)?;
    drop_privileges(inode, keep_ids)?;
    if size != before || has_space || always {
        inode.touch_in_passing();
    }
    drop(locked);
    if before.saturating_sub(size) >= FLUSH_BYTES && !inode.is_backed() {
        // Much memory should not wait until this thread frees something again.
        rcu::pin().flush();
    }
    Ok(())
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
pub(crate) fn kept_ids(cred: &Credentials, inode: &Inode) -> FileMode {
    let mut kept = FileMode::empty();
    kept.set(FileMode::FSETID, cred.has(Capabilities::FSETID));
    // A caller that preserves all of them needs no further checks.
    if !kept.contains(FileMode::FSETID) {
        kept.set(FileMode::GROUP, cred.in_group(inode.gid()));
    }
    kept
}

impl File {
    /// Cuts or extends the file to `size` bytes (`ftruncate`).
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle, `EINVAL` if not a regular file open for writing or for a
    /// size above `i64::MAX`, `EFBIG`, `ENOSPC`.
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
            truncate_inode(inode, size, self.mode(), true)
        };
        self.with_space(truncate).named("ftruncate")
    }
}
