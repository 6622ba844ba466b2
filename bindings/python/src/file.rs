//! How bytes come from open files, and go to them.

use std::io::IoSlice;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use vfscale::posix::Whence;
use vfscale::{Errno, File, FileType};

use crate::buffer::{self, Readable, Writable};
use crate::error::{OrRaise, os_error};
use crate::gil::{self, ATTACHED_BYTES_MAX};

/// The most bytes that a read to the end asks for at once beyond what the file seems to have.
const READ_STEP: usize = 64 * 1024;

/// Returns the error of a bad argument.
pub(crate) fn invalid() -> PyErr {
    os_error(Errno::INVAL, [None, None])
}

/// Returns an offset.
///
/// # Errors
/// `EINVAL` for a negative one.
pub(crate) fn offset(offset: i64) -> PyResult<u64> {
    u64::try_from(offset).map_err(|_| invalid())
}

/// Returns a number of bytes.
///
/// # Errors
/// `EINVAL` for a negative one.
pub(crate) fn count(n: isize) -> PyResult<usize> {
    usize::try_from(n).map_err(|_| invalid())
}

/// Returns a place of `lseek` in a file.
///
/// # Errors
/// That of a file without a position; `ENXIO` for data or a hole before the start, and `EINVAL` for
/// another place there.
pub(crate) fn whence(file: &File, to: i64, whence: i32) -> PyResult<Whence> {
    let from_start = u64::try_from(to);
    let place = match (whence, from_start) {
        (0, Ok(to)) => Ok(Whence::Set(to)),
        (1, _) => Ok(Whence::Current(to)),
        (2, _) => Ok(Whence::End(to)),
        (3, Ok(to)) => Ok(Whence::Data(to)),
        (4, Ok(to)) => Ok(Whence::Hole(to)),
        (3 | 4, Err(_)) => Err(Errno::NXIO),
        _ => Err(Errno::INVAL),
    };
    place.or_else(|errno| {
        file.seek(Whence::Current(0)).or_raise()?;
        Err(os_error(errno, [None, None]))
    })
}

/// Returns whether a file has no position: a pipe, fifo or socket, which may wait.
pub(crate) fn is_stream(file: &File) -> bool {
    matches!(file.file_type(), FileType::Fifo | FileType::Socket)
}

fn read_slice(py: Python<'_>, blocks: bool, file: &File, buf: &mut [u8]) -> PyResult<usize> {
    let release = blocks || buf.len() > ATTACHED_BYTES_MAX;
    if is_stream(file) {
        return gil::wait(py, release, |token| file.read_interruptible(buf, token))?.or_raise();
    }
    gil::run(py, release, || file.read(buf)).or_raise()
}

/// Returns how many bytes to make room for: not many more than a regular file has.
fn room(file: &File, n: usize, from: Option<u64>) -> usize {
    if n <= READ_STEP || file.file_type() != FileType::RegularFile {
        return n;
    }
    let Ok(stat) = file.stat() else { return n };
    let left = stat.size.saturating_sub(from.unwrap_or(0));
    n.min(usize::try_from(left).unwrap_or(n).max(READ_STEP))
}

/// Reads up to `n` bytes at the position of a file.
pub(crate) fn read<'py>(
    py: Python<'py>,
    blocks: bool,
    file: &File,
    n: usize,
) -> PyResult<Bound<'py, PyAny>> {
    buffer::filled(py, room(file, n, None), |buf| read_slice(py, blocks, file, buf))
}

/// Reads up to `n` bytes at an offset.
pub(crate) fn pread<'py>(
    py: Python<'py>,
    blocks: bool,
    file: impl FnOnce() -> PyResult<File>,
    n: usize,
    offset: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let from = self::offset(offset)?;
    let file = file()?;
    let n = room(&file, n, Some(from));
    buffer::filled(py, n, |buf| {
        gil::run(py, blocks || buf.len() > ATTACHED_BYTES_MAX, || file.pread(buf, from)).or_raise()
    })
}

/// Reads into an object that can be written; returns the number of bytes, and how many have room.
pub(crate) fn readinto(
    py: Python<'_>,
    blocks: bool,
    file: &File,
    into: &Bound<'_, PyAny>,
) -> PyResult<(usize, usize)> {
    buffer::with_mut(into, |buf| {
        let room = buf.len();
        Ok((read_slice(py, blocks, file, buf)?, room))
    })
}

/// Writes to a file without a position: all, unless it does not wait.
fn write_stream(py: Python<'_>, blocks: bool, file: &File, data: &[u8]) -> PyResult<usize> {
    let release = blocks || data.len() > ATTACHED_BYTES_MAX;
    let mut done = 0;
    loop {
        let rest = &data[done..];
        match gil::wait(py, release, |token| file.write_interruptible(rest, token))? {
            Ok(n) => done += n,
            Err(_) if done > 0 => return Ok(done),
            failed => return failed.or_raise(),
        }
        if done == data.len() {
            return Ok(done);
        }
    }
}

/// Writes an object's bytes at the position of a file; returns their number.
pub(crate) fn write(
    py: Python<'_>,
    blocks: bool,
    file: impl FnOnce() -> PyResult<File>,
    data: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    buffer::with(data, |data| {
        let file = file()?;
        let release = blocks || data.len() > ATTACHED_BYTES_MAX;
        if is_stream(&file) {
            return write_stream(py, blocks, &file, data);
        }
        gil::run(py, release, || file.write(data)).or_raise()
    })
}

/// Writes an object's bytes at an offset; returns their number.
pub(crate) fn pwrite(
    py: Python<'_>,
    blocks: bool,
    file: impl FnOnce() -> PyResult<File>,
    data: &Bound<'_, PyAny>,
    offset: i64,
) -> PyResult<usize> {
    let at = self::offset(offset)?;
    buffer::with(data, |data| {
        let file = file()?;
        gil::run(py, blocks || data.len() > ATTACHED_BYTES_MAX, || file.pwrite(data, at)).or_raise()
    })
}

/// Reads into one buffer after the other, at an offset or at the position; returns the number of
/// bytes.
pub(crate) fn read_buffers(
    py: Python<'_>,
    blocks: bool,
    file: &File,
    buffers: &Bound<'_, PyAny>,
    from: Option<u64>,
) -> PyResult<usize> {
    let each = buffers.try_iter()?.map(|buffer| Writable::new(&buffer?));
    let mut done = 0;
    for mut buffer in each.collect::<PyResult<Vec<_>>>()? {
        let buf = buffer.bytes();
        let room = buf.len();
        let read = match from {
            Some(from) => {
                let release = blocks || room > ATTACHED_BYTES_MAX;
                gil::run(py, release, || file.pread(buf, from + done as u64)).or_raise()
            }
            None => read_slice(py, blocks, file, buf),
        };
        match read {
            Ok(n) => {
                done += n;
                if n < room {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Writes buffers, and nothing of others between them, at an offset or at the position; returns the
/// number of bytes.
pub(crate) fn write_buffers(
    py: Python<'_>,
    blocks: bool,
    file: &File,
    buffers: &Bound<'_, PyAny>,
    at: Option<u64>,
) -> PyResult<usize> {
    let each = buffers.try_iter()?.map(|buffer| Readable::new(&buffer?));
    let each = each.collect::<PyResult<Vec<_>>>()?;
    let parts: Vec<&[u8]> = each.iter().map(Readable::bytes).collect();
    if at.is_none() && is_stream(file) {
        return write_stream(py, blocks, file, &parts.concat());
    }
    let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let release =
        blocks || slices.iter().map(|slice| slice.len()).sum::<usize>() > ATTACHED_BYTES_MAX;
    let write = || match at {
        Some(at) => file.pwritev(&slices, at),
        None => file.writev(&slices),
    };
    gil::run(py, release, write).or_raise()
}

/// Reads from the position of a file to its end.
pub(crate) fn read_to_end<'py>(
    py: Python<'py>,
    blocks: bool,
    file: &File,
) -> PyResult<Bound<'py, PyAny>> {
    if !is_stream(file) {
        let size = file.stat().or_raise()?.size;
        let at = file.seek(Whence::Current(0)).or_raise()?;
        let left = usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX);
        // Saves the read that tells that there is no more: a file that grows meanwhile was read
        // before it grew.
        if left > 0 {
            return buffer::filled(py, left, |buf| {
                let release = blocks || left > ATTACHED_BYTES_MAX;
                gil::run(py, release, || read_all(file, buf)).or_raise()
            });
        }
    }
    let mut all = Vec::new();
    loop {
        let len = all.len();
        all.resize(len + READ_STEP.min(len.max(ATTACHED_BYTES_MAX)), 0);
        let n = read_slice(py, blocks, file, &mut all[len..])?;
        all.truncate(len + n);
        if n == 0 {
            return Ok(PyBytes::new(py, &all).into_any());
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn read_all(file: &File, buf: &mut [u8]) -> vfscale::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read(&mut buf[done..])? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}
