//! Files without a name: pipes, sockets, and files of memory.
//!
//! # Purpose
//!
//! Such files belong to internal file systems, which no path reaches: a pipe to `pipefs`, a socket
//! ([`crate::ipc::socket`]) to `sockfs`, a file of memory
//! ([`memfd_create`](crate::Calls::memfd_create), [`crate::objects::memfd_seals`]) to another
//! instance of the driver, which the tree's owner sets for this purpose. A tree makes each of them
//! when it is first needed, with a mount that is attached nowhere.
//!
//! # No shared cache lines
//!
//! The kernel of 2.6 hung the dentry of every pipe and socket below the root of its file system,
//! under `dcache_lock`, and took its inode number from one counter, so all CPUs contended for both
//! (Piggin 2009), although no lookup ever uses that table. So here a dentry of this kind has no
//! parent and is on no list: making and closing such a file uses only the CPU's own supply of
//! memory and inode numbers, and its own list of open files.
//! The patch `pseudo` of [`Scaling`](crate::Scaling) can be disabled.
//!
//! # References
//!
//! The state that the trees share ([`VfsShared`]) holds one use of each of these mounts until it
//! ends, and every file one more. Only the files hold a dentry without a parent; it is freed with
//! the last of them.

use std::sync::{Arc, OnceLock};

pub use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use vfscale_sync::rcu::Guard;

use crate::base::types::{FallocateFlags, FileType, MountFlags, StatFs};
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::driver::{FileOps, FileSystem, NameAccounting, Names, NewInode};
use crate::objects::inode::{Inode, InodeInit, InodeRef};
use crate::objects::super_block::SuperBlock;
use crate::objects::super_ref::SuperRef;
use crate::objects::vfsmount::{Mount, OwnedMount};

/// The options of mounts that are attached nowhere: every access time is stored, as in Linux.
pub(crate) const INTERNAL_FLAGS: MountFlags = MountFlags::STRICTATIME;

/// A driver of an internal file system.
type Driver = Arc<dyn FileSystem>;

/// Makes the driver for files of memory.
type Make = Box<dyn Fn() -> Driver + Send + Sync>;

/// A new mount of an internal file system, or the error of its driver.
type Mounted = Result<OwnedMount, Errno>;

/// The file systems of a tree that no path reaches.
#[derive(Default)]
pub(crate) struct Pseudo {
    pipes: OnceLock<OwnedMount>,
    sockets: OnceLock<OwnedMount>,
    memory: OnceLock<OwnedMount>,
    memory_driver: OnceLock<Make>,
}

impl Pseudo {
    /// Sets the driver for files of memory, which `make` makes for the first of them.
    ///
    /// # Errors
    /// `EBUSY` if there is one.
    pub(super) fn set_memory_driver(&self, make: Make) -> Result<(), Errno> {
        self.memory_driver.set(make).map_err(|_| Errno::BUSY)
    }

    /// Returns the mount for pipes; `mount` makes it if this is the first call.
    pub(super) fn pipes(&self, mount: impl FnOnce(Driver) -> Mounted) -> Result<&Mount, Errno> {
        mount_in(&self.pipes, || mount(Arc::new(PseudoFs { name: "pipefs", magic: 0x5049_5045 })))
    }

    /// Returns the mount for sockets; `mount` makes it if this is the first call.
    pub(super) fn sockets(&self, mount: impl FnOnce(Driver) -> Mounted) -> Result<&Mount, Errno> {
        mount_in(&self.sockets, || mount(Arc::new(PseudoFs { name: "sockfs", magic: 0x534f_434b })))
    }

    /// Returns the mount for files of memory; `mount` makes it if this is the first call.
    ///
    /// # Errors
    /// `ENOSYS` if the tree has no driver for them.
    pub(super) fn memory(&self, mount: impl FnOnce(Driver) -> Mounted) -> Result<&Mount, Errno> {
        mount_in(&self.memory, || mount(self.memory_driver.get().ok_or(Errno::NOSYS)?()))
    }

    /// Returns the superblocks of the internal file systems made so far.
    pub(crate) fn super_blocks(&self) -> Vec<SuperRef> {
        let slots = [&self.pipes, &self.sockets, &self.memory];
        slots.into_iter().filter_map(|slot| Some(slot.get()?.sb().clone())).collect()
    }
}

/// Returns the mount in `slot`, which the first call makes.
#[inline]
fn mount_in(slot: &OnceLock<OwnedMount>, mount: impl FnOnce() -> Mounted) -> Result<&Mount, Errno> {
    if let Some(mount) = slot.get() {
        return Ok(mount);
    }
    // If another thread set the slot first, this mount was never visible.
    drop(slot.set(mount()?));
    slot.get().map(|mount| &**mount).ok_or(Errno::NOMEM)
}

/// Creates a dentry for a file without a name, owned by the returned reference. Without the patch
/// it is a child of the root of its file system.
pub(crate) fn new_dentry(
    sb: &SuperBlock,
    name: &[u8],
    inode: InodeRef,
    guard: &Guard,
) -> DentryRef {
    if sb.scaling().pseudo() {
        return Dentry::new_pseudo(sb, name, inode);
    }
    Dentry::new_attached(sb, name, SuperBlock::ino_hash(inode.ino()), inode, guard)
}

/// Returns the text that `readlink` of a descriptor returns for a file without a name.
pub(crate) fn path(dentry: &Dentry, guard: &Guard) -> Vec<u8> {
    let name = dentry.name(guard);
    let ino = dentry.inode().ino();
    match dentry.inode().file_type() {
        FileType::Fifo => format!("pipe:[{ino}]").into_bytes(),
        FileType::Socket => format!("socket:[{ino}]").into_bytes(),
        _ => [b"/".as_slice(), name, b" (deleted)"].concat(),
    }
}

/// The driver of pipes and sockets: it stores inodes without data.
struct PseudoFs {
    name: &'static str,
    magic: u64,
}

impl FileSystem for PseudoFs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn names(&self) -> Names<'_> {
        Names::Cached(self)
    }

    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno> {
        let mode = FileType::Directory.as_raw_mode() | 0o555;
        Ok(sb.new_inode(InodeInit { mode, nlink: 2, ..InodeInit::default() }))
    }

    fn statfs(&self, _: &SuperBlock) -> StatFs {
        StatFs { magic: self.magic, block_size: 4096, name_max: 255, ..StatFs::default() }
    }
}

impl FileOps for PseudoFs {
    fn read_at(&self, _: &Inode, _: u64, _: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::SPIPE)
    }

    fn write_at(&self, _: &Inode, _: u64, _: &[u8]) -> Result<usize, Errno> {
        Err(Errno::SPIPE)
    }

    fn set_size(&self, _: &Inode, _: u64) -> Result<(), Errno> {
        Err(Errno::INVAL)
    }

    fn fallocate(&self, _: &Inode, _: FallocateFlags, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::SPIPE)
    }

    fn seek_data(&self, _: &Inode, _: u64) -> Result<u64, Errno> {
        Err(Errno::SPIPE)
    }

    fn seek_hole(&self, _: &Inode, _: u64) -> Result<u64, Errno> {
        Err(Errno::SPIPE)
    }

    fn sync(&self, _: &Inode, _: bool) -> Result<(), Errno> {
        Err(Errno::INVAL)
    }
}

impl NameAccounting for PseudoFs {
    fn create(&self, _: &SuperBlock, _: &NewInode<'_>) -> Result<InodeRef, Errno> {
        Err(Errno::PERM)
    }

    fn link(&self, _: &Inode, _: usize) -> Result<(), Errno> {
        Err(Errno::PERM)
    }
}
