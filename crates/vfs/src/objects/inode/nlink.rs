//! Link counts.
//!
//! A count is raised only from above zero, so a link never revives a dead inode.
//!
//! # Directories
//!
//! The links of a directory are its name, its `.`, and the `..` of each directory in it. Several
//! CPUs that create directories in one parent would all write its count. So once
//! the table of its children has grown to the size for several CPUs, directories that are added and
//! removed are counted on each CPU ([`SnapshotCounter`]). The counter takes a sixteenth of the
//! table's memory and is bounded with it ([`spread`](vfscale_sync::spread)): if it does not fit,
//! the inode continues to count. Links counted before remain counted in the inode.
//!
//! * A directory is added or removed with the bucket of its name locked, and its parent is removed
//!   with all buckets of that parent locked. So no thread counts in a removed directory, and a
//!   thread that has locked all buckets sees a stable count.
//! * A thread that counts a directory down in the inode has found no sharded count. Then there was
//!   none when that directory was added, which was with the same bucket locked, so it was counted
//!   in the inode. So the inode's own count never falls below two, and is zero exactly when the
//!   directory is removed, whatever its per-CPU parts contain.
//! * A read of both counts is consistent: it reads the inode's count between two equal sums of the
//!   parts. A reader takes no lock, whatever happens in the directory meanwhile.
//! * A sharded count has no limit: 2^31 directories take more than a terabyte.
//!
//! A backed driver reports the counts that it has stored ([`Inode::set_nlink`]), which are never
//! sharded.

use rustix::io::Errno;
use vfscale_sync::atomic::{Ordering, fence};
use vfscale_sync::lock::assert_held;
use vfscale_sync::percpu::SnapshotCounter;

use super::{Inode, LINKABLE};
use crate::base::lock_classes::Children;
use crate::objects::dcache::dentry::Dentry;
use crate::objects::inode_ext::InodeExt;
use crate::objects::sharded_nlink::ShardedNlink;

/// The highest number of names of one inode.
pub const LINK_MAX: u32 = 0x7fff_ffff;

impl Inode {
    /// Returns the number of links. Takes no lock.
    #[inline]
    pub fn nlink(&self) -> u32 {
        let links = self.own_nlink();
        // Read after the inode's own count: if there is no sharded count now, that was the total.
        self.sharded_dirs().map_or(links, |spread| self.sum_nlink(spread))
    }

    /// Returns whether the inode has no name left.
    #[inline]
    pub(crate) fn is_unlinked(&self) -> bool {
        self.own_nlink() == 0
    }

    /// Returns the number of links that are counted in the inode.
    #[inline]
    fn own_nlink(&self) -> u32 {
        self.usage.nlink.load(Ordering::Acquire)
    }

    /// Returns the number of links of a directory whose count is sharded.
    #[cold]
    fn sum_nlink(&self, spread: &SnapshotCounter) -> u32 {
        let (directories, own) = spread.read_with(|| self.own_nlink());
        if own == 0 { 0 } else { own.saturating_add_signed(directories) }
    }

    /// Returns the sharded count of the directories in this one, if they are not counted in the
    /// inode.
    #[inline]
    fn sharded_dirs(&self) -> Option<&SnapshotCounter> {
        // Only a directory's extension is read, never that of a pipe.
        match self.stream().filter(|_| self.is_dir())? {
            InodeExt::Directories(spread) => Some(&spread.count),
            _ => None,
        }
    }

    /// Adds one name, unless no name is left (the inode is being evicted) or there are too many. A
    /// file that was created without a name may get its first one: `LINKABLE` permits it.
    pub(crate) fn add_link(&self) -> Result<(), Errno> {
        if self.data.flags.load(Ordering::Acquire) & LINKABLE != 0 {
            let first =
                self.usage.nlink.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
            if first.is_ok() {
                self.data.flags.fetch_and(!LINKABLE, Ordering::AcqRel);
                return Ok(());
            }
        }
        self.link()
    }

    /// Counts one link more.
    ///
    /// # Errors
    /// Returns `ENOENT` if there is none left, and `EMLINK` if there are too many.
    fn link(&self) -> Result<(), Errno> {
        self.usage
            .nlink
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n != 0 && n < LINK_MAX).then(|| n + 1)
            })
            .map(drop)
            .map_err(|n| if n == 0 { Errno::NOENT } else { Errno::MLINK })
    }

    /// Sets the number of names, for backed drivers, together with the change that they have
    /// stored. A file that was created without a name and has one now is a normal file from then
    /// on. No other thread changes the count meanwhile.
    pub fn set_nlink(&self, nlink: u32) {
        if nlink > 0 && self.is_linkable() {
            self.data.flags.fetch_and(!LINKABLE, Ordering::AcqRel);
        }
        self.usage.nlink.store(nlink, Ordering::Release);
    }

    /// Creates the sharded count of the directories in this one, and returns it. `None` if the
    /// inode has to count them: there is one CPU, or the counter does not fit.
    #[cold]
    fn shard_dirs(&self) -> Option<&SnapshotCounter> {
        let sb = self.sb();
        if sb.slots() < 2 || !sb.scaling().dcache_hash() {
            return None;
        }
        let count = ShardedNlink::new(sb.slots())?;
        self.ext_or_init(|| InodeExt::Directories(count));
        self.sharded_dirs()
    }

    /// Returns whether the inode was created without a name, has none yet, and may be given one.
    pub fn is_linkable(&self) -> bool {
        self.data.flags.load(Ordering::Acquire) & LINKABLE != 0
    }

    pub(crate) fn set_linkable(&self) {
        self.data.flags.fetch_or(LINKABLE, Ordering::AcqRel);
    }

    /// Counts one link less, and announces the loss of the last one; see `inode/evict.rs`.
    pub(crate) fn unlink(&self) {
        let is_last = self.usage.nlink.load(Ordering::Relaxed) == 1;
        if is_last {
            self.note_last_name();
        }
        let before = self.usage.nlink.fetch_sub(1, Ordering::AcqRel);
        if before == 1 && !is_last {
            // Another name was removed concurrently.
            self.note_last_name();
            fence(Ordering::SeqCst);
        }
        debug_assert!(before > 0, "link count of inode {} below zero", self.ino);
    }

    pub(crate) fn clear_nlink(&self) {
        self.usage.nlink.store(0, Ordering::Release);
    }
}

impl Dentry {
    /// Counts a directory that is added to this one.
    pub(crate) fn link_directory(&self) -> Result<(), Errno> {
        assert_held::<Children>();
        match self.sharded_dirs() {
            Some(spread) => {
                spread.add(1);
                Ok(())
            }
            None => self.inode().link(),
        }
    }

    /// Counts a directory that is removed.
    pub(crate) fn unlink_directory(&self) {
        assert_held::<Children>();
        match self.sharded_dirs() {
            Some(spread) => spread.add(-1),
            None => self.inode().unlink(),
        }
    }

    /// Returns the sharded count of the directories in this one, and creates it if they should no
    /// longer be counted in the inode. `None` if the inode counts them.
    #[inline]
    fn sharded_dirs(&self) -> Option<&SnapshotCounter> {
        let inode = self.inode();
        // If the counter does not fit, the inode counts them, and the thread that adds the next
        // directory tries again.
        let create = || self.children().is_spread().then(|| inode.shard_dirs()).flatten();
        inode.sharded_dirs().or_else(create)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
