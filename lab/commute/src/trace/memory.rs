//! Anonymous memory mappings.

use std::io;
use std::ptr::NonNull;

/// A private zeroed mapping, populated as it is touched. Unmapped when dropped.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory, and this is its only owner.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives out addresses only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps memory to read and write.
    pub(crate) fn new(bytes: usize) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        Mapping::map(0, bytes, protection, libc::MAP_NORESERVE)
    }

    /// Maps memory for code less than 1 GiB away from `near`.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(crate) fn code(near: u64, bytes: usize) -> io::Result<Mapping> {
        const STEP: u64 = 8 << 20;
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let near = near & !(STEP - 1);
        let mut failed = io::Error::from(io::ErrorKind::OutOfMemory);
        for steps in 2..120 {
            let places = [near.checked_sub(steps * STEP), near.checked_add(steps * STEP)];
            for place in places.into_iter().flatten().filter(|place| *place > STEP) {
                match Mapping::map(place as usize, bytes, protection, libc::MAP_FIXED_NOREPLACE) {
                    Ok(mapping) => return Ok(mapping),
                    Err(e) => failed = e,
                }
            }
        }
        Err(failed)
    }

    fn map(place: usize, bytes: usize, protection: i32, more: i32) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more;
        let place = std::ptr::without_provenance_mut(place);
        // SAFETY: the mapping is new; neither a hint nor `MAP_FIXED_NOREPLACE` replaces another
        // one.
        let start = unsafe { libc::mmap(place, bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Mapping { start, bytes }),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and its only owner is being dropped.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
