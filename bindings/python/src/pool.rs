//! Pools: the branches of an image.

use std::ffi::OsStr;
use std::time::UNIX_EPOCH;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use vfscale::pool::{Difference, DifferenceKind, LogEntry};
use vfscale::{BranchInfo, ForkOptions, PoolError};

use crate::cell::Cell;
use crate::error::{closed, pool_error};
use crate::path::FsPath;

mod apply;
mod merge;

/// The branches of an image. `vfscale.open_pool` opens them.
#[pyclass(frozen, subclass, module = "vfscale._vfscale")]
pub(crate) struct Pool {
    pool: Cell<vfscale::Pool>,
    path: FsPath,
}

impl Pool {
    /// Returns the pool, if it is open.
    pub(crate) fn get(&self) -> PyResult<vfscale::Pool> {
        self.pool.get().ok_or_else(|| closed("pool"))
    }

    /// Runs a call without the interpreter's lock.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&vfscale::Pool) -> Result<T, PoolError> + Send,
    ) -> PyResult<T> {
        let pool = self.get()?;
        py.detach(|| call(&pool)).map_err(|error| pool_error(&error, &self.path))
    }
}

/// The members of a difference: path, kind, the path before a move, the parts that have changed.
type Told<'py> = (Bound<'py, PyAny>, &'static str, Option<Bound<'py, PyAny>>, Vec<&'static str>);

/// The members of a branch: name, size, own bytes, whether it can only be read, depth, limit.
type Listed = (String, u64, u64, bool, u32, Option<u64>);

/// The members of an entry of the history: node, kind, time, text, parent, merges, branches.
type Logged =
    (u64, &'static str, Option<i64>, String, Option<u64>, Vec<(u64, String)>, Vec<String>);

fn logged(entry: LogEntry) -> Logged {
    let LogEntry { node, kind, time, text, parent, merges, branches } = entry;
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let time = since.and_then(|since| i64::try_from(since.as_nanos()).ok());
    let merges = merges.into_iter().map(|it| (it.node, it.branch)).collect();
    (node, kind.name(), time, text, parent, merges, branches)
}

fn told<'py>(py: Python<'py>, difference: &Difference) -> PyResult<Told<'py>> {
    let name = |path: &OsStr| path.into_pyobject(py).map(Bound::into_any);
    let (mut before, mut parts) = (None, Vec::new());
    let kind = match &difference.kind {
        DifferenceKind::Added => "added",
        DifferenceKind::Removed => "removed",
        DifferenceKind::Replaced => "replaced",
        DifferenceKind::Moved { from } => {
            before = Some(name(from.as_os_str())?);
            "moved"
        }
        DifferenceKind::Changed(changes) => {
            let all = [
                (changes.content, "content"),
                (changes.attributes, "attributes"),
                (changes.xattrs, "xattrs"),
            ];
            parts.extend(all.iter().filter(|(is_changed, _)| *is_changed).map(|(_, part)| *part));
            "changed"
        }
        _ => "other",
    };
    Ok((name(difference.path.as_os_str())?, kind, before, parts))
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (path, *, convert=false, read_only=false))]
    fn new(py: Python<'_>, path: FsPath, convert: bool, read_only: bool) -> PyResult<Pool> {
        let builder = vfscale::pool(path.path()).convert(convert).read_only(read_only);
        let opened = py.detach(|| builder.open()).map_err(|error| pool_error(&error, &path))?;
        Ok(Pool { pool: Cell::new(opened), path })
    }

    /// Whether the pool was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.pool.is_empty()
    }

    /// The path of the image, as it was passed.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.path.named(py, self.path.path().as_os_str())
    }

    fn _branches(&self, py: Python<'_>) -> PyResult<Vec<Listed>> {
        let pool = self.get()?;
        let found = py.detach(|| pool.branches()).into_iter();
        let members = |it: BranchInfo| (it.name, it.size, it.own, it.read_only, it.depth, it.limit);
        Ok(found.map(members).collect())
    }

    fn _usage(&self) -> PyResult<(u64, u64)> {
        let found = self.get()?.usage();
        Ok((found.size, found.free))
    }

    fn _diff<'py>(&self, py: Python<'py>, a: &str, b: &str) -> PyResult<Vec<Told<'py>>> {
        let found = self.call(py, |pool| pool.diff(a, b))?;
        found.iter().map(|difference| told(py, difference)).collect()
    }

    /// Makes the branch `name`, a copy of `parent` that shares all its blocks. The parent may be
    /// open: all changes whose calls have returned are in the copy, or with `as_synced` only what a
    /// power cut would leave. A `temporary` branch ends with the pool. Durable at the return.
    ///
    /// Raises `OSError` with `ENOENT`, `EEXIST`, or `ENOSPC` if the pool is full.
    #[pyo3(signature = (parent, name, *, read_only=false, temporary=false, as_synced=false))]
    fn fork(
        &self,
        py: Python<'_>,
        parent: &str,
        name: &str,
        read_only: bool,
        temporary: bool,
        as_synced: bool,
    ) -> PyResult<()> {
        let options = match (read_only, temporary) {
            (true, true) => {
                return Err(PyValueError::new_err("a temporary branch can be written"));
            }
            (_, true) => ForkOptions::new().temporary(true),
            _ => ForkOptions::new().read_only(read_only),
        };
        self.call(py, |pool| pool.fork_with(parent, name, options.as_synced(as_synced)))
    }

    /// Deletes a branch; its space becomes free in the background.
    ///
    /// Raises `OSError` with `ENOENT`, `EBUSY` if it is open, or `EINVAL` for `main`.
    fn delete(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.call(py, |pool| pool.delete(name))
    }

    /// Gives a branch another name.
    ///
    /// Raises `OSError` with `ENOENT`, `EEXIST`, `EBUSY` if it is open, or `EINVAL` for `main`.
    fn rename(&self, py: Python<'_>, name: &str, to: &str) -> PyResult<()> {
        self.call(py, |pool| pool.rename(name, to))
    }

    /// Limits how many bytes a branch may have for itself; `None` ends that. What it has written
    /// since it was forked counts until it gives it up. At the limit, changes that need more space
    /// raise `OSError` with `EDQUOT`. The branch may be open.
    ///
    /// Raises `OSError` with `ENOENT`, or `EINVAL` if it can only be read and for a limit below
    /// 16 MiB.
    fn set_limit(&self, py: Python<'_>, name: &str, limit: Option<u64>) -> PyResult<()> {
        self.call(py, |pool| pool.set_limit(name, limit))
    }

    /// Gives a branch the contents back that it had at its last fork or adoption, or those of `to`,
    /// a checkpoint or another read-only branch. Returns the name of the branch that has those
    /// until now; `None` if the branch has written nothing.
    ///
    /// Raises `OSError` with `ENOENT`, `EBUSY` if it is open, or `EINVAL` if the state is gone or
    /// `to` can be written.
    #[pyo3(signature = (name, to=None))]
    fn rollback(&self, py: Python<'_>, name: &str, to: Option<&str>) -> PyResult<Option<String>> {
        self.call(py, |pool| match to {
            Some(to) => pool.rollback_to(name, to),
            None => pool.rollback(name),
        })
    }

    /// Makes a checkpoint of a branch, which may be open: a read-only branch, with a text of one
    /// line. Returns its name. Durable at the return.
    ///
    /// Raises `OSError` with `ENOENT`, `EINVAL` if the text is no line or has more than 128 bytes
    /// with the name, or `ENOSPC` if the pool is full.
    #[pyo3(signature = (branch="main", text=""))]
    fn checkpoint(&self, py: Python<'_>, branch: &str, text: &str) -> PyResult<String> {
        self.call(py, |pool| pool.checkpoint(branch, text))
    }

    fn _log(&self, py: Python<'_>, branch: &str) -> PyResult<Vec<Logged>> {
        let found = self.call(py, |pool| pool.log(branch))?;
        Ok(found.into_iter().map(logged).collect())
    }

    /// Gives `parent` the contents of `child`, which was forked from it or from one that it comes
    /// from, and frees the name of that. Durable at the return, whole or not at all.
    ///
    /// Raises `OSError` with `ENOENT`, `EBUSY` if one is open or the parent has changed since the
    /// fork, or `EINVAL` if they have no state in common.
    fn adopt(&self, py: Python<'_>, parent: &str, child: &str) -> PyResult<()> {
        self.call(py, |pool| pool.adopt(parent, child))
    }

    /// Closes the pool, so that the next opening has nothing to recover, and releases its image.
    ///
    /// Raises `OSError` with `EBUSY` if a branch is open; the pool then stays open. Closing it
    /// again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(pool) = self.pool.get() else { return Ok(()) };
        let closed = py.detach(|| pool.close());
        match closed {
            Err(ref error) if error.errno() == vfscale::Errno::BUSY => {}
            _ => drop(self.pool.take()),
        }
        closed.map_err(|error| pool_error(&error, &self.path))
    }

    /// Releases the pool without reporting errors; volumes of its branches go on.
    fn _release(&self, py: Python<'_>) {
        let pool = self.pool.take();
        py.detach(|| drop(pool));
    }
}
