//! The opening of a volume.

use std::sync::{Arc, Weak};

use vfscale_block::Device;
use vfscale_sync::atomic::{AtomicBool, AtomicU64};
use vfscale_sync::percpu_arc::PerCpuArc;
use vfscale_sync::{Mutex, cpu};

use super::block_map::Places;
use super::credits::Credits;
use super::delayed::DelayedWriter;
use super::delayed_dirs::DelayedDirs;
use super::freed::{FreedRegions, VolumeDiscards};
use super::known::{holds, known};
use super::log::{Logged, open_log, read_log};
use super::metadata::Shared;
use super::{Metadata, Reader, Volume, copies, grow, own_log};
use crate::Settings;
use crate::Uuid;
use crate::alloc::space::Space;
use crate::alloc::{Groups, Recorded};
use crate::base::fault::Fault;
use crate::base::reserve::fault_of;
use crate::buffer::BufferCache;
use crate::format::superblock::{LogPlace, Superblock};
use crate::format::{BLOCK_BYTES, byte_of_block};
use crate::inode::orphans::VolumeOrphans;

/// The ratio of the cache's memory limit to that of the groups' indexes.
const INDEX_SHARE: u64 = 8;

impl Volume {
    /// Opens the volume on `device`: finds the superblock, replays the log. A volume that was
    /// closed is not written before the first transaction, and only the superblocks and two blocks
    /// of the log are read. The headers of the groups are read in addition after a crash, or if
    /// orphans are left, or if the volume was closed by an older program.
    ///
    /// Blocks for the I/O, for a time that depends on the size of the log unless the volume was
    /// closed.
    ///
    /// # Errors
    /// No volume, or one that this program can't use; the errors of the log and of the device, and
    /// damage. [`Fault::NeedsRepair`] after an interrupted repair, unless the settings ignore the
    /// log.
    pub fn open(device: Arc<dyn Device>, mut settings: Settings) -> Result<Self, Fault> {
        let found = copies::read(&*device)?;
        // A copy that is old or damaged is replaced at once.
        settings.journal.opens_late = found.is_whole();
        let read_only = settings.read_only || settings.no_recovery;
        if found.is_read_only() && !read_only {
            return Err(Fault::ReadOnly);
        }
        let mut superblock = found.superblock;
        if superblock.features.needs_repair() && !settings.no_recovery {
            return Err(Fault::NeedsRepair);
        }
        if let Some(stopped) = &superblock.stopped {
            let why = stopped.why();
            tracing::warn!(
                why,
                "an earlier mount has stopped: `vfscale fsck --repair` is to check the volume"
            );
        }
        let replayed =
            if read_only { None } else { own_log::ensure(&device, &mut superblock, &settings)? };
        settings.journal.is_unused = replayed.is_some();
        let (uuid, geometry) = (superblock.volume(), superblock.geometry());
        let places = Arc::new(Places::new(&superblock));
        let look = if read_only { read_log } else { open_log };
        let Logged { device, hooks, journal, recovered } =
            look(device, &superblock, &places, &settings).map_err(replay_fault)?;
        let cache = block_cache(device.clone(), uuid, &settings);
        hooks.set_write_queue(cache.write_queue());
        let reader = Reader::new(&cache, &places);
        let last = (!settings.no_recovery).then_some(recovered.last);
        // An opening that ignores the log does not know its end.
        let is_unread = settings.no_recovery && !known(&superblock).is_new;
        let recorded = superblock.sums.filter(|_| is_unread || holds(&superblock, &recovered));
        let recorded = recorded.map(|sums| Recorded { sums, last });
        let groups = Groups::load(&reader, geometry, superblock.log(), recorded)?;
        groups.set_index_bytes(settings.metadata_bytes() / INDEX_SHARE);
        let space = Space::new(&groups.totals(), settings.journal.scaling.read_mostly());
        let is_thin = || device.discards().is_some_and(|how| how.is_thin);
        let discards = journal.is_some() && settings.discard.unwrap_or_else(is_thin);
        let freed = discards.then(FreedRegions::default);
        let shared = Shared { groups, space, freed, overruns: AtomicU64::new(0) };
        let slots = cpu::most_slots() as usize;
        let cache = PerCpuArc::new(slots, cache);
        let shared = PerCpuArc::new(slots, Arc::new(shared));
        let orphans = VolumeOrphans::new(settings.journal.scaling.orphan_parts());
        let log_bytes = superblock.log_blocks() * BLOCK_BYTES as u64;
        let dirs = DelayedDirs::new(log_bytes, settings.dir_heat);
        let credits = credits(&device, journal.is_some(), &superblock);
        let opened = Self {
            device,
            metadata: Metadata::new((uuid, places), cache, shared, (orphans, dirs), credits).into(),
            superblock: Arc::new(Mutex::new(superblock)),
            hooks,
            journal,
            is_sealed: AtomicBool::new(false),
            is_noted: AtomicBool::new(false),
            recovered: replayed.unwrap_or(recovered),
            discards: VolumeDiscards::new(),
        };
        if let Some(journal) = &opened.journal {
            opened.hooks.set_superblock(Arc::clone(&opened.superblock));
            if journal.has_epoch() {
                opened.credits().prepare()?;
                let log_seen = opened.log_seen();
                opened.update_superblock(|superblock| superblock.note_mount(log_seen))?;
            }
            opened.hooks.set_delayed(Box::new(DelayedWriter::new(Arc::clone(&opened.metadata))));
            opened.groups().delayed().open(log_bytes, settings.journal.scaling.busy_extents());
            opened.metadata.dirs().open();
            grow::finish(&opened)?;
        }
        Ok(opened)
    }
}

/// Creates the account of what the volume reserves on its device: among others the log and the
/// superblocks, which are written again and again. Copies that the volume has not yet are included,
/// if the device has room.
fn credits(device: &Arc<dyn Device>, is_writable: bool, superblock: &Superblock) -> Credits {
    let blocks = |start: u64, blocks: u64| byte_of_block(start)..byte_of_block(start + blocks);
    let log = match superblock.log() {
        LogPlace::Inside { start, .. } => Some(blocks(start, superblock.log_blocks())),
        LogPlace::Outside { .. } => None,
    };
    let copies = superblock.geometry().copies().map(|copy| blocks(copy, 1));
    let fixed = copies.filter(|copy| copy.end <= device.size()).chain(log).collect();
    Credits::new(Arc::clone(device), is_writable, fixed, superblock.log_blocks())
}

/// Returns the fault of an opening whose replay of the log has failed: a lack of storage is told as
/// such. The log is as before then.
fn replay_fault(fault: Fault) -> Fault {
    match fault {
        Fault::Journal(vfscale_journal::Error::Device(error)) => match fault_of(error.clone()) {
            fault if fault.is_refusal() => fault,
            _ => Fault::Journal(error.into()),
        },
        fault => fault,
    }
}

/// Creates the cache of metadata blocks, which joins the budget of the settings.
fn block_cache(device: Arc<dyn Device>, volume: Uuid, settings: &Settings) -> Arc<BufferCache> {
    let shared = settings.cache_budget.as_ref().map(|budget| Arc::clone(budget.blocks()));
    let cache = BufferCache::with_limit(device, volume, settings.metadata_bytes(), shared.clone());
    let cache = Arc::new(cache);
    if let Some(shared) = shared {
        let weak: Weak<BufferCache> = Arc::downgrade(&cache);
        shared.join(weak);
    }
    cache
}
