//! Slots follow the CPUs that the process may use. A separate process, because it changes the
//! affinity of its first thread.

#![cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
#![allow(clippy::unwrap_used)]

use vfscale_sync::cpu;
use vfscale_sync::percpu::PerCpu;

type Mask = [u64; 128];

/// Returns the CPUs that this thread may use.
fn affinity() -> Mask {
    let mut mask: Mask = [0; 128];
    // SAFETY: the kernel writes at most the size of the mask into it.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), (&raw mut mask).cast()) };
    assert_eq!(result, 0);
    mask
}

/// Limits this thread and the first one of the process.
fn limit(mask: &Mask) {
    for thread in [0, std::process::id().cast_signed()] {
        // SAFETY: the kernel reads at most the size of the mask.
        let result = unsafe {
            libc::sched_setaffinity(thread, size_of::<Mask>(), (&raw const *mask).cast())
        };
        assert_eq!(result, 0);
    }
}

fn cpus(mask: &Mask) -> Vec<usize> {
    (0..64 * mask.len()).filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 != 0).collect()
}

/// With one CPU there is one slot; when the process is allowed more, they share that slot, and new
/// structures have more.
#[test]
fn slots_follow_the_affinity() {
    let new = || PerCpu::new(cpu::slots() as usize, |slot| slot);
    let all = affinity();
    let mut one: Mask = [0; 128];
    let first = cpus(&all)[0];
    one[first / 64] = 1 << (first % 64);
    limit(&one);
    assert_eq!(cpu::slots(), 1);
    let before = new();
    limit(&all);
    assert!(cpu::slots() as usize >= cpus(&all).len());
    assert_eq!(cpu::most_slots(), cpu::slots());
    let mut used = Vec::new();
    for number in cpus(&all) {
        let _on = cpu::pretend(number as u32);
        assert_eq!(before.this_slot(), 0);
        used.push(new().this_slot());
    }
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), cpus(&all).len(), "each has a slot of its own");
}
