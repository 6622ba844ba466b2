//! Whole files and trees in one call.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use vfscale::posix::OFlags;
use vfscale::{Durability, Owners, Result, Transfer, Transferred};

use crate::buffer;
use crate::error::{OrRaise, os_error};
use crate::gil::{self, ATTACHED_BYTES_MAX};
use crate::path::FsPath;
use crate::task::Task;

/// Returns a path of which the end does not exist, with every symbolic link of the rest followed.
pub(crate) fn resolve_missing(task: &vfscale::Task, path: &Path) -> Result<PathBuf> {
    let mut found = if path.is_absolute() { PathBuf::from("/") } else { task.current_dir()? };
    let mut left: Vec<OsString> = Vec::new();
    let push = |left: &mut Vec<OsString>, path: &Path| {
        left.extend(path.components().rev().map(|part| part.as_os_str().to_owned()));
    };
    push(&mut left, path);
    // As many links as a walk follows.
    let mut links = vfscale::posix::SYMLINKS_MAX;
    while let Some(part) = left.pop() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => found = PathBuf::from("/"),
            Some(Component::ParentDir) => {
                found.pop();
            }
            Some(Component::Normal(name)) => {
                found.push(name);
                if let Ok(target) = task.read_link(&found)
                    && links > 0
                {
                    links -= 1;
                    found.pop();
                    push(&mut left, &target);
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

fn transfer<'a>(owners: Option<(u32, u32)>, keep_owners: bool, xattrs: bool) -> Transfer<'a> {
    let owners = match owners {
        Some((uid, gid)) => Owners::Fixed(uid, gid),
        None if keep_owners => Owners::Source,
        None => Owners::Copier,
    };
    Transfer::new().owners(owners).xattrs(xattrs)
}

/// Returns the counts of a transfer, or the error of the path that failed.
fn transferred<'py>(py: Python<'py>, done: Result<Transferred>) -> PyResult<Bound<'py, PyDict>> {
    let done =
        done.map_err(|error| os_error(error.errno(), [error.path().map(Into::into), None]))?;
    let counts = PyDict::new(py);
    counts.set_item("files", done.files)?;
    counts.set_item("bytes", done.bytes)?;
    counts.set_item("skipped", done.skipped)?;
    Ok(counts)
}

impl Task {
    /// Reads a small regular file into `buf`; returns the number of bytes, or `None` for another
    /// file, with its size.
    fn read_small(
        task: &vfscale::Task,
        path: &FsPath,
        buf: &mut [u8],
    ) -> Result<std::result::Result<usize, vfscale::File>> {
        let file = task.posix().open(path.path(), OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
        let n = file.read(buf)?;
        Ok(if n < buf.len() && file.file_type() == vfscale::FileType::RegularFile {
            Ok(n)
        } else {
            Err(file)
        })
    }
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)]
impl Task {
    /// Opens, reads and closes a file in one call.
    ///
    /// >>> task.write_bytes("/greeting", b"hello")
    /// >>> task.read_bytes("/greeting")
    /// b'hello'
    fn read_bytes<'py>(&self, py: Python<'py>, path: FsPath) -> PyResult<Bound<'py, PyAny>> {
        let task = self.get()?;
        let blocks = self.users.blocks;
        let mut small = [0; ATTACHED_BYTES_MAX];
        let file = match gil::run(py, blocks, || Task::read_small(&task, &path, &mut small)) {
            Ok(Ok(n)) => return Ok(PyBytes::new(py, &small[..n]).into_any()),
            Ok(Err(file)) => file,
            Err(error) => return Err(os_error(error.errno(), [Some((&path).into()), None])),
        };
        let from = file.seek(vfscale::posix::Whence::Set(0));
        from.or_raise_on(&path)?;
        crate::file::read_to_end(py, blocks, &file)
    }

    /// Makes or replaces the contents of a file in one call. A reader may see a part of them;
    /// `replace_bytes` prevents that.
    fn write_bytes(&self, py: Python<'_>, path: FsPath, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let task = self.get()?;
        buffer::with(data, |data| {
            let release = self.users.blocks || data.len() > ATTACHED_BYTES_MAX;
            gil::run(py, release, || {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NONBLOCK;
                task.posix().open(path.path(), flags, 0o666)?.write_all(data)
            })
            .or_raise_on(&path)
        })
    }

    /// Replaces a file so that readers, and the volume after a crash, have the old contents or the
    /// new ones. With `durable` the new ones survive a crash after the return.
    #[pyo3(signature = (path, data, *, durable=false))]
    fn replace_bytes(
        &self,
        py: Python<'_>,
        path: FsPath,
        data: &Bound<'_, PyAny>,
        durable: bool,
    ) -> PyResult<()> {
        let task = self.get()?;
        let durability = if durable { Durability::Durable } else { Durability::Ordered };
        buffer::with(data, |data| {
            let release = self.users.blocks || durable || data.len() > ATTACHED_BYTES_MAX;
            gil::run(py, release, || task.replace_file(path.path(), data, durability))
                .or_raise_on(&path)
        })
    }

    /// Copies the contents and permission bits of a file to another path.
    fn copyfile(&self, py: Python<'_>, src: FsPath, dst: FsPath) -> PyResult<u64> {
        let copied = self.call_long(py, |task| task.copy(src.path(), dst.path()))?;
        copied.or_raise_between(&src, &dst)
    }

    /// Copies a file or directory of the host to the new name `to` in the tree, with the rights of
    /// the task: symbolic links as they are, several names of a file as such, holes, permission
    /// bits and times. Returns the numbers of files and bytes.
    ///
    /// The owner is the task's; `keep_owners` keeps the owners, and `owner=(uid, gid)` sets one.
    /// `xattrs` copies extended attributes too.
    #[pyo3(signature = (host_dir, to, *, owner=None, keep_owners=false, xattrs=false))]
    fn import_tree<'py>(
        &self,
        py: Python<'py>,
        host_dir: FsPath,
        to: FsPath,
        owner: Option<(u32, u32)>,
        keep_owners: bool,
        xattrs: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let done = self.call_long(py, |task| {
            transfer(owner, keep_owners, xattrs).import(task, host_dir.path(), to.path())
        })?;
        transferred(py, done)
    }

    /// Copies a file or directory of the tree to the new name `host_dir` on the host, with the
    /// rights of this process; see `import_tree`.
    #[pyo3(signature = (path, host_dir, *, owner=None, keep_owners=false, xattrs=false))]
    fn export_tree<'py>(
        &self,
        py: Python<'py>,
        path: FsPath,
        host_dir: FsPath,
        owner: Option<(u32, u32)>,
        keep_owners: bool,
        xattrs: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let done = self.call_long(py, |task| {
            transfer(owner, keep_owners, xattrs).export(task, path.path(), host_dir.path())
        })?;
        transferred(py, done)
    }
}
