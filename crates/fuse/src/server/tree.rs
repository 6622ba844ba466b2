//! The tree that a mount serves, which a [switch](super::switch) replaces.

use std::sync::Arc;

use vfscale::posix::{FileHandle, OFlags};
use vfscale::{File, Mode, Task, Vfs};
use vfscale_sync::lock_class;

lock_class! {
    /// Requests to a mount, against the replacement of its contents (a brlock).
    pub(super) MountGate = ("mount_gate", 5) sleeping;
}

/// The tree that is served.
pub(crate) struct Tree {
    /// A task with all rights, umask 0, and the root as its working directory.
    pub(super) base: Task,
    /// How many trees there were before.
    pub(super) era: u64,
    /// The root, for reading.
    root: File,
}

impl Tree {
    /// Opens the root of `vfs`. Also returns its handle by name.
    pub(super) fn new(vfs: &Vfs, era: u64) -> vfscale::Result<(Arc<Self>, File)> {
        let base = vfs.task();
        base.umask(Mode::empty());
        let named = base.posix().open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME;
        let root = base.posix().open("/", flags, Mode::empty())?;
        Ok((Arc::new(Self { base, era, root }), named))
    }

    /// Opens an inode that was known before the switch.
    pub(super) fn find(&self, ino: u64, generation: u32) -> vfscale::Result<File> {
        let dev = self.root.stat()?.dev;
        let handle = FileHandle { dev, ino, generation };
        self.base.posix().open_by_handle_at(&self.root, &handle, OFlags::PATH)
    }
}
