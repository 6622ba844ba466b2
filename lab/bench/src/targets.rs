//! Targets: the few calls that workloads need, on the library in the process or on a directory.
//!
//! A [`Target`] is the file system of one case of a run: a new memory file system, or a new
//! directory below the named one. Each worker [enters](Target::enter) it and gets its own
//! [`Calls`], with a working directory of its own, like a process. Workloads are generic over both,
//! so no call is made through a pointer.
//!
//! Paths are C strings, the type that system calls take; to the library they are bytes of known
//! length. Neither target copies them.

mod calls;
pub mod library;
pub mod memory;
pub mod mount;
pub mod path;
mod spec;
pub mod volume;

pub(crate) use calls::name;
pub use calls::{Calls, Meta, Target};
pub use spec::{MountSpec, TargetSpec};
