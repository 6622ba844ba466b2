//! Paths and descriptors, as Python passes and gets them.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};
use vfscale::posix::{At, AtFlags, Fd};

/// A path: a `str`, whose bytes that are not UTF-8 are surrogates, or `bytes`, or an object with
/// `__fspath__` or `__vfspath__`.
pub(crate) struct FsPath {
    bytes: Vec<u8>,
    /// Whether Python passed `bytes`, and gets names as `bytes`.
    pub(crate) is_bytes: bool,
}

impl FsPath {
    /// Returns the path of a place in the tree.
    #[inline]
    pub(crate) fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.bytes))
    }

    /// Returns a name in the form that the path has.
    #[inline]
    pub(crate) fn named<'py>(&self, py: Python<'py>, name: &OsStr) -> PyResult<Bound<'py, PyAny>> {
        self::name(py, name, self.is_bytes)
    }

    fn new(bytes: Vec<u8>, is_bytes: bool) -> PyResult<FsPath> {
        if bytes.contains(&0) {
            return Err(PyValueError::new_err("embedded null byte"));
        }
        Ok(FsPath { bytes, is_bytes })
    }
}

/// Returns a name as `str` or `bytes`.
#[inline]
pub(crate) fn name<'py>(
    py: Python<'py>,
    name: &OsStr,
    is_bytes: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if is_bytes {
        Ok(PyBytes::new(py, name.as_bytes()).into_any())
    } else if let Some(name) = name.to_str() {
        Ok(PyString::new(py, name).into_any())
    } else {
        Ok(name.into_pyobject(py)?.into_any())
    }
}

impl<'py> FromPyObject<'_, 'py> for FsPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<FsPath> {
        if let Ok(text) = object.cast::<PyString>() {
            return match text.to_cow() {
                Ok(text) => FsPath::new(text.into_owned().into_bytes(), false),
                Err(_) => FsPath::new(object.extract::<OsString>()?.into_vec(), false),
            };
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return FsPath::new(bytes.as_bytes().to_vec(), true);
        }
        // Of the type, as `os.fspath` looks it up; what the method raises is the caller's.
        let of = object.get_type();
        let method = match of.getattr_opt(intern!(of.py(), "__vfspath__"))? {
            None => of.getattr_opt(intern!(of.py(), "__fspath__"))?,
            method => method,
        };
        let Some(method) = method else {
            return Err(PyTypeError::new_err(format!(
                "path should be string, bytes, os.PathLike or vfscale.Path, not {}",
                of.name()?
            )));
        };
        let inner = method.call1((object,))?;
        if inner.is_instance_of::<PyString>() || inner.is_instance_of::<PyBytes>() {
            return inner.extract();
        }
        Err(PyTypeError::new_err(format!(
            "expected {}.__fspath__() to return str or bytes, not {}",
            of.name()?,
            inner.get_type().name()?
        )))
    }
}

/// A place: a path, or the descriptor of an open file.
pub(crate) enum Place {
    Path(FsPath),
    Fd(i32),
}

impl Place {
    /// Returns the arguments of a call with `AT_*` flags.
    pub(crate) fn at(&self, dir_fd: Option<i32>, flags: AtFlags) -> (At<'static>, &Path, AtFlags) {
        match self {
            Place::Path(path) => (at(dir_fd), path.path(), flags),
            Place::Fd(fd) => (At::Fd(Fd(*fd)), Path::new(""), flags | AtFlags::EMPTY_PATH),
        }
    }

    /// Returns the place, or the working directory.
    pub(crate) fn or_here(place: Option<Place>) -> Place {
        place.unwrap_or_else(|| Place::Path(FsPath { bytes: b".".to_vec(), is_bytes: false }))
    }

    /// Returns whether names in it are `bytes`.
    pub(crate) fn is_bytes(&self) -> bool {
        matches!(self, Place::Path(FsPath { is_bytes: true, .. }))
    }
}

impl<'py> FromPyObject<'_, 'py> for Place {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Place> {
        if object.is_instance_of::<PyInt>() {
            return object.extract().map(Place::Fd);
        }
        object.extract().map(Place::Path)
    }
}

/// Returns the directory that a relative path starts from.
pub(crate) fn at(dir_fd: Option<i32>) -> At<'static> {
    dir_fd.map_or(At::Cwd, |fd| At::Fd(Fd(fd)))
}

/// Returns the flags of a call with `follow_symlinks`.
pub(crate) fn follow(follow_symlinks: bool) -> AtFlags {
    if follow_symlinks { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }
}

/// The `filename` of an `OSError`.
pub(crate) enum Name {
    Text(OsString),
    Bytes(Vec<u8>),
    Fd(i32),
}

impl From<&FsPath> for Name {
    fn from(path: &FsPath) -> Name {
        if path.is_bytes {
            Name::Bytes(path.bytes.clone())
        } else {
            Name::Text(OsString::from_vec(path.bytes.clone()))
        }
    }
}

impl From<&Place> for Name {
    fn from(place: &Place) -> Name {
        match place {
            Place::Path(path) => path.into(),
            Place::Fd(fd) => Name::Fd(*fd),
        }
    }
}

impl From<&Path> for Name {
    fn from(path: &Path) -> Name {
        Name::Text(path.as_os_str().to_owned())
    }
}

impl<'py> IntoPyObject<'py> for Name {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        match self {
            Name::Text(text) => Ok(text.into_pyobject(py)?.into_any()),
            Name::Bytes(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
            Name::Fd(fd) => Ok(fd.into_pyobject(py)?.into_any()),
        }
    }
}
