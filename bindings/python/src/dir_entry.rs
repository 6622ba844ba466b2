//! The entries of directories: `scandir`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use vfscale::FileType;
use vfscale::posix::DirEntryBuf;

use crate::error::OrRaise;
use crate::path::{Name, Place, at, follow, name};
use crate::results;
use crate::task::Task;

/// The directory that was read.
pub(crate) struct Scanned {
    task: Py<Task>,
    dir: Place,
}

impl Scanned {
    pub(crate) fn new(task: Py<Task>, dir: Place) -> Arc<Scanned> {
        Arc::new(Scanned { task, dir })
    }
}

/// The iterator of `scandir`; also a context manager.
#[pyclass(frozen, module = "vfscale._vfscale")]
pub(crate) struct ScandirIterator {
    of: Arc<Scanned>,
    left: Mutex<std::vec::IntoIter<DirEntryBuf>>,
}

impl ScandirIterator {
    pub(crate) fn new(of: Arc<Scanned>, entries: Vec<DirEntryBuf>) -> ScandirIterator {
        ScandirIterator { of, left: Mutex::new(entries.into_iter()) }
    }
}

#[pymethods]
impl ScandirIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self) -> Option<DirEntry> {
        let entry = self.left.lock().unwrap_or_else(PoisonError::into_inner).next()?;
        Some(DirEntry { of: self.of.clone(), entry })
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.close();
    }

    /// Ends the iteration.
    fn close(&self) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new().into_iter();
    }
}

/// An entry of a directory, from `Task.scandir`.
#[pyclass(frozen, module = "vfscale._vfscale")]
pub(crate) struct DirEntry {
    of: Arc<Scanned>,
    entry: DirEntryBuf,
}

impl DirEntry {
    /// Returns the type of the file; of what a symbolic link leads to, if `follow_symlinks`.
    fn file_type(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<Option<FileType>> {
        match self.entry.file_type {
            FileType::Symlink if follow_symlinks => {}
            known => return Ok(Some(known)),
        }
        let (base, path) = self.place();
        let flags = follow(true);
        let found =
            self.of.task.get().call(py, |task| task.posix().fstatat(at(base), &path, flags))?;
        match found {
            // The link leads nowhere.
            Err(error) if error.errno() == vfscale::Errno::NOENT => Ok(None),
            found => Ok(Some(found.or_raise_on(self.filename(&path))?.file_type())),
        }
    }

    /// Returns the directory and the path in it by which the file is reached.
    fn place(&self) -> (Option<i32>, PathBuf) {
        match &self.of.dir {
            Place::Path(dir) => (None, dir.path().join(&self.entry.name)),
            Place::Fd(fd) => (Some(*fd), self.entry.name.clone().into()),
        }
    }

    /// Returns the `filename` of an error.
    fn filename(&self, path: &Path) -> Name {
        let path = path.as_os_str();
        if self.of.dir.is_bytes() {
            Name::Bytes(path.as_bytes().to_vec())
        } else {
            Name::Text(path.to_owned())
        }
    }

    fn named<'py>(&self, py: Python<'py>, text: &OsStr) -> PyResult<Bound<'py, PyAny>> {
        name(py, text, self.of.dir.is_bytes())
    }
}

#[pymethods]
impl DirEntry {
    /// The name.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.named(py, &self.entry.name)
    }

    /// The path: that of the directory, and the name.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.named(py, self.place().1.as_os_str())
    }

    fn __vfspath__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.path(py)
    }

    /// Returns the inode number.
    fn inode(&self) -> u64 {
        self.entry.ino
    }

    /// Returns whether the entry is a directory, or a symbolic link to one.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn is_dir(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        Ok(self.file_type(py, follow_symlinks)? == Some(FileType::Directory))
    }

    /// Returns whether the entry is a regular file, or a symbolic link to one.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn is_file(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        Ok(self.file_type(py, follow_symlinks)? == Some(FileType::RegularFile))
    }

    /// Returns whether the entry is a symbolic link.
    fn is_symlink(&self) -> bool {
        self.entry.file_type == FileType::Symlink
    }

    /// Returns the attributes of the file as an `os.stat_result`.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn stat<'py>(&self, py: Python<'py>, follow_symlinks: bool) -> PyResult<Bound<'py, PyAny>> {
        let ((base, path), flags) = (self.place(), follow(follow_symlinks));
        let found =
            self.of.task.get().call(py, |task| task.posix().fstatat(at(base), &path, flags))?;
        results::stat(py, &found.or_raise_on(self.filename(&path))?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<DirEntry {}>", self.name(py)?.repr()?))
    }
}
