//! The open file system: its parts, its opening and its end.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use vfscale_block::Device;
use vfscale_journal::Recovered;
use vfscale_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use vfscale_sync::errseq::ErrorCursor;
use vfscale_sync::lock::ThreadOwner;
use vfscale_sync::rcu;

use super::needs::TxReservations;
use super::stop::Stop;
use crate::Settings;
use crate::base::fault::Fault;
use crate::data::Files;
use crate::dir::NameHash;
use crate::format::superblock::Stopped;
use crate::icache::inactivate::{CutFn, Inactivator, Orphans};
use crate::icache::table::NodeTable;
use crate::volume::Volume;

/// The findings of the opening of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The contents of the log.
    pub log: Recovered,
    /// The orphans: files without names and users, or with an unfinished truncation.
    pub orphans: Orphans,
}

/// A volume as a file system. `Send` and `Sync`.
///
/// It can be mounted once. Dropping it without [`close`](Self::close) writes nothing more: as after
/// a crash, the next opening replays the durable changes. But a superblock drops its reference only
/// after grace periods; so an owner that does not close the file system [leaves](Self::leave) or
/// [abandons](Self::abandon) it.
pub struct DiskFs {
    pub(super) volume: Arc<Volume>,
    pub(super) table: Arc<NodeTable>,
    pub(super) files: Arc<Files>,
    pub(super) inactivator: Inactivator,
    pub(super) hash: NameHash,
    pub(super) needs: TxReservations,
    pub(super) stop: Stop,
    opened: Opened,
    pub(super) is_mounted: AtomicBool,
    /// The flags [`UNMOUNTED`] and [`LEFT`]; the thread that sets the second of them ends the file
    /// system.
    ended: AtomicU32,
    released: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// For how long the last cut has held calls up, in nanoseconds.
    pub(super) held_up: AtomicU64,
    /// The owner of the threads that do its work.
    owner: ThreadOwner,
}

/// The flag that is set when no mount is left.
pub(super) const UNMOUNTED: u32 = 1;
/// The flag that is set when the owner has [left](DiskFs::leave) the file system.
const LEFT: u32 = 2;

/// The bytes of the metadata cache per unused inode in memory.
const NODE_BYTES: u64 = 1024;

impl DiskFs {
    /// Opens the volume on `device`: replays its log, and finishes the freeing of orphans. Blocks
    /// for I/O.
    ///
    /// # Errors
    /// The errors of [`Volume::open`], and of freeing orphans.
    pub fn open(device: Arc<dyn Device>, settings: Settings) -> Result<Arc<Self>, Fault> {
        let owner = ThreadOwner::new();
        // The work items that this creates, and those that are created later, get it from this one.
        let _entered = owner.enter();
        let volume = Arc::new(Volume::open(device, settings.clone())?);
        let table = node_table(&settings);
        let files = Files::new(Arc::clone(&volume), &settings);
        let cut: Arc<CutFn> = {
            let files = Arc::clone(&files);
            Arc::new(move |node, size| files.truncate_extents(node, size))
        };
        let inactivator = Inactivator::new(Arc::clone(&volume), Arc::clone(&table), cut);
        let orphans = free_orphans(&volume, &files, &inactivator)?;
        let opened = Opened { log: *volume.recovered(), orphans };
        let hash = NameHash::of(volume.uuid());
        let superblock = volume.superblock();
        let needs = TxReservations::new(volume.groups(), superblock.log_blocks());
        let before = superblock.stopped.as_ref().map(Stopped::by);
        Ok(Arc::new(Self {
            volume,
            table,
            files,
            inactivator,
            hash,
            needs,
            stop: Stop::new(settings.on_error, before),
            opened,
            is_mounted: AtomicBool::new(false),
            ended: AtomicU32::new(0),
            released: OnceLock::new(),
            held_up: AtomicU64::new(0),
            owner,
        }))
    }

    /// Returns the owner of the threads that do its work, for a recording of its locks alone
    /// (`vfscale_vfs::lockstat::record_for`).
    #[must_use]
    pub fn thread_owner(&self) -> ThreadOwner {
        self.owner
    }

    /// Returns the findings of the opening.
    #[must_use]
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Returns the volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Makes everything durable, writes it back in place and closes the log. The file system is no
    /// longer mounted: later changes fail. Blocks for I/O. A second call does nothing.
    ///
    /// # Errors
    /// The errors of the device and the log; the next opening replays the durable changes.
    pub fn close(&self) -> Result<(), Fault> {
        if self.volume.journal().is_none() {
            return self.volume.close();
        }
        self.unseal();
        self.inactivator.flush();
        self.await_last_uses();
        self.files.await_cut();
        self.files.stop();
        let written = self.files.write_back_all();
        self.inactivator.stop();
        let left = self.volume.orphans().len();
        if left > 0 {
            tracing::warn!(left, "orphans are left for the next mount");
        }
        let closed = self.volume.close();
        // Errors that no open file has reported.
        let errors = self.files.write_errors();
        let untold = ErrorCursor::new(errors).advance(errors);
        let earlier = untold.map_or(Ok(()), |code| Err(Errno::from_raw_os_error(code).into()));
        closed.and(written).and(earlier)
    }

    /// Ends the file system without closing it, immediately or when its last mount ends, as
    /// [`abandon`](Self::abandon) does. Then calls `released`, once, for the owner of the device:
    /// from then on, no thread of the file system writes to the device. Waits only for I/O that has
    /// begun. The owner of the file system calls this once.
    pub fn leave(&self, released: impl Fn() + Send + Sync + 'static) {
        let is_first = self.released.set(Box::new(released)).is_ok();
        debug_assert!(is_first, "it has one owner");
        let was_mounted = self.is_mounted.load(Ordering::Acquire);
        self.end(if was_mounted { LEFT } else { LEFT | UNMOUNTED });
    }

    /// Sets one of the two flags; if both are set then, ends the file system.
    pub(super) fn end(&self, which: u32) {
        let before = self.ended.fetch_or(which, Ordering::AcqRel);
        let both = LEFT | UNMOUNTED;
        if before != both && before | which == both {
            self.abandon();
            if let Some(released) = self.released.get() {
                released();
            }
        }
    }

    /// Ends the work of the file system in the background, and writes nothing but the writes that
    /// have begun: as after a crash, the next opening replays the durable changes. Later changes
    /// fail. Does nothing after [`close`](Self::close). Blocks until these writes are done.
    pub fn abandon(&self) {
        end_work(&self.volume, &self.files, &self.inactivator);
    }

    /// Makes the volume writable again, and frees the orphans that could not be freed while it was
    /// sealed.
    pub(super) fn unseal(&self) {
        self.volume.unseal();
        self.inactivator.resume();
    }

    /// Waits until the counts of names that CPUs shared are collected, a grace period after the
    /// last use, and the files freed that have no other user. Gives up after a second, because a
    /// thread may be in the middle of a walk, or a device fail; the next mount frees what is left
    /// then.
    fn await_last_uses(&self) {
        let end = Instant::now() + Duration::from_secs(1);
        while !self.volume.orphans().is_empty() && Instant::now() < end {
            if rcu::run_due() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.inactivator.flush();
        }
    }

    /// Waits until files without names and users are freed, and their space is available.
    pub(super) fn settle(&self) -> Result<(), Fault> {
        self.inactivator.flush();
        self.files.write_renewed();
        self.volume.sync()?;
        self.volume.await_discard();
        Ok(())
    }
}

impl fmt::Debug for DiskFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskFs").field("volume", &self.volume).finish_non_exhaustive()
    }
}

/// Creates the table of inodes in memory, which joins a budget.
fn node_table(settings: &Settings) -> Arc<NodeTable> {
    let nodes = usize::try_from(settings.metadata_bytes() / NODE_BYTES).unwrap_or(usize::MAX);
    let shared = settings.cache_budget.as_ref().map(|budget| Arc::clone(budget.nodes()));
    let table = Arc::new(NodeTable::with_limit(nodes, shared.clone()));
    if let Some(shared) = shared {
        let weak: Weak<NodeTable> = Arc::downgrade(&table);
        shared.join(weak);
    }
    table
}

/// Frees the orphans of an earlier mount, unless the volume is open for reading only.
fn free_orphans(
    volume: &Volume,
    files: &Files,
    inactivator: &Inactivator,
) -> Result<Orphans, Fault> {
    if volume.is_read_only() {
        return Ok(Orphans::default());
    }
    let orphans = inactivator.recover().inspect_err(|_| {
        // Its work owns references to the volume, too.
        end_work(volume, files, inactivator);
    })?;
    if orphans != Orphans::default() {
        let Orphans { removed, cut, failed } = orphans;
        tracing::info!(removed, cut, failed, "orphans of an earlier mount");
    }
    Ok(orphans)
}

/// Ends all work in the background that writes to a volume, whatever is left to do.
fn end_work(volume: &Volume, files: &Files, inactivator: &Inactivator) {
    // This is first, so no thread waits for room in the log or begins another transaction then.
    volume.abandon();
    files.stop();
    inactivator.stop();
}
