//! The CPU that a worker runs on.

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use vfscale::cpu;

/// Where a worker runs.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seat {
    /// The CPU it is kept on, if it is.
    pub(crate) cpu: Option<usize>,
    /// The CPU it claims to be on, if it claims anything.
    pub(crate) pretended: Option<u32>,
}

impl Seat {
    /// Takes the seat for as long as the result lives.
    pub(crate) fn take(self) -> Option<cpu::Pretend> {
        if let Some(cpu) = self.cpu {
            let mut set = CpuSet::new();
            set.set(cpu);
            // A CPU that went away since is no reason to fail: the thread runs elsewhere.
            let _ = sched_setaffinity(None, &set);
        }
        self.pretended.map(cpu::pretend)
    }
}
