//! A commutativity checker: counts the cache lines that commuting calls conflict on.
//!
//! Calls whose results do not depend on their order can be implemented so that none of them writes
//! a cache line that another one touches, and calls that share no written line scale (Clements,
//! Kaashoek, Zeldovich, Morris, Kohler: The Scalable Commutativity Rule, SOSP 2013). Checking this
//! takes no machine with many CPUs: counting the shared lines suffices. The crate is the
//! counterpart of that paper's tool, COMMUTER.
//!
//! # Modules
//!
//! | module | contents |
//! | --- | --- |
//! | [`case`] | a small starting state and two calls |
//! | [`model`] | what the calls do, and which of them commute |
//! | [`generate`] | any number of cases that commute |
//! | [`execute`] | the calls of a case, made in the library |
//! | [`check`] | a comparison of the library with the model |
//! | [`trace`] | the memory accesses of a call, and the conflicts of two |
//! | [`runner`] | runs cases on two simulated CPUs; lists what the comparison leaves out, and why |
//! | [`report`] | results of many cases, in several formats, and the known exceptions |
//! | [`predict`] | predicted throughput on many cores |
//!
//! [`runner`] and [`report`], and so `vfscale bench commute`, need Linux on x86-64 ([`SUPPORTED`]).

/// Whether calls can be recorded on this system: Linux on x86-64.
pub const SUPPORTED: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));

pub mod case;
pub mod check;
pub mod execute;
pub mod generate;
pub mod model;
pub mod predict;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod report;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod runner;
pub mod trace;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use report::{exceptions, page};
pub use trace::arena;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: arena::Arenas = arena::Arenas;
