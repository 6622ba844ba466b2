//! What every commit reads, apart from what commits write.
//!
//! Seed 003 begins with a field that is never written after the mount, on the line of a counter
//! that every transaction writes: reading it cost a quarter of the time of one machine. Here the
//! fields that every transaction reads (is the journal shut down, is it frozen, which context is
//! it, is that empty, how full may it get) are on lines of their own, and the written ones are on
//! others. With `read_mostly` taken back they share a line.

use vfscale_sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use vfscale_sync::percpu::Apart;

/// Read by every transaction; written when a context changes, and at the events they are named after.
#[repr(C)]
pub(crate) struct ReadMostly {
    /// The number of the current context, from 1 on. Written under the context lock.
    pub(crate) sequence: AtomicU64,
    /// The CIL is pushed from this many bytes on.
    pub(crate) cil_bytes: u64,
    /// How much a CPU adds to the common sum at once.
    pub(crate) cil_batch: u64,
    /// Nothing is committed in the current context. Set under the writer's side of the context
    /// lock, cleared by the first commit under the reader's.
    pub(crate) is_empty: AtomicBool,
    pub(crate) is_shut: AtomicBool,
    pub(crate) is_frozen: AtomicBool,
    is_spread: bool,
}

/// Written by transactions.
#[repr(C)]
pub(crate) struct Written {
    /// The bytes in the CIL, without what CPUs have not added yet.
    pub(crate) cil_bytes: AtomicU64,
    /// Active transactions, where they are one number.
    pub(crate) active: AtomicI64,
}

impl Written {
    fn new() -> Self {
        Self { cil_bytes: AtomicU64::new(0), active: AtomicI64::new(0) }
    }
}

/// The central fields. Lines are fetched in pairs, so they are kept 128 bytes apart.
#[repr(C, align(128))]
pub(crate) struct Central {
    pub(crate) read: ReadMostly,
    packed: Written,
    spread: Apart<Written>,
}

#[cfg(not(shuttle))]
const _: () = {
    use std::mem::offset_of;
    // The setting before the patch: all of it in one line of 64 bytes.
    assert!(offset_of!(Central, packed) + size_of::<Written>() <= 64);
    // And after it: no pair of lines has fields of both kinds.
    assert!(offset_of!(Central, spread) >= 128 && offset_of!(Central, spread) % 128 == 0);
    assert!(size_of::<Central>() == 256 && align_of::<Central>() == 128);
};

impl Central {
    pub(crate) fn new(is_spread: bool, sequence: u64, cil_bytes: u64, cil_batch: u64) -> Self {
        Self {
            read: ReadMostly {
                sequence: AtomicU64::new(sequence),
                cil_bytes,
                cil_batch,
                is_empty: AtomicBool::new(true),
                is_shut: AtomicBool::new(false),
                is_frozen: AtomicBool::new(false),
                is_spread,
            },
            packed: Written::new(),
            spread: Apart(Written::new()),
        }
    }

    /// The written fields, wherever they are.
    #[inline]
    pub(crate) fn written(&self) -> &Written {
        if self.read.is_spread { &*self.spread } else { &self.packed }
    }
}
