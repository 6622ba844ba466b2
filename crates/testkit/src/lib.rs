//! Devices for tests: they fail, record what a crash may leave, and run out of storage.
//!
//! | device | for |
//! | --- | --- |
//! | [`FaultyDevice`] | failures of chosen calls |
//! | [`RecordingDevice`] | every state that a crash may leave |
//! | [`Limited`] | reservations of storage that is short |
//!
//! This crate uses `block` and `sync` only, so the tests of every other crate may use it.
//!
//! # Locks
//!
//! Leaf locks of rank 64870 and above.

pub mod faulty;
pub mod limited;
pub mod recording;

pub use faulty::{Fault, FaultyDevice, Gate};
pub use limited::Limited;
pub use recording::{CrashId, CrashPlan, CrashState, CrashStates, Moment, RecordingDevice};
