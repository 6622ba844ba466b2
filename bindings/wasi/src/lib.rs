//! The file system of WASI guests of wasmtime: in memory, on volumes, or on branches.
//!
//! A guest's preopened directories are directories of a [`Task`](vfscale::Task). Every call of the
//! guest is one of the library, with the task's credentials, limits and rules, without a system
//! call, and none leads out of the directory: neither `..` nor a symbolic link.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use vfscale_wasi::{Access, Filesystem, p1};
//! use wasmtime_wasi::WasiCtxBuilder;
//!
//! let tree = vfscale::memory().size(64 << 20).build()?;
//! let mut files = Filesystem::new();
//! files.preopen(Arc::new(tree.task()), "/", "/", Access::ReadWrite)?;
//! let state = p1::Guest::new(WasiCtxBuilder::new().inherit_stdio().build_p1(), files);
//!
//! let engine = wasmtime::Engine::default();
//! let mut linker = wasmtime::Linker::new(&engine);
//! p1::add_to_linker_sync(&mut linker, |state: &mut p1::Guest| state)?;
//! let mut store = wasmtime::Store::new(&engine, state);
//! # let module = wasmtime::Module::new(&engine, "(module)")?;
//! let instance = linker.instantiate(&mut store, &module)?;
//! # let _ = instance;
//! # Ok(())
//! # }
//! ```
//!
//! * [`p1`] is for modules of preview 1, [`p2`] for components. All of WASI that is no file comes
//!   from `wasmtime_wasi`.
//! * Calls run on the thread of the guest. In memory none waits; on a volume one may wait for the
//!   device, also in a store that is async.

mod dir;
mod errors;
mod filesystem;
mod node;
pub mod p1;
pub mod p2;

pub use filesystem::{Access, Filesystem};
