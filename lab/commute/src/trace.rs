//! The memory accesses of a call, and the cache lines that two calls conflict on.
//!
//! | module | contents |
//! | --- | --- |
//! | [`arena`] | an allocator that adds no conflicts of its own |
//! | [`record`] | every load and store of a call |
//! | [`conflict`] | the lines that two recorded calls conflict on |
//! | [`symbols`] | the source lines of instructions |
//! | [`owner`] | the field that a line belongs to |
//!
//! All modules but [`arena`] need Linux on x86-64.

pub mod arena;
mod memory;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod conflict;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod owner;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod record;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod symbols;
