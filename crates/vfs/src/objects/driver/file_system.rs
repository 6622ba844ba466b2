//! Operations on a whole file system.

use rustix::io::Errno;
use vfscale_sync::errseq::ErrorSeq;

use crate::base::types::{FstrimRange, StatFs};
use crate::objects::driver::{DirOps, FileOps, NameAccounting, StorageCounts};
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::super_block::SuperBlock;

/// The result of [`FileSystem::reclaim`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Whether space has become available.
    pub has_freed: bool,
    /// A number that differs from that of an earlier call if space was freed in between that was
    /// not available at once, or if such space has become available.
    pub changes: u64,
}

/// The part of a driver for its names, by the [kind](crate::driver) of driver.
#[derive(Clone, Copy)]
pub enum Names<'a> {
    /// The driver stores directories, and the dcache is a cache of them.
    Backed(&'a dyn DirOps),
    /// The dcache alone stores the names; the driver accounts for them.
    Cached(&'a dyn NameAccounting),
}

/// A file system driver.
///
/// An inode is a part of its superblock. A driver that holds [`InodeRef`]s drops them in
/// [`put_super`](Self::put_super). The process aborts if one is left then, because its inode's
/// memory is about to be freed.
///
/// One value serves one superblock, from any number of threads. Counterpart of
/// `struct super_operations` in Linux.
pub trait FileSystem: FileOps + Send + Sync + 'static {
    /// Returns the name of the type, the third column of `/proc/mounts`.
    fn name(&self) -> &'static str;

    /// Returns the mounted device, or another name for the source: the first column of
    /// `/proc/mounts`. By default the name of the type.
    fn source(&self) -> String {
        self.name().to_owned()
    }

    /// Returns the options of this file system for the fourth column of `/proc/mounts`, separated
    /// by commas, without a leading comma. Must not block.
    fn options(&self) -> String {
        String::new()
    }

    /// Returns which of the two stores the names, driver or dcache. Always the same answer.
    fn names(&self) -> Names<'_>;

    /// Makes the root directory of a new superblock.
    ///
    /// # Errors
    /// `EBUSY` if this value serves a superblock already; any error that prevents the mount.
    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno>;

    /// Drops every [`InodeRef`] that the driver holds, because the superblock ends. Its tree still
    /// exists, but no other thread can reach it. Must not block, nor must dropping the driver: both
    /// happen a grace period after the last use, on the reclaim thread.
    fn put_super(&self) {}

    /// Releases resources that other processes may wait for, such as the lock of an image, as soon
    /// as the last mount has ended and no task or open file uses it.
    ///
    /// No call for its files is in progress or will follow, except [`evict`](Self::evict), preceded
    /// by [`dirtied`](Self::dirtied); a [`sync_fs`](Self::sync_fs) that began earlier may still
    /// run. The thread that drops the last use makes the call, once, before that drop returns, so
    /// the release does not wait for grace periods, unlike [`put_super`](Self::put_super).
    ///
    /// Not called for a superblock that was never mounted. May block for I/O, but not for a grace
    /// period.
    fn unmounted(&self) {}

    /// Returns free and used space. The VFS fills in `fsid` and `flags`.
    fn statfs(&self, sb: &SuperBlock) -> StatFs;

    /// Returns the largest size of a file in bytes; writes beyond it get `EFBIG`.
    fn size_max(&self) -> u64 {
        i64::MAX as u64
    }

    /// Frees the data of an unused inode.
    ///
    /// For a driver without [`DirOps`] the inode has no name at that time, or the superblock ends.
    /// A regular file that has a [private part](Inode::private) is locked, because a thread without
    /// a reference may be in [`set_size`](FileOps::set_size), and may enter it once more.
    ///
    /// A backed driver frees the data only of a file without links ([`Inode::nlink`]); the VFS may
    /// look other inodes up again. An inode with links may stay in memory unused
    /// ([`DirOps::caches_inodes`]). A call of [`SuperBlock::iget`] for this number waits until this
    /// has returned. Must not block: long work belongs to a thread of the driver.
    fn evict(&self, inode: &Inode) {
        let _ = inode;
    }

    /// Notes that the times of `inode` have changed: because it was read or written, or to show a
    /// change that the driver has stored ([`Inode::changed_at`]). A backed driver stores the times
    /// of the inode with its next change, or at some later time, if it has not stored them. It
    /// reads them and stores them under a lock: a thread that read them before may store them
    /// later. Called after each such change (for reads and writes at most once in a tick of the
    /// clock, unless a reader sees the times in between), for backed drivers only. Must not block.
    fn dirtied(&self, inode: &Inode) {
        let _ = inode;
    }

    /// Follows a change of the superblock to read-only, or prepares for one to writable.
    ///
    /// If `read_only`, no change is in progress or will follow until the next call, and the driver
    /// stores all changes so that the next mount finds them. Called for file systems that can be
    /// written at all ([`DirOps::is_writable`]), one call at a time. May block. By default makes
    /// all changes durable.
    ///
    /// # Errors
    /// `EIO` and similar: the superblock does not change.
    fn set_read_only(&self, read_only: bool) -> Result<(), Errno> {
        if read_only { self.sync_fs() } else { Ok(()) }
    }

    /// Waits for space that was freed before the call and is not available yet, because a reader
    /// may still use it or because it is not free on disk. The VFS then repeats a call that failed
    /// with `ENOSPC`. The caller holds nothing, not even an RCU section. May block; only briefly if
    /// it waits for readers.
    fn reclaim(&self) -> Reclaimed {
        Reclaimed::default()
    }

    /// Returns the errors of write-back of all files, reported by [`sync_fs`](Self::sync_fs). See
    /// [`FileOps::write_errors`].
    fn all_write_errors(&self) -> Option<&ErrorSeq> {
        None
    }

    /// Makes all changes so far durable, as far as the driver can. A driver without delayed writes
    /// has nothing to do. May block; the caller holds nothing.
    ///
    /// # Errors
    /// `EIO` if this call failed. [`all_write_errors`](Self::all_write_errors) has earlier errors.
    fn sync_fs(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Grows the file system to `bytes`, rounded down to a valid size, and returns its durable size
    /// in bytes. May block; the caller holds nothing.
    ///
    /// # Errors
    /// `EINVAL` if it is already larger, `EFBIG` if it cannot be that large; by default
    /// `EOPNOTSUPP`.
    fn grow_fs(&self, bytes: u64) -> Result<u64, Errno> {
        let _ = bytes;
        Err(Errno::OPNOTSUPP)
    }

    /// Discards the free blocks in a range, and returns their number of bytes. May block for the
    /// I/O; the caller holds nothing.
    ///
    /// # Errors
    /// `EINVAL` for a range outside of the file system, or of less than a block; by default, and if
    /// the device can't discard, `EOPNOTSUPP`.
    fn trim_fs(&self, range: FstrimRange) -> Result<u64, Errno> {
        let _ = range;
        Err(Errno::OPNOTSUPP)
    }

    /// Returns the use of its log and its cache, of which it has neither by default. The caller
    /// holds nothing. Must not block for I/O; it may take short locks of all CPUs.
    fn storage_counts(&self) -> StorageCounts {
        StorageCounts::default()
    }
}
