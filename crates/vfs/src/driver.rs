//! The driver trait: what a file system provides below the VFS.
//!
//! The VFS walks paths, checks permissions, keeps names, link counts and times, and calls the
//! driver for what only the driver knows: memory or disk for an inode, and the data in it.
//!
//! Names live in the dcache, unless the driver says otherwise: the children table of a directory *is*
//! the directory, as in the kernel's ramfs, and every dentry that has a name is pinned by that name.
//! The driver is told of names coming and going ([`FileSystem::link`], [`FileSystem::unlinked`]) so
//! that it can charge them.
//!
//! A driver that keeps directories itself has [`Directories`], of which the dcache then is a cache: what
//! is not in it is asked for, and what nobody uses is dropped when it grows too large
//! ([`SuperBlock::set_cache_limit`]). Such a file system is read-only: there is no call yet that changes a
//! directory of a driver.
//!
//! # Locks the VFS holds
//!
//! | call | held |
//! | --- | --- |
//! | `create`, `link`, `renamed`, `unlinked` | the bucket lock of the name; no inode lock |
//! | `write_at`, `set_size`, `fallocate` | the inode's lock, exclusively |
//! | `read_at`, `seek_data`, `seek_hole`, `get_link` | nothing; they may run beside the ones above |
//! | `evict` | nothing; nobody else can reach the inode |
//! | `Directories::lookup`, `read_dir` | nothing, not even an RCU section: they may wait for a disk |
//! | `Directories::is_current` | nothing, in an RCU section |
//!
//! Calls that get a [`Guard`] run inside an RCU section and must not
//! block for long.

use std::ops::ControlFlow;

use rustix::io::Errno;
use vfscale_sync::rcu::Guard;

use crate::inode::{Inode, InodeRef};
use crate::readdir::DirEntry;
use crate::super_block::SuperBlock;
use crate::types::{FallocateFlags, StatFs};

/// What a new inode is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// Type and permission bits, umask and default ACL already applied.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device number of a device node.
    pub rdev: u64,
    /// What a symbolic link holds; `None` for anything else.
    pub target: Option<&'a [u8]>,
    /// The length of the name it will get, in bytes; 0 for a file without one (`O_TMPFILE`).
    pub name_len: usize,
}

/// What a driver has found under a name.
pub struct Found {
    /// The inode, or `None` if there is no such name.
    pub inode: Option<InodeRef>,
    /// Whether this may change without the VFS having a part in it, so that every walk that comes by has
    /// to ask [`Directories::is_current`].
    pub check: bool,
}

/// Where a directory is, and what it is called there.
pub struct ParentName {
    /// The directory that it is in.
    pub parent: InodeRef,
    /// Its name.
    pub name: Box<[u8]>,
}

/// Directories that the driver keeps itself.
///
/// Inodes come from [`SuperBlock::iget`], so that one file under two names has one inode. A directory has
/// one name at a time: where it is found under another, the old one leaves the dcache.
pub trait Directories: Send + Sync {
    /// Looks `name` (1 to 255 bytes, neither `.` nor `..`, without `/` and NUL) up in `dir`. One thread at
    /// a time asks for one name in one directory. May block.
    ///
    /// # Errors
    /// `EIO` and the like; a name that does not exist is no error. Errors are not remembered.
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Found, Errno>;

    /// Calls `emit` with the names in `dir` behind position `pos`, without `.` and `..`, until it breaks.
    /// Positions are the driver's, from 3 on ([`DirEntry::next`] is that behind the entry), at most
    /// `i64::MAX`, and 2 is the beginning. An entry that is there throughout is returned exactly once,
    /// whatever else changes. May block.
    ///
    /// # Errors
    /// `EIO` and the like.
    fn read_dir(
        &self,
        dir: &Inode,
        pos: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Errno>;

    /// The inode with this number, from [`SuperBlock::iget`], for a file handle that is older than the cache;
    /// `None` if there is no such file any more. May block.
    ///
    /// A driver that doesn't know its inodes by number leaves it at that: handles then are good for as long
    /// as the inode is in use.
    ///
    /// # Errors
    /// `EIO` and the like.
    fn inode(&self, sb: &SuperBlock, ino: u64, generation: u32) -> Result<Option<InodeRef>, Errno> {
        let _ = (sb, ino, generation);
        Ok(None)
    }

    /// The directory that `dir`, which is not the root, is in, and its name there; `None` if it is in none
    /// any more. Asked for directories that come from [`inode`](Self::inode). May block.
    ///
    /// # Errors
    /// `EIO` and the like.
    fn parent(&self, dir: &Inode) -> Result<Option<ParentName>, Errno> {
        let _ = dir;
        Ok(None)
    }

    /// Whether `name` in `dir` still is what [`lookup`](Self::lookup) said, if that asked for it
    /// ([`Found::check`]). Must not block.
    fn is_current(&self, dir: &Inode, name: &[u8], inode: Option<&Inode>) -> bool {
        let _ = (dir, name, inode);
        true
    }
}

/// A file system driver.
///
/// An inode is a part of its superblock. A driver that keeps [`InodeRef`]s lets go of them when it is told
/// to ([`put_super`](Self::put_super)); one that does not ends the process, which is better than what it
/// would point to.
///
/// One value serves one superblock, from any number of threads.
pub trait FileSystem: Send + Sync + 'static {
    /// The type's name, as in the third column of `/proc/mounts`.
    fn name(&self) -> &'static str;

    /// What is mounted, as in the first column of `/proc/mounts`: a device, or whatever else says what it
    /// is. The type's name by default.
    fn source(&self) -> String {
        self.name().to_owned()
    }

    /// The options that this file system is used with, as in the fourth column of `/proc/mounts`, with
    /// commas between them and none in front.
    fn options(&self) -> String {
        String::new()
    }

    /// The directories of a driver that keeps them itself; none where names live in the dcache. Always
    /// the same answer.
    fn directories(&self) -> Option<&dyn Directories> {
        None
    }

    /// Makes the root directory of a superblock that is being set up.
    ///
    /// # Errors
    /// `EBUSY` when this value serves a superblock already; whatever else stops the mount.
    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno>;

    /// The superblock ends: gives back every [`InodeRef`] that the driver has kept. Its tree is still
    /// there; nobody else can reach it.
    fn put_super(&self) {}

    /// Free and used space. `fsid` and `flags` are filled in by the VFS.
    fn statfs(&self, sb: &SuperBlock) -> StatFs;

    /// The largest size of a file in bytes; writes past it get `EFBIG`.
    fn size_max(&self) -> u64 {
        i64::MAX as u64
    }

    /// Makes an inode, with one link (a directory two, a file without a name none).
    ///
    /// # Errors
    /// `ENOSPC` when there is no room for it.
    fn create(&self, sb: &SuperBlock, new: &NewInode<'_>) -> Result<InodeRef, Errno>;

    /// Another name of `name_len` bytes is about to be made for `inode`.
    ///
    /// # Errors
    /// `ENOSPC`, `EMLINK`.
    fn link(&self, inode: &Inode, name_len: usize) -> Result<(), Errno>;

    /// A name of `name_len` bytes of `inode` is gone.
    fn unlinked(&self, inode: &Inode, name_len: usize);

    /// A name of `inode` is about to get another length in bytes, because it is being renamed.
    ///
    /// # Errors
    /// `ENOSPC`, but not for a name that gets no longer.
    fn renamed(&self, inode: &Inode, old_len: usize, new_len: usize) -> Result<(), Errno> {
        let _ = (inode, old_len, new_len);
        Ok(())
    }

    /// Nobody uses `inode` any more and it has no name (or the superblock ends): frees its data.
    fn evict(&self, inode: &Inode);

    /// Takes `bytes` from the space limit for what the VFS keeps with an inode: extended
    /// attributes and ACLs.
    ///
    /// # Errors
    /// `ENOSPC`.
    fn charge(&self, bytes: u64) -> Result<(), Errno>;

    /// Gives back what [`charge`](Self::charge) took.
    fn uncharge(&self, bytes: u64);

    /// Waits, but not for long, for space that was freed and may still be read, so that a call that
    /// failed with `ENOSPC` can be tried again; false if there is no such space. Called with nothing
    /// held, not even an RCU section.
    fn reclaim(&self) -> bool {
        false
    }

    /// Reads from `offset` into `buf`, to the end of the file at most; holes read as zeros.
    ///
    /// # Errors
    /// Device errors.
    fn read_at(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize, Errno>;

    /// Writes `buf` at `offset`, extending the file; `offset + buf.len()` is at most
    /// [`size_max`](Self::size_max). A shorter count than `buf.len()` means that space ran out.
    ///
    /// # Errors
    /// `ENOSPC` when not a byte could be written.
    fn write_at(&self, inode: &Inode, offset: u64, buf: &[u8]) -> Result<usize, Errno>;

    /// Cuts or extends (with a hole) the file to `size`.
    ///
    /// # Errors
    /// `ENOSPC`.
    fn set_size(&self, inode: &Inode, size: u64) -> Result<(), Errno>;

    /// `fallocate(2)`: allocate, with `KEEP_SIZE`, `PUNCH_HOLE | KEEP_SIZE`, `ZERO_RANGE`.
    /// `offset + len` has been checked against [`size_max`](Self::size_max), `len` is not 0.
    ///
    /// # Errors
    /// `ENOSPC` with nothing allocated, `EOPNOTSUPP` for other modes.
    fn fallocate(
        &self,
        inode: &Inode,
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno>;

    /// The first offset at or after `offset` that holds data.
    ///
    /// # Errors
    /// `ENXIO` when there is none, or `offset` is at or past the end.
    fn seek_data(&self, inode: &Inode, offset: u64) -> Result<u64, Errno>;

    /// The first offset at or after `offset` in a hole; the end of the file counts as one.
    ///
    /// # Errors
    /// `ENXIO` when `offset` is at or past the end.
    fn seek_hole(&self, inode: &Inode, offset: u64) -> Result<u64, Errno>;

    /// Makes data (and, unless `data_only`, attributes) durable, as far as the driver can.
    ///
    /// # Errors
    /// `EIO`.
    fn sync(&self, inode: &Inode, data_only: bool) -> Result<(), Errno>;

    /// Makes all that was changed so far durable, as far as the driver can. A driver that keeps nothing
    /// back has nothing to do. May block; called with nothing held.
    ///
    /// # Errors
    /// `EIO`.
    fn sync_fs(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// What there is to read in a file of text that is made when it is read
    /// ([`InodeInit::text`](crate::inode::InodeInit)), all of it. Called with nothing held; may block.
    ///
    /// # Errors
    /// Whatever reading the file is to say.
    fn text(&self, inode: &Inode) -> Result<Vec<u8>, Errno> {
        let _ = inode;
        Err(Errno::INVAL)
    }

    /// What a symbolic link holds.
    ///
    /// # Errors
    /// Device errors.
    fn get_link<'g>(&self, inode: &'g Inode, guard: &'g Guard) -> Result<&'g [u8], Errno>;
}
