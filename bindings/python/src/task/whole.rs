//! Whole files and trees in one call.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use vfscale::posix::OFlags;
use vfscale::{Durability, Links, Owners, Result, Transfer, Transferred};

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

/// The arguments of a copy from or to the host.
#[derive(Clone, Copy)]
struct Wanted {
    owners: Owners,
    xattrs: bool,
    devices: bool,
    links: Links,
}

impl Wanted {
    fn new(
        owner: Option<(u32, u32)>,
        keep_owners: bool,
        xattrs: bool,
        devices: bool,
        links: &str,
    ) -> PyResult<Wanted> {
        let owners = match owner {
            Some((uid, gid)) => Owners::Fixed(uid, gid),
            None if keep_owners => Owners::Source,
            None => Owners::Copier,
        };
        let links = match links {
            "keep" => Links::Keep,
            "skip" => Links::Skip,
            "refuse" => Links::Refuse,
            other => {
                let why = format!("links is 'keep', 'skip' or 'refuse', not {other:?}");
                return Err(PyValueError::new_err(why));
            }
        };
        Ok(Wanted { owners, xattrs, devices, links })
    }

    fn transfer<'a>(self) -> Transfer<'a> {
        let Wanted { owners, xattrs, devices, links } = self;
        Transfer::new().owners(owners).xattrs(xattrs).devices(devices).links(links)
    }
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
    /// bits and times. Returns the numbers of files and bytes, and of files that were skipped:
    /// sockets, and what `devices` and `links` leave out.
    ///
    /// The owner is the task's; `keep_owners` keeps the owners, and `owner=(uid, gid)` sets one.
    /// Only with `keep_owners` do programs keep set-id bits and capabilities. `xattrs` copies
    /// extended attributes too, and `devices` makes devices. `links` tells what is done with
    /// symbolic links that lead out of the copied tree: 'keep', 'skip', or 'refuse' (`OSError`
    /// with `EXDEV`). Refuse or skip them in what a guest has made.
    #[pyo3(signature = (
        host_dir, to, *, owner=None, keep_owners=false, xattrs=false, devices=false, links="keep"
    ))]
    #[allow(clippy::too_many_arguments)]
    fn import_tree<'py>(
        &self,
        py: Python<'py>,
        host_dir: FsPath,
        to: FsPath,
        owner: Option<(u32, u32)>,
        keep_owners: bool,
        xattrs: bool,
        devices: bool,
        links: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let wanted = Wanted::new(owner, keep_owners, xattrs, devices, links)?;
        let done =
            self.call_long(py, |task| wanted.transfer().import(task, host_dir.path(), to.path()))?;
        transferred(py, done)
    }

    /// Copies a file or directory of the tree to the new name `host_dir` on the host, with the
    /// rights of this process; see `import_tree`.
    #[pyo3(signature = (
        path, host_dir, *, owner=None, keep_owners=false, xattrs=false, devices=false, links="keep"
    ))]
    #[allow(clippy::too_many_arguments)]
    fn export_tree<'py>(
        &self,
        py: Python<'py>,
        path: FsPath,
        host_dir: FsPath,
        owner: Option<(u32, u32)>,
        keep_owners: bool,
        xattrs: bool,
        devices: bool,
        links: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let wanted = Wanted::new(owner, keep_owners, xattrs, devices, links)?;
        let done = self
            .call_long(py, |task| wanted.transfer().export(task, path.path(), host_dir.path()))?;
        transferred(py, done)
    }
}
