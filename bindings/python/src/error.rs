//! Errors, as Python's `OSError`.

use pyo3::PyErrArguments;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use vfscale::block;
use vfscale::{Errno, PoolError, VolumeError};

use crate::path::{FsPath, Name};

/// The arguments of an `OSError`.
struct Arguments {
    errno: i32,
    text: String,
    names: [Option<Name>; 2],
}

impl PyErrArguments for Arguments {
    fn arguments(self, py: Python<'_>) -> Py<PyAny> {
        let [first, second] = self.names;
        let made = match (first, second) {
            (None, _) => (self.errno, self.text).into_pyobject(py),
            (Some(name), None) => (self.errno, self.text, name).into_pyobject(py),
            (Some(name), Some(new)) => {
                // The fourth argument is for another operating system.
                let none: Option<i32> = None;
                return match (self.errno, self.text, name, none, new).into_pyobject(py) {
                    Ok(arguments) => arguments.into_any().unbind(),
                    Err(error) => error.into_value(py).into_any(),
                };
            }
        };
        match made {
            Ok(arguments) => arguments.into_any().unbind(),
            Err(error) => error.into_value(py).into_any(),
        }
    }
}

/// Returns the text of an error number, without the number.
fn text(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Makes the `OSError` of an error number, on up to two names.
pub(crate) fn os_error(errno: Errno, names: [Option<Name>; 2]) -> PyErr {
    PyOSError::new_err(Arguments { errno: errno.raw_os_error(), text: text(errno), names })
}

/// Makes the `OSError` of a volume, whose text names the cause and the remedy.
pub(crate) fn volume_error(error: &VolumeError, path: &FsPath) -> PyErr {
    let (errno, text) = (error.errno().raw_os_error(), error.to_string());
    PyOSError::new_err(Arguments { errno, text, names: [Some(path.into()), None] })
}

/// Makes the `OSError` of a pool, whose text names the cause and the remedy.
pub(crate) fn pool_error(error: &PoolError, path: &FsPath) -> PyErr {
    let (errno, text) = (error.errno().raw_os_error(), error.to_string());
    PyOSError::new_err(Arguments { errno, text, names: [Some(path.into()), None] })
}

/// Makes the `OSError` of a volume that another machine has taken over.
pub(crate) fn fenced(error: &block::Error, path: &FsPath) -> PyErr {
    let (errno, text) = (Errno::SHUTDOWN.raw_os_error(), error.to_string());
    PyOSError::new_err(Arguments { errno, text, names: [Some(path.into()), None] })
}

/// Makes the error of a call on a closed object.
pub(crate) fn closed(what: &str) -> PyErr {
    PyValueError::new_err(format!("I/O operation on closed {what}"))
}

/// Results of the library, as those of Python.
pub(crate) trait OrRaise<T> {
    /// Returns the value, or raises an `OSError` without a name.
    fn or_raise(self) -> PyResult<T>;
    /// Returns the value, or raises an `OSError` that has the name.
    fn or_raise_on(self, name: impl Into<Name>) -> PyResult<T>;
    /// Returns the value, or raises an `OSError` that has both names.
    fn or_raise_between(self, name: &FsPath, new: &FsPath) -> PyResult<T>;
}

impl<T> OrRaise<T> for vfscale::Result<T> {
    #[inline]
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| os_error(error.errno(), [None, None]))
    }

    #[inline]
    fn or_raise_on(self, name: impl Into<Name>) -> PyResult<T> {
        self.map_err(|error| os_error(error.errno(), [Some(name.into()), None]))
    }

    #[inline]
    fn or_raise_between(self, name: &FsPath, new: &FsPath) -> PyResult<T> {
        self.map_err(|error| os_error(error.errno(), [Some(name.into()), Some(new.into())]))
    }
}
