//! The fields that every commit reads, separated from those that commits write.
//!
//! Chinner's per-CPU delayed logging patches (2020, patch 1) begin with a field that is never
//! written after the mount, but shared a cache line with a counter that every transaction writes:
//! reading it cost a quarter of the time on one machine. Here the fields that every transaction
//! reads (whether the journal is shut down or frozen, the current context, whether that is empty,
//! how full it may get) have cache lines of their own. Without the `read_mostly` setting they share
//! a line with the written fields.

use vfscale_sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use vfscale_sync::percpu::CachePadded;

/// The fields that every transaction reads. Written when the context is switched, and at the events
/// that they are named after.
#[repr(C)]
pub(crate) struct ReadMostly {
    /// Number of the current context, from 1 on. Written under the context lock.
    pub(crate) sequence: AtomicU64,
    /// Size from which on the CIL is pushed, in bytes.
    pub(crate) cil_bytes: u64,
    /// Number of bytes that a CPU adds to the common sum in one step.
    pub(crate) cil_batch: u64,
    /// Whether nothing is committed in the current context. Set under the writer's side of the
    /// context lock, cleared by the first commit under the reader's.
    pub(crate) is_empty: AtomicBool,
    pub(crate) is_shut: AtomicBool,
    pub(crate) is_frozen: AtomicBool,
    /// Whether the epoch has begun: not in a log that was opened late and has no transaction yet.
    pub(crate) has_epoch: AtomicBool,
    is_apart: bool,
}

/// The fields that transactions write.
#[repr(C)]
pub(crate) struct WriteMostly {
    /// Bytes in the CIL, up to a batch more or less for each CPU; negative if CPUs have not added
    /// yet what others have taken back.
    pub(crate) cil_bytes: AtomicI64,
    /// Number of active transactions, if they are counted in one number.
    pub(crate) active: AtomicI64,
}

impl WriteMostly {
    fn new() -> Self {
        Self { cil_bytes: AtomicI64::new(0), active: AtomicI64::new(0) }
    }
}

/// The fields of both kinds. CPUs fetch cache lines in pairs, so the kinds are 128 bytes apart.
#[repr(C, align(128))]
pub(crate) struct SharedFields {
    pub(crate) read: ReadMostly,
    together: WriteMostly,
    apart: CachePadded<WriteMostly>,
}

#[cfg(not(shuttle))]
const _: () = {
    use std::mem::offset_of;
    // Setting before the patch: all fields are in one line of 64 bytes.
    assert!(offset_of!(SharedFields, together) + size_of::<WriteMostly>() <= 64);
    // With the patch: no pair of lines has fields of both kinds.
    assert!(offset_of!(SharedFields, apart) >= 128 && offset_of!(SharedFields, apart) % 128 == 0);
    assert!(size_of::<SharedFields>() == 256 && align_of::<SharedFields>() == 128);
};

impl SharedFields {
    pub(crate) fn new(is_apart: bool, sequence: u64, cil_bytes: u64, cil_batch: u64) -> Self {
        Self {
            read: ReadMostly {
                sequence: AtomicU64::new(sequence),
                cil_bytes,
                cil_batch,
                is_empty: AtomicBool::new(true),
                is_shut: AtomicBool::new(false),
                is_frozen: AtomicBool::new(false),
                has_epoch: AtomicBool::new(true),
                is_apart,
            },
            together: WriteMostly::new(),
            apart: CachePadded::new(WriteMostly::new()),
        }
    }

    /// Returns the written fields of the active layout.
    #[inline]
    pub(crate) fn written(&self) -> &WriteMostly {
        if self.read.is_apart { &self.apart } else { &self.together }
    }
}
