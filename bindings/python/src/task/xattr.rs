//! Extended attributes.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use vfscale::posix::XattrFlags;

use crate::buffer;
use crate::error::OrRaise;
use crate::path::{FsPath, Place, follow};
use crate::task::Task;

#[pymethods]
#[allow(clippy::needless_pass_by_value)]
impl Task {
    /// Returns the value of an extended attribute.
    ///
    /// >>> task.write_bytes("/x", b"")
    /// >>> task.setxattr("/x", "user.colour", b"red")
    /// >>> task.getxattr("/x", "user.colour")
    /// b'red'
    #[pyo3(signature = (path, attribute, *, follow_symlinks=true))]
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: Place,
        attribute: FsPath,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (at, place, flags) = path.at(None, follow(follow_symlinks));
        let name = attribute.path().as_os_str();
        let found = self.call(py, |task| task.posix().getxattrat(at, place, name, flags))?;
        Ok(PyBytes::new(py, &found.or_raise_on(&path)?))
    }

    /// Sets an extended attribute; `flags` may be `os.XATTR_CREATE` or `os.XATTR_REPLACE`.
    #[pyo3(signature = (path, attribute, value, flags=0, *, follow_symlinks=true))]
    fn setxattr(
        &self,
        py: Python<'_>,
        path: Place,
        attribute: FsPath,
        value: &Bound<'_, PyAny>,
        flags: u32,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let (at, place, at_flags) = path.at(None, follow(follow_symlinks));
        let (name, how) = (attribute.path().as_os_str(), XattrFlags::from_bits_retain(flags));
        buffer::with(value, |value| {
            let set = self
                .call(py, |task| task.posix().setxattrat(at, place, name, value, how, at_flags))?;
            set.or_raise_on(&path)
        })
    }

    /// Returns the names of the extended attributes.
    #[pyo3(signature = (path=None, *, follow_symlinks=true))]
    fn listxattr<'py>(
        &self,
        py: Python<'py>,
        path: Option<Place>,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let path = Place::or_here(path);
        let (at, place, flags) = path.at(None, follow(follow_symlinks));
        let found = self.call(py, |task| task.posix().listxattrat(at, place, flags))?;
        PyList::new(py, found.or_raise_on(&path)?)
    }

    /// Removes an extended attribute.
    #[pyo3(signature = (path, attribute, *, follow_symlinks=true))]
    fn removexattr(
        &self,
        py: Python<'_>,
        path: Place,
        attribute: FsPath,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let (at, place, flags) = path.at(None, follow(follow_symlinks));
        let name = attribute.path().as_os_str();
        let done = self.call(py, |task| task.posix().removexattrat(at, place, name, flags))?;
        done.or_raise_on(&path)
    }
}
