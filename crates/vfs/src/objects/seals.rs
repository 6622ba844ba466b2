//! The seals of a memfd, as its inode stores them; see [`crate::objects::memfd_seals`].

use crate::base::lock_classes::InodeData;
pub use rustix::fs::SealFlags;
use vfscale_sync::atomic::{AtomicU32, Ordering};
use vfscale_sync::lock::assert_held;

/// Seals that forbid writes.
pub(crate) const NO_WRITES: SealFlags = SealFlags::WRITE.union(SealFlags::FUTURE_WRITE);

/// The seals that `F_SEAL_EXEC` adds to an executable file, which then cannot change any more.
pub(crate) const AS_IT_IS: SealFlags = NO_WRITES.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// The seals of a memfd.
pub(crate) struct Seals(AtomicU32);

impl Seals {
    /// Creates the seals of a new file.
    pub(crate) fn new(seals: SealFlags) -> Seals {
        Seals(AtomicU32::new(seals.bits()))
    }

    /// Returns the seals.
    pub(crate) fn get(&self) -> SealFlags {
        SealFlags::from_bits_retain(self.0.load(Ordering::Acquire))
    }

    /// Replaces the seals.
    pub(super) fn set(&self, seals: SealFlags) {
        assert_held::<InodeData>();
        self.0.store(seals.bits(), Ordering::Release);
    }
}
