//! Link counts.
//!
//! A count is raised only from above zero, so that a link never revives a dead inode.
//!
//! # Directories
//!
//! The links of a directory are its name, its `.`, and the `..` of each directory in it: those in
//! memory are counted here, and drivers that keep directories say what they have stored. Several
//! CPUs that make directories in one would all write its count. So once the table of its children
//! has grown to what several CPUs get, the directories that come and go are counted on each CPU
//! ([`SnapshotCounter`]): what that takes is a sixteenth of the table, and bounded with it
//! ([`spread`](vfscale_sync::spread)): where there is no room for it, the inode goes on counting.
//! What was counted before stays in the inode.
//!
//! * A directory comes and goes with the bucket of its name locked, and a directory is removed with
//!   all of its buckets locked. So nobody counts in one that is removed, and whoever locks all
//!   buckets sees a count at rest.
//! * Who counts a directory down in the inode has found no spread count. Then there was none when
//!   it came, which was with the same bucket locked, and it was counted in the inode. So that never
//!   falls below two, and is zero exactly when the directory is removed, whatever its parts have.
//! * Both together are read as they were at one moment: the inode's between two equal sums of the
//!   parts. Who finds them changing a few times locks all buckets.
//! * A spread count has no limit: 2^31 directories take more than a terabyte.

use rustix::io::Errno;
use vfscale_sync::atomic::{Ordering, fence};
use vfscale_sync::percpu::SnapshotCounter;
use vfscale_sync::rcu;
use vfscale_sync::spread::Reservation;
use vfscale_sync::table::{LockReq, RcuTable};

use super::{Inode, LINKABLE};
use crate::objects::dcache::dentry::Dentry;
use crate::objects::inode_ext::InodeExt;

/// The highest number of names of one inode.
pub const LINK_MAX: u32 = 0x7fff_ffff;

/// The directories in one, counted on each CPU.
pub(crate) struct ShardedNlink {
    count: SnapshotCounter,
    _reservation: Reservation,
}

impl ShardedNlink {
    /// None, in `slots` parts; `None` if there is no room for these.
    fn new(slots: usize) -> Option<Box<ShardedNlink>> {
        let reservation = Reservation::take(SnapshotCounter::bytes(slots))?;
        Some(Box::new(ShardedNlink {
            count: SnapshotCounter::new(slots),
            _reservation: reservation,
        }))
    }
}

/// How often a spread count is read before everybody who changes it is kept out.
const ATTEMPTS: u32 = 3;

impl Inode {
    /// The number of links. May take all buckets of a directory's children table.
    #[inline]
    pub fn nlink(&self) -> u32 {
        let links = self.own_nlink();
        // Looked for after the count: as long as there was none, that was all.
        self.spread_directories().map_or(links, |spread| self.spread_nlink(spread))
    }

    /// Whether it has no name left.
    #[inline]
    pub(crate) fn is_unlinked(&self) -> bool {
        self.own_nlink() == 0
    }

    /// The links that are counted in the inode.
    #[inline]
    fn own_nlink(&self) -> u32 {
        self.usage.nlink.load(Ordering::Acquire)
    }

    /// The number of links of a directory whose count is spread.
    #[cold]
    fn spread_nlink(&self, spread: &SnapshotCounter) -> u32 {
        let read = || {
            let (directories, own) = spread.read_with(|| self.own_nlink())?;
            Some(if own == 0 { 0 } else { own.saturating_add_signed(directories) })
        };
        (0..ATTEMPTS).find_map(|_| read()).unwrap_or_else(|| {
            let guard = rcu::pin();
            let dentry = self.aliases(&guard).next();
            let _all = dentry.map(|d| RcuTable::lock_set([LockReq::All(d.children())], &guard));
            read().unwrap_or(0)
        })
    }

    /// Where the directories in it are counted, if that is not in the inode.
    #[inline]
    fn spread_directories(&self) -> Option<&SnapshotCounter> {
        // What is behind a pipe is not touched for that.
        match self.stream().filter(|_| self.is_dir())? {
            InodeExt::Directories(spread) => Some(&spread.count),
            _ => None,
        }
    }

    /// One name more, unless there is none left (the inode is going) or too many. The first name of
    /// a file that was made without one is no exception to the former but a right of its own.
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

    fn link(&self) -> Result<(), Errno> {
        self.usage
            .nlink
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n != 0 && n < LINK_MAX).then(|| n + 1)
            })
            .map(drop)
            .map_err(|n| if n == 0 { Errno::NOENT } else { Errno::MLINK })
    }

    /// Sets the number of names; for drivers that keep directories, with the change that they have
    /// stored. A file that was made without a name and has one now is like any other from then on.
    pub fn set_nlink(&self, nlink: u32) {
        if nlink > 0 && self.is_linkable() {
            self.data.flags.fetch_and(!LINKABLE, Ordering::AcqRel);
        }
        self.usage.nlink.store(nlink, Ordering::Release);
    }

    /// Whether it was made without a name, has none yet, and may be given one.
    pub fn is_linkable(&self) -> bool {
        self.data.flags.load(Ordering::Acquire) & LINKABLE != 0
    }

    pub(crate) fn set_linkable(&self) {
        self.data.flags.fetch_or(LINKABLE, Ordering::AcqRel);
    }

    pub(crate) fn unlink(&self) {
        let is_last = self.usage.nlink.load(Ordering::Relaxed) == 1;
        if is_last {
            self.note_last_name();
        }
        let before = self.usage.nlink.fetch_sub(1, Ordering::AcqRel);
        if before == 1 && !is_last {
            // Another name has gone meanwhile.
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
    /// Counts a directory that comes into this one; the caller holds the lock of the bucket that
    /// gets it.
    pub(crate) fn link_directory(&self) -> Result<(), Errno> {
        match self.spread_directories() {
            Some(spread) => {
                spread.add(1);
                Ok(())
            }
            None => self.inode().link(),
        }
    }

    /// Counts one that leaves; the caller holds the lock of the bucket that it was in.
    pub(crate) fn unlink_directory(&self) {
        match self.spread_directories() {
            Some(spread) => spread.add(-1),
            None => self.inode().unlink(),
        }
    }

    /// Where the directories in this one are counted, if that is not in the inode, or should not be
    /// any more.
    #[inline]
    fn spread_directories(&self) -> Option<&SnapshotCounter> {
        let (inode, sb) = (self.inode(), self.sb());
        inode.spread_directories().or_else(|| {
            let several = sb.slots() > 1 && sb.scaling().dcache_hash();
            if !several || !self.children().is_spread() {
                return None;
            }
            // If there is no room, they are counted in the inode, by whoever makes the next one as
            // well.
            let count = ShardedNlink::new(sb.slots())?;
            inode.ext_or_init(|| InodeExt::Directories(count));
            inode.spread_directories()
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
