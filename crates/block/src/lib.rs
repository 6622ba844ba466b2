//! The storage device trait, and its implementations.
//!
//! # Purpose
//!
//! A volume and its journal access storage through five calls: read, write, flush, discard and size
//! ([`Device`]). Every failure or loss of data enters through these calls. So the layers above run
//! the same code on a disk, in memory, and in a test that simulates a power failure.
//!
//! # Invariants
//!
//! * A call does all that was requested, or returns an error.
//! * An invalid range (outside of the device, or a write that is not in whole blocks) is an error
//!   that has changed nothing, and is never rounded to a valid one. Reads and discards may have any
//!   range.
//! * A write of one block is atomic. Of a larger write a crash may leave any subset of its blocks.
//! * Durable data is what a successful flush has covered: every write that *returned* before the
//!   flush was *called*. Nothing else is promised, in no order.
//! * Calls on disjoint ranges never wait for each other in this crate: no lock is held while a
//!   device works.
//!
//! # Devices
//!
//! | device | what durable means |
//! | --- | --- |
//! | [`FileDevice`] | on the disk: survives the process, the system, and a power failure |
//! | `RbdDevice` (feature `rbd`) | on the disks of a Ceph cluster, in as many copies as its pool
//! has |
//! | [`MemoryDevice`] | nothing: the data is lost with its process |
//! | [`CowDevice`] | nothing: a trial copy, whose base does not change |
//!
//! # Locks
//!
//! Leaf locks of rank 64850 and above: the caller may hold any lock of a file system.

mod aligned;
pub mod calendar;
mod ceph;
pub mod cow;
mod device;
mod error;
pub mod file;
pub mod guard;
mod holder;
pub mod memory;
pub mod named;
mod pending;
#[cfg(feature = "rbd")]
pub mod rbd;

pub use aligned::AlignedBuf;
pub use ceph::Ceph;
pub use cow::{CowDevice, DISCARDED};
pub use device::{CallRange, Device, Discards};
pub use error::{Error, Operation, OsError};
pub use file::{FileDevice, FileOptions};
pub use guard::Guarded;
pub use holder::Holder;
pub use memory::MemoryDevice;
pub use named::DeviceOptions;
pub use pending::PendingWrite;
#[cfg(feature = "rbd")]
pub use rbd::RbdDevice;
