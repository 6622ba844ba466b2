//! Time that all threads and processes of a machine agree on.

use rustix::time::{ClockId, clock_gettime};

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Nanoseconds since the machine started, about. Twenty to read, without entering the kernel.
#[inline]
pub(crate) fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Nanoseconds of CPU that this thread has used.
pub(crate) fn cpu_used() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// Nanoseconds that this thread was ready to run and had to wait (`schedstat` of `proc(5)`). Sleeping
/// for a lock or a disk is not waiting. 0 where the kernel does not count.
pub(crate) fn cpu_waited() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Waits for a moment: asleep as long as it is far, then awake, so as not to be late.
pub(crate) fn wait_until(moment: u64) {
    loop {
        match moment.saturating_sub(now()) {
            0 => return,
            far @ 1_000_001.. => {
                std::thread::sleep(std::time::Duration::from_nanos(far - 500_000));
            }
            _ => std::hint::spin_loop(),
        }
    }
}
