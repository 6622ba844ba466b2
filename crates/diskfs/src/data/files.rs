//! The regular files of a volume, and their write-back.
//!
//! # Dirty files
//!
//! In the kernel of 2009 the lists of dirty inodes are under `inode_lock`, with everything else
//! that Piggin 2009 takes from under it. Here they belong to the driver: a list with a lock of its
//! own for each CPU ([`DirtyFiles`]). They are not in the VFS, for three reasons. A file in memory
//! is never dirty, and would pay for two links and a look at them. Dirty data outlives the VFS
//! inode: an inode may be evicted before its data is written; so the lists hold [`Node`]s, which
//! stay in memory until then. And only the driver knows how much is dirty, and in which order it is
//! to reach the device.
//!
//! A file enters the list of the CPU that makes it dirty, once for its data and once for its times.
//! Only that takes the lock of the list: while the file is queued, writing to it touches no list
//! (`FilePages::set_queued`). A thread that makes the file durable leaves it queued, so a file that
//! is appended to and synced ten thousand times in a second enters a list once. Each thread that
//! writes back takes one file at a time, from its own CPU's list first. A thread that makes
//! everything durable waits for the files that other threads have taken
//! ([`dirty`](crate::page_cache::DirtyFiles)).
//!
//! # Write-behind
//!
//! A writer that fills a file in order does not wait until much is dirty: each four megabytes of
//! it go to the device at once, in the background (`write_behind.rs`), and the file stays on
//! its list. So a thread that makes the file or the volume durable finds the rest by the list, and
//! waits for a segment that is being written by taking the file's `i_writeback`.
//!
//! # The interval
//!
//! Changes that no call makes durable are durable after the interval, data together with names: in
//! every half of it a pass in the background writes back what is dirty and then forces the log. The
//! log has no interval of its own, or names of files would be durable before their data. Writing
//! may take seconds, and the log has the names of files that are made meanwhile. So the pass writes
//! again what became dirty, in at most three rounds, each of which has only the time of the one
//! before it to catch up with. A file that is made between the last one and the force, or by
//! programs that make data dirty faster than the device takes them, may have its name first.
//!
//! # Files that replace others
//!
//! A program that rewrites a file, and renames it over the old one or has truncated the old one
//! first, relies on finding either content after a crash, although it syncs neither. So data is
//! written back before a rename over another file is committed ([`Files::write_before_rename`]),
//! that of a small new file within the rename's transaction ([`RegularFile::write_back_within`]);
//! and the data of a file that was truncated to nothing before the log is forced for another file
//! ([`Files::sync`]); ext4 has this as `auto_da_alloc`.
//!
//! # A sealed volume
//!
//! Nothing is written to it. A file that is still dirty stays so, on its list, until the volume is
//! writable again: sealing never drops a page.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use vfscale_sync::atomic::thread;
use vfscale_sync::cpu;
use vfscale_sync::errseq::ErrorSeq;

use super::bad_blocks::BadBlocks;
use super::file_blocks::{FileBlocks, Throttle};
use super::flusher::Woken;
use super::gate::{Gate, Inside, Shut};
use super::read_ahead::{READERS, ReadAhead};
use super::renewed::Renewed;
use super::state::FilesState;
use super::write_behind::WriteBehind;
use crate::Settings;
use crate::base::fault::Fault;
use crate::file_io::{RegularFile, Truncation};
use crate::inode::core::DataFork;
use crate::inode::incore::{Node, NodeNow};
use crate::page_cache::{DirtyFiles, FilePages, LowDirty, PageCache};
use crate::volume::Volume;

/// How long a writer sleeps if other threads are writing back all that is dirty.
const OTHERS_WRITE: Duration = Duration::from_millis(1);
/// The smallest share of the log that a transaction may need.
const LOG_SHARE: u64 = 4;
/// Most pages that writers may have dirty while a cut is about to shut the gate: 8 MiB.
const PAGES_LEFT: u64 = 2048;
/// Most pages that a cut leaves to the time when the gate is shut: writers that go on at that limit
/// are a few pages above it at any moment.
const PAGES_ENOUGH: u64 = PAGES_LEFT + PAGES_LEFT / 4;
/// How often a cut tries to get there while writers go on.
const ROUNDS: u32 = 8;
/// How often a pass writes back before it forces the log, if files become dirty meanwhile.
const PASS_ROUNDS: u32 = 3;
/// The number of blocks of 512 bytes, which `stat` counts in, per block of the volume.
const SECTORS_PER_BLOCK: u64 = 8;

/// The regular files of an open volume. `Send` and `Sync`.
///
/// Work items ([`worker`](vfscale_sync::worker)) write dirty files back, in every half of the
/// interval and when much is dirty, and write behind sequential writers. Dropping this without
/// [`stop`](Self::stop) waits for their runs.
pub struct Files {
    state: FilesState,
}

impl Files {
    /// Serves the files of `volume`.
    pub fn new(volume: Arc<Volume>, settings: &Settings) -> Arc<Self> {
        let dirty_lists = settings.journal.scaling.dirty_lists();
        let slots = cpu::most_slots() as usize;
        let reserving = Some(volume.reserving());
        let pages = match &settings.cache_budget {
            Some(budget) => PageCache::in_room(Arc::clone(budget.pages()), slots, reserving),
            None => PageCache::alone(settings.data_cache_bytes, slots, reserving),
        };
        let log_blocks = volume.superblock().log_blocks();
        let files = Arc::new_cyclic(|this| Self {
            state: FilesState {
                pages,
                dirty: DirtyFiles::new(dirty_lists),
                write_errors: ErrorSeq::new(),
                renewed: settings.auto_da_alloc.then(|| Renewed::new(dirty_lists)),
                bad_blocks: BadBlocks::default(),
                untold: 0.into(),
                gate: Gate::new(slots),
                log_blocks_max: u32::try_from(log_blocks / LOG_SHARE).unwrap_or(u32::MAX),
                flusher: Arc::default(),
                discarder: Arc::default(),
                read_ahead: Self::read_ahead(Weak::clone(this)),
                write_behind: Self::write_behind(Weak::clone(this), dirty_lists),
                volume,
            },
        });
        if !files.state.volume.is_read_only() {
            files.state.flusher.start(settings.sync_interval, Self::flush(Arc::downgrade(&files)));
        }
        files
    }

    /// Creates the queue of read-ahead for `this`, whose memory it does not prevent from being
    /// freed.
    fn read_ahead(this: Weak<Self>) -> Arc<ReadAhead> {
        ReadAhead::new(READERS, move |request| {
            let Some(files) = this.upgrade() else { return false };
            if let Some(file) = files.cached_file(&request.node) {
                file.populate(request.pages.start, request.pages.end);
            }
            true
        })
    }

    /// Creates the queue of write-behind for `this`, whose memory it does not prevent from being
    /// freed.
    fn write_behind(this: Weak<Self>, writers_max: usize) -> Arc<WriteBehind> {
        WriteBehind::new(writers_max, move |request| {
            let Some(files) = this.upgrade() else { return false };
            let volume = &files.state.volume;
            let is_written = !volume.is_read_only() && volume.failure().is_none();
            if let Some(file) = files.cached_file(&request.node).filter(|_| is_written)
                && let Err(fault) = file.write_behind(request.pages.start, request.pages.end)
                && !matches!(fault, Fault::ReadOnly)
                && !fault.is_no_space()
            {
                let ino = request.node.ino();
                tracing::error!(ino, %fault, "a file can't be written behind its writer");
            }
            true
        })
    }

    /// Returns the work of write-back in the background for `this`.
    fn flush(this: Weak<Self>) -> impl Fn(Woken) {
        move |woken| {
            let Some(files) = this.upgrade() else { return };
            let volume = &files.state.volume;
            // When nothing can be written any more, dirty pages are dropped when their memory is
            // needed.
            if !volume.is_read_only() && volume.failure().is_none() {
                files.work(woken);
            }
        }
    }

    /// Returns the volume.
    #[cfg(test)]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.state.volume
    }

    /// Returns the page cache.
    pub fn pages(&self) -> &Arc<PageCache> {
        &self.state.pages
    }

    /// Returns the errors of write-back of all files.
    pub fn write_errors(&self) -> &ErrorSeq {
        &self.state.write_errors
    }

    /// Returns the regular file of an inode, for a call.
    #[cfg(any(test, shuttle))]
    pub fn file<'a>(&'a self, node: &'a Arc<Node>) -> RegularFile<FileBlocks<'a>> {
        RegularFile::new(self.pages_of(node), self.blocks(node))
    }

    /// Returns the regular file of an inode whose pages the caller has from
    /// [`pages_of`](Self::pages_of).
    pub fn file_with<'a>(
        &'a self,
        node: &'a Arc<Node>,
        pages: &'a FilePages,
    ) -> RegularFile<FileBlocks<'a>, &'a FilePages> {
        RegularFile::new(pages, self.blocks(node))
    }

    /// Returns the pages of a regular file. They are the same until the inode is freed.
    pub fn pages_of(&self, node: &Arc<Node>) -> Arc<FilePages> {
        node.data_or_init(|core| FilePages::new(&self.state.pages, core.size))
    }

    /// Returns the regular file of an inode, if a call has read or written it since the inode is in
    /// memory. Inodes of other types never have one.
    fn cached_file<'a>(&'a self, node: &'a Arc<Node>) -> Option<RegularFile<FileBlocks<'a>>> {
        node.data().map(|pages| RegularFile::new(pages, self.blocks(node)))
    }

    /// Returns the blocks of an inode.
    pub(super) fn blocks<'a>(&'a self, node: &'a Arc<Node>) -> FileBlocks<'a> {
        FileBlocks::new(&self.state, node, self)
    }

    /// Returns the size of a file in bytes.
    #[cfg(test)]
    pub fn size(&self, node: &Arc<Node>) -> u64 {
        Self::size_now(&node.now())
    }

    /// Returns the number of blocks of 512 bytes that an inode has or will have: pages without a
    /// block count as well, and data in the inode as one.
    pub fn blocks_512(&self, node: &Arc<Node>) -> u64 {
        Self::blocks_now(&node.now())
    }

    /// Returns the present size of an inode, of which this is the present state.
    pub(crate) fn size_now(now: &NodeNow) -> u64 {
        now.data.as_ref().map_or(now.stored.size, |pages| pages.size())
    }

    /// Returns the number of [blocks of 512 bytes](Self::blocks_512) of an inode, of which this is
    /// the present state.
    pub(crate) fn blocks_now(now: &NodeNow) -> u64 {
        let delayed = now.data.as_ref().map_or(0, |pages| pages.delayed_blocks());
        let blocks = now.stored.blocks.saturating_add(delayed).saturating_mul(SECTORS_PER_BLOCK);
        // With none, programs take all of a file for a hole, and do not read it.
        let is_inside = matches!(now.stored.data, DataFork::Inline(_)) && now.stored.is_regular();
        blocks.max(u64::from(is_inside))
    }

    /// Writes back a file that is about to be renamed over another one: after any crash that leaves
    /// the new name, the data is there too. Does nothing without
    /// [`auto_da_alloc`](Settings::auto_da_alloc). Blocks for I/O. The caller has begun no
    /// transaction.
    ///
    /// # Errors
    /// The errors of write-back: the data is lost, and the other file should retain its name.
    pub fn write_before_rename(&self, node: &Arc<Node>) -> Result<(), Fault> {
        match self.cached_file(node).filter(|_| self.state.renewed.is_some()) {
            Some(file) => file.write_back().map(|_| ()),
            None => Ok(()),
        }
    }

    /// Returns the file and the blocks of an inode that is about to be renamed over another one, if
    /// [`write_before_rename`](Self::write_before_rename) may have to write it.
    pub(crate) fn written_with_rename<'a>(
        &'a self,
        node: &'a Arc<Node>,
    ) -> Option<(RegularFile<FileBlocks<'a>>, FileBlocks<'a>)> {
        self.state.renewed.as_ref()?;
        Some((self.cached_file(node)?, self.blocks(node)))
    }

    /// Writes back the files that were truncated to nothing and rewritten, before the log is forced
    /// for another reason. A sync of such a file reports its errors. Blocks for I/O.
    pub fn write_renewed(&self) {
        if let Some(renewed) = &self.state.renewed {
            renewed.write(|node| {
                if let Some(file) = self.cached_file(node) {
                    let _ = file.write_back();
                }
            });
        }
    }

    /// Makes a file durable: its data, and all of the inode that leads to it; without `data_only`
    /// its times as well. Blocks for I/O.
    ///
    /// A file that never had a name (`O_TMPFILE`) is written, and neither the log nor the device is
    /// flushed: no crash leaves the file. A transaction that names it shows this to other threads
    /// before it is committed (`Node::is_unnamed`). So if this call finds the file unnamed after
    /// all is written, that transaction is behind those of this call in the log, and the push that
    /// makes the name durable flushes the data of this call before.
    ///
    /// # Errors
    /// The errors of the device and the log that this call has met. [`Node::write_errors`] reports
    /// those of earlier write-back.
    pub fn sync(&self, node: &Arc<Node>, data_only: bool) -> Result<(), Fault> {
        self.store_times_early(node);
        let written = match self.cached_file(node) {
            Some(file) => file.write_back().map(|_| ()),
            None => Ok(()),
        };
        if let Err(Fault::ReadOnly) = written {
            return written;
        }
        if !data_only && node.has_new_times() {
            match self.blocks(node).store_times() {
                // The thread that sealed the volume has stored them.
                Err(Fault::ReadOnly) if !node.has_new_times() => {}
                stored => stored?,
            }
        }
        let volume = &self.state.volume;
        if node.is_unnamed() {
            return volume.check().and(written);
        }
        self.write_renewed();
        // The push has to do this otherwise, and other threads would wait for it. Data that was
        // written in place belongs to no transaction.
        volume.flush_data(node.data_written(|| volume.data_written()))?;
        volume.force(node.sequence())?;
        written
    }

    /// Queues an inode whose times have changed and were stored before; [`Node::follow_times`] has
    /// reported that. Never blocks.
    pub fn set_times_dirty(&self, node: &Arc<Node>) {
        self.state.dirty.push(Arc::clone(node));
    }

    /// Stores the times of a file whose pages have brought reserved storage for that, which is
    /// given back when they are written back. An error is left to the time after that.
    fn store_times_early(&self, node: &Arc<Node>) {
        if node.has_new_times() && self.state.volume.must_reserve() {
            let _ = self.blocks(node).store_times();
        }
    }

    /// Writes back the data and the times of an inode that was taken from the lists. Blocks for
    /// I/O.
    ///
    /// An error is recorded for the next sync of the volume; a file that can't be written now is
    /// queued again.
    fn write_node_back(&self, node: &Arc<Node>) -> Result<(), Fault> {
        self.store_times_early(node);
        // Directories and the like have no data of this kind, only times.
        let file = self.cached_file(node);
        let written = file.as_ref().map_or(Ok(()), |file| {
            file.pages().clear_queued();
            file.write_back().map(|_| ())
        });
        if let (Err(Fault::ReadOnly), Some(file)) = (&written, &file) {
            self.state.dirty.add(file.pages(), || Arc::clone(node));
        }
        if !node.has_new_times() {
            return written;
        }
        let blocks = self.blocks(node);
        let stored = blocks.store_times();
        match &stored {
            Err(Fault::ReadOnly) => self.state.dirty.push(Arc::clone(node)),
            // Nothing was reserved for times alone, such as those of reads: they stay in memory.
            Err(fault) if fault.is_refusal() && self.state.volume.must_reserve() => return written,
            Err(fault) => blocks.write_failed(fault),
            Ok(()) => {}
        }
        written.and(stored)
    }

    /// Writes back everything that is dirty at the call, so it is in the log, and waits for the
    /// files that other threads are writing back. Continues after an error. Blocks for I/O.
    ///
    /// # Errors
    /// The first error that this thread has met. [`write_errors`](Self::write_errors) reports all
    /// of them, those of other threads included.
    pub fn write_back_all(&self) -> Result<(), Fault> {
        let mut first_fault = None;
        self.state.dirty.write_all(|node| {
            if let Some(pages) = node.data() {
                pages.set_renewed(false);
            }
            if let Err(fault) = self.write_node_back(node) {
                first_fault.get_or_insert(fault);
            }
        });
        first_fault.map_or(Ok(()), Err)
    }

    /// Makes everything durable that was changed before the call. Continues after an error. Blocks
    /// for I/O.
    ///
    /// # Errors
    /// The errors of the log and the device, and the first one of write-back that this thread has
    /// met. [`write_errors`](Self::write_errors) reports those of other threads.
    pub fn sync_all(&self) -> Result<(), Fault> {
        let written = self.write_back_all();
        self.state.volume.sync().and(written)
    }

    /// Enters the gate of calls that change data. Sleeps while a cut has shut it. The caller has
    /// begun no transaction, and holds no lock of a file but that of the VFS.
    pub fn enter(&self) -> Inside<'_> {
        self.state.gate.enter()
    }

    /// Lets little become dirty while the result is held, and writes what is dirty until little is.
    /// Blocks for I/O.
    ///
    /// # Errors
    /// The first error of write-back that this thread has met.
    pub fn drain(&self) -> Result<LowDirty<'_>, Fault> {
        let low = self.pages().lower_dirty(PAGES_LEFT);
        for _ in 0..ROUNDS {
            self.write_back_all()?;
            if self.pages().unstable() <= PAGES_ENOUGH {
                break;
            }
        }
        Ok(low)
    }

    /// Shuts the gate: waits for the calls that are inside, and writes what is dirty. While the
    /// result is held, no data changes, and none is dirty. Blocks for I/O.
    ///
    /// # Errors
    /// The first error of write-back that this thread has met. The gate is open then.
    pub fn shut(&self) -> Result<Shut<'_>, Fault> {
        let shut = self.state.gate.shut();
        self.write_back_all()?;
        Ok(shut)
    }

    /// Waits for the end of a cut, or of a freeze.
    pub fn await_cut(&self) {
        drop(self.state.gate.shut());
    }

    /// Writes back in the background. Errors are recorded for the next sync of the volume.
    fn work(&self, woken: Woken) {
        let rounds = if woken == Woken::InTime { PASS_ROUNDS } else { 1 };
        for _ in 0..rounds {
            if let Err(fault) = self.write_back_all() {
                tracing::error!(%fault, "files can't be written back");
                break;
            }
            if self.state.dirty.is_empty() {
                break;
            }
        }
        if woken == Woken::InTime {
            self.write_renewed();
            if let Err(fault) = self.state.volume.sync() {
                tracing::error!(%fault, "changes can't be made durable");
            }
            self.state.discarder.pass(&self.state.volume);
        }
    }

    /// Returns whether everything that was dirty at the call is written back.
    pub(crate) fn is_written(&self) -> bool {
        self.state.dirty.is_written()
    }

    /// Frees all blocks of an inode behind `size`, and drops its data in memory. The inode has no
    /// user: it is freed (`size` 0), or a crash or an error has interrupted its truncation. Leaves
    /// the blocks of a file that [are freed with its
    /// inode](crate::inode::core::InodeCore::last_extents). Blocks for
    /// I/O.
    ///
    /// # Errors
    /// The errors of the device and the log, damage. Some blocks may be freed then.
    pub fn truncate_extents(&self, node: &Arc<Node>, size: u64) -> Result<(), Fault> {
        if let Some(file) = self.cached_file(node) {
            file.discard();
        }
        if node.stored().last_extents().is_some() {
            return Ok(());
        }
        match self.blocks(node).cut(size) {
            Truncation::Whole => Ok(()),
            Truncation::Part(fault) | Truncation::Failed(fault) => Err(fault),
        }
    }

    /// Ends the work in the background, and waits for its I/O. From then on data is written back
    /// only by explicit calls. May be called again.
    pub fn stop(&self) {
        self.state.read_ahead.stop();
        self.state.write_behind.stop();
        self.state.flusher.stop();
        self.state.discarder.stop();
    }
}

impl Throttle for Files {
    fn write_back_one(&self) -> bool {
        let Some(node) = self.state.dirty.take() else {
            thread::sleep(OTHERS_WRITE);
            return false;
        };
        if let Err(fault) = self.write_node_back(&node) {
            tracing::error!(ino = node.ino(), %fault, "a file can't be written back");
        }
        true
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("pages", &self.state.pages).finish_non_exhaustive()
    }
}
