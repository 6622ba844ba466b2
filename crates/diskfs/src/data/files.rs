//! The files of a volume: their data, and the thread that writes them back.
//!
//! # Dirty files
//!
//! Seed 004 has the kernel's lists of dirty inodes under `inode_lock`, together with everything
//! else that it is to take apart. Here they are this driver's, a list and a lock for each CPU
//! ([`DirtyFiles`]), and not those of the VFS, for three reasons. A file in memory is never dirty,
//! and would pay for two links and a look. What is dirty outlives what the VFS knows of it: an
//! inode may be evicted, and its data are still to be written; so the lists hold [`Node`]s, which
//! stay until then. And who writes back asks the driver alone: for how much there is, and in which
//! order it is to reach the device.
//!
//! A file becomes dirty on the list of the CPU that makes it dirty, once for its data and once for
//! its times, and takes that list's lock for that alone: as long as it is there, writing to it
//! touches no list (`FilePages::set_queued`); whoever makes the file durable leaves it there, so
//! that a file which is appended to and synced ten thousand times in a second is on a list once.
//! Each thread that writes back takes one file at a time, from its own CPU's list first, and
//! whoever makes everything durable waits for the files that other threads have taken
//! ([`dirty`](crate::page_cache::DirtyFiles)).
//!
//! # In time
//!
//! What nobody syncs is durable after the interval, data with their names: every half of it the
//! background writer writes back what is dirty, and then forces the log. The log pushes nothing by
//! itself meanwhile, or the names of files would be durable before their data.
//!
//! # Files that replace others
//!
//! A program that writes a file anew, and renames it over the old one or has cut that to nothing
//! before, relies on finding one of the two after a crash, though it has synced neither. So data
//! are written back before a rename over another file is committed
//! ([`Files::write_before_rename`]), and those of a file that was cut to nothing before the log is
//! forced for the sake of another file ([`Files::sync`]); ext4 has this as `auto_da_alloc`.
//!
//! # A volume that is sealed
//!
//! Nothing is written to it. A file that is dirty all the same stays so, on its list, until the
//! volume can be written again: no page is dropped because it came at a bad moment.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use vfscale_sync::atomic::thread::{self, JoinHandle};
use vfscale_sync::errseq::ErrorSeq;
use vfscale_sync::{Condvar, Mutex, cpu, lock_class};

use super::ahead::ReadAhead;
use super::bad_blocks::BadBlocks;
use super::node_store::NodeStore;
use super::renewed::Renewed;
use crate::base::fault::Fault;
use crate::inode::incore::Node;
use crate::page_cache::{Cut, DirtyFiles, FilePages, PageCache, RegularFile, Store};
use crate::volume::Volume;

lock_class! {
    /// The work of the write-back thread.
    pub WriterLock = ("bdi_work", 31150);
}
lock_class! {
    /// The thread itself, for who ends it.
    pub WriterThreadLock = ("bdi_thread", 31160);
}

/// How long a writer sleeps if all that is dirty is being written back by others.
const OTHERS_WRITE: Duration = Duration::from_millis(1);
/// The smallest share of the log that a transaction may need.
const LOG_SHARE: u64 = 4;
/// How many bytes `stat` counts in.
const SECTORS_PER_BLOCK: u64 = 8;

/// The data of the files of an open volume. `Send` and `Sync`.
///
/// A thread writes back what is dirty, every so often and when there is much of it. Dropped without
/// [`stop`](Self::stop), it waits for that thread.
pub struct Files {
    volume: Arc<Volume>,
    pages: Arc<PageCache>,
    dirty: DirtyFiles<Arc<Node>>,
    /// Errors of write-back of any file (`s_wb_err`).
    write_errors: ErrorSeq,
    /// Files that were cut to nothing and are written anew.
    renewed: Option<Renewed>,
    bad_blocks: BadBlocks,
    log_blocks_max: u32,
    writer: Arc<Writer>,
    thread: Mutex<Option<JoinHandle<()>>, WriterThreadLock>,
    this: Weak<Files>,
    ahead: Arc<ReadAhead>,
}

/// How the files of a volume are kept.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// How many bytes of data are in memory.
    pub cache_bytes: u64,
    /// After how long what nobody has synced is durable; `None`: only when room is needed.
    pub interval: Option<Duration>,
    /// On how many lists files are that have something to be written back.
    pub dirty_lists: usize,
    /// The data of a file that replaces another are written before that is durable.
    pub auto_da_alloc: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        let (cache_bytes, dirty_lists) = (256 << 20, cpu::possible() as usize);
        Self { cache_bytes, interval: None, dirty_lists, auto_da_alloc: true }
    }
}

/// The state that the write-back thread waits for.
#[derive(Default)]
struct Writer {
    work: Mutex<Work, WriterLock>,
    wake: Condvar,
}

#[derive(Default)]
struct Work {
    is_asked: bool,
    is_over: bool,
}

impl Files {
    /// Serves the files of `volume`, with up to `cache_bytes` bytes of data in memory; what is
    /// dirty is durable after `interval`, if there is one, and written back when there is much of
    /// it.
    #[must_use]
    pub fn new(volume: Arc<Volume>, cache_bytes: u64, interval: Option<Duration>) -> Arc<Self> {
        Self::with_options(volume, FileOptions { cache_bytes, interval, ..FileOptions::default() })
    }

    /// Serves the files of `volume`.
    #[must_use]
    pub fn with_options(volume: Arc<Volume>, options: FileOptions) -> Arc<Self> {
        let FileOptions { cache_bytes, interval, dirty_lists, auto_da_alloc } = options;
        let log_blocks = volume.superblock().log().blocks();
        let files = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            ahead: Arc::default(),
            pages: PageCache::new(cache_bytes, cpu::possible() as usize),
            dirty: DirtyFiles::new(dirty_lists),
            write_errors: ErrorSeq::new(),
            renewed: auto_da_alloc.then(|| Renewed::new(dirty_lists)),
            bad_blocks: BadBlocks::default(),
            log_blocks_max: u32::try_from(log_blocks / LOG_SHARE).unwrap_or(u32::MAX),
            writer: Arc::default(),
            thread: Mutex::new(None),
            volume,
        });
        if !files.volume.is_read_only() {
            let (this, writer) = (Arc::downgrade(&files), Arc::clone(&files.writer));
            let thread = thread::spawn(move || writer.run(&this, interval));
            *files.thread.lock() = Some(thread);
        }
        files
    }

    /// Returns the volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Returns the page cache.
    #[must_use]
    pub fn pages(&self) -> &Arc<PageCache> {
        &self.pages
    }

    /// Returns the errors of write-back of all files.
    #[must_use]
    pub fn write_errors(&self) -> &ErrorSeq {
        &self.write_errors
    }

    pub(super) fn bad_blocks(&self) -> &BadBlocks {
        &self.bad_blocks
    }

    pub(super) fn renewed(&self) -> Option<&Renewed> {
        self.renewed.as_ref()
    }

    pub(super) fn log_blocks_max(&self) -> u32 {
        self.log_blocks_max
    }

    fn store<'a>(&'a self, node: &'a Arc<Node>) -> NodeStore<'a> {
        NodeStore { files: self, node }
    }

    /// Returns the regular file of an inode, for a call.
    #[must_use]
    pub fn file<'a>(&'a self, node: &'a Arc<Node>) -> RegularFile<NodeStore<'a>> {
        let pages = node.data_or_init(|core| FilePages::new(&self.pages, core.size));
        RegularFile::new(pages, self.store(node))
    }

    /// Returns the regular file of an inode; `None` if no page of it was ever read or written since
    /// the inode is in memory: directories and the like have none.
    fn cached_file<'a>(&'a self, node: &'a Arc<Node>) -> Option<RegularFile<NodeStore<'a>>> {
        node.data().map(|pages| RegularFile::new(pages, self.store(node)))
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn size(&self, node: &Arc<Node>) -> u64 {
        node.data().map_or_else(|| node.core().size, |data| data.size())
    }

    /// Returns the blocks of 512 bytes that it has or will have: pages that wait for a block count.
    #[must_use]
    pub fn blocks_512(&self, node: &Arc<Node>) -> u64 {
        let delayed = node.data().map_or(0, |data| data.delayed_blocks());
        node.core().blocks.saturating_add(delayed).saturating_mul(SECTORS_PER_BLOCK)
    }

    /// Writes the data of a file back that is about to take the name of another, so that whatever
    /// crash leaves the new name leaves the data. Does nothing if the files are used without
    /// [`auto_da_alloc`](FileOptions::auto_da_alloc). Blocks for I/O. The caller has begun no
    /// transaction.
    ///
    /// # Errors
    /// Those of write-back: the data are lost, and the other file had better keep its name.
    pub fn write_before_rename(&self, node: &Arc<Node>) -> Result<(), Fault> {
        match self.cached_file(node).filter(|_| self.renewed.is_some()) {
            Some(file) => file.write_back().map(|_| ()),
            None => Ok(()),
        }
    }

    /// Writes files back that were cut to nothing and written anew, before the log is forced for
    /// another reason. An error is kept for whoever syncs such a file. Blocks for I/O.
    pub fn write_renewed(&self) {
        if let Some(renewed) = &self.renewed {
            renewed.write(|node| {
                if let Some(file) = self.cached_file(node) {
                    let _ = file.write_back();
                }
            });
        }
    }

    /// Makes the file durable: its data, and all of the inode that leads to them; without
    /// `data_only` its times as well. Blocks for I/O.
    ///
    /// # Errors
    /// Those of the device and the log that this call has met. Those of earlier write-back are told
    /// by [`Node::write_errors`].
    pub fn sync(&self, node: &Arc<Node>, data_only: bool) -> Result<(), Fault> {
        let written = match self.cached_file(node) {
            Some(file) => file.write_back().map(|_| ()),
            None => Ok(()),
        };
        if let Err(Fault::ReadOnly) = written {
            return written;
        }
        if !data_only && node.has_new_times() {
            match self.store(node).store_times() {
                // The thread that sealed the volume has stored them.
                Err(Fault::ReadOnly) if !node.has_new_times() => {}
                stored => stored?,
            }
        }
        self.write_renewed();
        let to_flush = self.volume.data_written();
        self.volume.force(node.sequence())?;
        // Data that was written in place belongs to no transaction. The checkpoint, if there was
        // one, has covered the rest.
        self.volume.flush_data(to_flush)?;
        written
    }

    /// Says that the times of an inode have changed in passing, and were stored before
    /// ([`Node::set_times`] has said so). Never blocks.
    pub fn set_times_dirty(&self, node: &Arc<Node>) {
        self.dirty.push(Arc::clone(node));
    }

    pub(super) fn set_dirty(&self, node: &Arc<Node>, pages: &FilePages) {
        self.dirty.add(pages, || Arc::clone(node));
        if self.pages.is_dirty() {
            self.writer.ask();
        }
    }

    /// Writes back what one file has that was taken off the lists: data, and times. Blocks for I/O.
    ///
    /// An error is kept for whoever makes the volume durable; a file that can't be written now is
    /// put back.
    fn write_node_back(&self, node: &Arc<Node>) -> Result<(), Fault> {
        // Directories and the like have no data of this kind, only times.
        let file = self.cached_file(node);
        let store = self.store(node);
        let written = file.as_ref().map_or(Ok(()), |file| {
            file.pages().clear_queued();
            file.write_back().map(|_| ())
        });
        if let (Err(Fault::ReadOnly), Some(file)) = (&written, &file) {
            self.dirty.add(file.pages(), || Arc::clone(node));
        }
        if !node.has_new_times() {
            return written;
        }
        let stored = store.store_times();
        match &stored {
            Err(Fault::ReadOnly) => self.dirty.push(Arc::clone(node)),
            Err(fault) => store.write_failed(fault),
            Ok(()) => {}
        }
        written.and(stored)
    }

    /// Writes all back that is dirty at the moment, so that it is in the log, and waits for what
    /// other threads are writing back. Goes on after an error. Blocks for I/O.
    ///
    /// # Errors
    /// The first one that this thread has met. All of them, also those of other threads, are told
    /// by [`write_errors`](Self::write_errors).
    pub fn write_back_all(&self) -> Result<(), Fault> {
        let mark = self.dirty.mark();
        let mut outcome = Ok(());
        while let Some(node) = self.dirty.take_before(&mark) {
            if let Some(data) = node.data() {
                data.set_renewed(false);
            }
            outcome = outcome.and(self.write_node_back(&node));
        }
        self.dirty.wait(&mark);
        outcome
    }

    /// Makes everything durable that was changed before the call. Goes on after an error. Blocks
    /// for I/O.
    ///
    /// # Errors
    /// Those of the log and the device, and the first one of write-back that this thread has met.
    /// Those of other threads are told by [`write_errors`](Self::write_errors).
    pub fn sync_all(&self) -> Result<(), Fault> {
        let written = self.write_back_all();
        self.volume.sync().and(written)
    }

    /// Does a turn of the background writer. What it meets is kept for whoever makes the volume
    /// durable.
    fn work(&self, woken: Woken) {
        if let Err(fault) = self.write_back_all() {
            tracing::error!(%fault, "files can't be written back");
        }
        if woken == Woken::InTime {
            self.write_renewed();
            if let Err(fault) = self.volume.sync() {
                tracing::error!(%fault, "changes can't be made durable");
            }
        }
    }

    /// Writes one file back, for who wants memory. False if there is none: others write, and this
    /// has waited a moment for them.
    pub(super) fn relieve(&self) -> bool {
        let Some(node) = self.dirty.take() else {
            thread::sleep(OTHERS_WRITE);
            return false;
        };
        if let Err(fault) = self.write_node_back(&node) {
            tracing::error!(ino = node.ino(), %fault, "a file can't be written back");
        }
        true
    }

    /// Returns whether everything that was dirty at the call is written back.
    pub(crate) fn is_written(&self) -> bool {
        self.dirty.is_written()
    }

    /// Frees all blocks of an inode behind `size`, and forgets what is in memory of it: it is gone
    /// (`size` 0), or it was being cut when the volume was last used. Nobody uses it. Blocks for
    /// I/O.
    ///
    /// # Errors
    /// Those of the device and the log, damage. Some blocks may be freed by then.
    pub fn truncate_extents(&self, node: &Arc<Node>, size: u64) -> Result<(), Fault> {
        let store = self.store(node);
        if let Some(file) = self.cached_file(node) {
            file.discard();
        }
        match store.cut(size) {
            Cut::Whole => Ok(()),
            Cut::Part(fault) | Cut::Failed(fault) => Err(fault),
        }
    }

    /// Asks for pages of a file that are to be brought into memory.
    pub(super) fn read_ahead(&self, node: &Arc<Node>, from: u64, to: u64) {
        self.ahead.ask(&self.this, node, from, to);
    }

    /// Brings pages of a file into memory. Blocks for I/O.
    pub(super) fn bring(&self, node: &Arc<Node>, from: u64, to: u64) {
        if let Some(file) = self.cached_file(node) {
            file.bring(from, to);
        }
    }

    /// Ends the threads; waits for what they are doing. Nothing is written back any more unless it
    /// is asked for. May be called again.
    pub fn stop(&self) {
        self.ahead.stop();
        self.writer.end();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id())
        {
            // The result says nothing: a panic was reported already.
            let _ = thread.join();
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("pages", &self.pages).finish_non_exhaustive()
    }
}

impl Writer {
    fn ask(&self) {
        let mut work = self.work.lock();
        if !work.is_asked {
            work.is_asked = true;
            self.wake.notify_all();
        }
    }

    fn end(&self) {
        self.work.lock().is_over = true;
        self.wake.notify_all();
    }

    /// Waits for something to do: for `rest` at most, if that is given.
    fn wait(&self, rest: Option<Duration>) -> Woken {
        let mut work = self.work.lock();
        let mut is_time = false;
        if !work.is_asked && !work.is_over {
            (work, is_time) = match rest {
                Some(rest) => self.wake.wait_for(work, rest),
                None => (self.wake.wait(work), false),
            };
        }
        work.is_asked = false;
        match work.is_over {
            true => Woken::IsOver,
            false if is_time => Woken::InTime,
            false => Woken::IsAsked,
        }
    }

    /// Writes back when there is much that is dirty, and makes everything durable in every half of
    /// `interval`: what came right after one turn is durable when the next one ends.
    fn run(&self, files: &Weak<Files>, interval: Option<Duration>) {
        let half = interval.map(|interval| interval / 2);
        let mut next = half.map(|half| Instant::now() + half);
        loop {
            let rest = next.map(|next| next.saturating_duration_since(Instant::now()));
            let woken = self.wait(rest);
            let Some(files) = files.upgrade().filter(|_| woken != Woken::IsOver) else { return };
            if woken == Woken::InTime {
                next = half.map(|half| Instant::now() + half);
            }
            // When nothing can be written any more, dirty pages are dropped when their memory is
            // needed.
            if !files.volume.is_read_only() && files.volume.failure().is_none() {
                files.work(woken);
            }
        }
    }
}

/// Why the background writer has woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// Much is dirty.
    IsAsked,
    InTime,
    IsOver,
}
