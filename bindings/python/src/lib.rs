//! The Rust part of the Python package `vfscale`: the module `vfscale._vfscale`.
//!
//! # Purpose
//!
//! A Python program gets trees in memory and volumes, with tasks whose methods have the names of
//! `os`. This crate has the calls; `python/vfscale` adds what is easier said in Python: `open` with
//! modes and buffers, `walk`, paths, and the file system of fsspec. `docs/PYTHON.md` is the manual.
//!
//! # Invariants
//!
//! * A call crosses from Python to Rust once, whatever it returns.
//! * The interpreter's lock is released in every call that copies more than 4 KiB
//!   (`gil::ATTACHED_BYTES_MAX`), that works on a volume, or that waits for another task. Other
//!   calls take less time than to release and take it. A wait looks for signals (`gil::wait`).
//! * No lock is held while the interpreter's lock is taken.
//! * `unsafe` is only in `buffer`: the memory of Python's objects.
//!
//! # References
//!
//! A `Task` or `RawFile` of Python holds its object in a cell (`cell`), which `close` empties. A
//! `Volume` knows the cells of its tasks, and counts the open files; it ends the tasks when it is
//! closed.

mod alarm;
mod buffer;
mod cell;
mod changes;
mod dir_entry;
mod error;
mod file;
mod gil;
mod listings;
mod path;
mod pool;
mod raw_file;
mod results;
mod task;
mod tree;
mod view;

use pyo3::prelude::*;

#[pymodule(name = "_vfscale", gil_used = true)]
mod module {
    #[pymodule_export]
    use crate::dir_entry::{DirEntry, ScandirIterator};
    #[pymodule_export]
    use crate::pool::Pool;
    #[pymodule_export]
    use crate::raw_file::RawFile;
    #[pymodule_export]
    use crate::task::Task;
    #[pymodule_export]
    use crate::tree::{Memory, Volume};
    #[pymodule_export]
    use crate::view::{_ingest, _view};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn version(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
