//! Reading directories.

use std::ops::ControlFlow;
use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyList;
use vfscale::posix::{AtFlags, DirEntryBuf, Fd, OFlags};
use vfscale::{Errno, Error, File, FileType, Result};

use crate::dir_entry::{ScandirIterator, Scanned};
use crate::error::OrRaise;
use crate::path::{Place, name};
use crate::task::Task;

/// Opens a directory to read it.
fn open_dir(task: &vfscale::Task, place: &Place) -> Result<File> {
    match place {
        Place::Path(path) => open_dir_at(task, path.path()),
        Place::Fd(fd) => {
            let file = task.posix().file(Fd(*fd))?;
            // Told first, also of a descriptor of `O_PATH`.
            if file.file_type() != FileType::Directory {
                return Err(Error::new("getdents64", Errno::NOTDIR));
            }
            Ok(file)
        }
    }
}

/// Opens the directory at a path to read it.
pub(crate) fn open_dir_at(task: &vfscale::Task, path: &Path) -> Result<File> {
    task.posix().open(path, OFlags::DIRECTORY, 0)
}

/// Returns all entries of a directory, except `.` and `..`.
fn entries(dir: &File) -> Result<Vec<DirEntryBuf>> {
    let mut found = Vec::new();
    dir.read_dir_at(0, |entry| {
        if entry.name != "." && entry.name != ".." {
            found.push(entry.into());
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)]
impl Task {
    /// Returns the names in a directory, in no order.
    ///
    /// >>> task.mkdir("/dir")
    /// >>> task.write_bytes("/dir/one", b"1")
    /// >>> task.listdir("/dir"), task.listdir(b"/dir")
    /// (['one'], [b'one'])
    #[pyo3(signature = (path=None))]
    fn listdir<'py>(&self, py: Python<'py>, path: Option<Place>) -> PyResult<Bound<'py, PyList>> {
        let place = Place::or_here(path);
        let found = self.call(py, |task| entries(&open_dir(task, &place)?))?;
        let list = PyList::empty(py);
        for entry in found.or_raise_on(&place)? {
            list.append(name(py, &entry.name, place.is_bytes())?)?;
        }
        Ok(list)
    }

    /// Returns an iterator over the entries of a directory, as `os.scandir`.
    ///
    /// >>> task.makedirs("/scan/sub")
    /// >>> with task.scandir("/scan") as entries:
    /// ...     [(entry.name, entry.is_dir()) for entry in entries]
    /// [('sub', True)]
    #[pyo3(signature = (path=None))]
    fn scandir(slf: Bound<'_, Task>, path: Option<Place>) -> PyResult<ScandirIterator> {
        let place = Place::or_here(path);
        let found = slf.get().call(slf.py(), |task| entries(&open_dir(task, &place)?))?;
        let found = found.or_raise_on(&place)?;
        Ok(ScandirIterator::new(Scanned::new(slf.unbind(), place), found))
    }

    /// Returns what `walk` needs of a directory: the names of directories, those of other files,
    /// and those of the directories that are symbolic links.
    fn _names<'py>(&self, py: Python<'py>, path: Place) -> PyResult<[Bound<'py, PyList>; 3]> {
        let found = self.call(py, |task| {
            let dir = open_dir(task, &path)?;
            let found = entries(&dir)?;
            Ok(found
                .into_iter()
                .map(|entry| {
                    let leads_to_dir = entry.file_type == FileType::Symlink && {
                        let stat =
                            task.posix().fstatat((&dir).into(), &entry.name, AtFlags::empty());
                        stat.is_ok_and(|stat| stat.is_dir())
                    };
                    (entry, leads_to_dir)
                })
                .collect::<Vec<_>>())
        })?;
        let lists = [PyList::empty(py), PyList::empty(py), PyList::empty(py)];
        for (entry, leads_to_dir) in found.or_raise_on(&path)? {
            let text = name(py, &entry.name, path.is_bytes())?;
            if leads_to_dir {
                lists[2].append(&text)?;
            }
            let is_dir = leads_to_dir || entry.file_type == FileType::Directory;
            lists[usize::from(!is_dir)].append(text)?;
        }
        Ok(lists)
    }
}
