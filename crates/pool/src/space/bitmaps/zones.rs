//! The zones of a pool, in memory: room for each is made when it is used first.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use vfscale_sync::{Mutex, MutexGuard};

use super::{Maps, PoolZone};
use crate::disk::format::ZONES_MAX;

/// Zones that get their room together.
const SEGMENT: usize = 64;

/// Room for a zone.
#[derive(Default)]
struct Slot {
    /// `None` before the zone is needed.
    maps: Mutex<Option<Maps>, PoolZone>,
    /// How many leases prefer it.
    lessees: AtomicU32,
}

/// Room for as many zones as a pool may have.
pub(super) struct Zones {
    segments: Box<[OnceLock<Box<[Slot]>>]>,
}

/// The bitmaps of a zone that is locked.
pub(super) type Locked<'z> = MutexGuard<'z, Option<Maps>, PoolZone>;

impl Zones {
    pub(super) fn new() -> Self {
        let count = (ZONES_MAX as usize).div_ceil(SEGMENT);
        Self { segments: (0..count).map(|_| OnceLock::new()).collect() }
    }

    fn slot(&self, zone: usize) -> &Slot {
        let make = || (0..SEGMENT).map(|_| Slot::default()).collect();
        &self.segments[zone / SEGMENT].get_or_init(make)[zone % SEGMENT]
    }

    pub(super) fn lock(&self, zone: usize) -> Locked<'_> {
        self.slot(zone).maps.lock()
    }

    pub(super) fn lessees(&self, zone: usize) -> &AtomicU32 {
        &self.slot(zone).lessees
    }
}
