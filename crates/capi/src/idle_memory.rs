//! Memory of the process that no file uses, and that is kept for new pages.

use std::ffi::c_int;

use libc::ssize_t;
use vfscale::idle_memory;

use crate::border::border;

/// Returns the bytes of memory that no file uses, and that the process keeps for new pages of files
/// in memory and of caches.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_idle_memory() -> ssize_t {
    border("vfscale_idle_memory", || Ok(idle_memory::bytes()))
}

/// Returns the maximum of vfscale_idle_memory, beside half a MiB for each CPU: by default 32 MiB
/// for each CPU, at most a sixteenth of the memory that the process may use, at least 16 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_get_idle_memory_max() -> ssize_t {
    border("vfscale_get_idle_memory_max", || Ok(idle_memory::max()))
}

/// Sets the maximum of vfscale_idle_memory in bytes, and gives what exceeds it back to the system.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_set_idle_memory_max(bytes: usize) -> c_int {
    border("vfscale_set_idle_memory_max", || {
        idle_memory::set_max(bytes);
        Ok(())
    })
}

/// Gives all of vfscale_idle_memory back to the system.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_trim_idle_memory() -> c_int {
    border("vfscale_trim_idle_memory", || {
        idle_memory::trim();
        Ok(())
    })
}
