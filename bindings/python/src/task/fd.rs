//! Calls on descriptors.

use std::ops::RangeInclusive;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use vfscale::posix::{FallocateFlags, Fd, LockKind, LockRange, OFlags, Whence};
use vfscale::{Errno, File};

use crate::error::{OrRaise, os_error};
use crate::file;
use crate::gil;
use crate::path::FsPath;
use crate::task::Task;

/// Returns the offset of `preadv` and `pwritev` in a file; `None` is the position.
fn place(task: &Task, fd: i32, offset: i64, flags: i32) -> PyResult<(File, Option<u64>)> {
    let at = if offset == -1 { None } else { Some(file::offset(offset)?) };
    let file = task.file(fd)?;
    if file.is_path() {
        return Err(os_error(Errno::BADF, [None, None]));
    }
    if flags != 0 {
        return Err(os_error(Errno::OPNOTSUPP, [None, None]));
    }
    Ok((file, at))
}

impl Task {
    /// Returns the open file of a descriptor.
    pub(crate) fn file(&self, fd: i32) -> PyResult<File> {
        self.get()?.posix().file(Fd(fd)).or_raise()
    }
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)]
impl Task {
    /// Opens a file as `os.open`, and returns a descriptor of the task.
    #[pyo3(signature = (path, flags, mode=0o777, *, dir_fd=None))]
    fn open_fd(
        &self,
        py: Python<'_>,
        path: FsPath,
        flags: i32,
        mode: u32,
        dir_fd: Option<i32>,
    ) -> PyResult<i32> {
        let file = self.open_file(py, &path, (flags, mode), dir_fd)?;
        Ok(self.get()?.posix().install_with(file, true).or_raise_on(&path)?.0)
    }

    /// Closes a descriptor.
    fn close(&self, py: Python<'_>, fd: i32) -> PyResult<()> {
        self.call(py, |task| task.posix().close(Fd(fd)))?.or_raise()
    }

    /// Reads up to `n` bytes at the position of a descriptor; none at the end. A pipe waits for
    /// data.
    ///
    /// >>> import os
    /// >>> fd = task.open("/f", os.O_RDWR | os.O_CREAT)
    /// >>> task.write(fd, b"hello"), task.pread(fd, 2, 1), task.read(fd, 9)
    /// (5, b'el', b'')
    /// >>> task.close(fd)
    fn read<'py>(&self, py: Python<'py>, fd: i32, n: isize) -> PyResult<Bound<'py, PyAny>> {
        let n = file::count(n)?;
        file::read(py, self.users.blocks, &self.file(fd)?, n)
    }

    /// Reads up to `n` bytes at an offset.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        fd: i32,
        n: isize,
        offset: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let n = file::count(n)?;
        file::pread(py, self.users.blocks, || self.file(fd), n, offset)
    }

    /// Reads into buffers at the position of a descriptor; returns the number of bytes.
    fn readv(&self, py: Python<'_>, fd: i32, buffers: &Bound<'_, PyAny>) -> PyResult<usize> {
        file::read_buffers(py, self.users.blocks, &self.file(fd)?, buffers, None)
    }

    /// Reads into buffers at an offset, or at the position if it is -1; returns the number of
    /// bytes. `flags` is 0.
    #[pyo3(signature = (fd, buffers, offset, flags=0))]
    fn preadv(
        &self,
        py: Python<'_>,
        fd: i32,
        buffers: &Bound<'_, PyAny>,
        offset: i64,
        flags: i32,
    ) -> PyResult<usize> {
        let (file, from) = place(self, fd, offset, flags)?;
        file::read_buffers(py, self.users.blocks, &file, buffers, from)
    }

    /// Writes bytes at the position of a descriptor; returns their number.
    fn write(&self, py: Python<'_>, fd: i32, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        file::write(py, self.users.blocks, || self.file(fd), data)
    }

    /// Writes bytes at an offset; returns their number.
    fn pwrite(
        &self,
        py: Python<'_>,
        fd: i32,
        data: &Bound<'_, PyAny>,
        offset: i64,
    ) -> PyResult<usize> {
        file::pwrite(py, self.users.blocks, || self.file(fd), data, offset)
    }

    /// Writes buffers at the position of a descriptor; returns the number of bytes.
    fn writev(&self, py: Python<'_>, fd: i32, buffers: &Bound<'_, PyAny>) -> PyResult<usize> {
        file::write_buffers(py, self.users.blocks, &self.file(fd)?, buffers, None)
    }

    /// Writes buffers at an offset, or at the position if it is -1; returns the number of bytes.
    /// `flags` is 0.
    #[pyo3(signature = (fd, buffers, offset, flags=0))]
    fn pwritev(
        &self,
        py: Python<'_>,
        fd: i32,
        buffers: &Bound<'_, PyAny>,
        offset: i64,
        flags: i32,
    ) -> PyResult<usize> {
        let (file, at) = place(self, fd, offset, flags)?;
        file::write_buffers(py, self.users.blocks, &file, buffers, at)
    }

    /// Moves the position of a descriptor; returns the new one. `whence` may also be
    /// `os.SEEK_DATA` and `os.SEEK_HOLE`.
    #[pyo3(signature = (fd, position, whence=0))]
    fn lseek(&self, py: Python<'_>, fd: i32, position: i64, whence: i32) -> PyResult<u64> {
        let file = self.file(fd)?;
        let to = file::whence(&file, position, whence)?;
        gil::run(py, self.users.blocks, || file.seek(to)).or_raise()
    }

    /// Makes another descriptor of an open file.
    fn dup(&self, fd: i32) -> PyResult<i32> {
        Ok(self.get()?.posix().dup(Fd(fd)).or_raise()?.0)
    }

    /// Makes `fd2` a descriptor of the open file of `fd`.
    #[pyo3(signature = (fd, fd2, inheritable=true))]
    fn dup2(&self, fd: i32, fd2: i32, inheritable: bool) -> PyResult<i32> {
        let task = self.get()?;
        if inheritable || fd == fd2 {
            return Ok(task.posix().dup2(Fd(fd), Fd(fd2)).or_raise()?.0);
        }
        Ok(task.posix().dup3(Fd(fd), Fd(fd2), OFlags::CLOEXEC).or_raise()?.0)
    }

    /// Makes a pipe; returns the descriptors to read from and to write to.
    fn pipe(&self) -> PyResult<(i32, i32)> {
        let (reader, writer) = self.get()?.posix().pipe2_fd(OFlags::CLOEXEC).or_raise()?;
        Ok((reader.0, writer.0))
    }

    /// Returns the descriptors of the task.
    fn descriptors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.get()?.posix().descriptor_list().iter().map(|fd| fd.0))
    }

    /// Copies up to `count` bytes between files of one file system; returns their number. An offset
    /// is used in place of a position, which then stays.
    #[pyo3(signature = (src, dst, count, offset_src=None, offset_dst=None))]
    fn copy_file_range(
        &self,
        py: Python<'_>,
        src: i32,
        dst: i32,
        count: i64,
        offset_src: Option<i64>,
        offset_dst: Option<i64>,
    ) -> PyResult<u64> {
        let count = u64::try_from(count)
            .map_err(|_| PyValueError::new_err("negative value for 'count' not allowed"))?;
        let (from, to) = (self.file(src)?, self.file(dst)?);
        // An offset before the start is refused as one past the end of every file.
        let mut offset_in = offset_src.map(i64::cast_unsigned);
        let mut offset_out = offset_dst.map(i64::cast_unsigned);
        let copy = || from.copy_range(offset_in.as_mut(), &to, offset_out.as_mut(), count);
        py.detach(copy).or_raise()
    }

    /// Gives a part of a file space, and the file that size if it is smaller.
    fn posix_fallocate(&self, py: Python<'_>, fd: i32, offset: i64, len: i64) -> PyResult<()> {
        let file = self.file(fd)?;
        if file.is_path() {
            return Err(os_error(Errno::BADF, [None, None]));
        }
        let (offset, len) = (file::offset(offset)?, file::offset(len)?);
        py.detach(|| file.fallocate(FallocateFlags::empty(), offset, len)).or_raise()
    }

    /// Takes, tests or releases a lock of the task on the `len` bytes from the position on, all
    /// with 0. `command`: `os.F_LOCK`, which waits, `F_TLOCK`, `F_TEST`, `F_ULOCK`.
    fn lockf(&self, py: Python<'_>, fd: i32, command: i32, len: i64) -> PyResult<()> {
        /// The commands of `lockf(3)`.
        const COMMANDS: RangeInclusive<i32> = F_ULOCK..=F_TEST;
        const F_ULOCK: i32 = 0;
        const F_LOCK: i32 = 1;
        const F_TEST: i32 = 3;

        if !COMMANDS.contains(&command) {
            return Err(file::invalid());
        }
        let (task, file) = (self.get()?, self.file(fd)?);
        let start = file.seek(Whence::Current(0)).or_raise()?.cast_signed();
        let range =
            LockRange::from_flock(start, 0, len).map_err(|errno| os_error(errno, [None, None]))?;
        let calls = task.posix();
        if command == F_TEST {
            let other = calls.posix_lock_test(&file, LockKind::Shared, range).or_raise()?;
            return match other {
                None => Ok(()),
                Some(_) => Err(os_error(Errno::ACCESS, [None, None])),
            };
        }
        let kind = (command != F_ULOCK).then_some(LockKind::Exclusive);
        let done = if command == F_LOCK {
            gil::wait(py, self.users.blocks, |token| {
                task.posix().posix_lock(&file, kind, range, Some(token))
            })?
        } else {
            calls.posix_lock(&file, kind, range, None)
        };
        done.or_raise()
    }

    /// Makes the data and attributes of an open file durable.
    fn fsync(&self, py: Python<'_>, fd: i32) -> PyResult<()> {
        let file = self.file(fd)?;
        py.detach(|| file.sync_all()).or_raise()
    }

    /// Makes the data of an open file durable.
    fn fdatasync(&self, py: Python<'_>, fd: i32) -> PyResult<()> {
        let file = self.file(fd)?;
        py.detach(|| file.sync_data()).or_raise()
    }

    /// Makes all changes of all file systems of the tree durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call_long(py, |task| {
            task.posix().sync();
            Ok(())
        })?
        .or_raise()
    }
}
