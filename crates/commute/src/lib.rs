//! Scaling proven by counting: which cache lines do calls that commute conflict on?
//!
//! Calls whose results do not depend on their order can be made so that none writes a cache line that
//! another touches, and what shares no line scales (Clements, Kaashoek, Zeldovich, Morris, Kohler: The
//! Scalable Commutativity Rule, SOSP 2013). That needs no machine with many CPUs: it is enough to count.
//!
//! # The pieces
//!
//! | module | what |
//! | --- | --- |
//! | [`case`] | a small starting state and two calls |
//! | [`model`] | what the calls do, and which commute |
//! | [`generate`] | cases that commute, as many as one likes |
//! | [`execute`] | the calls of a case, made in the library |
//! | [`check`] | does the library do what the model says? |
//! | [`arena`] | an allocator that adds no conflicts of its own |
//! | [`record`] | every load and store of a call |
//! | [`conflict`] | the lines that two recorded calls conflict on |
//! | [`symbols`], [`owner`] | whose a line is, and where in the source it is touched |
//! | [`runner`] | cases, on two pretended CPUs; and what is kept out of the comparison, and why |
//! | [`report`] | many cases: the triangle of calls by calls, and what they conflict on |
//! | [`exceptions`] | the cases that are known to conflict |
//! | [`picture`], [`page`] | the same as SVG and as HTML |
//! | [`predict`] | what many cores would make of it |
//!
//! The modules from [`record`] on, and so `vfscale bench commute`, need Linux on x86-64 ([`SUPPORTED`]).

/// Whether this system is one on which calls can be recorded: Linux on x86-64.
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
