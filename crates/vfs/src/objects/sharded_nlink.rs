//! The part of a directory's link count that is counted on each CPU; see `inode/nlink.rs`.

use vfscale_sync::percpu::SnapshotCounter;
use vfscale_sync::spread::Reservation;

/// Number of directories in a directory, counted on each CPU.
pub(crate) struct ShardedNlink {
    pub(super) count: SnapshotCounter,
    _reservation: Reservation,
}

impl ShardedNlink {
    /// Creates a zero count in `slots` parts; `None` if these do not fit.
    pub(super) fn new(slots: usize) -> Option<Box<ShardedNlink>> {
        let reservation = Reservation::take(SnapshotCounter::bytes(slots))?;
        Some(Box::new(ShardedNlink {
            count: SnapshotCounter::new(slots),
            _reservation: reservation,
        }))
    }
}
