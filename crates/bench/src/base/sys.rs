//! System calls that need `unsafe`.

use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

use rustix::io::Result;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives this thread a working directory of its own.
pub(crate) fn unshare_cwd() -> Result<()> {
    // SAFETY: only the working directory, root and umask stop being shared with other threads. The
    // table of descriptors, whose unsharing would be unsound, stays shared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}

/// Size of a page, the unit of mappings.
const PAGE: usize = 4096;

/// A mapped page of a file, which shows in `/proc` and is never accessed.
#[derive(Debug)]
pub struct Mapping(NonNull<std::ffi::c_void>);

impl Mapping {
    /// Maps the first page of a file.
    pub(crate) fn new(file: &OwnedFd) -> Result<Mapping> {
        // SAFETY: the kernel chooses an unused address.
        let at = unsafe { mmap(null_mut(), PAGE, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        // The kernel never chooses address 0.
        NonNull::new(at).map(Mapping).ok_or(rustix::io::Errno::NOMEM)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `new`, and no reference into it exists.
        let unmapped = unsafe { munmap(self.0.as_ptr(), PAGE) };
        debug_assert!(unmapped.is_ok(), "unmapping a mapped page can't fail");
    }
}
