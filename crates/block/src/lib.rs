//! The small device trait, and the devices behind it.
//!
//! # Purpose
//!
//! A volume and its journal see storage through five calls: read, write, flush, discard and size
//! ([`Device`]). Everything that can happen to data enters here, so that the layers above are the same code
//! whether they run on a disk, in memory, or under a test that pulls the plug.
//!
//! # Invariants
//!
//! * A call does the whole of what it was asked for, or returns an error.
//! * A range that was never valid (outside of the device, a write in parts of blocks) is an error that
//!   has changed nothing, and is never rounded to one that is valid. Reads and discards may have any
//!   range.
//! * A write of one block is atomic. Of larger writes a crash may leave any of their blocks.
//! * Durable is what a successful flush has covered: every write that *returned* before the flush
//!   was *called*. Nothing else is promised, in no order.
//! * Calls on ranges that do not touch wait for each other nowhere in this crate: no lock is held
//!   while a device works.
//!
//! # Devices
//!
//! | device | what durable means |
//! | --- | --- |
//! | [`FileDevice`] | on the disk: survives the process, the system, and a power failure |
//! | [`MemoryDevice`] | nothing: it lives as long as its process |
//! | [`CowDevice`] | nothing: a copy on trial, whose base stays as it is |
//! | [`RecordingDevice`] | what the states that it rebuilds contain: its flushes are the promises |
//! | [`FaultyDevice`] | what it is for the device inside, unless it was told to lie |
//!
//! # Locks
//!
//! Leaves of rank 64850 and above: any lock of a file system may be held by the caller.

mod aligned;
pub mod calendar;
pub mod cow;
mod device;
mod error;
pub mod faulty;
pub mod file;
mod holder;
pub mod memory;
pub mod recording;

pub use aligned::AlignedBuf;
pub use cow::{CowDevice, DISCARDED};
pub use device::Device;
pub use error::{Error, Operation, OsError};
pub use faulty::{Fault, FaultyDevice, Gate};
pub use file::{FileDevice, FileOptions};
pub use holder::Holder;
pub use memory::MemoryDevice;
pub use recording::{CrashId, CrashPlan, CrashState, CrashStates, Moment, RecordingDevice};
