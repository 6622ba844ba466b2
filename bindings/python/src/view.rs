//! Views of branches, and what was changed above them.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;
use vfscale::Overlay;

use crate::path::FsPath;
use crate::pool::Pool;

/// Writes a view, and returns the number of its inodes, its bytes, and the first file that an
/// overlay above it would not show as it is.
#[pyfunction]
pub(crate) fn _view(
    py: Python<'_>,
    pool: &Pool,
    branch: &str,
    out: FsPath,
) -> PyResult<(u64, u64, Option<OsString>)> {
    let view = pool.call(py, |pool| pool.view(branch, out.path()))?;
    Ok((view.inodes, view.bytes, view.marked.map(PathBuf::into_os_string)))
}

/// Takes over an overlay, whose view, upper layer and directory for its work are `places`. Returns
/// the numbers of its files, of names that were removed, and of bytes that were written, and the
/// branch that has the changes if it is another one.
#[pyfunction]
pub(crate) fn _ingest(
    py: Python<'_>,
    pool: &Pool,
    branch: &str,
    base: &str,
    places: (FsPath, FsPath, FsPath),
    userxattr: bool,
) -> PyResult<(u64, u64, u64, Option<String>)> {
    let (view, upper, work) = (places.0.path(), places.1.path(), places.2.path());
    let overlay = Overlay { base, view, upper, work, userxattr };
    let done = pool.call(py, |pool| pool.ingest(branch, overlay))?;
    Ok((done.files, done.removed, done.bytes, done.kept))
}
