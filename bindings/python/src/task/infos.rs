//! Listings in the form of fsspec: dictionaries with `name`, `size`, `type` and more.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyList, PyString};
use vfscale::posix::{At, AtFlags, Stat};
use vfscale::{Errno, File, FileType, Result, Timestamp};

use crate::error::OrRaise;
use crate::listings::Asked;
use crate::path::{FsPath, name};
use crate::task::Task;
use crate::task::dir::open_dir_at;

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

    /// Returns the type as fsspec calls it, and the size: 0 for a directory.
    fn kind_and_size<'py>(&self, py: Python<'py>) -> (&Bound<'py, PyString>, u64) {
        let size = self.stat.map_or(0, |stat| stat.size);
        match self.file_type {
            FileType::Directory => (intern!(py, "directory"), 0),
            FileType::RegularFile => (intern!(py, "file"), size),
            _ => (intern!(py, "other"), size),
        }
    }
}

/// A maker of dictionaries: a copy of one that has the keys is made faster than a new one.
struct Dicts<'py> {
    py: Python<'py>,
    keys: Bound<'py, PyDict>,
}

impl<'py> Dicts<'py> {
    fn new(py: Python<'py>) -> PyResult<Dicts<'py>> {
        let keys = PyDict::new(py);
        for key in [
            intern!(py, "name"),
            intern!(py, "size"),
            intern!(py, "type"),
            intern!(py, "created"),
            intern!(py, "mtime"),
        ] {
            keys.set_item(key, 0)?;
        }
        Ok(Dicts { py, keys })
    }

    /// Makes the dictionary of a file whose path is `name`.
    fn dict(&self, info: &Info, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let py = self.py;
        let dict = self.keys.copy()?;
        let (kind, size) = info.kind_and_size(py);
        dict.set_item(intern!(py, "name"), name)?;
        dict.set_item(intern!(py, "type"), kind)?;
        if size != 0 {
            dict.set_item(intern!(py, "size"), size)?;
        }
        let stat = info.stat.unwrap_or_default();
        let changed = PyFloat::new(py, seconds(stat.mtime));
        if stat.mtime == stat.btime {
            dict.set_item(intern!(py, "created"), &changed)?;
        } else {
            dict.set_item(intern!(py, "created"), seconds(stat.btime))?;
        }
        dict.set_item(intern!(py, "mtime"), changed)?;
        if let Some(target) = &info.target {
            dict.set_item(intern!(py, "islink"), true)?;
            dict.set_item(intern!(py, "destination"), self::name(py, target, false)?)?;
        }
        Ok(dict)
    }
}

fn seconds(time: Timestamp) -> f64 {
    time.secs() as f64 + 1e-9 * f64::from(time.nanos())
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
    let (mut found, mut failed) = (Vec::new(), Ok(()));
    dir.read_dir_at(0, |entry| {
        if entry.name == "." || entry.name == ".." {
            return ControlFlow::Continue(());
        }
        let path = join(path, entry.name);
        if !detail && entry.file_type != FileType::Symlink {
            found.push(Info { path, file_type: entry.file_type, stat: None, target: None });
            return ControlFlow::Continue(());
        }
        match Info::read(task, At::File(dir), Path::new(entry.name), path) {
            // Another task has removed it meanwhile.
            Err(error) if error.errno() == Errno::NOENT => {}
            Err(error) => {
                failed = Err(error);
                return ControlFlow::Break(());
            }
            Ok(info) => found.push(info),
        }
        ControlFlow::Continue(())
    })?;
    failed.map(|()| found)
}

/// Options of a search.
#[derive(Clone, Copy)]
struct Search {
    with_dirs: bool,
    detail: bool,
}

/// A step of a search: a file that is found, or a directory whose contents follow.
enum Step {
    Found(Info),
    /// The path has a `/` at its end. So steps in the order of paths find files in that order.
    Dir(OsString, usize),
}

impl Step {
    fn path(&self) -> &[u8] {
        match self {
            Step::Found(info) => info.path.as_bytes(),
            Step::Dir(path, _) => path.as_bytes(),
        }
    }
}

/// Returns the steps that the contents of a directory are.
fn steps(task: &vfscale::Task, dir: &OsStr, depth: usize, search: Search) -> Result<Vec<Step>> {
    let listed =
        open_dir_at(task, Path::new(dir)).and_then(|file| list(task, &file, dir, search.detail));
    let listed = match listed {
        // Removed or replaced meanwhile, or not for this task: fsspec leaves these out.
        Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {
            return Ok(Vec::new());
        }
        listed => listed?,
    };
    let mut steps = Vec::with_capacity(listed.len());
    for info in listed {
        if info.is_real_dir() && depth > 1 {
            steps.push(Step::Dir(join(&info.path, OsStr::new("")), depth - 1));
        }
        if info.file_type != FileType::Directory || search.with_dirs {
            steps.push(Step::Found(info));
        }
    }
    let prefix = dir.len();
    steps.sort_unstable_by(|one, other| other.path()[prefix..].cmp(&one.path()[prefix..]));
    Ok(steps)
}

/// Returns the files below a directory, sorted by path; nothing for a path that leads nowhere.
fn find(task: &vfscale::Task, top: &Path, depth: usize, search: Search) -> Result<Vec<Info>> {
    let top_info = match Info::read(task, At::Cwd, top, top.as_os_str().to_owned()) {
        Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => return Ok(vec![]),
        info => info?,
    };
    if top_info.file_type != FileType::Directory {
        return Ok(vec![top_info]);
    }
    let mut left = vec![Step::Dir(join(top.as_os_str(), OsStr::new("")), depth)];
    let mut found = Vec::new();
    if search.with_dirs {
        found.push(top_info);
    }
    while let Some(step) = left.pop() {
        match step {
            Step::Found(info) => found.push(info),
            Step::Dir(path, depth) => left.extend(steps(task, &path, depth, search)?),
        }
    }
    Ok(found)
}

fn bytes(path: &FsPath) -> Vec<u8> {
    path.path().as_os_str().as_bytes().to_vec()
}

impl Task {
    /// Lists a directory.
    fn list_of<'py>(
        &self,
        py: Python<'py>,
        path: &FsPath,
        detail: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
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
        let (list, dicts) = (PyList::empty(py), Dicts::new(py)?);
        for info in found.or_raise_on(path)? {
            let name = name(py, &info.path, false)?;
            if detail {
                list.append(dicts.dict(&info, &name)?)?;
            } else {
                list.append(name)?;
            }
        }
        Ok(list.into_any())
    }

    /// Searches a tree.
    fn search_of<'py>(
        &self,
        py: Python<'py>,
        path: &FsPath,
        depth: usize,
        search: Search,
    ) -> PyResult<Bound<'py, PyAny>> {
        let found = self.call(py, |task| find(task, path.path(), depth, search))?;
        let found = found.or_raise_on(path)?;
        if search.detail {
            let (all, dicts) = (PyDict::new(py), Dicts::new(py)?);
            for info in &found {
                let name = name(py, &info.path, false)?;
                all.set_item(&name, dicts.dict(info, &name)?)?;
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

#[pymethods]
#[allow(clippy::needless_pass_by_value)]
impl Task {
    /// Returns a file's dictionary, with more than those of listings.
    fn _info<'py>(&self, py: Python<'py>, path: FsPath) -> PyResult<Bound<'py, PyDict>> {
        let found = self.call(py, |task| {
            Info::read(task, At::Cwd, path.path(), path.path().as_os_str().to_owned())
        })?;
        let info = found.or_raise_on(&path)?;
        let dict = Dicts::new(py)?.dict(&info, &path.named(py, &info.path)?)?;
        if let Some(stat) = &info.stat {
            dict.set_item(intern!(py, "mode"), stat.mode)?;
            dict.set_item(intern!(py, "uid"), stat.uid)?;
            dict.set_item(intern!(py, "gid"), stat.gid)?;
            dict.set_item(intern!(py, "ino"), stat.ino)?;
            dict.set_item(intern!(py, "nlink"), stat.nlink)?;
        }
        Ok(dict)
    }

    /// Returns what is in a directory, or the file itself: dictionaries, or names without `detail`.
    fn _ls<'py>(&self, py: Python<'py>, path: FsPath, detail: bool) -> PyResult<Bound<'py, PyAny>> {
        let asked = Asked { path: bytes(&path), detail, search: None };
        self.listings.get(py, self, asked, || self.list_of(py, &path, detail))
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
        let (depth, search) = (depth.unwrap_or(usize::MAX), Search { with_dirs, detail });
        let asked = Asked { path: bytes(&path), detail, search: Some((depth, with_dirs)) };
        self.listings.get(py, self, asked, || self.search_of(py, &path, depth, search))
    }
}
