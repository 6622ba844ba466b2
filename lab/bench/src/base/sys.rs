//! System calls that need `unsafe`.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::{Errno, Result};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives this thread a working directory of its own.
pub(crate) fn unshare_cwd() -> Result<()> {
    // SAFETY: only the working directory, root and umask stop being shared with other threads. The
    // table of descriptors, whose unsharing would be unsound, stays shared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}

/// Returns the CPU time that the kernel took for this thread.
pub(crate) fn system_time() -> Duration {
    // SAFETY: all bytes may be zero in this structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) } != 0;
    debug_assert!(!failed, "asking for the time of this thread can't fail");
    let time = usage.ru_stime;
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
        + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

/// Maximum number of bytes of a handle (`MAX_HANDLE_SZ`).
const HANDLE_BYTES: usize = 128;

/// The handle of a file, in the form of the kernel: a header, and bytes that only the file system
/// understands.
#[derive(Clone)]
#[repr(C)]
pub struct Handle {
    bytes_used: libc::c_uint,
    kind: libc::c_int,
    bytes: [u8; HANDLE_BYTES],
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

/// Returns the error of the last system call of this thread.
fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl Handle {
    /// Returns the handle of the file at a path.
    pub(crate) fn of(at: BorrowedFd<'_>, path: &CStr) -> Result<Handle> {
        let mut handle =
            Handle { bytes_used: HANDLE_BYTES as libc::c_uint, kind: 0, bytes: [0; HANDLE_BYTES] };
        let mut mount = 0;
        let into = (&raw mut handle).cast::<libc::file_handle>();
        // SAFETY: `path` ends with a NUL; `into` has the layout of `file_handle`, followed by as
        // many bytes as its header says.
        let made =
            unsafe { libc::name_to_handle_at(at.as_raw_fd(), path.as_ptr(), into, &mut mount, 0) };
        if made == 0 { Ok(handle) } else { Err(last_error()) }
    }

    /// Opens the file, in the file system that `at` is on.
    #[inline]
    pub(crate) fn open(&self, at: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
        let from = (&raw const *self).cast_mut().cast::<libc::file_handle>();
        // SAFETY: `from` has the layout of `file_handle` with its bytes; the call only reads it.
        let fd =
            unsafe { libc::open_by_handle_at(at.as_raw_fd(), from, flags.bits() as libc::c_int) };
        if fd < 0 {
            return Err(last_error());
        }
        // SAFETY: the call has returned a new descriptor, which nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}
