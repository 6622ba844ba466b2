//! Whiteouts: the files that `RENAME_WHITEOUT` leaves in place of the renamed ones.
//!
//! A whiteout is a character device 0:0 without permissions. In the upper directory of an overlay
//! file system it hides a name of the lower one. Making one takes no privilege, as in Linux since
//! 5.8; its owner is the caller.

use rustix::io::Errno;

use crate::base::types::RenameFlags;
use crate::objects::dcache::children::InsertMoved;
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::inode::InodeRef;
use crate::syscalls::create::{WHITEOUT, make_inode, unname};
use crate::syscalls::rename::{Locks, RenameCall};

impl<'g> RenameCall<'g> {
    /// Makes the inode of the whiteout if one is requested, and charges its name.
    ///
    /// # Errors
    /// The errors of the driver.
    pub(super) fn make_whiteout(&self) -> Result<Option<InodeRef>, Errno> {
        if !self.flags.contains(RenameFlags::WHITEOUT) {
            return Ok(None);
        }
        let (dir, name_len) = (self.old.dir.inode(), self.old.name.len());
        make_inode(dir, &WHITEOUT, name_len, self.cred, 0, self.guard).map(Some)
    }

    /// Uncharges the name of a whiteout that is not inserted.
    pub(super) fn unmake_whiteout(&self, whiteout: &InodeRef) {
        unname(whiteout, self.old.name.len());
    }

    /// Inserts the whiteout under the old name, which the source has just lost. The caller drops
    /// the dentry after it releases the locks.
    pub(super) fn insert_whiteout<const N: usize>(
        &self,
        locks: &mut Locks<'g, N>,
        inode: InodeRef,
    ) -> DentryRef {
        let hash = locks.free_hash(0, self.old.name.hash());
        let dentry = Dentry::new_child(self.old.dir, self.old.name.bytes(), hash, inode);
        locks.insert_moved(0, &dentry);
        dentry
    }
}
