//! Operations on directories that the driver stores.

use std::ffi::OsStr;
use std::ops::ControlFlow;

use rustix::io::Errno;

use crate::base::types::FileType;
use crate::objects::driver::NewInode;
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::super_block::SuperBlock;

/// A directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode number.
    pub ino: u64,
    /// The position after this entry, from which reading can continue.
    pub next: u64,
    /// The type of the file.
    pub file_type: FileType,
    /// The name.
    pub name: &'a OsStr,
}

/// A rename that the VFS has checked; see [`DirOps::rename`].
#[derive(Clone, Copy)]
pub struct Rename<'a> {
    /// The directory that contains `source`.
    pub old_dir: &'a Inode,
    /// The old name of `source`.
    pub old_name: &'a [u8],
    /// The inode that moves.
    pub source: &'a Inode,
    /// The directory that it moves to, which may be `old_dir`.
    pub new_dir: &'a Inode,
    /// The new name of `source`.
    pub new_name: &'a [u8],
    /// The inode that had the new name: it is replaced, or gets the old name if `exchange`. Not
    /// `source`; unless `exchange`, a directory if and only if `source` is one.
    pub target: Option<&'a Inode>,
    /// Whether source and target exchange their names. If so, there is a target.
    pub exchange: bool,
    /// A file to make under the old name, in the same transaction; not with `exchange`. The VFS
    /// looks it up when it is needed.
    pub whiteout: Option<NewInode<'a>>,
}

/// A driver's answer to a lookup.
pub struct Found {
    /// The inode, or `None` if there is no such name.
    pub inode: Option<InodeRef>,
    /// Whether the answer may change without a call of the VFS. Every walk over the name then calls
    /// [`DirOps::is_current`].
    pub check: bool,
}

/// The parent of a directory, and the directory's name in it.
pub struct ParentName {
    /// The directory that contains it.
    pub parent: InodeRef,
    /// Its name.
    pub name: Box<[u8]>,
}

/// Operations on directories that the driver stores itself.
///
/// Inodes come from [`SuperBlock::iget`], so a file with two names has one inode. A directory has
/// one name at a time: if the driver finds it under another, the old one leaves the dcache.
///
/// # Changes
///
/// Each call that changes directories is one transaction: it takes effect as a whole, or fails
/// without a change. The VFS has looked the names up and has checked rights, types and mounts. It
/// has locked each name, so no other thread looks it up or changes it.
///
/// The driver checks in its transaction the conditions that only it can check: that a directory
/// still exists (`ENOENT` if it was removed), that one to be removed or replaced is empty
/// (`ENOTEMPTY`), the number of links (`EMLINK`; `ENOENT` for a file without any, unless
/// [`Inode::is_linkable`]), and space. It stores and sets the new attributes: the link counts of
/// all inodes involved ([`Inode::set_nlink`], 0 for a removed directory, `.` and `..` counted), the
/// times of the directories ([`Inode::changed_at`]), and the change time of a file that gets or
/// loses a name ([`Inode::inode_changed_at`]). Then the VFS changes the dcache.
///
/// Counterpart of `struct inode_operations` in Linux.
pub trait DirOps: Send + Sync {
    /// Looks up `name` (1 to 255 bytes, neither `.` nor `..`, without `/` and NUL) in `dir`. No two
    /// threads look up one name in one directory concurrently. May block.
    ///
    /// # Errors
    /// `EIO` and similar; a name that does not exist is no error. The VFS does not remember errors.
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Found, Errno>;

    /// Calls `emit` with the names in `dir` after position `pos`, without `.` and `..`, until it
    /// breaks. The driver chooses the positions, from 3 on ([`DirEntry::next`] is the one after the
    /// entry), at most `i64::MAX`; 2 is the beginning. An entry that exists throughout is returned
    /// exactly once, whatever else changes. May block.
    ///
    /// # Errors
    /// `EIO` and similar.
    fn read_dir(
        &self,
        dir: &Inode,
        pos: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Errno>;

    /// Returns the inode with this number, from [`SuperBlock::iget`], for a file handle that is
    /// older than the cache; `None` if the file does not exist any more. May block.
    ///
    /// A driver that cannot find inodes by number uses the default: its handles are valid while the
    /// inode is in use.
    ///
    /// # Errors
    /// `EIO` and similar.
    fn inode(&self, sb: &SuperBlock, ino: u64, generation: u32) -> Result<Option<InodeRef>, Errno> {
        let _ = (sb, ino, generation);
        Ok(None)
    }

    /// Returns the parent of `dir`, which is not the root, and its name there; `None` if it was
    /// removed. Called for directories that come from [`inode`](Self::inode). May block.
    ///
    /// # Errors
    /// `EIO` and similar.
    fn parent(&self, dir: &Inode) -> Result<Option<ParentName>, Errno> {
        let _ = dir;
        Ok(None)
    }

    /// Returns whether an unused inode with a name stays in memory until that memory is needed.
    /// Then [`SuperBlock::iget`] returns it unchanged. False for a driver whose files appear and
    /// disappear by themselves. Always the same answer.
    ///
    /// An inode that is to be freed immediately has no links ([`Inode::set_nlink`]), even if it was
    /// made for a call that then failed.
    fn caches_inodes(&self) -> bool {
        true
    }

    /// Returns whether directories can be changed. If not, the superblock is always read-only, and
    /// the methods below are not called. Always the same answer.
    fn is_writable(&self) -> bool {
        false
    }

    /// Returns whether [`create`](Self::create) fails with `EEXIST` for every name that exists,
    /// even if the VFS does not know it. Then the VFS makes a name that is not cached without a
    /// lookup before. Always the same answer.
    fn create_finds_names(&self) -> bool {
        false
    }

    /// Makes a file of any type under `name` in `dir`, where no such name exists, or none that is
    /// cached ([`create_finds_names`](Self::create_finds_names)). Its inode has one link (a
    /// directory two) and the current time in all its times; for a directory's `..`, `dir` gets
    /// another link.
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed, `EEXIST` if the name exists anyway, `ENOSPC`,
    /// `EMLINK`, `EIO` and similar.
    fn create(&self, dir: &Inode, name: &[u8], new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        let _ = (dir, name, new);
        Err(Errno::ROFS)
    }

    /// Makes a regular file without a name and without links, which is freed when unused, unless it
    /// gets a name ([`link`](Self::link)). `dir` is the directory of the call.
    ///
    /// # Errors
    /// See [`create`](Self::create); `EOPNOTSUPP` if the driver has no such files.
    fn create_unnamed(&self, dir: &Inode, new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        let _ = (dir, new);
        Err(Errno::OPNOTSUPP)
    }

    /// Adds a name to a file that is no directory.
    ///
    /// # Errors
    /// See [`create`](Self::create); `ENOENT` if the file has no link and is not
    /// [linkable](Inode::is_linkable).
    fn link(&self, inode: &Inode, dir: &Inode, name: &[u8]) -> Result<(), Errno> {
        let _ = (inode, dir, name);
        Err(Errno::ROFS)
    }

    /// Removes a name of a file that is no directory. A file without links is freed when unused
    /// ([`FileSystem::evict`](crate::FileSystem::evict)).
    ///
    /// # Errors
    /// `EIO` and similar; never `ENOSPC`.
    fn unlink(&self, dir: &Inode, name: &[u8], inode: &Inode) -> Result<(), Errno> {
        let _ = (dir, name, inode);
        Err(Errno::ROFS)
    }

    /// Removes an empty directory. Afterwards, every creation in it fails.
    ///
    /// # Errors
    /// `ENOTEMPTY`; `EIO` and similar; never `ENOSPC`.
    fn rmdir(&self, dir: &Inode, name: &[u8], inode: &Inode) -> Result<(), Errno> {
        let _ = (dir, name, inode);
        Err(Errno::ROFS)
    }

    /// Renames. The VFS has checked that a directory does not move into itself. The parent of a
    /// directory changes if it moves to another one.
    ///
    /// # Errors
    /// `ENOTEMPTY` for a directory to be replaced, `ENOENT` if `new_dir` was removed, `EMLINK`,
    /// `ENOSPC`, `EIO` and similar.
    fn rename(&self, rename: &Rename<'_>) -> Result<(), Errno> {
        let _ = rename;
        Err(Errno::ROFS)
    }

    /// Returns whether an answer of [`lookup`](Self::lookup) for `name` in `dir` is still valid.
    /// Called if that answer requested it ([`Found::check`]). Must not block.
    fn is_current(&self, dir: &Inode, name: &[u8], inode: Option<&Inode>) -> bool {
        let _ = (dir, name, inode);
        true
    }
}
