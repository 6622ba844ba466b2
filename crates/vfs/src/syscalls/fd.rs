//! The calls on descriptors. Each is the call on the open file it stands for.

use crate::file::file_list::{self, OpenFileInfo};
use crate::namei::walk::Lookup;
use crate::task::task_struct::At;
use crate::task::task_struct::bytes;
use rustix::io::Errno;
use std::path::Path as StdPath;
use vfscale_sync::rcu;

use crate::base::error::{Named, Result, check_fork};
use crate::base::types::{Capabilities, FallocateFlags, OFlags, Stat, Whence};
use crate::file::fd_table::{Fd, OPEN_MAX};
use crate::file::open_file::{File, check_offset};
use crate::task::task_struct::Task;

impl Task {
    /// The open file under a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn file(&self, fd: Fd) -> Result<File> {
        self.descriptors().get(fd).named("fd")
    }

    /// Puts an open file under the lowest free descriptor.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn install(&self, file: File) -> Result<Fd> {
        self.descriptors().install(file, 0, false).named("install")
    }

    /// Closes a descriptor. The record locks that the task has on the file end, through whatever
    /// descriptor they were made.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&self, fd: Fd) -> Result<()> {
        let file = self.descriptors().remove(fd).named("close")?;
        self.end_record_locks(&file);
        Ok(())
    }

    /// Closes every descriptor.
    pub fn close_all(&self) {
        for fd in self.descriptors().list() {
            // A descriptor that another thread has closed meanwhile is closed.
            let _ = self.close(fd);
        }
    }

    /// Every open descriptor, in order.
    pub fn descriptor_list(&self) -> Vec<Fd> {
        self.descriptors().list()
    }

    /// The number below which new descriptors of the task are (`RLIMIT_NOFILE`).
    #[must_use]
    pub fn descriptors_max(&self) -> usize {
        self.descriptors().max()
    }

    /// Changes the number below which new descriptors of the task are (`RLIMIT_NOFILE`), at most
    /// [`OPEN_MAX`]. Those that are open stay, whatever their numbers. Tasks made of this one get
    /// the same.
    ///
    /// # Errors
    /// `EINVAL` for more than [`OPEN_MAX`]; `EPERM` for more than before without
    /// `CAP_SYS_RESOURCE`.
    pub fn set_descriptors_max(&self, max: usize) -> Result<()> {
        let set = || {
            if max > OPEN_MAX {
                return Err(Errno::INVAL);
            }
            let raises = max > self.descriptors().max();
            if raises && !self.cred(&rcu::pin()).has(Capabilities::SYS_RESOURCE) {
                return Err(Errno::PERM);
            }
            self.descriptors().set_max(max);
            Ok(())
        };
        set().named("setrlimit")
    }

    /// Another descriptor for the same open file.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub fn dup(&self, fd: Fd) -> Result<Fd> {
        let dup = || {
            let file = self.descriptors().get(fd)?;
            self.descriptors().install(file, 0, false)
        };
        dup().named("dup")
    }

    /// The lowest free descriptor from `min` on for the same open file (`F_DUPFD`, or
    /// `F_DUPFD_CLOEXEC`).
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for a `min` that is too large, `EMFILE`.
    pub fn dup_from(&self, fd: Fd, min: Fd, close_on_exec: bool) -> Result<Fd> {
        let dup = || {
            let file = self.descriptors().get(fd)?;
            let min = usize::try_from(min.0).map_err(|_| Errno::INVAL)?;
            if min >= self.descriptors().max() {
                return Err(Errno::INVAL);
            }
            self.descriptors().install(file, min, close_on_exec)
        };
        dup().named("fcntl")
    }

    /// Makes `new` stand for the open file of `old`, closing what it stood for.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn dup2(&self, old: Fd, new: Fd) -> Result<Fd> {
        if old == new {
            self.descriptors().get(old).named("dup2")?;
            return Ok(new);
        }
        self.dup_to(old, new, false).named("dup2")
    }

    /// As [`dup2`](Self::dup2), with `CLOEXEC` in `flags`.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` for the same descriptors or other flags.
    pub fn dup3(&self, old: Fd, new: Fd, flags: OFlags) -> Result<Fd> {
        let dup = || {
            if old == new || !OFlags::CLOEXEC.contains(flags) {
                return Err(Errno::INVAL);
            }
            self.dup_to(old, new, flags.contains(OFlags::CLOEXEC))
        };
        dup().named("dup3")
    }

    fn dup_to(&self, old: Fd, new: Fd, close_on_exec: bool) -> std::result::Result<Fd, Errno> {
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

    /// Whether a descriptor closes when the task executes another program (`F_GETFD`).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close_on_exec(&self, fd: Fd) -> Result<bool> {
        self.descriptors().close_on_exec(fd).named("fcntl")
    }

    /// Sets whether a descriptor closes when the task executes another program (`F_SETFD`).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_close_on_exec(&self, fd: Fd, on: bool) -> Result<()> {
        self.descriptors().set_close_on_exec(fd, on).named("fcntl")
    }

    /// Closes every descriptor that is marked to be closed when another program is executed, and
    /// takes everything out of what is mapped.
    pub fn exec(&self) {
        if check_fork().is_err() {
            return;
        }
        self.maps().clear();
        for fd in self.descriptors().list() {
            if self.descriptors().close_on_exec(fd) == Ok(true) {
                // A descriptor that another thread has closed meanwhile is closed.
                let _ = self.close(fd);
            }
        }
    }

    /// Reads at the descriptor's position; see [`File::read`].
    ///
    /// # Errors
    /// `EBADF`; those of [`File::read`].
    pub fn read(&self, fd: Fd, buf: &mut [u8]) -> Result<usize> {
        self.descriptors().get(fd).named("read")?.read(buf)
    }

    /// Writes at the descriptor's position; see [`File::write`].
    ///
    /// # Errors
    /// `EBADF`; those of [`File::write`].
    pub fn write(&self, fd: Fd, buf: &[u8]) -> Result<usize> {
        self.descriptors().get(fd).named("write")?.write(buf)
    }

    /// Reads at an offset; see [`File::pread`].
    ///
    /// # Errors
    /// `EBADF`; those of [`File::pread`].
    pub fn pread(&self, fd: Fd, buf: &mut [u8], offset: u64) -> Result<usize> {
        let file = check_offset(offset).and_then(|()| self.descriptors().get(fd));
        file.named("pread")?.pread(buf, offset)
    }

    /// Writes at an offset; see [`File::pwrite`].
    ///
    /// # Errors
    /// `EBADF`; those of [`File::pwrite`].
    pub fn pwrite(&self, fd: Fd, buf: &[u8], offset: u64) -> Result<usize> {
        let file = check_offset(offset).and_then(|()| self.descriptors().get(fd));
        file.named("pwrite")?.pwrite(buf, offset)
    }

    /// Moves a descriptor's position; see [`File::seek`].
    ///
    /// # Errors
    /// `EBADF`; those of [`File::seek`].
    pub fn lseek(&self, fd: Fd, to: Whence) -> Result<u64> {
        self.descriptors().get(fd).named("lseek")?.seek(to)
    }

    /// The attributes of an open file; see [`File::stat`].
    ///
    /// # Errors
    /// `EBADF`.
    pub fn fstat(&self, fd: Fd) -> Result<Stat> {
        self.descriptors().get(fd).named("fstat")?.stat()
    }

    /// Cuts or extends an open file; see [`File::truncate`].
    ///
    /// # Errors
    /// `EBADF`; those of [`File::truncate`].
    pub fn ftruncate(&self, fd: Fd, size: u64) -> Result<()> {
        let file = check_offset(size).and_then(|()| self.descriptors().get(fd));
        file.named("ftruncate")?.truncate(size)
    }

    /// Allocates, punches or zeroes a range; see [`File::fallocate`].
    ///
    /// # Errors
    /// `EBADF`; those of [`File::fallocate`].
    pub fn fallocate(&self, fd: Fd, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        self.descriptors().get(fd).named("fallocate")?.fallocate(mode, offset, len)
    }

    /// Makes everything durable that was changed on an open file's file system; see
    /// [`File::sync_fs`].
    ///
    /// # Errors
    /// `EBADF`; those of [`File::sync_fs`].
    pub fn syncfs(&self, fd: Fd) -> Result<()> {
        self.descriptors().get(fd).named("syncfs")?.sync_fs()
    }

    /// Makes everything durable that was changed on any file system that is mounted somewhere in
    /// the tree (`sync`), as far as they can. As in Linux, nothing is said of those that fail;
    /// [`syncfs`](Self::syncfs) tells. May block.
    pub fn sync(&self) {
        if check_fork().is_err() {
            return;
        }
        for sb in self.ns().super_blocks() {
            let _ = sb.sync();
        }
    }
}

impl Task {
    /// The files that are open on the file system that `path` is on, by whatever task and mount;
    /// without those that somebody owns privately ([`FileList`](crate::FileList)). One that is
    /// opened or closed meanwhile is among them or not.
    ///
    /// # Errors
    /// Those of a walk; `EPERM` without `CAP_SYS_ADMIN`.
    pub fn open_files(&self, path: impl AsRef<StdPath>) -> Result<Vec<OpenFileInfo>> {
        let path = path.as_ref();
        let list = || {
            let place = self.resolve(At::Cwd, bytes(path), Lookup::FOLLOW)?;
            let guard = rcu::pin();
            if !self.cred(&guard).has(Capabilities::SYS_ADMIN) {
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
