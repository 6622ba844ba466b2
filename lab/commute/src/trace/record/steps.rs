//! The content of a recording.

/// A memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// Whether the access reads.
    pub read: bool,
    /// Whether the access writes.
    pub write: bool,
    /// Address of the instruction.
    pub ip: u64,
}

/// Recording of one call.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Accesses, calls and returns, in the order of the program.
    pub steps: Vec<Step>,
    /// Number of executed instructions.
    pub instructions: u64,
    /// Number of system calls.
    pub system_calls: u64,
    /// Number of instructions whose accesses are missing.
    pub not_understood: u64,
}

/// An event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A memory access.
    Access(Access),
    /// A function call; the address of the call instruction.
    Call(u64),
    /// A function return.
    Return,
}

impl Trace {
    /// Iterates over all accesses.
    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.steps.iter().filter_map(|step| match step {
            Step::Access(access) => Some(access),
            _ => None,
        })
    }

    /// Returns the call instructions on the stack at a step, outermost first.
    #[must_use]
    pub fn calls_to(&self, index: usize) -> Vec<u64> {
        let mut calls = Vec::new();
        for step in &self.steps[..index] {
            match step {
                Step::Call(ip) => calls.push(*ip),
                Step::Return => drop(calls.pop()),
                Step::Access(_) => {}
            }
        }
        calls
    }
}
