//! The CPU that a worker runs on.

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use vfscale_vfs::cpu;

/// The CPU of a worker, real and pretended.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Seat {
    /// The CPU to which it is pinned.
    pub cpu: Option<usize>,
    /// The CPU on which the library believes it to run.
    pub pretended: Option<u32>,
}

impl Seat {
    /// Pins this thread to its CPU, and pretends the other while the result lives.
    pub(crate) fn take(self) -> Option<cpu::Pretend> {
        if let Some(cpu) = self.cpu {
            let mut set = CpuSet::new();
            set.set(cpu);
            // If the CPU is already offline, the thread runs on another one.
            let _ = sched_setaffinity(None, &set);
        }
        self.pretended.map(cpu::pretend)
    }
}
