//! The metadata of an open volume, in memory: the part of it that transactions change.

use std::sync::Arc;

use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::percpu_arc::{Kept, PerCpuArc};

use super::block_map::Places;
use super::credits::Credits;
use super::delayed_dirs::DelayedDirs;
use super::freed::FreedRegions;
use super::reader::Reader;
use crate::Uuid;
use crate::alloc::Groups;
use crate::alloc::space::Space;
use crate::buffer::BufferCache;
use crate::inode::orphans::VolumeOrphans;

/// The blocks of metadata in memory, and the owners of blocks and inodes. Shared by the volume and
/// the callbacks of its log, which make transactions as well. `Send` and `Sync`.
#[derive(Debug)]
pub(crate) struct Metadata {
    uuid: Uuid,
    places: Arc<Places>,
    cache: PerCpuArc<BufferCache>,
    shared: PerCpuArc<Shared>,
    orphans: VolumeOrphans,
    dirs: DelayedDirs,
    /// Not a part of this value: dirty pages own it, and orphans own their pages.
    credits: Arc<Credits>,
}

/// The state that transactions refer to until they are durable.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) groups: Groups,
    pub(crate) space: Space,
    /// The freed blocks that are to be discarded; `None` if the volume does not discard them.
    pub(crate) freed: Option<FreedRegions>,
    /// Transactions that were refused because they would have logged more than they had reserved.
    pub(super) overruns: AtomicU64,
}

impl Metadata {
    pub(super) fn new(
        (uuid, places): (Uuid, Arc<Places>),
        cache: PerCpuArc<BufferCache>,
        shared: PerCpuArc<Shared>,
        (orphans, dirs): (VolumeOrphans, DelayedDirs),
        credits: Credits,
    ) -> Self {
        Self { uuid, places, cache, shared, orphans, dirs, credits: Arc::new(credits) }
    }

    pub(super) fn uuid(&self) -> Uuid {
        self.uuid
    }

    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    pub(super) fn cache(&self) -> &PerCpuArc<BufferCache> {
        &self.cache
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns a reference to the shared state for users that may outlive the volume.
    pub(super) fn keep(&self) -> Kept<Shared> {
        self.shared.keep()
    }

    pub(crate) fn groups(&self) -> &Groups {
        &self.shared.groups
    }

    pub(crate) fn space(&self) -> &Space {
        &self.shared.space
    }

    pub(super) fn orphans(&self) -> &VolumeOrphans {
        &self.orphans
    }

    /// Returns the directories with delayed names.
    pub(crate) fn dirs(&self) -> &DelayedDirs {
        &self.dirs
    }

    /// Returns what is reserved on the device.
    pub(super) fn credits(&self) -> &Arc<Credits> {
        &self.credits
    }

    /// Returns a reader of the published state.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(&self.cache, &self.places)
    }

    /// Withdraws the free space of groups that are left out. May read their headers.
    #[cold]
    pub(crate) fn withdraw(&self) {
        self.groups().withdraw(&self.reader(), self.space());
    }

    pub(super) fn count_overrun(&self) {
        self.shared.overruns.fetch_add(1, Ordering::Relaxed);
    }
}
