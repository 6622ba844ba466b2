//! The CPUs that this process may use, and how many slots they need.
//!
//! # Purpose
//!
//! A container or a job often gets a few CPUs of a large machine, by a cpuset or by the affinity of
//! its threads. Structures that have a part for each CPU should then have as many parts as CPUs may
//! run the process, and not as many as the machine has: 512 parts for two CPUs are 64 KiB for each
//! counter.
//!
//! # From a CPU to its slot
//!
//! The slot of a CPU is its number modulo the number of slots
//! ([`PerCpu`](crate::percpu::PerCpu)), so every CPU has a slot, whatever it is allowed later.
//! [`slots`] is the smallest number that gives each CPU that is allowed now a slot of its own: for
//! CPUs with consecutive numbers that is their count. CPUs that the process is allowed later share
//! slots with others, which costs time and is always correct; structures made from then on have
//! more slots.

use std::sync::atomic::{AtomicU32, Ordering};

use super::possible;

/// The highest number of CPUs that the system is asked about.
#[cfg(not(any(loom, shuttle)))]
pub(super) const CPUS_MAX: usize = 1 << 13;

/// A set of CPUs, in the format of `sched_getaffinity`.
#[cfg(not(any(loom, shuttle)))]
type Mask = [u64; CPUS_MAX / 64];

/// The most slots that were needed so far. 0 before the first call of [`slots`].
static MOST: AtomicU32 = AtomicU32::new(0);

/// Returns the number of slots to make for the CPUs that this process may use: those in the
/// affinity of the calling thread or of the first thread of the process, which a cpuset limits. At
/// least 1, at most [`possible`], and that if the system does not tell. Calls the system twice.
///
/// A program that binds both threads to a CPU of their own, and runs others elsewhere, chooses the
/// number of slots itself.
pub fn slots() -> u32 {
    let slots = needed();
    MOST.fetch_max(slots, Ordering::Relaxed);
    slots
}

/// Returns the highest result of [`slots`] so far, for structures that belong to the process, and
/// for the many of a volume, whose settings have just asked the system. Calls the system only if
/// nothing has.
#[inline]
pub fn most_slots() -> u32 {
    match MOST.load(Ordering::Relaxed) {
        0 => slots(),
        most => most,
    }
}

/// Returns 2, like [`possible`]: models are small and must repeat exactly.
#[cfg(any(loom, shuttle))]
fn needed() -> u32 {
    possible()
}

/// Returns nothing: models have one node.
#[cfg(any(loom, shuttle))]
pub(super) fn list() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(any(loom, shuttle)))]
fn needed() -> u32 {
    allowed().map_or_else(possible, |mask| slots_for(&mask, possible()))
}

/// Returns the CPUs that the calling thread and the first thread of the process may use.
#[cfg(all(not(any(loom, shuttle)), target_os = "linux", not(miri)))]
fn allowed() -> Option<Mask> {
    let mut all: Mask = [0; CPUS_MAX / 64];
    for thread in [0, std::process::id()] {
        let mut mask: Mask = [0; CPUS_MAX / 64];
        let thread = libc::pid_t::try_from(thread).ok()?;
        // SAFETY: the kernel writes at most the size of the mask into it. A mask is an array of
        // words of the system, for which all bits mean something.
        let result =
            unsafe { libc::sched_getaffinity(thread, size_of::<Mask>(), (&raw mut mask).cast()) };
        if result != 0 {
            return None;
        }
        all.iter_mut().zip(mask).for_each(|(all, more)| *all |= more);
    }
    Some(all)
}

/// Returns `None`: other systems have no such sets.
#[cfg(all(not(any(loom, shuttle)), any(not(target_os = "linux"), miri)))]
fn allowed() -> Option<Mask> {
    None
}

/// Returns the CPUs that the process may use, in ascending order; nothing if the system does not
/// tell.
#[cfg(not(any(loom, shuttle)))]
pub(super) fn list() -> Vec<usize> {
    allowed().map_or_else(Vec::new, |mask| cpus_of(&mask).collect())
}

/// Returns the CPUs of a set, in ascending order.
#[cfg(not(any(loom, shuttle)))]
fn cpus_of(mask: &Mask) -> impl Iterator<Item = usize> + '_ {
    let some = mask.iter().enumerate().filter(|(_, word)| **word != 0);
    some.flat_map(|(at, word)| {
        (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| at * 64 + bit)
    })
}

/// Returns the smallest number of slots, `possible` at most, in which no two CPUs of the set share
/// one; `possible` if that would take more than twice as many slots as CPUs.
#[cfg(not(any(loom, shuttle)))]
fn slots_for(mask: &Mask, possible: u32) -> u32 {
    let cpus: Vec<usize> = cpus_of(mask).collect();
    let are_apart = |slots: &usize| {
        let mut taken = vec![false; *slots];
        cpus.iter().all(|cpu| !std::mem::replace(&mut taken[cpu % slots], true))
    };
    if cpus.is_empty() {
        return possible;
    }
    let limit = possible as usize;
    let most = cpus.len().saturating_mul(2).min(limit);
    let found = (cpus.len()..=most).find(are_apart);
    found.map_or(possible, |slots| slots as u32)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
