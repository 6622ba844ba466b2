//! The system calls that Rust can't know to be harmless.

use rustix::io::Result;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives this thread a working directory of its own.
pub(crate) fn unshare_cwd() -> Result<()> {
    // SAFETY: only the working directory, root and umask stop being shared with other threads; the
    // table of descriptors, which the caution of the call is about, stays shared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}
