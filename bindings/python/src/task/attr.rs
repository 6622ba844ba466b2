//! Calls on attributes and sizes.

use std::path::Path;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyTuple};
use vfscale::posix::{Access, At, AtFlags, Calls, Fd, SetTime};
use vfscale::{Errno, Error, FileType, Metadata, Mode, Result, Timestamp};

use crate::error::{OrRaise, os_error};
use crate::path::{FsPath, Place, at, follow};
use crate::results;
use crate::task::Task;

/// Reads a time in seconds, an `int` or a `float`.
fn seconds(value: &Bound<'_, PyAny>) -> PyResult<SetTime> {
    if let Ok(float) = value.cast::<PyFloat>() {
        let (seconds, whole) = (float.value(), float.value().floor());
        if !seconds.is_finite() {
            return Err(PyValueError::new_err("a time is not a number"));
        }
        let nanos = ((seconds - whole) * 1e9).floor() as u32;
        return Ok(SetTime::At(Timestamp::new(whole as i64, nanos.min(999_999_999))));
    }
    Ok(SetTime::At(Timestamp::new(value.extract()?, 0)))
}

fn nanoseconds(value: &Bound<'_, PyAny>) -> PyResult<SetTime> {
    let nanos: i64 = value.extract()?;
    Ok(SetTime::At(Timestamp(nanos)))
}

/// Reads access and modification time of `utime`.
fn times(
    times: Option<&Bound<'_, PyAny>>,
    ns: Option<&Bound<'_, PyAny>>,
) -> PyResult<[SetTime; 2]> {
    let (pair, in_seconds) = match (times, ns) {
        (None, None) => return Ok([SetTime::Now; 2]),
        (Some(times), None) => (times, true),
        (None, Some(ns)) => (ns, false),
        (Some(_), Some(_)) => {
            let text = "utime: you may specify either 'times' or 'ns' but not both";
            return Err(PyValueError::new_err(text));
        }
    };
    let read = |time: &Bound<'_, PyAny>| if in_seconds { seconds(time) } else { nanoseconds(time) };
    match pair.cast::<PyTuple>() {
        Ok(pair) if pair.len() == 2 => Ok([read(&pair.get_item(0)?)?, read(&pair.get_item(1)?)?]),
        _ => Err(PyTypeError::new_err("utime: 'times' and 'ns' must be a tuple of two")),
    }
}

/// Returns an owner or group; -1 leaves it as it is.
fn id(id: i64) -> PyResult<Option<u32>> {
    match id {
        -1 => Ok(None),
        id => match u32::try_from(id) {
            Ok(id) if id != u32::MAX => Ok(Some(id)),
            _ => Err(os_error(Errno::INVAL, [None, None])),
        },
    }
}

/// Returns a size.
fn size(length: i64, name: Option<&Place>) -> PyResult<u64> {
    let negative = |_| os_error(Errno::INVAL, [name.map(Into::into), None]);
    u64::try_from(length).map_err(negative)
}

impl Task {
    /// Returns the attributes of a file; `None` if there is none, or it can't be reached.
    fn found(&self, py: Python<'_>, path: &Place, links: bool) -> PyResult<Option<Metadata>> {
        let (at, path, flags) = path.at(None, follow(links));
        let found = self.call(py, |task| task.posix().fstatat(at, path, flags))?;
        Ok(found.ok().map(Metadata::from))
    }

    /// Makes a call that changes the attributes of a file. A descriptor of `O_PATH` only names the
    /// file: `EBADF`.
    fn change(
        &self,
        py: Python<'_>,
        place: &Place,
        dir_fd: Option<i32>,
        flags: AtFlags,
        f: impl FnOnce(Calls<'_>, At<'_>, &Path, AtFlags) -> Result<()> + Send,
    ) -> PyResult<Result<()>> {
        self.call(py, |task| match place {
            Place::Path(path) => f(task.posix(), at(dir_fd), path.path(), flags),
            Place::Fd(fd) => {
                let file = task.posix().file(Fd(*fd))?;
                if file.is_path() {
                    return Err(Error::new("file", Errno::BADF));
                }
                f(task.posix(), (&file).into(), Path::new(""), AtFlags::EMPTY_PATH)
            }
        })
    }

    /// Returns the attributes of a file for one of the questions of `os.path`.
    fn asked<T>(&self, py: Python<'_>, path: &Place, ask: fn(&Metadata) -> T) -> PyResult<T> {
        let (at, place, flags) = path.at(None, AtFlags::empty());
        let found = self.call(py, |task| task.posix().fstatat(at, place, flags))?;
        Ok(ask(&found.or_raise_on(path)?.into()))
    }
}

fn float(time: Timestamp) -> f64 {
    time.secs() as f64 + 1e-9 * f64::from(time.nanos())
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)]
impl Task {
    /// Returns the attributes of a file as an `os.stat_result`.
    ///
    /// >>> task.write_bytes("/f", b"12345")
    /// >>> task.stat("/f").st_size
    /// 5
    #[pyo3(signature = (path, *, dir_fd=None, follow_symlinks=true))]
    fn stat<'py>(
        &self,
        py: Python<'py>,
        path: Place,
        dir_fd: Option<i32>,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (at, place, flags) = path.at(dir_fd, follow(follow_symlinks));
        let found = self.call(py, |task| task.posix().fstatat(at, place, flags))?;
        results::stat(py, &found.or_raise_on(&path)?)
    }

    /// Returns the attributes of a file; those of a symbolic link itself.
    #[pyo3(signature = (path, *, dir_fd=None))]
    fn lstat<'py>(
        &self,
        py: Python<'py>,
        path: Place,
        dir_fd: Option<i32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.stat(py, path, dir_fd, false)
    }

    /// Returns the attributes of an open file.
    fn fstat<'py>(&self, py: Python<'py>, fd: i32) -> PyResult<Bound<'py, PyAny>> {
        let found = self.call(py, |task| task.posix().fstat(Fd(fd)))?;
        results::stat(py, &found.or_raise()?)
    }

    /// Returns the state of a file system as an `os.statvfs_result`.
    fn statvfs<'py>(&self, py: Python<'py>, path: Place) -> PyResult<Bound<'py, PyAny>> {
        let (at, place, _) = path.at(None, AtFlags::empty());
        let found = self.call(py, |task| match &path {
            Place::Path(_) => task.posix().statfs(at, place),
            Place::Fd(fd) => task.posix().file(Fd(*fd))?.statfs(),
        })?;
        results::statvfs(py, &found.or_raise_on(&path)?)
    }

    /// Returns the state of the file system of an open file.
    fn fstatvfs<'py>(&self, py: Python<'py>, fd: i32) -> PyResult<Bound<'py, PyAny>> {
        let found = self.call(py, |task| task.posix().file(Fd(fd))?.statfs())?;
        results::statvfs(py, &found.or_raise()?)
    }

    /// Returns whether the real user may read (`os.R_OK`), write (`os.W_OK`) and execute
    /// (`os.X_OK`) a file, or whether it exists (`os.F_OK`).
    #[pyo3(signature = (path, mode, *, dir_fd=None, effective_ids=false, follow_symlinks=true))]
    fn access(
        &self,
        py: Python<'_>,
        path: FsPath,
        mode: u8,
        dir_fd: Option<i32>,
        effective_ids: bool,
        follow_symlinks: bool,
    ) -> PyResult<bool> {
        let mut flags = follow(follow_symlinks);
        if effective_ids {
            flags |= AtFlags::EACCESS;
        }
        let Some(want) = Access::from_bits(mode) else { return Ok(false) };
        let may =
            self.call(py, |task| task.posix().faccessat(at(dir_fd), path.path(), want, flags))?;
        Ok(may.is_ok())
    }

    /// Changes the permission bits of a file.
    #[pyo3(signature = (path, mode, *, dir_fd=None, follow_symlinks=true))]
    fn chmod(
        &self,
        py: Python<'_>,
        path: Place,
        mode: u32,
        dir_fd: Option<i32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let mode = Mode::from_bits_retain(mode & 0o7777);
        let flags = follow(follow_symlinks);
        let done = self.change(py, &path, dir_fd, flags, |calls, at, place, flags| {
            calls.fchmodat(at, place, mode, flags)
        })?;
        done.or_raise_on(&path)
    }

    /// Changes the permission bits of an open file.
    fn fchmod(&self, py: Python<'_>, fd: i32, mode: u32) -> PyResult<()> {
        let mode = Mode::from_bits_retain(mode & 0o7777);
        let change = |calls: Calls<'_>, at: At<'_>, place: &Path, flags| {
            calls.fchmodat(at, place, mode, flags)
        };
        self.change(py, &Place::Fd(fd), None, AtFlags::empty(), change)?.or_raise()
    }

    /// Changes owner and group of a file; -1 leaves one as it is.
    #[pyo3(signature = (path, uid, gid, *, dir_fd=None, follow_symlinks=true))]
    fn chown(
        &self,
        py: Python<'_>,
        path: Place,
        uid: i64,
        gid: i64,
        dir_fd: Option<i32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let (uid, gid) = (id(uid)?, id(gid)?);
        let flags = follow(follow_symlinks);
        let done = self.change(py, &path, dir_fd, flags, |calls, at, place, flags| {
            calls.fchownat(at, place, uid, gid, flags)
        })?;
        done.or_raise_on(&path)
    }

    /// Changes owner and group of a file; those of a symbolic link itself.
    fn lchown(&self, py: Python<'_>, path: FsPath, uid: i64, gid: i64) -> PyResult<()> {
        self.chown(py, Place::Path(path), uid, gid, None, false)
    }

    /// Changes owner and group of an open file.
    fn fchown(&self, py: Python<'_>, fd: i32, uid: i64, gid: i64) -> PyResult<()> {
        let (uid, gid) = (id(uid)?, id(gid)?);
        let change = |calls: Calls<'_>, at: At<'_>, place: &Path, flags| {
            calls.fchownat(at, place, uid, gid, flags)
        };
        self.change(py, &Place::Fd(fd), None, AtFlags::empty(), change)?.or_raise()
    }

    /// Changes access and modification time: to `times` in seconds, to `ns` in nanoseconds, or to
    /// now.
    ///
    /// >>> task.write_bytes("/t", b"")
    /// >>> task.utime("/t", ns=(1, 2))
    /// >>> task.stat("/t").st_mtime_ns
    /// 2
    #[pyo3(signature = (path, times=None, *, ns=None, dir_fd=None, follow_symlinks=true))]
    fn utime(
        &self,
        py: Python<'_>,
        path: Place,
        times: Option<Bound<'_, PyAny>>,
        ns: Option<Bound<'_, PyAny>>,
        dir_fd: Option<i32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let times = self::times(times.as_ref(), ns.as_ref())?;
        let flags = follow(follow_symlinks);
        let done = self.change(py, &path, dir_fd, flags, |calls, at, place, flags| {
            calls.utimensat(at, place, times, flags)
        })?;
        done.or_raise_on(&path)
    }

    /// Truncates or extends a file.
    fn truncate(&self, py: Python<'_>, path: Place, length: i64) -> PyResult<()> {
        let size = size(length, Some(&path))?;
        let done = self.call_long(py, |task| match &path {
            Place::Path(path) => task.posix().truncate(path.path(), size),
            Place::Fd(fd) => task.posix().ftruncate(Fd(*fd), size),
        })?;
        done.or_raise_on(&path)
    }

    /// Truncates or extends an open file.
    fn ftruncate(&self, py: Python<'_>, fd: i32, length: i64) -> PyResult<()> {
        let size = size(length, None)?;
        self.call_long(py, |task| task.posix().ftruncate(Fd(fd), size))?.or_raise()
    }

    /// Returns whether a path leads to a file of any type.
    ///
    /// >>> task.exists("/none")
    /// False
    fn exists(&self, py: Python<'_>, path: Place) -> PyResult<bool> {
        Ok(self.found(py, &path, true)?.is_some())
    }

    /// Returns whether a path exists, even if it is a symbolic link that leads nowhere.
    fn lexists(&self, py: Python<'_>, path: Place) -> PyResult<bool> {
        Ok(self.found(py, &path, false)?.is_some())
    }

    /// Returns whether a path leads to a regular file.
    fn isfile(&self, py: Python<'_>, path: Place) -> PyResult<bool> {
        Ok(self.found(py, &path, true)?.is_some_and(|found| found.is_file()))
    }

    /// Returns whether a path leads to a directory.
    fn isdir(&self, py: Python<'_>, path: Place) -> PyResult<bool> {
        Ok(self.found(py, &path, true)?.is_some_and(|found| found.is_dir()))
    }

    /// Returns whether a path is a symbolic link.
    fn islink(&self, py: Python<'_>, path: Place) -> PyResult<bool> {
        Ok(self.found(py, &path, false)?.is_some_and(|found| found.is_symlink()))
    }

    /// Returns whether a path is the root of a mount.
    fn ismount(&self, py: Python<'_>, path: Place) -> PyResult<bool> {
        let found = self.found(py, &path, false)?;
        Ok(found.is_some_and(|found| found.mount_root && found.file_type() == FileType::Directory))
    }

    /// Returns the size of a file in bytes.
    fn getsize(&self, py: Python<'_>, filename: Place) -> PyResult<u64> {
        self.asked(py, &filename, |found| found.len())
    }

    /// Returns when a file was last accessed, in seconds since 1970.
    fn getatime(&self, py: Python<'_>, filename: Place) -> PyResult<f64> {
        self.asked(py, &filename, |found| float(found.atime))
    }

    /// Returns when the data of a file last changed, in seconds since 1970.
    fn getmtime(&self, py: Python<'_>, filename: Place) -> PyResult<f64> {
        self.asked(py, &filename, |found| float(found.mtime))
    }

    /// Returns when the attributes of a file last changed, in seconds since 1970.
    fn getctime(&self, py: Python<'_>, filename: Place) -> PyResult<f64> {
        self.asked(py, &filename, |found| float(found.ctime))
    }
}
