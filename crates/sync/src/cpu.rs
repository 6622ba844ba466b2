//! The number of the CPU that a thread runs on, and the number of CPUs.
//!
//! # Purpose
//!
//! Slots are chosen by the current CPU. Linux stores its number in each thread's `rseq` area, where
//! reading it costs one load (a third of a nanosecond, against three for `sched_getcpu`). glibc
//! registers that area and publishes its location in `__rseq_offset` and `__rseq_size`.
//!
//! # Invariants
//!
//! * The number is a hint. The thread may be moved before it uses the number, so any slot chosen by
//!   it is atomic or locked.
//! * A CPU's number can be larger than [`possible`] in some containers; users take it modulo their
//!   number of slots.
//! * [`pretend`] overrides the number for one thread. Tests exercise many slots on few CPUs with
//!   it, and in a model, which must repeat exactly, it decides where threads run (on CPU 0 by
//!   default).

mod allowed;
mod nodes;

pub use allowed::{most_slots, slots};
pub use nodes::SlotNodes;

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

/// Marker of a thread that pretends nothing.
const NOWHERE: u32 = u32::MAX;

#[cfg(not(any(loom, shuttle)))]
thread_local! {
    static PRETENDED: Cell<u32> = const { Cell::new(NOWHERE) };
}

#[cfg(loom)]
loom::thread_local! {
    static PRETENDED: Cell<u32> = Cell::new(NOWHERE);
}

#[cfg(all(shuttle, not(loom)))]
shuttle::thread_local! {
    static PRETENDED: Cell<u32> = Cell::new(NOWHERE);
}

/// Returns the CPU that this thread runs on, or pretends to run on. Takes about a nanosecond; never
/// blocks.
#[inline]
pub fn current() -> u32 {
    let pretended = PRETENDED.with(Cell::get);
    if pretended == NOWHERE { real() } else { pretended }
}

/// Returns 0: a model must not depend on the machine.
#[cfg(any(loom, shuttle))]
fn real() -> u32 {
    0
}

#[cfg(not(any(loom, shuttle)))]
#[inline]
fn real() -> u32 {
    rseq::cpu().unwrap_or_else(fallback)
}

/// Calls `sched_getcpu`, for threads and systems without a registered rseq area.
#[cfg(all(not(any(loom, shuttle)), target_os = "linux", not(miri)))]
#[cold]
fn fallback() -> u32 {
    // SAFETY: the call has no arguments and touches no memory of ours.
    let cpu = unsafe { libc::sched_getcpu() };
    // The call fails only on kernels without it: then all threads share slot 0.
    u32::try_from(cpu).unwrap_or(0)
}

/// Assigns threads to slots round-robin, on systems that do not report the CPU.
#[cfg(all(not(any(loom, shuttle)), any(not(target_os = "linux"), miri)))]
#[cold]
fn fallback() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static DEALT: u32 = NEXT.fetch_add(1, Ordering::Relaxed) % possible();
    }
    DEALT.with(|dealt| *dealt)
}

/// The `rseq` area of the running thread.
#[cfg(all(
    not(any(loom, shuttle)),
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
))]
mod rseq {
    use std::sync::atomic::{AtomicIsize, Ordering};

    /// Not searched yet.
    const UNKNOWN: isize = isize::MIN;
    /// Searched, and absent.
    const ABSENT: isize = isize::MIN + 1;
    /// Offset of `cpu_id` in `struct rseq`, in bytes.
    const CPU_ID: isize = 4;

    /// Distance of this thread's `cpu_id` from the thread pointer, equal for all threads.
    static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);

    /// Returns this thread's CPU, or `None` if its area is not registered.
    #[inline]
    pub(super) fn cpu() -> Option<u32> {
        let offset = OFFSET.load(Ordering::Relaxed);
        // Both special values are the two smallest numbers.
        if offset <= ABSENT {
            return find_and_read(offset);
        }
        read(offset)
    }

    #[inline]
    fn read(offset: isize) -> Option<u32> {
        let cpu: u32;
        // SAFETY: glibc documents that each of its threads has a `struct rseq` at this distance
        // from the thread pointer for as long as the thread lives; `cpu_id` is an aligned word of
        // it that only the kernel writes, and only while this thread does not run.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                "mov {cpu:e}, dword ptr fs:[{offset}]",
                cpu = lateout(reg) cpu,
                offset = in(reg) offset,
                options(nostack, preserves_flags, readonly)
            );
        }
        // SAFETY: `cpu_id` of this thread is an aligned word that only the kernel writes, as
        // explained for x86.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                "mrs {thread}, tpidr_el0",
                "ldr {cpu:w}, [{thread}, {offset}]",
                thread = out(reg) _,
                cpu = lateout(reg) cpu,
                offset = in(reg) offset,
                options(nostack, preserves_flags, readonly)
            );
        }
        // The kernel writes -1 (not yet) and -2 (refused) for threads that are not registered.
        (cpu.cast_signed() >= 0).then_some(cpu)
    }

    #[cold]
    fn find_and_read(offset: isize) -> Option<u32> {
        if offset == ABSENT {
            return None;
        }
        let found = find().unwrap_or(ABSENT);
        OFFSET.store(found, Ordering::Relaxed);
        if found == ABSENT { None } else { read(found) }
    }

    /// Reads the offset from glibc. `None` with another C library, or when registration is switched
    /// off.
    fn find() -> Option<isize> {
        // SAFETY: the names are C strings; `dlsym` only looks them up.
        let (offset, size) = unsafe {
            (
                libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>(),
                libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>(),
            )
        };
        if offset.is_null() || size.is_null() {
            return None;
        }
        // SAFETY: glibc documents them as constant objects of these types, set before `main`.
        let (offset, size) = unsafe { (*offset, *size) };
        (size != 0).then_some(offset + CPU_ID)
    }
}

#[cfg(all(
    not(any(loom, shuttle)),
    not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(miri)
    ))
))]
mod rseq {
    pub(super) fn cpu() -> Option<u32> {
        None
    }
}

/// Returns the number of CPUs that the machine is configured with, whether or not this process may
/// use them now; [`slots`] is for those that it may use. At least 1. Calls the system once.
pub fn possible() -> u32 {
    static POSSIBLE: AtomicU32 = AtomicU32::new(0);
    let known = POSSIBLE.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let count = count_possible();
    POSSIBLE.store(count, Ordering::Relaxed);
    count
}

/// Returns 2: models are small and must repeat exactly.
#[cfg(any(loom, shuttle))]
fn count_possible() -> u32 {
    2
}

#[cfg(not(any(loom, shuttle)))]
fn count_possible() -> u32 {
    // SAFETY: the call reads no memory of ours.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(configured).unwrap_or(1).max(1)
}

/// A pretended CPU of this thread, until it is dropped. Nests: the innermost one counts.
#[must_use = "the pretence ends when this is dropped"]
pub struct Pretend {
    before: u32,
    /// Makes it `!Send`: the pretence belongs to one thread.
    not_send: PhantomData<*const ()>,
}

/// Makes this thread claim to run on `cpu` until the result is dropped.
///
/// # Panics
///
/// If `cpu` is `u32::MAX`, which is not the number of any CPU.
pub fn pretend(cpu: u32) -> Pretend {
    assert!(cpu != NOWHERE, "no CPU has this number");
    Pretend { before: PRETENDED.with(|p| p.replace(cpu)), not_send: PhantomData }
}

impl Drop for Pretend {
    fn drop(&mut self) {
        PRETENDED.with(|p| p.set(self.before));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
