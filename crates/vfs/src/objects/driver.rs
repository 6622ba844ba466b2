//! The driver trait: what a file system provides below the VFS.
//!
//! The VFS walks paths, checks permissions, keeps names, link counts and times, and calls the
//! driver for what only the driver knows: memory or disk for an inode, and the data in it.
//!
//! Names live in the dcache, unless the driver says otherwise: the children table of a directory
//! *is* the directory, as in the kernel's ramfs, and every dentry that has a name is pinned by that
//! name. The driver is told of names coming and going ([`FileSystem::link`],
//! [`FileSystem::unlinked`]) so that it can charge them.
//!
//! A driver that keeps directories itself has [`Directories`], of which the dcache then is a cache:
//! what is not in it is asked for, and what nobody uses is dropped when it grows too large
//! ([`SuperBlock::set_cache_limit`]). If they can be changed ([`Directories::is_writable`]), the
//! VFS makes all the checks of a call, locks the name, has the driver change its directory, and
//! then changes the dcache. There the driver keeps link counts and the times of directories, since
//! it stores them with the change.
//!
//! # Locks the VFS holds
//!
//! Where names live in the dcache:
//!
//! | call | held |
//! | --- | --- |
//! | `create`, `link`, `renamed`, `unlinked` | the bucket lock of the name; no inode lock |
//! | `charge`, `uncharge` | that, or the inode's lock |
//! | `write_at`, `set_size`, `fallocate` | the inode's lock, exclusively |
//! | `overwrite` | the inode's lock, shared; an RCU section |
//! | `read_at`, `seek_data`, `seek_hole`, `get_link` | they may run beside the ones above |
//!
//! Where the driver keeps directories, each of these may wait for a disk, but for those that say
//! otherwise:
//!
//! | call | held |
//! | --- | --- |
//! | `Directories::lookup` | the name, so that nobody else asks for it or changes it |
//! | `Directories::{create, link, unlink, rmdir}` | the name, and write access to the mount |
//! | `Directories::rename` | both names, write access to the mount; where a directory moves to another one, all such moves of the file system |
//! | `Directories::create_unnamed` | write access to the mount |
//! | `Directories::{read_dir, inode, parent}` | nothing |
//! | `Directories::is_current`, `get_link` | an RCU section: must not block |
//! | `set_attr`, `write_at`, `set_size`, `fallocate` | the inode's lock, exclusively; write access to the mount or a file that is open for writing |
//! | `seek_data`, `seek_hole` | the inode's lock, shared |
//! | `read_at`, `sync` | no lock of an inode |
//! | `dirtied` | anything: must not block |
//!
//! A call on a file with a position (`read`, `write`, `seek`) holds that position's lock besides.
//! "The name" is no lock of a class but one in a table of names (`key_locks`): a driver need not
//! think of it, but must not walk paths of its own file system.
//!
//! Everywhere:
//!
//! | call | held |
//! | --- | --- |
//! | `evict` | anything, an RCU section: must not block. Nobody else can reach the inode |
//! | `unmounted` | no lock; perhaps an RCU section: must not wait for a grace period |
//! | `put_super`, and dropping the driver | an RCU section: must not block |
//! | `fill_super`, `sync_fs`, `grow_fs`, `reclaim`, `text` | nothing |
//!
//! Calls that get a [`Guard`] run inside an RCU section and must not block for long.

use crate::base::types::FileType;
use std::ffi::OsStr;
use std::ops::ControlFlow;

use rustix::io::Errno;
pub use vfscale_sync::errseq::{ErrorCursor, ErrorSeq};
pub use vfscale_sync::fork;
use vfscale_sync::rcu::Guard;

use crate::base::types::{FallocateFlags, StatFs, Timestamp};
pub use crate::objects::dcache::dentry::FIRST_TABLE_BYTES;
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::super_block::SuperBlock;

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
    /// The extended attributes it begins with, access control lists among them in the form in which
    /// `getxattr` gives them. Empty where names live in the dcache: the VFS keeps them there.
    pub xattrs: &'a [XattrPair],
}

/// Name and value of an extended attribute, or of an access control list in the form of one
/// (`system.posix_acl_access`).
pub type XattrPair = (Box<[u8]>, Box<[u8]>);

/// A change of attributes, all of it or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttrChange<'a> {
    /// Type and permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The time of last access.
    pub atime: Option<Timestamp>,
    /// The time of the last change of the data.
    pub mtime: Option<Timestamp>,
    /// The time of this change.
    pub ctime: Option<Timestamp>,
    /// Extended attributes and access control lists that get a value, or go. Each name once; one
    /// that goes need not be there.
    pub xattrs: &'a [XattrChange<'a>],
}

/// What becomes of an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrChange<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value; `None` removes it.
    pub value: Option<&'a [u8]>,
}

/// A rename that the VFS has checked; see [`Directories::rename`].
#[derive(Clone, Copy)]
pub struct Rename<'a> {
    /// The directory that `source` is in.
    pub old_dir: &'a Inode,
    /// Its name there.
    pub old_name: &'a [u8],
    /// What moves.
    pub source: &'a Inode,
    /// The directory that it moves to; may be the same.
    pub new_dir: &'a Inode,
    /// The name that it gets there.
    pub new_name: &'a [u8],
    /// What has that name until then: it is replaced, or with `exchange` gets the old name. Another
    /// inode than `source`; a directory exactly if `source` is one, but with `exchange`.
    pub target: Option<&'a Inode>,
    /// The two change places. Then there is a target.
    pub exchange: bool,
}

/// What a driver has found under a name.
pub struct Found {
    /// The inode, or `None` if there is no such name.
    pub inode: Option<InodeRef>,
    /// Whether this may change without the VFS having a part in it, so that every walk that comes
    /// by has to ask [`Directories::is_current`].
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
/// Inodes come from [`SuperBlock::iget`], so that one file under two names has one inode. A
/// directory has one name at a time: where it is found under another, the old one leaves the
/// dcache.
///
/// # Changes
///
/// Each of the calls that change directories is one transaction: it happens as a whole, or fails
/// and has changed nothing. The VFS has looked the names up and checked rights, types and mounts; a
/// name is locked, so that nobody else looks it up or changes it. What only the driver can know it
/// checks itself, in its transaction: that a directory still is there (`ENOENT` if it has been
/// removed), that one to be removed or replaced is empty (`ENOTEMPTY`), the number of links
/// (`EMLINK`, `ENOENT` for a file that has none left, but see [`Inode::is_linkable`]), space. It
/// sets what is to be seen from then on, and has stored: the link counts of all inodes involved
/// ([`Inode::set_nlink`], 0 for a removed directory, with `.` and `..` counted), the change times
/// of the directories ([`Inode::changed_at`]), and that of a file which gets or loses a name
/// ([`Inode::inode_changed_at`]). Then the VFS changes the dcache.
pub trait Directories: Send + Sync {
    /// Looks `name` (1 to 255 bytes, neither `.` nor `..`, without `/` and NUL) up in `dir`. One
    /// thread at a time asks for one name in one directory. May block.
    ///
    /// # Errors
    /// `EIO` and the like; a name that does not exist is no error. Errors are not remembered.
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Found, Errno>;

    /// Calls `emit` with the names in `dir` behind position `pos`, without `.` and `..`, until it
    /// breaks. Positions are the driver's, from 3 on ([`DirEntry::next`] is that behind the entry),
    /// at most `i64::MAX`, and 2 is the beginning. An entry that is there throughout is returned
    /// exactly once, whatever else changes. May block.
    ///
    /// # Errors
    /// `EIO` and the like.
    fn read_dir(
        &self,
        dir: &Inode,
        pos: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Errno>;

    /// The inode with this number, from [`SuperBlock::iget`], for a file handle that is older than
    /// the cache; `None` if there is no such file any more. May block.
    ///
    /// A driver that doesn't know its inodes by number leaves it at that: handles then are good for
    /// as long as the inode is in use.
    ///
    /// # Errors
    /// `EIO` and the like.
    fn inode(&self, sb: &SuperBlock, ino: u64, generation: u32) -> Result<Option<InodeRef>, Errno> {
        let _ = (sb, ino, generation);
        Ok(None)
    }

    /// The directory that `dir`, which is not the root, is in, and its name there; `None` if it is
    /// in none any more. Asked for directories that come from [`inode`](Self::inode). May block.
    ///
    /// # Errors
    /// `EIO` and the like.
    fn parent(&self, dir: &Inode) -> Result<Option<ParentName>, Errno> {
        let _ = dir;
        Ok(None)
    }

    /// Whether an inode with a name stays when nobody uses it any more, until its memory is wanted,
    /// so that whoever asks for its number ([`SuperBlock::iget`]) gets it as it was. Not for a
    /// driver whose files come and go by themselves. Always the same answer.
    ///
    /// One that is to go at once has no links ([`Inode::set_nlink`]), also if it was made for a
    /// call that then failed.
    fn caches_inodes(&self) -> bool {
        true
    }

    /// Whether they can be changed. If not, the superblock is read-only for good, and none of the
    /// calls that follow is made. Always the same answer.
    fn is_writable(&self) -> bool {
        false
    }

    /// Makes a file of any type under `name` in `dir`, where there is none. Its inode has one link
    /// (a directory two), and its times are now; of `..` the directory has one link more.
    ///
    /// # Errors
    /// `ENOENT` if the directory has been removed, `EEXIST` if there is such a name all the same,
    /// `ENOSPC`, `EMLINK`, `EIO` and the like.
    fn create(&self, dir: &Inode, name: &[u8], new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        let _ = (dir, name, new);
        Err(Errno::ROFS)
    }

    /// Makes a regular file without a name, which goes when nobody uses it, unless it gets one
    /// ([`link`](Self::link)). It has no link. `dir` is where it was asked for.
    ///
    /// # Errors
    /// As [`create`](Self::create); `EOPNOTSUPP` if there are no such files.
    fn create_unnamed(&self, dir: &Inode, new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        let _ = (dir, new);
        Err(Errno::OPNOTSUPP)
    }

    /// Gives a file, which is no directory, another name.
    ///
    /// # Errors
    /// As [`create`](Self::create); `ENOENT` if the file has no link and is not
    /// [linkable](Inode::is_linkable).
    fn link(&self, inode: &Inode, dir: &Inode, name: &[u8]) -> Result<(), Errno> {
        let _ = (inode, dir, name);
        Err(Errno::ROFS)
    }

    /// Takes a name of a file, which is no directory, away. A file without links goes when nobody
    /// uses it any more ([`FileSystem::evict`]).
    ///
    /// # Errors
    /// `EIO` and the like; `ENOSPC` never.
    fn unlink(&self, dir: &Inode, name: &[u8], inode: &Inode) -> Result<(), Errno> {
        let _ = (dir, name, inode);
        Err(Errno::ROFS)
    }

    /// Removes a directory if it is empty. Nothing is made in it from then on.
    ///
    /// # Errors
    /// `ENOTEMPTY`; `EIO` and the like; `ENOSPC` never.
    fn rmdir(&self, dir: &Inode, name: &[u8], inode: &Inode) -> Result<(), Errno> {
        let _ = (dir, name, inode);
        Err(Errno::ROFS)
    }

    /// Renames. A directory that moves does not move into itself. The parent of a directory that
    /// moves to another one changes.
    ///
    /// # Errors
    /// `ENOTEMPTY` for a directory to be replaced, `ENOENT` if `new_dir` has been removed,
    /// `EMLINK`, `ENOSPC`, `EIO` and the like.
    fn rename(&self, rename: &Rename<'_>) -> Result<(), Errno> {
        let _ = rename;
        Err(Errno::ROFS)
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
/// An inode is a part of its superblock. A driver that keeps [`InodeRef`]s lets go of them when it
/// is told to ([`put_super`](Self::put_super)); one that does not ends the process, which is better
/// than what it would point to.
///
/// One value serves one superblock, from any number of threads.
pub trait FileSystem: Send + Sync + 'static {
    /// The type's name, as in the third column of `/proc/mounts`.
    fn name(&self) -> &'static str;

    /// What is mounted, as in the first column of `/proc/mounts`: a device, or whatever else says
    /// what it is. The type's name by default.
    fn source(&self) -> String {
        self.name().to_owned()
    }

    /// The options that this file system is used with, as in the fourth column of `/proc/mounts`,
    /// with commas between them and none in front. Must not block.
    fn options(&self) -> String {
        String::new()
    }

    /// The directories of a driver that keeps them itself; none where names live in the dcache.
    /// Always the same answer.
    fn directories(&self) -> Option<&dyn Directories> {
        None
    }

    /// Makes the root directory of a superblock that is being set up.
    ///
    /// # Errors
    /// `EBUSY` when this value serves a superblock already; whatever else stops the mount.
    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno>;

    /// The superblock ends: gives back every [`InodeRef`] that the driver has kept. Its tree is
    /// still there; nobody else can reach it. Must not block, nor must dropping the driver: that
    /// happens when a grace period after the last use is over, on whichever thread finds that out.
    fn put_super(&self) {}

    /// The last mount has ended, and no task or open file uses it: of calls for its files none is
    /// under way and none comes, but for [`evict`](Self::evict), and [`dirtied`](Self::dirtied)
    /// before that; a [`sync_fs`](Self::sync_fs) that began before may be under way. Called once,
    /// by who gives the last use back and before that returns, so that a driver lets go of what
    /// others want without waiting for grace periods, as [`put_super`](Self::put_super) does.
    ///
    /// Not called for a superblock that was never mounted. May block for I/O, but not for a grace
    /// period.
    fn unmounted(&self) {}

    /// Free and used space. `fsid` and `flags` are filled in by the VFS.
    fn statfs(&self, sb: &SuperBlock) -> StatFs;

    /// The largest size of a file in bytes; writes past it get `EFBIG`.
    fn size_max(&self) -> u64 {
        i64::MAX as u64
    }

    /// Makes an inode, with one link (a directory two, a file without a name none). Only where
    /// names live in the dcache, as the three that follow.
    ///
    /// # Errors
    /// `ENOSPC` when there is no room for it. By default `EROFS`.
    fn create(&self, sb: &SuperBlock, new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        let _ = (sb, new);
        Err(Errno::ROFS)
    }

    /// Another name of `name_len` bytes is about to be made for `inode`.
    ///
    /// # Errors
    /// `ENOSPC`, `EMLINK`. By default `EROFS`.
    fn link(&self, inode: &Inode, name_len: usize) -> Result<(), Errno> {
        let _ = (inode, name_len);
        Err(Errno::ROFS)
    }

    /// A name of `name_len` bytes of `inode` is gone.
    fn unlinked(&self, inode: &Inode, name_len: usize) {
        let _ = (inode, name_len);
    }

    /// A name of `inode` is about to get another length in bytes, because it is being renamed.
    ///
    /// # Errors
    /// `ENOSPC`, but not for a name that gets no longer.
    fn renamed(&self, inode: &Inode, old_len: usize, new_len: usize) -> Result<(), Errno> {
        let _ = (inode, old_len, new_len);
        Ok(())
    }

    /// Nobody uses `inode` any more. Where names live in the dcache it has no name then, or the
    /// superblock ends: frees its data. A regular file that has a [private part](Inode::private) is
    /// locked then, for somebody without a reference may be in [`set_size`](Self::set_size), and
    /// may come there once more.
    ///
    /// Where the driver keeps directories, that is for files without links ([`Inode::nlink`]); any
    /// other can be asked for again. One with links may stay a while when nobody uses it
    /// ([`Directories::caches_inodes`]). Whoever asks for the same number waits until this has
    /// returned ([`SuperBlock::iget`]). Must not block: what takes long is left to a thread of the
    /// driver's own.
    fn evict(&self, inode: &Inode) {
        let _ = inode;
    }

    /// Takes `bytes` from the space limit for what the VFS keeps with an inode: extended
    /// attributes and ACLs. Not asked where the driver keeps directories: it has
    /// [`set_attr`](Self::set_attr) for these.
    ///
    /// # Errors
    /// `ENOSPC`. By default `EOPNOTSUPP`.
    fn charge(&self, bytes: u64) -> Result<(), Errno> {
        let _ = bytes;
        Err(Errno::OPNOTSUPP)
    }

    /// Gives back what [`charge`](Self::charge) took.
    fn uncharge(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Stores a change of attributes, in one transaction; the VFS has checked it, and changes what
    /// is to be seen when this has returned. Asked only where the driver keeps directories. May
    /// block.
    ///
    /// # Errors
    /// Then nothing has changed: `ENOSPC`, `EIO` and the like.
    fn set_attr(&self, inode: &Inode, change: &AttrChange<'_>) -> Result<(), Errno> {
        let _ = (inode, change);
        Ok(())
    }

    /// The times of `inode` have changed in passing, because it was read or written: they are to be
    /// stored with the next change of the inode, or some time. Told only where the driver keeps
    /// directories, after each such change (at most once in a tick of the clock, unless somebody
    /// looks in between). Must not block.
    fn dirtied(&self, inode: &Inode) {
        let _ = inode;
    }

    /// The superblock has become read-only, or is about to be writable again. If read-only, nothing
    /// is being changed, nor will be until this is called again, and everything that was changed is
    /// to be where the next mount finds it. Asked where it can be written at all
    /// ([`Directories::is_writable`]), one call at a time. May block. By default makes durable what
    /// was changed.
    ///
    /// # Errors
    /// `EIO` and the like: the superblock stays as it was.
    fn set_read_only(&self, read_only: bool) -> Result<(), Errno> {
        if read_only { self.sync_fs() } else { Ok(()) }
    }

    /// Waits for space that was freed before the call and can't be had yet, because it may still be
    /// read or is not free on disk: a call that failed with `ENOSPC` is then tried again. False if
    /// there was no such space. Called with nothing held, not even an RCU section. May block, for
    /// readers not for long.
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
    /// `ENOSPC` when not a byte could be written. By default `EROFS`.
    fn write_at(&self, inode: &Inode, offset: u64, buf: &[u8]) -> Result<usize, Errno> {
        let _ = (inode, offset, buf);
        Err(Errno::ROFS)
    }

    /// Writes `buf`, at most [`OVERWRITE_MAX`] bytes, over what is at `offset`, and within the
    /// size, beside others who do the same; those that write to the same bytes take turns, at all
    /// of them at once. False, and nothing done, if that needs space, or in any case: then the
    /// bytes are written by [`write_at`](Self::write_at). Not called where the driver keeps
    /// directories. By default false.
    fn overwrite(&self, inode: &Inode, offset: u64, buf: &[u8]) -> bool {
        let _ = (inode, offset, buf);
        false
    }

    /// Whether there may be anything of a file of `size` bytes beyond that: space that was set
    /// aside, or what is left of its last block. The inode's lock is not held. By default true.
    fn has_space_beyond(&self, inode: &Inode, size: u64) -> bool {
        let _ = (inode, size);
        true
    }

    /// Cuts or extends (with a hole) the file to `size`.
    ///
    /// # Errors
    /// `ENOSPC`. By default `EROFS`.
    fn set_size(&self, inode: &Inode, size: u64) -> Result<(), Errno> {
        let _ = (inode, size);
        Err(Errno::ROFS)
    }

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
    ) -> Result<(), Errno> {
        let _ = (inode, mode, offset, len);
        Err(Errno::OPNOTSUPP)
    }

    /// The first offset at or after `offset` that holds data.
    ///
    /// # Errors
    /// `ENXIO` when there is none, or `offset` is at or past the end. By default that.
    fn seek_data(&self, inode: &Inode, offset: u64) -> Result<u64, Errno> {
        let _ = (inode, offset);
        Err(Errno::NXIO)
    }

    /// The first offset at or after `offset` in a hole; the end of the file counts as one.
    ///
    /// # Errors
    /// `ENXIO` when `offset` is at or past the end. By default that.
    fn seek_hole(&self, inode: &Inode, offset: u64) -> Result<u64, Errno> {
        let _ = (inode, offset);
        Err(Errno::NXIO)
    }

    /// The errors that write-back of `inode` has met, if it is written back: of a driver that keeps
    /// directories. They are kept for as long as somebody was not told. Must not block. By default
    /// none.
    fn write_errors<'a>(&'a self, inode: &'a Inode) -> Option<&'a ErrorSeq> {
        let _ = inode;
        None
    }

    /// The errors that write-back of any file has met, for [`sync_fs`](Self::sync_fs). As
    /// [`write_errors`](Self::write_errors).
    fn all_write_errors(&self) -> Option<&ErrorSeq> {
        None
    }

    /// Makes data (and, unless `data_only`, attributes) durable, as far as the driver can.
    ///
    /// # Errors
    /// `EIO`: what went wrong in this call. What went wrong before is told by
    /// [`write_errors`](Self::write_errors).
    fn sync(&self, inode: &Inode, data_only: bool) -> Result<(), Errno> {
        let _ = (inode, data_only);
        Ok(())
    }

    /// Makes all that was changed so far durable, as far as the driver can. A driver that keeps
    /// nothing back has nothing to do. May block; called with nothing held.
    ///
    /// # Errors
    /// `EIO`: what went wrong in this call. What went wrong before is told by
    /// [`all_write_errors`](Self::all_write_errors).
    fn sync_fs(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Makes the file system larger: `bytes` long, rounded down to what it can have. Returns its
    /// size in bytes, which is durable. May block; called with nothing held.
    ///
    /// # Errors
    /// `EINVAL` for less than it has, `EFBIG` for more than it can have; by default `EOPNOTSUPP`.
    fn grow_fs(&self, bytes: u64) -> Result<u64, Errno> {
        let _ = bytes;
        Err(Errno::OPNOTSUPP)
    }

    /// What there is to read in a file of text that is made when it is read
    /// ([`InodeInit::text`](crate::objects::inode::InodeInit)), all of it. Called with nothing
    /// held; may block.
    ///
    /// # Errors
    /// Whatever reading the file is to say.
    fn text(&self, inode: &Inode) -> Result<Vec<u8>, Errno> {
        let _ = inode;
        Err(Errno::INVAL)
    }

    /// What a symbolic link holds. Must not block: the driver has it in memory with the inode.
    ///
    /// # Errors
    /// By default `EINVAL`.
    fn get_link<'g>(&self, inode: &'g Inode, guard: &'g Guard) -> Result<&'g [u8], Errno> {
        let _ = (inode, guard);
        Err(Errno::INVAL)
    }
}

/// The most bytes of a write that need not take turns: a block of a database. Longer ones gain less
/// by it, and would keep more of a file from others.
pub const OVERWRITE_MAX: usize = 16 << 10;

/// A directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode number.
    pub ino: u64,
    /// The position behind this entry, to go on from.
    pub next: u64,
    /// The type of the file.
    pub file_type: FileType,
    /// The name.
    pub name: &'a OsStr,
}
