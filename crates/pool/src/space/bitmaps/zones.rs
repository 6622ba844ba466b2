//! The zones of a pool, in memory: room for each is made when it is used first.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use vfscale_sync::{Mutex, MutexGuard};

use crate::disk::format::ZONES_MAX;

vfscale_sync::lock_class! {
    /// The free places of one zone.
    pub(crate) PoolZone = ("pool_zone", 64070) sleeping;
}

/// Zones that get their room together.
const SEGMENT_ZONES: usize = 64;

/// Room for a zone.
struct Slot<M> {
    /// Its bitmaps; `None` before the zone is needed.
    maps: Mutex<Option<M>, PoolZone>,
    /// How many leases prefer it.
    lessees: AtomicU32,
}

/// Room for some zones, once one of them is used.
type Segment<M> = OnceLock<Box<[Slot<M>]>>;

/// Room for as many zones as a pool may have.
pub(super) struct Zones<M> {
    segments: Box<[Segment<M>]>,
}

/// The bitmaps of a zone that is locked.
pub(super) type Locked<'z, M> = MutexGuard<'z, Option<M>, PoolZone>;

impl<M> Zones<M> {
    pub(super) fn new() -> Self {
        let count = (ZONES_MAX as usize).div_ceil(SEGMENT_ZONES);
        Self { segments: (0..count).map(|_| OnceLock::new()).collect() }
    }

    fn slot(&self, zone: usize) -> &Slot<M> {
        let slot = |_| Slot { maps: Mutex::new(None), lessees: AtomicU32::new(0) };
        let make = || (0..SEGMENT_ZONES).map(slot).collect();
        &self.segments[zone / SEGMENT_ZONES].get_or_init(make)[zone % SEGMENT_ZONES]
    }

    pub(super) fn lock(&self, zone: usize) -> Locked<'_, M> {
        self.slot(zone).maps.lock()
    }

    pub(super) fn lessees(&self, zone: usize) -> &AtomicU32 {
        &self.slot(zone).lessees
    }
}
