//! Listings that are kept while the tree does not change.
//!
//! # Purpose
//!
//! Data loaders list the same large directories again and again, and to make a dictionary for each
//! file takes longer than all else. A large listing that is asked for a second time is kept, and
//! returned again if nothing in the tree has changed ([`Changes`](crate::changes::Changes)).
//!
//! # Invariants
//!
//! * Only trees in memory keep listings; a watch would keep a volume from being closed.
//! * The lock is not held while Python's objects are made or freed, which may run other code.
//! * A caller gets a list of its own; the dictionaries in it are shared, as in fsspec's caches.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::task::Task;

/// The fewest files of a listing that is kept.
const LARGE: usize = 64;

/// The most listings that a task keeps.
const KEPT_MAX: usize = 32;

/// The most files in a listing that is kept.
const FILES_MAX: usize = 1 << 20;

/// The arguments of a listing.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(crate) path: Vec<u8>,
    pub(crate) detail: bool,
    /// Depth, and whether directories are included, of a search; `None` for one directory.
    pub(crate) search: Option<(usize, bool)>,
}

/// A large listing that was asked for: kept since the second time, with the generation of the tree.
type Kept = Option<(u64, Py<PyAny>)>;

/// The listings of a task.
#[derive(Default)]
pub(crate) struct Listings(Mutex<HashMap<Asked, Kept>>);

impl Listings {
    fn with<T>(&self, f: impl FnOnce(&mut HashMap<Asked, Kept>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets all listings: the task sees other files now.
    pub(crate) fn clear(&self) {
        drop(self.with(std::mem::take));
    }

    /// Returns a listing: one that was kept, or a new one.
    ///
    /// # Errors
    /// Any error of `make`.
    pub(crate) fn get<'py>(
        &self,
        py: Python<'py>,
        task: &Task,
        asked: Asked,
        make: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if task.users.blocks {
            return make();
        }
        let changes = &task.users.changes;
        let known = self.with(|all| {
            all.get(&asked).map(|kept| kept.as_ref().map(|(at, value)| (*at, value.clone_ref(py))))
        });
        if let Some(Some((at, value))) = &known
            && changes.generation() == Some(*at)
        {
            return copy(value.bind(py));
        }
        let generation = if known.is_some() { changes.watch(task.get()?.vfs()) } else { None };
        let made = make()?;
        if !(LARGE..=FILES_MAX).contains(&made.len()?) {
            return Ok(made);
        }
        let kept = generation.map(|at| (at, made.clone().unbind()));
        let old = self.with(|all| {
            let old = if all.len() < KEPT_MAX { HashMap::new() } else { std::mem::take(all) };
            (old, all.insert(asked, kept))
        });
        drop(old);
        if generation.is_some() { copy(&made) } else { Ok(made) }
    }
}

fn copy<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match value.cast::<PyDict>() {
        Ok(dict) => Ok(dict.copy()?.into_any()),
        Err(_) => {
            let list = value.cast::<PyList>()?;
            Ok(list.get_slice(0, list.len()).into_any())
        }
    }
}
