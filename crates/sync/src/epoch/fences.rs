//! Asymmetric fences: next to nothing for those who enter a section, and a system call for the one
//! who waits for sections.
//!
//! A [`light_fence`] and a [`heavy_fence`] order accesses as two sequentially consistent fences do:
//! the heavy one makes every CPU that runs a thread of this process execute a fence. A light one
//! lacks the order with the fence of a third thread, which the epochs don't need (see
//! [`epoch`](super)). The system's fences were tried on x86-64 and AArch64. On other processors a
//! light fence is a fence.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, shuttle))
))]
mod imp {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};
    use std::time::{Duration, Instant};

    /// Whether the system runs fences on other CPUs. Set before any thread enters a section.
    static HAS_MEMBARRIER: AtomicBool = AtomicBool::new(false);

    /// When light fences may be relied upon again after the system has refused to run fences.
    static DRAINED: Mutex<Option<Instant>> = Mutex::new(None);

    /// Time after which stores that no fence followed are visible: store buffers hold them for less
    /// than microseconds.
    const DRAIN_TIME: Duration = Duration::from_millis(10);

    /// Registers the process. Called before the first section.
    pub(crate) fn register() {
        let is_there = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
            && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        HAS_MEMBARRIER.store(is_there, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn light_fence() {
        if HAS_MEMBARRIER.load(Ordering::Relaxed) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// Returns false if no fence can be relied upon yet: the process has forbidden itself the
    /// system call (seccomp) since it was registered.
    pub(crate) fn heavy_fence() -> bool {
        fence(Ordering::SeqCst);
        if HAS_MEMBARRIER.load(Ordering::Relaxed) {
            if membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
                return true;
            }
            HAS_MEMBARRIER.store(false, Ordering::SeqCst);
            *lock() = Some(Instant::now() + DRAIN_TIME);
        }
        lock().is_none_or(|drained| Instant::now() >= drained)
    }

    fn lock() -> std::sync::MutexGuard<'static, Option<Instant>> {
        DRAINED.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call has no pointers, and changes nothing but when memory is seen.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, shuttle))
)))]
mod imp {
    use std::sync::atomic::{Ordering, fence};

    pub(crate) fn register() {}

    #[inline]
    pub(crate) fn light_fence() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy_fence() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

pub(crate) use imp::{heavy_fence, light_fence, register};
