//! Calls on descriptors.

use pyo3::prelude::*;
use pyo3::types::PyList;
use vfscale::File;
use vfscale::posix::{Fd, OFlags};

use crate::error::OrRaise;
use crate::file;
use crate::path::FsPath;
use crate::task::Task;

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
    fn read<'py>(&self, py: Python<'py>, fd: i32, n: usize) -> PyResult<Bound<'py, PyAny>> {
        file::read(py, self.users.blocks, &self.file(fd)?, n)
    }

    /// Reads up to `n` bytes at an offset.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        fd: i32,
        n: usize,
        offset: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        file::pread(py, self.users.blocks, &self.file(fd)?, n, offset)
    }

    /// Reads into buffers at the position of a descriptor; returns the number of bytes.
    fn readv(&self, py: Python<'_>, fd: i32, buffers: &Bound<'_, PyAny>) -> PyResult<usize> {
        let file = self.file(fd)?;
        let mut done = 0;
        for buffer in buffers.try_iter()? {
            let buffer = buffer?;
            let (n, room) = file::readinto(py, self.users.blocks, &file, &buffer)?;
            done += n;
            if n < room {
                break;
            }
        }
        Ok(done)
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
        let file = self.file(fd)?;
        let mut done = 0;
        for buffer in buffers.try_iter()? {
            done += file::write(py, self.users.blocks, || Ok(file.clone()), &buffer?)?;
        }
        Ok(done)
    }

    /// Moves the position of a descriptor; returns the new one. `whence` may also be
    /// `os.SEEK_DATA` and `os.SEEK_HOLE`.
    #[pyo3(signature = (fd, position, whence=0))]
    fn lseek(&self, py: Python<'_>, fd: i32, position: i64, whence: i32) -> PyResult<u64> {
        let to = file::whence(position, whence)?;
        self.call(py, |task| task.posix().lseek(Fd(fd), to))?.or_raise()
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
