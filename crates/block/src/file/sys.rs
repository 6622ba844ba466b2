//! System calls for which the libraries offer no safe function.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// `BLKDISCARD`: two numbers, offset and length in bytes.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);
/// `BLKGETSIZE64`: a number, declared as a `size_t` and always 64 bits wide.
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);

/// `LOOP_GET_STATUS64`. Its number is older than the scheme of numbers.
const LOOP_GET_STATUS64: Opcode = 0x4C05;
/// Words of 64 bits in its answer, `struct loop_info64`.
const LOOP_INFO_WORDS: usize = 29;

/// The file of a loop device, and which part of it the device shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopStatus {
    /// The number of the device that has the file, and the number of its inode.
    pub(super) file: (u64, u64),
    /// The first byte that is shown.
    pub(super) offset: u64,
    /// The most bytes that are shown; 0 for all.
    pub(super) size_limit: u64,
}

/// Returns the state of a loop device.
pub(super) fn loop_status(file: &File) -> io::Result<LoopStatus> {
    // SAFETY: the operation with this number stores a structure of 232 bytes and does nothing else.
    let get = unsafe { Getter::<LOOP_GET_STATUS64, [u64; LOOP_INFO_WORDS]>::new() };
    // SAFETY: the opcode and the type belong together; other kinds of files refuse it.
    let [device, inode, _, offset, size_limit, ..] = unsafe { ioctl(file.as_fd(), get) }?;
    Ok(LoopStatus { file: (device, inode), offset, size_limit })
}

/// Returns the size of a block device, in bytes.
pub(super) fn block_device_size(file: &File) -> io::Result<u64> {
    // SAFETY: the operation with this number stores 64 bits and does nothing else.
    let get = unsafe { Getter::<BLKGETSIZE64, u64>::new() };
    // SAFETY: the opcode and the type belong together; other kinds of files refuse it.
    Ok(unsafe { ioctl(file.as_fd(), get) }?)
}

/// Discards a range of a block device.
pub(super) fn block_device_discard(file: &File, offset: u64, length: u64) -> io::Result<()> {
    // SAFETY: the operation with this number reads two numbers of 64 bits.
    let set = unsafe { Setter::<BLKDISCARD, [u64; 2]>::new([offset, length]) };
    // SAFETY: the opcode and the type belong together; other kinds of files refuse it.
    Ok(unsafe { ioctl(file.as_fd(), set) }?)
}

/// The mode of a record lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockKind {
    /// Shared with other readers.
    Shared,
    /// Exclusive.
    Exclusive,
    /// Unlocked.
    None,
}

fn record(kind: LockKind, start: i64, length: i64) -> libc::flock {
    let l_type = match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
        LockKind::None => libc::F_UNLCK,
    };
    libc::flock {
        l_type: l_type as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

/// Takes or releases a record lock that belongs to the open file, without waiting.
pub(super) fn ofd_lock(file: &File, kind: LockKind, start: i64, length: i64) -> io::Result<()> {
    let record = record(kind, start, length);
    // SAFETY: the call reads the record, which lives until it returns.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const record) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the start of the first lock of another open file in a range, if there is one.
pub(super) fn ofd_lock_of_others(file: &File, start: i64, length: i64) -> io::Result<Option<i64>> {
    let mut record = record(LockKind::Exclusive, start, length);
    // SAFETY: the call reads and writes the record, which lives until it returns.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut record) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((record.l_type != libc::F_UNLCK as libc::c_short).then_some(record.l_start))
}

/// Closes the file under its descriptor, which refers to `/dev/null` from then on.
pub(super) fn close_under(file: &File) -> io::Result<()> {
    let null = File::open("/dev/null")?;
    // SAFETY: both descriptors are open. The owner of `file` still owns the descriptor, and closes
    // it as before.
    let result = unsafe { libc::dup3(null.as_raw_fd(), file.as_raw_fd(), libc::O_CLOEXEC) };
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads into consecutive pages from `offset` on.
pub(super) fn read_pages(file: &File, pages: &[libc::iovec], offset: u64) -> Result<usize, Errno> {
    let (count, offset) = arguments(pages, offset)?;
    // SAFETY: the list refers to memory of pages, whose bytes the system may write at any time, and
    // whose owner outlives the list.
    let result = unsafe { libc::preadv(file.as_raw_fd(), pages.as_ptr(), count, offset) };
    usize::try_from(result).map_err(|_| last_error())
}

/// Writes consecutive pages from `offset` on.
pub(super) fn write_pages(file: &File, pages: &[libc::iovec], offset: u64) -> Result<usize, Errno> {
    let (count, offset) = arguments(pages, offset)?;
    // SAFETY: the list refers to memory of pages, whose owner outlives the list; the system only
    // reads it.
    let result = unsafe { libc::pwritev(file.as_raw_fd(), pages.as_ptr(), count, offset) };
    usize::try_from(result).map_err(|_| last_error())
}

fn arguments(pages: &[libc::iovec], offset: u64) -> Result<(libc::c_int, i64), Errno> {
    let count = libc::c_int::try_from(pages.len()).map_err(|_| Errno::INVAL)?;
    Ok((count, i64::try_from(offset).map_err(|_| Errno::INVAL)?))
}

fn last_error() -> Errno {
    let error = io::Error::last_os_error();
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
}
