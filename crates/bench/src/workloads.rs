//! The workloads: what they are called, where they come from, and what they do.
//!
//! A workload makes its files once for a case (`Workload::prepare`). Then each worker gets its `Work`,
//! which is asked for one operation after the other while time is taken, and checks at the end of
//! each round, when none is taken, that the file system did what it said. After the last round
//! `Workload::inspect` looks at the whole tree.
//!
//! Everything is generic over the target's calls, so an operation is compiled into the loop that
//! measures it.

mod aim;
mod bytes;
mod catalogue;
mod close;
pub(crate) mod expect;
mod many;
mod names;
mod paths;
mod sizes;
mod slob;
mod times;
mod tree;
mod workload;

pub use catalogue::{ALL, Description, SeedRate, find};
pub(crate) use catalogue::{Kind, actor, inspect, prepare};
pub use workload::Scene;
