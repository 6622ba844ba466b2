//! A driver for tests: names and inodes, no data and no limits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use crate::base::types::{FallocateFlags, StatFs};
use crate::mount::namespace::Vfs;
use crate::objects::driver::{FileOps, FileSystem, NameAccounting, Names, NewInode};
use crate::objects::inode::{Inode, InodeInit, InodeRef};
use crate::objects::super_block::SuperBlock;
use vfscale_sync::scaling::Scaling;

#[derive(Default)]
pub(crate) struct NamesOnly {
    /// The number of syncs of the whole file system.
    pub(crate) syncs: AtomicU32,
    /// Runs while a remount makes the file system read-only.
    pub(crate) while_sealed: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Runs for each call on data.
    pub(crate) on_data: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Runs for each evicted inode.
    pub(crate) on_evict: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Returns a tree with such a file system as its root.
pub(crate) fn names_only(scaling: Scaling) -> Vfs {
    Vfs::with_scaling(Arc::new(NamesOnly::default()), scaling).unwrap()
}

impl FileSystem for NamesOnly {
    fn name(&self) -> &'static str {
        "names"
    }

    fn names(&self) -> Names<'_> {
        Names::Cached(self)
    }

    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno> {
        Ok(sb.new_inode(InodeInit { mode: 0o040755, nlink: 2, ..InodeInit::default() }))
    }

    fn statfs(&self, _sb: &SuperBlock) -> StatFs {
        StatFs::default()
    }

    fn sync_fs(&self) -> Result<(), Errno> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn evict(&self, _: &Inode) {
        self.on_evict.get().inspect(|run| run());
    }

    fn set_read_only(&self, read_only: bool) -> Result<(), Errno> {
        if !read_only {
            return Ok(());
        }
        self.while_sealed.get().inspect(|run| run());
        self.sync_fs()
    }
}

impl FileOps for NamesOnly {
    fn read_at(&self, _: &Inode, _: u64, _: &mut [u8]) -> Result<usize, Errno> {
        self.on_data.get().inspect(|run| run());
        Ok(0)
    }

    fn write_at(&self, _: &Inode, _: u64, buf: &[u8]) -> Result<usize, Errno> {
        let run = self.on_data.get().ok_or(Errno::NOSPC)?;
        run();
        Ok(buf.len())
    }

    fn fallocate(&self, _: &Inode, _: FallocateFlags, _: u64, _: u64) -> Result<(), Errno> {
        self.on_data.get().inspect(|run| run());
        Ok(())
    }

    fn set_size(&self, inode: &Inode, size: u64) -> Result<(), Errno> {
        self.on_data.get().inspect(|run| run());
        inode.set_size(size);
        Ok(())
    }
}

impl NameAccounting for NamesOnly {
    fn create(&self, sb: &SuperBlock, new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        let is_dir = new.mode & 0o170000 == 0o040000;
        let nlink = u32::from(new.name_len > 0) + u32::from(is_dir);
        Ok(sb.new_inode(InodeInit { mode: new.mode, nlink, ..InodeInit::default() }))
    }

    fn link(&self, _: &Inode, _: usize) -> Result<(), Errno> {
        Ok(())
    }

    fn charge(&self, _: u64) -> Result<(), Errno> {
        Ok(())
    }
}
