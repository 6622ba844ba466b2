//! Listings in the form of fsspec: dictionaries with `name`, `size`, `type` and more.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use vfscale::posix::{At, AtFlags, Stat};
use vfscale::{Errno, File, FileType, Result, Timestamp};

use crate::error::OrRaise;
use crate::path::{FsPath, name};
use crate::task::Task;
use crate::task::dir::{entries, open_dir_at};

/// A file, as fsspec tells of it.
struct Info {
    path: OsString,
    /// The type of the file; of the target, if it is a symbolic link.
    file_type: FileType,
    /// The attributes; of the target, if it is a symbolic link. `None` if nobody asked.
    stat: Option<Stat>,
    /// Where it leads, if it is a symbolic link.
    target: Option<OsString>,
}

impl Info {
    /// Reads a file's attributes.
    fn read(task: &vfscale::Task, at: At<'_>, name: &Path, path: OsString) -> Result<Info> {
        let stat = task.posix().fstatat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !stat.is_symlink() {
            return Ok(Info { path, file_type: stat.file_type(), stat: Some(stat), target: None });
        }
        let target = task.posix().readlinkat(at, name)?.into_os_string();
        let (file_type, stat) = match task.posix().fstatat(at, name, AtFlags::empty()) {
            Ok(stat) => (stat.file_type(), stat),
            // The link leads nowhere.
            Err(_) => (FileType::Unknown, Stat { size: 0, ..stat }),
        };
        Ok(Info { path, file_type, stat: Some(stat), target: Some(target) })
    }

    /// Returns whether it is a directory itself.
    fn is_real_dir(&self) -> bool {
        self.file_type == FileType::Directory && self.target.is_none()
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let seconds = |time: Timestamp| time.secs() as f64 + 1e-9 * f64::from(time.nanos());
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "name"), name(py, &self.path, false)?)?;
        let stat = self.stat.unwrap_or_default();
        let (size, kind) = match self.file_type {
            FileType::Directory => (0, intern!(py, "directory")),
            FileType::RegularFile => (stat.size, intern!(py, "file")),
            _ => (stat.size, intern!(py, "other")),
        };
        dict.set_item(intern!(py, "size"), size)?;
        dict.set_item(intern!(py, "type"), kind)?;
        dict.set_item(intern!(py, "created"), seconds(stat.btime))?;
        dict.set_item(intern!(py, "mtime"), seconds(stat.mtime))?;
        dict.set_item(intern!(py, "mode"), stat.mode)?;
        dict.set_item(intern!(py, "uid"), stat.uid)?;
        dict.set_item(intern!(py, "gid"), stat.gid)?;
        dict.set_item(intern!(py, "ino"), stat.ino)?;
        dict.set_item(intern!(py, "nlink"), stat.nlink)?;
        dict.set_item(intern!(py, "islink"), self.target.is_some())?;
        if let Some(target) = &self.target {
            dict.set_item(intern!(py, "destination"), name(py, target, false)?)?;
        }
        Ok(dict)
    }
}

/// Returns the path of a name in a directory.
fn join(dir: &OsStr, name: &OsStr) -> OsString {
    let mut path = OsString::with_capacity(dir.len() + 1 + name.len());
    path.push(dir);
    if dir.as_bytes().last() != Some(&b'/') {
        path.push("/");
    }
    path.push(name);
    path
}

/// Returns what is in a directory; attributes only if `detail`.
fn list(task: &vfscale::Task, dir: &File, path: &OsStr, detail: bool) -> Result<Vec<Info>> {
    let mut found = Vec::new();
    for entry in entries(dir)? {
        let path = join(path, &entry.name);
        if !detail && entry.file_type != FileType::Symlink {
            found.push(Info { path, file_type: entry.file_type, stat: None, target: None });
            continue;
        }
        match Info::read(task, At::File(dir), Path::new(&entry.name), path) {
            // Another task has removed it meanwhile.
            Err(error) if error.errno() == Errno::NOENT => {}
            info => found.push(info?),
        }
    }
    Ok(found)
}

/// Options of a search.
#[derive(Clone, Copy)]
struct Search {
    depth: usize,
    with_dirs: bool,
    detail: bool,
}

/// Returns the files below a directory, sorted by path; nothing for a path that leads nowhere.
fn find(task: &vfscale::Task, top: &Path, search: Search) -> Result<Vec<Info>> {
    let top_info = match Info::read(task, At::Cwd, top, top.as_os_str().to_owned()) {
        Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => return Ok(vec![]),
        info => info?,
    };
    if top_info.file_type != FileType::Directory {
        return Ok(vec![top_info]);
    }
    let mut found = Vec::new();
    let mut dirs = vec![(PathBuf::from(top), search.depth)];
    while let Some((dir, depth)) = dirs.pop() {
        let listed = open_dir_at(task, &dir)
            .and_then(|file| list(task, &file, dir.as_os_str(), search.detail));
        let listed = match listed {
            // Removed or replaced meanwhile, or not for this task: fsspec leaves these out.
            Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {
                continue;
            }
            listed => listed?,
        };
        for info in listed {
            if info.is_real_dir() && depth > 1 {
                dirs.push((info.path.clone().into(), depth - 1));
            }
            if info.file_type != FileType::Directory || search.with_dirs {
                found.push(info);
            }
        }
    }
    if search.with_dirs {
        found.push(top_info);
    }
    found.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)]
impl Task {
    /// Returns a file's dictionary.
    fn _info<'py>(&self, py: Python<'py>, path: FsPath) -> PyResult<Bound<'py, PyDict>> {
        let found = self.call(py, |task| {
            Info::read(task, At::Cwd, path.path(), path.path().as_os_str().to_owned())
        })?;
        found.or_raise_on(&path)?.to_dict(py)
    }

    /// Returns what is in a directory, or the file itself: dictionaries, or names without `detail`.
    fn _ls<'py>(
        &self,
        py: Python<'py>,
        path: FsPath,
        detail: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let found = self.call(py, |task| {
            let place = path.path();
            match open_dir_at(task, place) {
                Ok(dir) => list(task, &dir, place.as_os_str(), detail),
                Err(error) if error.errno() == Errno::NOTDIR => {
                    let name = place.as_os_str().to_owned();
                    Info::read(task, At::Cwd, place, name).map(|info| vec![info])
                }
                Err(error) => Err(error),
            }
        })?;
        let list = PyList::empty(py);
        for info in found.or_raise_on(&path)? {
            if detail {
                list.append(info.to_dict(py)?)?;
            } else {
                list.append(name(py, &info.path, false)?)?;
            }
        }
        Ok(list)
    }

    /// Returns the files below a directory, sorted: a dictionary by path, or a list of paths
    /// without `detail`.
    fn _find<'py>(
        &self,
        py: Python<'py>,
        path: FsPath,
        depth: Option<usize>,
        with_dirs: bool,
        detail: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let search = Search { depth: depth.unwrap_or(usize::MAX), with_dirs, detail };
        let found = self.call(py, |task| find(task, path.path(), search))?.or_raise_on(&path)?;
        if detail {
            let all = PyDict::new(py);
            for info in &found {
                all.set_item(name(py, &info.path, false)?, info.to_dict(py)?)?;
            }
            return Ok(all.into_any());
        }
        let list = PyList::empty(py);
        for info in &found {
            list.append(name(py, &info.path, false)?)?;
        }
        Ok(list.into_any())
    }
}
