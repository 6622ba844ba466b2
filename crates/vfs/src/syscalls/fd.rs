//! The calls on descriptors. Each is the call on the open file of the descriptor.

use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Named, Outcome, Result, check_fork};
use crate::base::types::{Capabilities, FallocateFlags, OFlags, Stat, Whence};
use crate::file::fd_table::{Fd, OPEN_MAX};
use crate::file::file_list::{self, OpenFileInfo};
use crate::file::open_file::{File, check_offset};
use crate::namei::walk::Lookup;
use crate::syscalls::posix::Calls;
use crate::task::task_struct::{At, Task, bytes};

impl Calls<'_> {
    /// Returns the open file of a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn file(&self, fd: Fd) -> Result<File> {
        self.task.descriptors().get(fd).named("fd")
    }

    /// Installs an open file at the lowest free descriptor.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn install(&self, file: File) -> Result<Fd> {
        self.task.descriptors().install(file, 0, false).named("install")
    }

    /// Installs an open file as [`install`](Self::install), and marks the descriptor close-on-exec
    /// if `close_on_exec` says so, in one step.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn install_with(&self, file: File, close_on_exec: bool) -> Result<Fd> {
        self.task.descriptors().install(file, 0, close_on_exec).named("install")
    }

    /// Closes a descriptor. Releases all record locks that the task holds on the file, including
    /// those taken through other descriptors.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&self, fd: Fd) -> Result<()> {
        let file = self.task.descriptors().remove(fd).named("close")?;
        self.task.end_record_locks(&file);
        Ok(())
    }

    /// Closes every descriptor.
    pub fn close_all(&self) {
        for fd in self.task.descriptors().list() {
            // Another thread may have closed the descriptor already.
            let _ = self.close(fd);
        }
    }

    /// Returns all open descriptors, in order.
    pub fn descriptor_list(&self) -> Vec<Fd> {
        self.task.descriptors().list()
    }

    /// Returns the limit that the numbers of new descriptors stay below (`RLIMIT_NOFILE`).
    pub fn descriptors_max(&self) -> usize {
        self.task.descriptors().max()
    }

    /// Sets the limit that the numbers of new descriptors stay below (`RLIMIT_NOFILE`), at most
    /// [`OPEN_MAX`]. Open descriptors stay open, whatever their numbers. Tasks made from this one
    /// inherit the limit.
    ///
    /// # Errors
    /// `EINVAL` for more than [`OPEN_MAX`]; `EPERM` for a larger limit without `CAP_SYS_RESOURCE`.
    pub fn set_descriptors_max(&self, max: usize) -> Result<()> {
        let set = || {
            if max > OPEN_MAX {
                return Err(Errno::INVAL);
            }
            let raises = max > self.task.descriptors().max();
            if raises && !self.task.cred(&rcu::pin()).has(Capabilities::SYS_RESOURCE) {
                return Err(Errno::PERM);
            }
            self.task.descriptors().set_max(max);
            Ok(())
        };
        set().named("setrlimit")
    }

    /// Duplicates a descriptor of an open file.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub fn dup(&self, fd: Fd) -> Result<Fd> {
        let dup = || {
            let file = self.task.descriptors().get(fd)?;
            self.task.descriptors().install(file, 0, false)
        };
        dup().named("dup")
    }

    /// Duplicates a descriptor to the lowest free one from `min` on (`F_DUPFD`, `F_DUPFD_CLOEXEC`).
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for a `min` that is too large, `EMFILE`.
    pub fn dup_from(&self, fd: Fd, min: Fd, close_on_exec: bool) -> Result<Fd> {
        let dup = || {
            let file = self.task.descriptors().get(fd)?;
            let min = usize::try_from(min.0).map_err(|_| Errno::INVAL)?;
            if min >= self.task.descriptors().max() {
                return Err(Errno::INVAL);
            }
            self.task.descriptors().install(file, min, close_on_exec)
        };
        dup().named("fcntl")
    }

    /// Makes `new` a descriptor of the open file of `old`, and closes its previous file.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn dup2(&self, old: Fd, new: Fd) -> Result<Fd> {
        if old == new {
            self.task.descriptors().get(old).named("dup2")?;
            return Ok(new);
        }
        self.task.dup_to(old, new, false).named("dup2")
    }

    /// Duplicates as [`dup2`](Self::dup2), with `CLOEXEC` in `flags`.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` for the same descriptors or other flags.
    pub fn dup3(&self, old: Fd, new: Fd, flags: OFlags) -> Result<Fd> {
        let dup = || {
            if old == new || !OFlags::CLOEXEC.contains(flags) {
                return Err(Errno::INVAL);
            }
            self.task.dup_to(old, new, flags.contains(OFlags::CLOEXEC))
        };
        dup().named("dup3")
    }

    /// Returns whether a descriptor closes when the task executes another program (`F_GETFD`).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close_on_exec(&self, fd: Fd) -> Result<bool> {
        self.task.descriptors().close_on_exec(fd).named("fcntl")
    }

    /// Sets whether a descriptor closes when the task executes another program (`F_SETFD`).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_close_on_exec(&self, fd: Fd, on: bool) -> Result<()> {
        self.task.descriptors().set_close_on_exec(fd, on).named("fcntl")
    }

    /// Closes every descriptor that is marked close-on-exec, as the execution of another program
    /// does.
    pub fn exec(&self) {
        if check_fork().is_err() {
            return;
        }
        for fd in self.task.descriptors().list() {
            if self.task.descriptors().close_on_exec(fd) == Ok(true) {
                // Another thread may have closed the descriptor already.
                let _ = self.close(fd);
            }
        }
    }

    /// Reads at the descriptor's position; see [`File::read`].
    ///
    /// # Errors
    /// `EBADF`; the errors of [`File::read`].
    pub fn read(&self, fd: Fd, buf: &mut [u8]) -> Result<usize> {
        self.task.descriptors().get(fd).named("read")?.read(buf)
    }

    /// Writes at the descriptor's position; see [`File::write`].
    ///
    /// # Errors
    /// `EBADF`; the errors of [`File::write`].
    pub fn write(&self, fd: Fd, buf: &[u8]) -> Result<usize> {
        self.task.descriptors().get(fd).named("write")?.write(buf)
    }

    /// Reads at an offset; see [`File::pread`].
    ///
    /// # Errors
    /// `EBADF`; the errors of [`File::pread`].
    pub fn pread(&self, fd: Fd, buf: &mut [u8], offset: u64) -> Result<usize> {
        let file = check_offset(offset).and_then(|()| self.task.descriptors().get(fd));
        file.named("pread")?.pread(buf, offset)
    }

    /// Writes at an offset; see [`File::pwrite`].
    ///
    /// # Errors
    /// `EBADF`; the errors of [`File::pwrite`].
    pub fn pwrite(&self, fd: Fd, buf: &[u8], offset: u64) -> Result<usize> {
        let file = check_offset(offset).and_then(|()| self.task.descriptors().get(fd));
        file.named("pwrite")?.pwrite(buf, offset)
    }

    /// Moves a descriptor's position; see [`File::seek`].
    ///
    /// # Errors
    /// `EBADF`; the errors of [`File::seek`].
    pub fn lseek(&self, fd: Fd, to: Whence) -> Result<u64> {
        self.task.descriptors().get(fd).named("lseek")?.seek(to)
    }

    /// Returns the attributes of an open file; see [`File::stat`].
    ///
    /// # Errors
    /// `EBADF`.
    pub fn fstat(&self, fd: Fd) -> Result<Stat> {
        self.task.descriptors().get(fd).named("fstat")?.stat()
    }

    /// Truncates or extends an open file; see [`File::truncate`].
    ///
    /// # Errors
    /// `EBADF`; the errors of [`File::truncate`].
    pub fn ftruncate(&self, fd: Fd, size: u64) -> Result<()> {
        let file = check_offset(size).and_then(|()| self.task.descriptors().get(fd));
        file.named("ftruncate")?.truncate(size)
    }

    /// Allocates, punches or zeroes a range; see [`File::fallocate`].
    ///
    /// # Errors
    /// `EBADF`; the errors of [`File::fallocate`].
    pub fn fallocate(&self, fd: Fd, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        self.task.descriptors().get(fd).named("fallocate")?.fallocate(mode, offset, len)
    }

    /// Makes all changes of an open file's file system durable; see [`File::sync_fs`].
    ///
    /// # Errors
    /// `EBADF`; the errors of [`File::sync_fs`].
    pub fn syncfs(&self, fd: Fd) -> Result<()> {
        self.task.descriptors().get(fd).named("syncfs")?.sync_fs()
    }

    /// Makes all changes of all file systems that are mounted in the tree durable (`sync`), as far
    /// as they can. As in Linux, errors are not reported; [`syncfs`](Self::syncfs) reports them.
    /// May block.
    pub fn sync(&self) {
        if check_fork().is_err() {
            return;
        }
        for sb in self.task.ns().super_blocks() {
            let _ = sb.sync();
        }
    }
}

impl Task {
    fn dup_to(&self, old: Fd, new: Fd, close_on_exec: bool) -> Outcome<Fd> {
        let file = self.descriptors().get(old)?;
        if usize::try_from(new.0).is_ok_and(|new| new >= self.descriptors().max()) {
            return Err(Errno::BADF);
        }
        let closed = self.descriptors().install_at(new, file, close_on_exec)?;
        if let Some(closed) = closed {
            self.end_record_locks(&closed);
        }
        Ok(new)
    }
}

impl Calls<'_> {
    /// Returns the open files of the file system of `path`, of all tasks and mounts, except those
    /// on a private list ([`FileList`](crate::FileList)). A file that is opened or closed during
    /// the call may or may not be included.
    ///
    /// # Errors
    /// The errors of a walk; `EPERM` without `CAP_SYS_ADMIN`.
    pub fn open_files(&self, path: impl AsRef<StdPath>) -> Result<Vec<OpenFileInfo>> {
        let path = path.as_ref();
        let list = || {
            let place = self.task.resolve(At::Cwd, bytes(path), Lookup::FOLLOW)?;
            let guard = rcu::pin();
            if !self.task.cred(&guard).has(Capabilities::SYS_ADMIN) {
                return Err(Errno::PERM);
            }
            drop(guard);
            Ok(file_list::describe(place.mount().sb().files()))
        };
        list().on("open_files", path)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
