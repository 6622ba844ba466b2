//! The system calls that Rust can't know to be harmless.

use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

use rustix::io::Result;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives this thread a working directory of its own.
pub(crate) fn unshare_cwd() -> Result<()> {
    // SAFETY: only the working directory, root and umask stop being shared with other threads; the
    // table of descriptors, which the caution of the call is about, stays shared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}

/// The smallest piece that can be mapped.
const PAGE: usize = 4096;

/// A page of a file, mapped for others to see in `/proc`, and never read through.
#[derive(Debug)]
pub struct Mapping(NonNull<std::ffi::c_void>);

impl Mapping {
    /// Maps the first page of a file.
    pub(crate) fn new(file: &OwnedFd) -> Result<Mapping> {
        // SAFETY: the kernel chooses a place that nothing else uses.
        let at = unsafe { mmap(null_mut(), PAGE, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        // A mapping that the kernel places is never at 0.
        NonNull::new(at).map(Mapping).ok_or(rustix::io::Errno::NOMEM)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `new`, and nobody has a reference into it.
        let unmapped = unsafe { munmap(self.0.as_ptr(), PAGE) };
        debug_assert!(unmapped.is_ok(), "a page that was mapped");
    }
}
