//! Reading, writing, sizes and syncs.

use std::ffi::{c_char, c_int, c_void};

use libc::{iovec, ssize_t};
use vfscale::Errno;
use vfscale::posix::{FallocateFlags, Fd, Whence};

use crate::args::{given, offset};
use crate::border::{Failure, border};
use crate::structs::{vfscale_task, vfscale_token};
use crate::task_handle::{file, task};
use crate::token::Waiting;

const OFFSET: &str = "the offset";

/// Reads up to `count` bytes at the position of a descriptor, as read(2); returns their number, 0
/// at the end. A pipe or socket waits for data, unless O_NONBLOCK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_read(
    task: *mut vfscale_task,
    fd: c_int,
    buf: *mut c_void,
    count: usize,
) -> ssize_t {
    border("read", || Ok(self::task(task)?.posix().read(Fd(fd), given!(buffer(buf, count))?)?))
}

/// Writes `count` bytes at the position of a descriptor, as write(2); returns their number. A write
/// to a pipe without readers fails with EPIPE, and sends no signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_write(
    task: *mut vfscale_task,
    fd: c_int,
    buf: *const c_void,
    count: usize,
) -> ssize_t {
    border("write", || Ok(self::task(task)?.posix().write(Fd(fd), given!(bytes(buf, count))?)?))
}

/// Reads as vfscale_read; `token` interrupts the wait of a pipe or socket (EINTR).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_read_wait(
    task: *mut vfscale_task,
    fd: c_int,
    buf: *mut c_void,
    count: usize,
    token: *mut vfscale_token,
) -> ssize_t {
    border("read", || {
        let (buf, waiting) = (given!(buffer(buf, count))?, Waiting::new(token)?);
        let file = file(&*self::task(task)?, fd)?;
        Ok(file.read_interruptible(buf, waiting.token())?)
    })
}

/// Writes as vfscale_write; `token` interrupts the wait of a pipe or socket (EINTR).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_write_wait(
    task: *mut vfscale_task,
    fd: c_int,
    buf: *const c_void,
    count: usize,
    token: *mut vfscale_token,
) -> ssize_t {
    border("write", || {
        let (buf, waiting) = (given!(bytes(buf, count))?, Waiting::new(token)?);
        let file = file(&*self::task(task)?, fd)?;
        Ok(file.write_interruptible(buf, waiting.token())?)
    })
}

/// Reads at an offset, as pread(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pread(
    task: *mut vfscale_task,
    fd: c_int,
    buf: *mut c_void,
    count: usize,
    offset: i64,
) -> ssize_t {
    border("pread", || {
        let (buf, offset) = (given!(buffer(buf, count))?, self::offset(offset, OFFSET)?);
        Ok(self::task(task)?.posix().pread(Fd(fd), buf, offset)?)
    })
}

/// Writes at an offset, as pwrite(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pwrite(
    task: *mut vfscale_task,
    fd: c_int,
    buf: *const c_void,
    count: usize,
    offset: i64,
) -> ssize_t {
    border("pwrite", || {
        let (buf, offset) = (given!(bytes(buf, count))?, self::offset(offset, OFFSET)?);
        Ok(self::task(task)?.posix().pwrite(Fd(fd), buf, offset)?)
    })
}

/// Reads into `count` buffers at the position of a descriptor, as readv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_readv(
    task: *mut vfscale_task,
    fd: c_int,
    iov: *const iovec,
    count: c_int,
) -> ssize_t {
    border("readv", || {
        let mut bufs = given!(vectors_mut(iov, count))?;
        Ok(file(&*self::task(task)?, fd)?.readv(&mut bufs)?)
    })
}

/// Writes from `count` buffers at the position of a descriptor, as writev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_writev(
    task: *mut vfscale_task,
    fd: c_int,
    iov: *const iovec,
    count: c_int,
) -> ssize_t {
    border("writev", || {
        let bufs = given!(vectors(iov, count))?;
        Ok(file(&*self::task(task)?, fd)?.writev(&bufs)?)
    })
}

/// Reads into `count` buffers at an offset, as preadv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_preadv(
    task: *mut vfscale_task,
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    offset: i64,
) -> ssize_t {
    border("preadv", || {
        let mut bufs = given!(vectors_mut(iov, count))?;
        let offset = self::offset(offset, OFFSET)?;
        Ok(file(&*self::task(task)?, fd)?.preadv(&mut bufs, offset)?)
    })
}

/// Writes from `count` buffers at an offset, as pwritev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pwritev(
    task: *mut vfscale_task,
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    offset: i64,
) -> ssize_t {
    border("pwritev", || {
        let (bufs, offset) = (given!(vectors(iov, count))?, self::offset(offset, OFFSET)?);
        Ok(file(&*self::task(task)?, fd)?.pwritev(&bufs, offset)?)
    })
}

/// Moves the position of a descriptor, as lseek(2), with SEEK_DATA and SEEK_HOLE too; returns the
/// new position.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_lseek(
    task: *mut vfscale_task,
    fd: c_int,
    offset: i64,
    whence: c_int,
) -> i64 {
    border("lseek", || {
        // Below 0 there is neither data nor a hole.
        let found = |to: fn(u64) -> Whence| match u64::try_from(offset) {
            Ok(offset) => Ok(to(offset)),
            Err(_) => Err(Failure::new(Errno::NXIO, "the offset is negative")),
        };
        let to = match whence {
            libc::SEEK_SET => Whence::Set(self::offset(offset, OFFSET)?),
            libc::SEEK_CUR => Whence::Current(offset),
            libc::SEEK_END => Whence::End(offset),
            libc::SEEK_DATA => found(Whence::Data)?,
            libc::SEEK_HOLE => found(Whence::Hole)?,
            _ => return Err(Failure::new(Errno::INVAL, "an unknown whence")),
        };
        Ok(self::task(task)?.posix().lseek(Fd(fd), to)?)
    })
}

/// Truncates or extends a file, as truncate(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_truncate(
    task: *mut vfscale_task,
    path: *const c_char,
    size: i64,
) -> c_int {
    border("truncate", || {
        let (path, size) = (given!(path(path))?, offset(size, "the size")?);
        Ok(self::task(task)?.posix().truncate(path, size)?)
    })
}

/// Truncates or extends an open file, as ftruncate(2).
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_ftruncate(task: *mut vfscale_task, fd: c_int, size: i64) -> c_int {
    border("ftruncate", || {
        let size = offset(size, "the size")?;
        Ok(self::task(task)?.posix().ftruncate(Fd(fd), size)?)
    })
}

/// Allocates, punches or zeroes a range of a file, as fallocate(2); `mode` has FALLOC_FL_* flags.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fallocate(
    task: *mut vfscale_task,
    fd: c_int,
    mode: c_int,
    offset: i64,
    len: i64,
) -> c_int {
    border("fallocate", || {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let (offset, len) = (self::offset(offset, OFFSET)?, self::offset(len, "the length")?);
        Ok(self::task(task)?.posix().fallocate(Fd(fd), mode, offset, len)?)
    })
}

/// Copies up to `len` bytes between files of one file system, as copy_file_range(2); returns their
/// number. An offset that is not NULL is used and advanced in place of the position. `flags` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_copy_file_range(
    task: *mut vfscale_task,
    fd_in: c_int,
    offset_in: *mut i64,
    fd_out: c_int,
    offset_out: *mut i64,
    len: usize,
    flags: u32,
) -> ssize_t {
    border("copy_file_range", || {
        if offset_in == offset_out && !offset_in.is_null() {
            return Err(Failure::new(Errno::INVAL, "both offsets are one variable"));
        }
        let (from_place, to_place) = (given!(in_out(offset_in))?, given!(in_out(offset_out))?);
        if flags != 0 {
            return Err(Failure::new(Errno::INVAL, "unknown flags"));
        }
        let read =
            |place: &Option<&mut i64>| place.as_ref().map(|at| offset(**at, OFFSET)).transpose();
        let (mut from, mut to) = (read(&from_place)?, read(&to_place)?);
        let task = self::task(task)?;
        let (source, target) = (file(&task, fd_in)?, file(&task, fd_out)?);
        let copied = source.copy_range(from.as_mut(), &target, to.as_mut(), len as u64)?;
        for (place, offset) in [(from_place, from), (to_place, to)] {
            if let (Some(place), Some(offset)) = (place, offset) {
                *place = offset as i64;
            }
        }
        Ok(copied as usize)
    })
}

/// Makes the data and attributes of an open file durable, as fsync(2). Blocks for the I/O.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fsync(task: *mut vfscale_task, fd: c_int) -> c_int {
    border("fsync", || Ok(file(&*self::task(task)?, fd)?.sync_all()?))
}

/// Makes the data of an open file durable, as fdatasync(2). Blocks for the I/O.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fdatasync(task: *mut vfscale_task, fd: c_int) -> c_int {
    border("fdatasync", || Ok(file(&*self::task(task)?, fd)?.sync_data()?))
}

/// Makes all changes of the file system of an open file durable, as syncfs(2). Blocks for the I/O.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_syncfs(task: *mut vfscale_task, fd: c_int) -> c_int {
    border("syncfs", || Ok(self::task(task)?.posix().syncfs(Fd(fd))?))
}

/// Makes all changes of all file systems of the tree durable, as sync(2). Blocks for the I/O. Does
/// not report its errors; vfscale_syncfs and vfscale_fs_sync do.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_sync(task: *mut vfscale_task) -> c_int {
    border("sync", || {
        self::task(task)?.posix().sync();
        Ok(())
    })
}
