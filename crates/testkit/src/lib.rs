//! The kit of all tests: devices, and calls that are made, generated and shrunk.
//!
//! | device | for |
//! | --- | --- |
//! | [`FaultyDevice`] | failures of chosen calls |
//! | [`HookedDevice`] | calls that the test counts, delays or changes |
//! | [`RecordingDevice`] | every state that a crash may leave |
//! | [`Limited`] | reservations of storage that is short |
//!
//! The devices use `block` and `sync` only, so the tests of every other crate may use them. The
//! feature `calls` adds what stands above the library:
//!
//! | module | contents |
//! | --- | --- |
//! | `calls` | every call as a value, its outcome, and how both are printed |
//! | `generate` | random sequences of calls |
//! | `shrink` | the shortest and simplest sequence that shows the same |
//! | `world` | who makes them: tasks of the library, the kernel, and the kernel through a mount |
//!
//! A new call is taught here, once; campaigns ask what they need to know of it.
//!
//! # Locks
//!
//! Leaf locks of rank 64870 and above.

#[cfg(feature = "calls")]
pub mod calls;
pub mod faulty;
#[cfg(feature = "calls")]
pub mod generate;
pub mod hooked;
pub mod limited;
pub mod recording;
#[cfg(feature = "calls")]
pub mod shrink;
pub mod watch;
#[cfg(feature = "calls")]
pub mod world;

pub use faulty::{Fault, FaultyDevice, Gate};
pub use hooked::{Call, HookedDevice};
pub use limited::Limited;
pub use recording::{CrashId, CrashPlan, CrashState, CrashStates, Moment, RecordingDevice};
