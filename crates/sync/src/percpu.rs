//! Per-CPU arrays, and the counters, budgets, identifiers, lists and locks built on them.
//!
//! # Purpose
//!
//! A shared counter is a cache line that every CPU must own to write it. Everything in this module
//! splits such a line into one per CPU, so the common operation touches only memory that no other
//! CPU writes (per-CPU counters and inode number batches: Piggin, "Scaling the Linux VFS", 2009;
//! reservation counters: Chinner's per-CPU CIL patches, 2020). A caller that needs an exact value
//! (a sum, the last unit of a budget) walks all slots and pays for it.
//!
//! # Invariants
//!
//! * The slot of a thread is a hint: the scheduler may move the thread between reading the CPU
//!   number and using the slot. Slots are therefore atomic (or locked), and merely uncontended.
//! * With one slot every structure here is its shared ancestor, the "before" setting of the scaling
//!   experiments.
//! * [`Budget`]: the pool plus all allowances plus all units taken equal the total at every moment
//!   at which its lock is free. No unit is counted twice.
//!
//! # Locks
//!
//! Only [`Budget`] has a lock, of class `BudgetPool`. It is a leaf: nothing else is locked while it
//! is held, so any lock may be held by the caller.

pub mod brlock;
pub mod list;
pub mod sharded_rwlock;
pub mod spread;

mod array;
mod budget;
mod counter;
mod id_alloc;

pub use array::{CachePadded, PerCpu};
pub use budget::{Budget, BudgetPool, OverBudget};
pub use counter::{PerCpuCounter, SnapshotCounter};
pub use id_alloc::IdAlloc;
