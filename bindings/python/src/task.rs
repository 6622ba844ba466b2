//! Tasks: the class whose methods have the names of `os`.

use std::sync::Arc;

use pyo3::prelude::*;
use vfscale::posix::{OFlags, OpenHow};
use vfscale::{Capabilities, Credentials, File, Mode, Result};

use crate::cell::TaskCell;
use crate::error::{OrRaise, closed};
use crate::gil;
use crate::listings::Listings;
use crate::path::{FsPath, Place, at};
use crate::tree::{Users, new_task};

mod attr;
mod dir;
mod fd;
mod infos;
mod names;
mod whole;
mod xattr;

/// A task: what a process is to a file system. It has a root and a working directory, a umask,
/// credentials and descriptors. Its methods have the names and arguments of `os`.
///
/// Any number of threads may use one task.
#[pyclass(frozen, subclass, weakref, module = "vfscale._vfscale")]
pub(crate) struct Task {
    pub(crate) cell: TaskCell,
    pub(crate) users: Arc<Users>,
    listings: Listings,
}

/// The flags of `open` that the tree knows. `os.open` ignores others.
const KNOWN: OFlags = OFlags::ACCMODE
    .union(OFlags::APPEND)
    .union(OFlags::CLOEXEC)
    .union(OFlags::CREATE)
    .union(OFlags::DIRECT)
    .union(OFlags::DIRECTORY)
    .union(OFlags::DSYNC)
    .union(OFlags::EXCL)
    .union(OFlags::NOATIME)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::PATH)
    .union(OFlags::SYNC)
    .union(OFlags::TMPFILE)
    .union(OFlags::TRUNC);

/// The flags that count beside `O_PATH`.
const WITH_PATH: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Returns the arguments of an open with the rules of `open(2)`, which ignores what does not count.
fn open_how(flags: i32, mode: u32) -> OpenHow {
    let mut flags = OFlags::from_bits_retain(flags.cast_unsigned()) & KNOWN;
    if flags.contains(OFlags::PATH) {
        flags &= WITH_PATH;
    }
    let makes = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    let mode = if makes { Mode::from_bits_retain(mode & 0o7777) } else { Mode::empty() };
    OpenHow { mode, ..OpenHow::new(flags) }
}

impl Task {
    /// Returns the task, unless it has ended.
    #[inline]
    pub(crate) fn get(&self) -> PyResult<Arc<vfscale::Task>> {
        self.cell.get().ok_or_else(|| closed("task"))
    }

    /// Makes a call, without the interpreter's lock if it may wait for a device.
    #[inline]
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&vfscale::Task) -> Result<T> + Send,
    ) -> PyResult<Result<T>> {
        let task = self.get()?;
        Ok(gil::run(py, self.users.blocks, || f(&task)))
    }

    /// Makes a call that may take long, without the interpreter's lock.
    pub(crate) fn call_long<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&vfscale::Task) -> Result<T> + Send,
    ) -> PyResult<Result<T>> {
        let task = self.get()?;
        Ok(py.detach(|| f(&task)))
    }

    /// Opens a file, as `os.open`. Waits for the other end of a fifo, without the lock of the
    /// interpreter.
    pub(crate) fn open_file(
        &self,
        py: Python<'_>,
        path: &FsPath,
        (flags, mode): (i32, u32),
        dir_fd: Option<i32>,
    ) -> PyResult<File> {
        let task = self.get()?;
        let how = open_how(flags, mode);
        let (at, place) = (at(dir_fd), path.path());
        let opened = gil::wait(py, self.users.blocks, |token| {
            task.posix().open_interruptible(at, place, &how, token)
        })?;
        opened.or_raise_on(path)
    }

    fn with_task(&self, task: vfscale::Task) -> (TaskCell, Arc<Users>) {
        (self.users.adopt(task), self.users.clone())
    }
}

/// Makes credentials; user 0 has every privilege, others have none, unless `capabilities` says.
fn credentials(uid: u32, gid: u32, groups: Vec<u32>, capabilities: Option<u64>) -> Credentials {
    let base = if uid == 0 { Credentials::root() } else { Credentials::user(uid, gid) };
    let mut credentials = Credentials { gid, real_gid: gid, ..base }.with_groups(groups);
    if let Some(bits) = capabilities {
        credentials.caps = Capabilities::from_bits_truncate(bits);
    }
    credentials
}

#[pymethods]
impl Task {
    #[new]
    #[pyo3(signature = (tree, *, uid=0, gid=0, groups=vec![], capabilities=None, root=None))]
    fn new(
        tree: &Bound<'_, PyAny>,
        uid: u32,
        gid: u32,
        groups: Vec<u32>,
        capabilities: Option<u64>,
        root: Option<FsPath>,
    ) -> PyResult<Task> {
        if let Ok(of) = tree.cast::<Task>() {
            // A child with the same root, working directory, umask and descriptors.
            let (cell, users) = of.get().with_task(of.get().get()?.fork());
            return Ok(Task { cell, users, listings: Listings::default() });
        }
        let credentials = credentials(uid, gid, groups, capabilities);
        let (cell, users) = new_task(tree, credentials, root.as_ref())?;
        Ok(Task { cell, users, listings: Listings::default() })
    }

    /// Ends the task: closes its descriptors and releases its record locks. Its open files stay
    /// open. Later calls raise `ValueError`.
    fn end(&self, py: Python<'_>) {
        let task = self.cell.take();
        self.listings.clear();
        gil::run(py, self.users.blocks, || drop(task));
    }

    /// Whether the task has ended.
    #[getter]
    fn ended(&self) -> bool {
        self.cell.is_empty()
    }

    /// Changes the credentials with which the task acts. User 0 has every privilege and others have
    /// none, unless `capabilities` has the bits of `capabilities(7)`.
    #[pyo3(signature = (uid, gid, groups=vec![], *, capabilities=None))]
    fn set_credentials(
        &self,
        uid: u32,
        gid: u32,
        groups: Vec<u32>,
        capabilities: Option<u64>,
    ) -> PyResult<()> {
        self.get()?.set_credentials(credentials(uid, gid, groups, capabilities));
        self.listings.clear();
        Ok(())
    }

    /// Returns the real user.
    ///
    /// >>> task.getuid()
    /// 0
    fn getuid(&self) -> PyResult<u32> {
        Ok(self.get()?.credentials().real_uid)
    }

    /// Returns the user that files are checked against.
    fn geteuid(&self) -> PyResult<u32> {
        Ok(self.get()?.credentials().uid)
    }

    /// Returns the real group.
    fn getgid(&self) -> PyResult<u32> {
        Ok(self.get()?.credentials().real_gid)
    }

    /// Returns the group that files are checked against.
    fn getegid(&self) -> PyResult<u32> {
        Ok(self.get()?.credentials().gid)
    }

    /// Returns the supplementary groups.
    fn getgroups(&self) -> PyResult<Vec<u32>> {
        Ok(self.get()?.credentials().groups)
    }

    /// Returns the privileges, as the bits of `capabilities(7)`.
    fn getcapabilities(&self) -> PyResult<u64> {
        Ok(self.get()?.credentials().caps.bits())
    }

    /// Sets the permission bits that new files do not get; returns the previous ones.
    ///
    /// >>> oct(task.umask(0o077)), oct(task.umask(0o022))
    /// ('0o22', '0o77')
    fn umask(&self, mask: u32) -> PyResult<u32> {
        Ok(self.get()?.umask(Mode::from_bits_retain(mask & 0o777)).bits())
    }

    /// Returns the working directory as `str`.
    ///
    /// >>> task.getcwd()
    /// '/'
    fn getcwd<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let path = self.call(py, |task| task.posix().getcwd())?.or_raise()?;
        crate::path::name(py, path.as_os_str(), false)
    }

    /// Returns the working directory as `bytes`.
    fn getcwdb<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let path = self.call(py, |task| task.posix().getcwd())?.or_raise()?;
        crate::path::name(py, path.as_os_str(), true)
    }

    /// Changes the working directory, to a path or the directory of a descriptor.
    #[allow(clippy::needless_pass_by_value)]
    fn chdir(&self, py: Python<'_>, path: Place) -> PyResult<()> {
        let changed = self.call(py, |task| match &path {
            Place::Path(path) => task.posix().chdir(path.path()),
            Place::Fd(fd) => {
                let dir = task.posix().file(vfscale::posix::Fd(*fd))?;
                task.posix().fchdir(&dir)
            }
        })?;
        changed.or_raise_on(&path)?;
        self.listings.clear();
        Ok(())
    }

    /// Changes the working directory to that of a descriptor.
    fn fchdir(&self, py: Python<'_>, fd: i32) -> PyResult<()> {
        self.chdir(py, Place::Fd(fd))
    }

    /// Changes the root directory. Needs `CAP_SYS_CHROOT`; the working directory stays.
    #[allow(clippy::needless_pass_by_value)]
    fn chroot(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.call(py, |task| task.posix().chroot(path.path()))?.or_raise_on(&path)?;
        self.listings.clear();
        Ok(())
    }
}
