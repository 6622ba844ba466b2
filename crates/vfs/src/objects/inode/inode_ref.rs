//! Counted references to inodes.

use std::ptr::NonNull;

use super::Inode;

/// A counted reference to an inode.
pub struct InodeRef(pub(super) NonNull<Inode>);

// SAFETY: `Inode` is `Sync`, and the count is atomic.
unsafe impl Send for InodeRef {}

// SAFETY: `Inode` is `Sync`, and the count is atomic.
unsafe impl Sync for InodeRef {}

impl InodeRef {
    /// Takes over one reference that `inode` already counts.
    ///
    /// # Safety
    /// The caller owns that reference and passes it on.
    pub(crate) unsafe fn from_raw(inode: NonNull<Inode>) -> InodeRef {
        InodeRef(inode)
    }

    /// Passes the reference on without counting it down.
    pub(crate) fn into_raw(self) -> NonNull<Inode> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }
}

impl std::ops::Deref for InodeRef {
    type Target = Inode;
    fn deref(&self) -> &Inode {
        // SAFETY: the counted reference prevents eviction of the inode.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> InodeRef {
        self.get();
        InodeRef(self.0)
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        let guard = vfscale_sync::rcu::pin();
        self.put(&guard);
    }
}
