//! Records every load and store of a call.
//!
//! # How
//!
//! The code of the call is not run where it lies but from a copy that is made as it goes, a stretch without
//! jumps at a time, as valgrind and Pin do it (Luk et al., "Pin", PLDI 2005). In the copy, each
//! instruction that touches memory is preceded by a few that note the address, and each jump leads to
//! where the next stretch is looked up or copied. The notes use `mov` and `lea` alone, which leave the flags
//! as they are, and the memory behind `gs`, a register that Linux programs don't use; so the code
//! can't tell the difference. Return addresses on the stack are those of the original, so that even
//! unwinding works. It takes some tens of nanoseconds for an instruction, without root, without
//! ptrace and without another compiler. Stepping by the processor's trap flag was tried: on a virtual
//! machine it costs 16 to 50 microseconds for each instruction.
//!
//! What is outside of a recorded call runs at full speed, as it is.
//!
//! # What is recorded
//!
//! * Loads and stores of every instruction, with address, size and place. A conditional one counts, and an
//!   exchange that fails is a store: the processor takes the line for itself either way.
//! * String instructions with what they really did: the count before less the count after.
//! * Vector instructions under a mask with the elements that the mask has. The C library fills and copies the
//!   last few bytes of a buffer in this way, and would seem to write what is behind it.
//! * Calls and returns, so that each access can be told with the calls that led to it.
//!
//! # What is not
//!
//! * What `push`, `pop`, `call` and `ret` do to the stack: each thread has its own.
//! * Prefetches, which change nothing that another CPU can notice but time.
//! * The inside of system calls; that there was one is recorded ([`Trace::system_calls`]).
//! * Instructions that address memory by a vector of indexes. They are run, and counted
//!   ([`Trace::not_understood`]).
//! * The saving of all vector registers is recorded as one line. It only happens on the own stack.
//!
//! # Who holds what
//!
//! A [`Recorder`] belongs to one thread at a time and holds that thread's context and stack. The copies
//! are in a
//! [`Code`], which all recorders share, one recording at a time. While the host part of a recording
//! runs, allocations of its thread go to the system ([`arena`](crate::arena)), since the call that is
//! recorded may be in the middle of one of its own.

mod code;
mod context;
mod emit;

pub use code::Code;
pub use context::Recorder;

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The address of the first byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Whether it reads.
    pub read: bool,
    /// Whether it writes.
    pub write: bool,
    /// The instruction.
    pub ip: u64,
}

/// What one call did to memory.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Accesses, calls and returns, in the order of the program.
    pub steps: Vec<Step>,
    /// Instructions that were run.
    pub instructions: u64,
    /// System calls that were made.
    pub system_calls: u64,
    /// Instructions whose accesses are missing.
    pub not_understood: u64,
}

/// A step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Memory was touched.
    Access(Access),
    /// A function was called by the instruction at this address.
    Call(u64),
    /// A function returned.
    Return,
}

impl Trace {
    /// All accesses.
    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.steps.iter().filter_map(|step| match step {
            Step::Access(access) => Some(access),
            _ => None,
        })
    }

    /// The call instructions that led to a step, the outermost first.
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

#[cfg(test)]
mod tests;
