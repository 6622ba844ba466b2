//! Records every load and store of a call.
//!
//! # Method
//!
//! The recorded code does not run at its own address. It runs from a copy, which is made on demand,
//! one basic block at a time, as in valgrind and Pin (Luk et al., "Pin", PLDI 2005). In the copy, a
//! few instructions before each memory access store its address, and each jump leads to the lookup
//! of the next block. The added instructions use only `mov` and `lea`, which do not change the
//! flags, and memory addressed by `gs`, a register that Linux programs don't use. So the code
//! cannot detect them. Return addresses on the stack point to the original, so even unwinding
//! works. An instruction takes some tens of nanoseconds. No root, ptrace or other compiler is
//! needed. Single-stepping by the processor's trap flag was tried: on a virtual machine it costs 16
//! to 50 microseconds for each instruction.
//!
//! Code outside of a recording runs unchanged at full speed.
//!
//! # What is recorded
//!
//! * Loads and stores of every instruction, with address, size and instruction. A conditional one
//!   counts, and a failed compare-and-exchange is a store: in both cases the processor takes the
//!   line exclusively.
//! * String instructions with their actual length: the count before less the count after.
//! * Masked vector instructions with the elements that the mask selects. The C library fills and
//!   copies the last few bytes of a buffer with them, and would otherwise seem to write beyond its
//!   end.
//! * Calls and returns, so each access can be reported with its call stack.
//!
//! # What is not recorded
//!
//! * Stack accesses of `push`, `pop`, `call` and `ret`: each thread has its own stack.
//! * Prefetches, whose only effect on another CPU is timing.
//! * The kernel's accesses in system calls. System calls are counted ([`Trace::system_calls`]).
//! * Accesses of instructions that address memory by a vector of indexes. They are executed and
//!   counted ([`Trace::not_understood`]).
//! * The saving of all vector registers is recorded as one line. It only happens on the thread's
//!   own stack.
//!
//! # Ownership
//!
//! A [`Recorder`] belongs to one thread and holds that thread's context and stack. The copies are
//! in a [`CodeCache`], which all recorders share, one recording at a time. While host code of a
//! recording runs, allocations of its thread use a separate part of the
//! [`arena`](crate::trace::arena), since the recorded call may be in the middle of an allocation.

mod code;
mod context;
mod emit;
mod recorder;
mod steps;

pub use code::CodeCache;
pub use recorder::Recorder;
pub use steps::{Access, Step, Trace};

#[cfg(test)]
mod tests;
