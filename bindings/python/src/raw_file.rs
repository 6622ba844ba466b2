//! The class of open files.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList};
use vfscale::posix::Whence;
use vfscale::{Errno, File, FileType};

use crate::cell::Cell;
use crate::error::{OrRaise, closed, os_error};
use crate::file::{
    count, is_stream, offset, pread, pwrite, read, read_to_end, readinto, whence, write,
};
use crate::gil;
use crate::path::FsPath;
use crate::results;
use crate::task::Task;
use crate::tree::FileUse;

/// The bytes that a search for the end of a line reads at once.
const LINE_STEP: usize = 512;

/// The bits of `O_ACCMODE`.
const ACCESS: i32 = 3;
const READ_ONLY: i32 = 0;
const WRITE_ONLY: i32 = 1;

/// An open file without a buffer, registered as an `io.RawIOBase`; `Task.open` makes one.
///
/// A file has no descriptor of the operating system: `fileno` raises `io.UnsupportedOperation`, and
/// code that would pass a descriptor on falls back to reading and writing.
///
/// >>> import io
/// >>> file = task.open("/raw", "w+b", buffering=0)
/// >>> isinstance(file, io.RawIOBase), file.write(b"hello"), file.pread(3, 1)
/// (True, 5, b'ell')
/// >>> file.close()
#[pyclass(frozen, subclass, weakref, dict, name = "File", module = "vfscale")]
pub(crate) struct RawFile {
    open: Cell<(File, FileUse)>,
    /// Whether calls may wait for a device.
    blocks: bool,
    /// The access mode, of `O_ACCMODE`.
    access: i32,
    /// The path or descriptor, as it was passed.
    name: Py<PyAny>,
    mode: &'static str,
}

/// Makes an `io.UnsupportedOperation`.
fn unsupported(py: Python<'_>, what: &str) -> PyErr {
    let make = || py.import("io")?.getattr("UnsupportedOperation")?.call1((what,));
    make().map_or_else(|error| error, PyErr::from_value)
}

/// Returns the mode of a raw file, from the flags with which it was opened.
fn mode_of(flags: i32) -> &'static str {
    use vfscale::posix::OFlags;
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    let both = flags.contains(OFlags::RDWR);
    match (flags.contains(OFlags::EXCL), flags.contains(OFlags::APPEND), both) {
        (true, _, false) => "xb",
        (true, _, true) => "xb+",
        (_, true, false) => "ab",
        (_, true, true) => "ab+",
        (_, _, true) => "rb+",
        _ if flags.contains(OFlags::WRONLY) => "wb",
        _ => "rb",
    }
}

impl RawFile {
    #[inline]
    fn file(&self) -> PyResult<File> {
        self.open.with(|(file, _)| file.clone()).ok_or_else(|| closed("file"))
    }

    #[inline]
    fn to_read(&self, py: Python<'_>) -> PyResult<File> {
        let file = self.file()?;
        if self.access == WRITE_ONLY { Err(unsupported(py, "not readable")) } else { Ok(file) }
    }

    #[inline]
    fn to_write(&self, py: Python<'_>) -> PyResult<File> {
        let file = self.file()?;
        if self.access == READ_ONLY { Err(unsupported(py, "not writable")) } else { Ok(file) }
    }

    /// Reads a line of up to `most` bytes from a file with a position.
    fn line_at(&self, py: Python<'_>, file: &File, most: usize) -> PyResult<Vec<u8>> {
        let seek = |to| gil::run(py, self.blocks, || file.seek(to)).or_raise();
        let start = seek(Whence::Current(0))?;
        let mut line = Vec::new();
        while line.len() < most {
            let at = (start + line.len() as u64).cast_signed();
            let more =
                pread(py, self.blocks, || Ok(file.clone()), LINE_STEP.min(most - line.len()), at)?;
            let more = more.cast::<PyBytes>()?.as_bytes();
            let end = more.iter().position(|byte| *byte == b'\n');
            line.extend_from_slice(&more[..end.map_or(more.len(), |end| end + 1)]);
            if end.is_some() || more.is_empty() {
                break;
            }
        }
        seek(Whence::Set(start + line.len() as u64))?;
        Ok(line)
    }

    /// Reads a line of up to `most` bytes from a pipe, byte by byte: what follows is another
    /// reader's.
    fn line_of_stream(&self, py: Python<'_>, file: &File, most: usize) -> PyResult<Vec<u8>> {
        let mut line = Vec::new();
        while line.len() < most && line.last() != Some(&b'\n') {
            let byte = read(py, self.blocks, file, 1)?;
            match byte.cast::<PyBytes>()?.as_bytes() {
                [] => break,
                bytes => line.extend_from_slice(bytes),
            }
        }
        Ok(line)
    }
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)]
impl RawFile {
    /// Opens `path` with the flags of `os.open`; or takes the open file of the descriptor `path`.
    #[new]
    #[pyo3(signature = (task, path, flags, perm=0o666, dir_fd=None))]
    fn new(
        task: &Bound<'_, Task>,
        path: &Bound<'_, PyAny>,
        flags: i32,
        perm: u32,
        dir_fd: Option<i32>,
    ) -> PyResult<RawFile> {
        let (py, task) = (task.py(), task.get());
        let of = FileUse::new(&task.users);
        let file = if let Ok(fd) = path.cast::<PyInt>() {
            task.file(fd.extract()?)?
        } else {
            let path: FsPath = path.extract()?;
            let file = task.open_file(py, &path, (flags, perm), dir_fd)?;
            if file.file_type() == FileType::Directory {
                return Err(os_error(Errno::ISDIR, [Some((&path).into()), None]));
            }
            file
        };
        let name = path.clone().unbind();
        let (open, blocks) = (Cell::new((file, of)), task.users.blocks);
        Ok(RawFile { open, blocks, access: flags & ACCESS, name, mode: mode_of(flags) })
    }

    /// The path, or descriptor, with which the file was opened.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.name.bind(py).clone()
    }

    /// The mode with which the file was opened.
    #[getter]
    fn mode(&self) -> &str {
        self.mode
    }

    /// Reads up to `size` bytes; all up to the end if it is negative.
    #[pyo3(signature = (size=-1, /))]
    fn read<'py>(&self, py: Python<'py>, size: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
        match usize::try_from(size.unwrap_or(-1)) {
            Ok(size) => read(py, self.blocks, &self.to_read(py)?, size),
            Err(_) => self.readall(py),
        }
    }

    /// Reads all bytes up to the end.
    fn readall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        read_to_end(py, self.blocks, &self.to_read(py)?)
    }

    /// Reads into a buffer; returns the number of bytes, 0 at the end.
    #[pyo3(signature = (buffer, /))]
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(readinto(py, self.blocks, &self.to_read(py)?, buffer)?.0)
    }

    /// Reads a line of up to `size` bytes, with the newline at its end.
    #[pyo3(signature = (size=-1, /))]
    fn readline<'py>(&self, py: Python<'py>, size: Option<isize>) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.to_read(py)?;
        let most = usize::try_from(size.unwrap_or(-1)).unwrap_or(usize::MAX);
        let line = if is_stream(&file) {
            self.line_of_stream(py, &file, most)?
        } else {
            self.line_at(py, &file, most)?
        };
        Ok(PyBytes::new(py, &line))
    }

    /// Reads all lines, or lines of `hint` bytes in all.
    #[pyo3(signature = (hint=-1, /))]
    fn readlines<'py>(&self, py: Python<'py>, hint: Option<isize>) -> PyResult<Bound<'py, PyList>> {
        let most = usize::try_from(hint.unwrap_or(-1)).ok().filter(|most| *most > 0);
        let (lines, mut bytes) = (PyList::empty(py), 0);
        loop {
            let line = self.readline(py, None)?;
            let len = line.as_bytes().len();
            if len == 0 {
                return Ok(lines);
            }
            bytes += len;
            lines.append(line)?;
            if most.is_some_and(|most| bytes >= most) {
                return Ok(lines);
            }
        }
    }

    /// Writes bytes; returns their number.
    #[pyo3(signature = (data, /))]
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        write(py, self.blocks, || self.to_write(py), data)
    }

    /// Writes each of several bytes.
    #[pyo3(signature = (lines, /))]
    fn writelines(&self, py: Python<'_>, lines: &Bound<'_, PyAny>) -> PyResult<()> {
        for line in lines.try_iter()? {
            self.write(py, &line?)?;
        }
        Ok(())
    }

    /// Reads up to `size` bytes at an offset; does not move the position.
    fn pread<'py>(&self, py: Python<'py>, size: isize, offset: i64) -> PyResult<Bound<'py, PyAny>> {
        pread(py, self.blocks, || self.to_read(py), count(size)?, offset)
    }

    /// Writes bytes at an offset; does not move the position. Returns their number.
    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: i64) -> PyResult<usize> {
        pwrite(py, self.blocks, || self.to_write(py), data, offset)
    }

    /// Moves the position; returns the new one.
    #[pyo3(signature = (offset, whence=0, /))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let file = self.file()?;
        let to = self::whence(&file, offset, whence)?;
        gil::run(py, self.blocks, || file.seek(to)).or_raise()
    }

    /// Returns the position.
    fn tell(&self) -> PyResult<u64> {
        self.file()?.seek(Whence::Current(0)).or_raise()
    }

    /// Truncates or extends the file to `size` bytes, or to the position; returns the size.
    #[pyo3(signature = (size=None, /))]
    fn truncate(&self, py: Python<'_>, size: Option<i64>) -> PyResult<u64> {
        let file = self.to_write(py)?;
        let size = match size {
            Some(size) => offset(size)?,
            None => self.tell()?,
        };
        py.detach(|| file.truncate(size)).or_raise()?;
        Ok(size)
    }

    /// Returns whether the file was opened for reading.
    fn readable(&self) -> PyResult<bool> {
        self.check_open()?;
        Ok(self.access != WRITE_ONLY)
    }

    /// Returns whether the file was opened for writing.
    fn writable(&self) -> PyResult<bool> {
        self.check_open()?;
        Ok(self.access != READ_ONLY)
    }

    /// Returns whether the file has a position: pipes have none.
    fn seekable(&self) -> PyResult<bool> {
        Ok(!is_stream(&self.file()?))
    }

    /// Returns `False`.
    fn isatty(&self) -> PyResult<bool> {
        self.check_open()?;
        Ok(false)
    }

    /// Returns the attributes of the file as an `os.stat_result`.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let file = self.file()?;
        results::stat(py, &gil::run(py, self.blocks, || file.stat()).or_raise()?)
    }

    /// Does nothing: there is no buffer.
    fn flush(&self) -> PyResult<()> {
        self.check_open()
    }

    /// Makes the data and attributes of the file durable.
    fn fsync(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.file()?;
        py.detach(|| file.sync_all()).or_raise()
    }

    /// Makes the data of the file durable.
    fn fdatasync(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.file()?;
        py.detach(|| file.sync_data()).or_raise()
    }

    /// Closes the file. Closing it again does nothing.
    fn close(&self, py: Python<'_>) {
        if let Some(file) = self.open.take() {
            gil::run(py, self.blocks, || drop(file));
        }
    }

    /// Whether the file was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.open.is_empty()
    }

    /// Raises `io.UnsupportedOperation`: a file in a tree is unknown to the operating system.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.check_open()?;
        Err(unsupported(py, "fileno"))
    }

    #[pyo3(name = "_checkClosed")]
    fn check_open(&self) -> PyResult<()> {
        if self.open.is_empty() {
            return Err(PyValueError::new_err("I/O operation on closed file"));
        }
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.check_open()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.check_open()?;
        Ok(slf)
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let line = self.readline(py, None)?;
        Ok(if line.as_bytes().is_empty() { None } else { Some(line) })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = if self.closed() { " [closed]" } else { "" };
        let name = self.name.bind(py).repr()?;
        Ok(format!("<vfscale.File name={name} mode='{}'{state}>", self.mode))
    }
}
