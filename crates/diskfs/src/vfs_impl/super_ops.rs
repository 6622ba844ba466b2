//! The calls of the VFS on the file system as a whole.

use std::sync::Arc;

use rustix::io::Errno;
use vfscale_journal::Journal;
use vfscale_sync::atomic::Ordering;
use vfscale_sync::errseq::ErrorSeq;
use vfscale_vfs::driver::{CacheCounts, FileSystem, LogCounts, Names, Reclaimed, StorageCounts};
use vfscale_vfs::inode::{Inode, InodeRef};
use vfscale_vfs::super_block::SuperBlock;
use vfscale_vfs::types::{FstrimRange, StatFs};

use super::disk_fs::{DiskFs, UNMOUNTED};
use super::errors::errno;
use super::inodes::held;
use crate::base::fault::Fault;
use crate::format::BLOCK_BYTES;
use crate::format::inode::{CHUNK_BLOCKS, CHUNK_INODES, ROOT_INO};
use crate::inode::core::SIZE_MAX;
use crate::page_cache::PAGE;
use crate::volume::TrimRange;

/// The magic number of a volume in `statfs`: "vfsS", with which its superblock begins.
const MAGIC: u64 = 0x5373_6676;

const NAME_MAX: u32 = 255;

impl FileSystem for DiskFs {
    fn name(&self) -> &'static str {
        "vfscale"
    }

    fn source(&self) -> String {
        self.volume.device().name().to_owned()
    }

    fn options(&self) -> String {
        self.show_options()
    }

    fn names(&self) -> Names<'_> {
        Names::Backed(self)
    }

    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno> {
        if self.is_mounted.swap(true, Ordering::AcqRel) {
            return Err(Errno::BUSY);
        }
        self.stop.serve(sb);
        if self.has_immutable() {
            sb.note_immutable();
        }
        self.iget(sb, ROOT_INO).map_err(errno)?.ok_or(Errno::UCLEAN)
    }

    fn unmounted(&self) {
        self.end(UNMOUNTED);
    }

    fn statfs(&self, _: &SuperBlock) -> StatFs {
        // Space that is about to be freed counts as free: a call that lacks space waits for it.
        let (inodes_going, blocks_going) = self.inactivator.going();
        if self.volume.groups().has_to_withdraw() {
            self.volume.metadata().withdraw();
        }
        let figures = self.volume.space().figures().settled(blocks_going);
        // Other volumes may have taken the storage of what is free in this one.
        let room = self.volume.device().room().map_or(u64::MAX, |room| room / BLOCK_BYTES as u64);
        let available = figures.available.min(room);
        let mut totals = self.volume.groups().totals();
        totals.free_inodes = (totals.free_inodes + inodes_going).min(totals.inodes);
        // Only space limits the number of inodes: eight for each available block.
        let inodes_free = totals.free_inodes + available / CHUNK_BLOCKS * CHUNK_INODES;
        StatFs {
            magic: MAGIC,
            block_size: BLOCK_BYTES as u32,
            blocks: figures.blocks,
            blocks_free: figures.free,
            blocks_available: available,
            files: totals.inodes - totals.free_inodes + inodes_free,
            files_free: inodes_free,
            name_max: NAME_MAX,
            ..StatFs::default()
        }
    }

    fn size_max(&self) -> u64 {
        SIZE_MAX
    }

    fn evict(&self, inode: &Inode) {
        let Some(held) = held(inode) else { return };
        if inode.nlink() == 0 {
            // The inode is about to be freed, and nothing will show its times.
            self.inactivator.queue(Arc::clone(&held.node));
        } else {
            self.keep_times(inode, &held.node);
        }
    }

    fn dirtied(&self, inode: &Inode) {
        if let Some(held) = held(inode) {
            self.keep_times(inode, &held.node);
        }
    }

    fn reclaim(&self) -> Reclaimed {
        // In the order in which space is returned, so this overlooks none on its way.
        let is_coming = !self.files.is_written()
            || !self.inactivator.is_idle()
            || self.volume.space().is_coming();
        if !is_coming || self.volume.is_read_only() {
            return Reclaimed::default();
        }
        // A file that fits into its inode returns the block reserved for it. An error concerns one
        // file, not this call.
        if let Err(fault) = self.files.write_back_all() {
            tracing::error!(%fault, "not everything was written for want of space");
        }
        Reclaimed { has_freed: self.settle().is_ok(), ..Reclaimed::default() }
    }

    fn all_write_errors(&self) -> Option<&ErrorSeq> {
        Some(self.files.write_errors())
    }

    fn sync_fs(&self) -> Result<(), Errno> {
        if self.volume.is_read_only() {
            return Ok(());
        }
        self.files.sync_all().map_err(|fault| self.sync_failed(fault))
    }

    fn set_read_only(&self, read_only: bool) -> Result<(), Errno> {
        if !read_only {
            if self.stopped().is_some() {
                return Err(Errno::ROFS);
            }
            self.unseal();
            return Ok(());
        }
        self.inactivator.flush();
        // An error of a file does not prevent the remount; the next sync reports it.
        if let Err(fault) = self.files.write_back_all() {
            tracing::error!(%fault, "not everything was written before the remount");
        }
        self.volume.seal().map_err(|fault| self.sync_failed(fault))
    }

    fn grow_fs(&self, bytes: u64) -> Result<u64, Errno> {
        match self.volume.grow(Some(bytes)) {
            Ok(geometry) => Ok(geometry.bytes()),
            Err(error) => {
                tracing::warn!(%error, bytes, "the volume has not grown");
                Err(error.errno())
            }
        }
    }

    fn trim_fs(&self, range: FstrimRange) -> Result<u64, Errno> {
        let FstrimRange { start, len, minlen } = range;
        if start >= self.volume.geometry().bytes() || len < BLOCK_BYTES as u64 {
            return Err(Errno::INVAL);
        }
        self.volume.trim(TrimRange { start, len, minlen }).map_err(|fault| match fault {
            Fault::Device(vfscale_block::Error::Unsupported { .. }) => Errno::OPNOTSUPP,
            fault => self.sync_failed(fault),
        })
    }

    fn storage_counts(&self) -> StorageCounts {
        let stats = self.volume.journal().map(Journal::stats);
        let pages = self.files.pages();
        let dirty = pages.unstable();
        let mut counts = StorageCounts::default();
        counts.cache = Some(CacheCounts {
            bytes_max: pages.pages_max() * PAGE,
            // The counts are not of the same moment.
            clean_bytes: pages.pages().saturating_sub(dirty) * PAGE,
            dirty_bytes: dirty * PAGE,
            changed_metadata_bytes: stats.as_ref().map_or(0, |stats| stats.ail_bytes),
        });
        counts.log = stats.map(|stats| LogCounts {
            bytes: stats.grant_total,
            used_bytes: stats.grant_used,
            commits: stats.commits,
            checkpoints: stats.checkpoints,
            writes: stats.log_writes,
            flushes: stats.log_flushes,
            space_waits: stats.space_waits,
            memory_waits: stats.memory_waits,
        });
        counts
    }
}
