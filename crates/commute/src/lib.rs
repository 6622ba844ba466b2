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
//! | module | what |
//! | --- | --- |
//! | [`case`] | a small starting state and two calls |
//! | [`model`] | what the calls do, and which of them commute |
//! | [`generate`] | any number of cases that commute |
//! | [`execute`] | the calls of a case, made in the library |
//! | [`check`] | a comparison of the library with the model |
//! | [`arena`] | an allocator that adds no conflicts of its own |
//! | [`record`] | every load and store of a call |
//! | [`conflict`] | the lines that two recorded calls conflict on |
//! | [`symbols`], [`owner`] | the field a line belongs to, and the source lines that touch it |
//! | [`runner`] | runs cases on two simulated CPUs; lists what the comparison leaves out, and why |
//! | [`report`] | many cases: a triangle of calls by calls, and the lines they conflict on |
//! | [`exceptions`] | the cases that are known to conflict |
//! | [`picture`], [`page`] | the report as SVG and as HTML |
//! | [`predict`] | predicted throughput on many cores |
//!
//! The modules from [`record`] on, and so `vfscale bench commute`, need Linux on x86-64
//! ([`SUPPORTED`]).

/// Whether calls can be recorded on this system: Linux on x86-64.
pub const SUPPORTED: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));

pub mod arena;
pub mod case;
pub mod check;
pub mod execute;
pub mod generate;
mod memory;
pub mod model;
pub mod predict;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod conflict;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod exceptions;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod owner;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod page;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod picture;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod record;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod report;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod runner;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod symbols;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: arena::Arenas = arena::Arenas;
