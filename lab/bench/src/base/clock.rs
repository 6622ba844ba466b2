//! Clocks, common to all threads and processes of a machine.

use rustix::time::{ClockId, clock_gettime};

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Returns nanoseconds since about the start of the machine. A read takes some twenty nanoseconds,
/// without entering the kernel.
#[inline]
pub(crate) fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Returns the CPU time of this thread, in nanoseconds.
pub(crate) fn cpu_used() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// Returns the part of this thread's CPU time that the kernel took, in nanoseconds. The kernel may
/// count it by ticks of some milliseconds.
pub(crate) fn cpu_in_kernel() -> u64 {
    super::sys::system_time().as_nanos() as u64
}

/// Returns nanoseconds for which this thread was ready to run and waited for a CPU (`schedstat` of
/// `proc(5)`). Sleeping for a lock or a disk does not count. Returns 0 if the kernel does not
/// count.
pub(crate) fn cpu_waited() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Waits until `moment`: sleeps first, and spins for the rest, to be on time.
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
