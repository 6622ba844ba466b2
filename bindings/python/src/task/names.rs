//! Calls that make, change and remove names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pyo3::prelude::*;
use vfscale::posix::{AtFlags, RenameFlags};
use vfscale::{Errno, FileType, Mode};

use crate::error::{OrRaise, os_error};
use crate::path::{FsPath, at};
use crate::task::Task;

#[pymethods]
#[allow(clippy::needless_pass_by_value)]
impl Task {
    /// Makes a directory.
    ///
    /// >>> task.mkdir("/d")
    /// >>> task.mkdir("/d")
    /// Traceback (most recent call last):
    /// FileExistsError: [Errno 17] File exists: '/d'
    #[pyo3(signature = (path, mode=0o777, *, dir_fd=None))]
    fn mkdir(&self, py: Python<'_>, path: FsPath, mode: u32, dir_fd: Option<i32>) -> PyResult<()> {
        let mode = Mode::from_bits_retain(mode & 0o7777);
        let made = self.call(py, |task| task.posix().mkdirat(at(dir_fd), path.path(), mode))?;
        made.or_raise_on(&path)
    }

    /// Makes a directory and those above it that are missing.
    ///
    /// >>> task.makedirs("/a/b/c")
    /// >>> task.makedirs("/a/b/c", exist_ok=True)
    /// >>> task.listdir("/a")
    /// ['b']
    #[pyo3(signature = (name, mode=0o777, exist_ok=false))]
    fn makedirs(&self, py: Python<'_>, name: FsPath, mode: u32, exist_ok: bool) -> PyResult<()> {
        let mode = Mode::from_bits_retain(mode & 0o7777);
        let made = self.call(py, |task| {
            let path = name.path();
            if let Some(whole) = path.as_os_str().as_bytes().strip_suffix(b"/.") {
                // Once the directory is made, its entry `.` is there.
                let whole = Path::new(OsStr::from_bytes(whole));
                if !whole.as_os_str().is_empty() && task.metadata(whole).is_err() {
                    return task.create_dir_all(whole);
                }
            }
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                match task.create_dir_all(parent) {
                    // The last step reports it, with its own rules.
                    Err(error) if error.errno() == Errno::EXIST => {}
                    made => made?,
                }
            }
            match task.posix().mkdirat(vfscale::posix::At::Cwd, path, mode) {
                // Whichever error it is: a directory of a read-only file system is there as well.
                Err(_) if exist_ok && task.metadata(path).is_ok_and(|found| found.is_dir()) => {
                    Ok(())
                }
                made => made,
            }
        })?;
        made.or_raise_on(&name)
    }

    /// Removes an empty directory.
    #[pyo3(signature = (path, *, dir_fd=None))]
    fn rmdir(&self, py: Python<'_>, path: FsPath, dir_fd: Option<i32>) -> PyResult<()> {
        let flags = AtFlags::REMOVEDIR;
        let gone = self.call(py, |task| task.posix().unlinkat(at(dir_fd), path.path(), flags))?;
        gone.or_raise_on(&path)
    }

    /// Removes a name of a file that is not a directory.
    #[pyo3(signature = (path, *, dir_fd=None))]
    fn unlink(&self, py: Python<'_>, path: FsPath, dir_fd: Option<i32>) -> PyResult<()> {
        let flags = AtFlags::empty();
        let gone = self.call(py, |task| task.posix().unlinkat(at(dir_fd), path.path(), flags))?;
        gone.or_raise_on(&path)
    }

    /// Removes a name, as `unlink`.
    #[pyo3(signature = (path, *, dir_fd=None))]
    fn remove(&self, py: Python<'_>, path: FsPath, dir_fd: Option<i32>) -> PyResult<()> {
        self.unlink(py, path, dir_fd)
    }

    /// Removes a file, or a directory with everything in it. Follows no symbolic link.
    ///
    /// >>> task.makedirs("/gone/sub")
    /// >>> task.rmtree("/gone")
    /// >>> task.exists("/gone")
    /// False
    fn rmtree(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        let gone = self.call_long(py, |task| {
            if task.symlink_metadata(path.path())?.is_dir() {
                task.remove_dir_all(path.path())
            } else {
                task.remove_file(path.path())
            }
        })?;
        gone.or_raise_on(&path)
    }

    /// Gives a file another name, and replaces a file that has it, in one step.
    ///
    /// >>> task.write_bytes("/new", b"1")
    /// >>> task.replace("/new", "/now")
    /// >>> task.read_bytes("/now")
    /// b'1'
    #[pyo3(signature = (src, dst, *, src_dir_fd=None, dst_dir_fd=None))]
    fn replace(
        &self,
        py: Python<'_>,
        src: FsPath,
        dst: FsPath,
        src_dir_fd: Option<i32>,
        dst_dir_fd: Option<i32>,
    ) -> PyResult<()> {
        self.renameat2(py, src, dst, 0, src_dir_fd, dst_dir_fd)
    }

    /// Gives a file another name, as `replace`.
    #[pyo3(signature = (src, dst, *, src_dir_fd=None, dst_dir_fd=None))]
    fn rename(
        &self,
        py: Python<'_>,
        src: FsPath,
        dst: FsPath,
        src_dir_fd: Option<i32>,
        dst_dir_fd: Option<i32>,
    ) -> PyResult<()> {
        self.renameat2(py, src, dst, 0, src_dir_fd, dst_dir_fd)
    }

    /// Gives a file another name, with the flags of `renameat2(2)`: `RENAME_NOREPLACE` (1) replaces
    /// no file, `RENAME_EXCHANGE` (2) exchanges two.
    #[pyo3(signature = (src, dst, flags=0, *, src_dir_fd=None, dst_dir_fd=None))]
    fn renameat2(
        &self,
        py: Python<'_>,
        src: FsPath,
        dst: FsPath,
        flags: u32,
        src_dir_fd: Option<i32>,
        dst_dir_fd: Option<i32>,
    ) -> PyResult<()> {
        let flags = RenameFlags::from_bits_retain(flags);
        let (from, to) = (at(src_dir_fd), at(dst_dir_fd));
        let done =
            self.call(py, |task| task.posix().renameat2(from, src.path(), to, dst.path(), flags))?;
        done.or_raise_between(&src, &dst)
    }

    /// Gives a file a second name. By default that of the symbolic link itself, if `src` is one, as
    /// in Linux.
    #[pyo3(signature = (src, dst, *, src_dir_fd=None, dst_dir_fd=None, follow_symlinks=false))]
    fn link(
        &self,
        py: Python<'_>,
        src: FsPath,
        dst: FsPath,
        src_dir_fd: Option<i32>,
        dst_dir_fd: Option<i32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let flags = if follow_symlinks { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
        let (from, to) = (at(src_dir_fd), at(dst_dir_fd));
        let done =
            self.call(py, |task| task.posix().linkat(from, src.path(), to, dst.path(), flags))?;
        done.or_raise_between(&src, &dst)
    }

    /// Makes a symbolic link `dst` that leads to `src`.
    ///
    /// >>> task.symlink("target", "/link")
    /// >>> task.readlink("/link")
    /// 'target'
    #[pyo3(signature = (src, dst, target_is_directory=false, *, dir_fd=None))]
    fn symlink(
        &self,
        py: Python<'_>,
        src: FsPath,
        dst: FsPath,
        target_is_directory: bool,
        dir_fd: Option<i32>,
    ) -> PyResult<()> {
        // Matters only on another operating system.
        let _ = target_is_directory;
        let made =
            self.call(py, |task| task.posix().symlinkat(at(dir_fd), dst.path(), src.path()))?;
        made.or_raise_between(&src, &dst)
    }

    /// Returns where a symbolic link leads.
    #[pyo3(signature = (path, *, dir_fd=None))]
    fn readlink<'py>(
        &self,
        py: Python<'py>,
        path: FsPath,
        dir_fd: Option<i32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let found = self.call(py, |task| task.posix().readlinkat(at(dir_fd), path.path()))?;
        path.named(py, found.or_raise_on(&path)?.as_os_str())
    }

    /// Returns the path of a file with every symbolic link followed. With `strict` the file must
    /// exist; without, names that lead nowhere stay as they are.
    #[pyo3(signature = (filename, *, strict=false))]
    fn realpath<'py>(
        &self,
        py: Python<'py>,
        filename: FsPath,
        strict: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let found = self.call(py, |task| {
            let path = filename.path();
            match task.canonicalize(path) {
                Err(_) if !strict => crate::task::whole::resolve_missing(task, path),
                found => found,
            }
        })?;
        filename.named(py, found.or_raise_on(&filename)?.as_os_str())
    }

    /// Makes a node: a regular file, a fifo, a socket or a device, by the type in `mode`.
    #[pyo3(signature = (path, mode=0o600, device=0, *, dir_fd=None))]
    fn mknod(
        &self,
        py: Python<'_>,
        path: FsPath,
        mode: u32,
        device: u64,
        dir_fd: Option<i32>,
    ) -> PyResult<()> {
        let file_type = match mode & 0o170_000 {
            0 => FileType::RegularFile,
            kind => FileType::from_raw_mode(kind),
        };
        if file_type == FileType::Unknown {
            return Err(os_error(Errno::INVAL, [Some((&path).into()), None]));
        }
        let mode = Mode::from_bits_retain(mode & 0o7777);
        let made = self.call(py, |task| {
            task.posix().mknodat(at(dir_fd), path.path(), file_type, mode, device)
        })?;
        made.or_raise_on(&path)
    }

    /// Makes a fifo.
    #[pyo3(signature = (path, mode=0o666, *, dir_fd=None))]
    fn mkfifo(&self, py: Python<'_>, path: FsPath, mode: u32, dir_fd: Option<i32>) -> PyResult<()> {
        self.mknod(py, path, 0o010_000 | mode & 0o7777, 0, dir_fd)
    }

    /// Removes an empty directory, and then those above it that became empty.
    fn removedirs(&self, py: Python<'_>, name: FsPath) -> PyResult<()> {
        let gone = self.call(py, |task| {
            task.remove_dir(name.path())?;
            let above = name.path().ancestors().skip(1);
            for dir in above.filter(|dir| !dir.as_os_str().is_empty()) {
                if task.remove_dir(dir).is_err() {
                    break;
                }
            }
            Ok(())
        })?;
        gone.or_raise_on(&name)
    }

    /// Returns whether both paths are of one file.
    fn samefile(&self, py: Python<'_>, path1: FsPath, path2: FsPath) -> PyResult<bool> {
        let of = |path: &FsPath| {
            let found = self.call(py, |task| task.metadata(path.path()))?;
            let found = found.or_raise_on(path)?;
            PyResult::Ok((found.dev, found.ino))
        };
        Ok(of(&path1)? == of(&path2)?)
    }
}
