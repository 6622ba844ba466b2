//! What workloads run on: the few calls they need, on the library in the process or on a directory.
//!
//! A [`Target`] is a file system as one case of a run has it to itself: a new memory file system, or a new
//! directory below the one that was named. Each worker [enters](Target::enter) it and gets [`Calls`] of
//! its own, with a working directory of its own, as a process has. Workloads are generic over both,
//! so that no call is made through a pointer.
//!
//! Paths are C strings, for that is what system calls take; to the library they are bytes of known
//! length. Neither target copies them.

mod calls;
pub mod library;
pub mod memory;
pub mod path;
mod spec;
pub mod volume;

pub(crate) use calls::name;
pub use calls::{Calls, Meta, Target};
pub use spec::TargetSpec;
