//! The workloads: their names, sources and operations.
//!
//! A workload creates its files once for a case (`Workload::prepare`). Then each worker gets its
//! `Work`, which performs one operation after the other while time is taken. At the end of each
//! round, while no time is taken, it checks the effects of its calls. After the last round
//! `Workload::inspect` checks the whole tree.
//!
//! Everything is generic over the target's calls, so an operation is compiled into the loop that
//! measures it.

mod aim;
mod bytes;
mod catalogue;
mod close;
mod evict;
pub(crate) mod expect;
mod fxmark;
mod handles;
mod kv;
mod many;
mod mounts;
mod names;
mod orphans;
mod path_jobs;
mod paths;
mod pieces;
mod sizes;
mod slob;
mod times;
mod tree;
mod workload;

pub use catalogue::{ALL, Description, SourceUnit, find, find_all};
pub(crate) use catalogue::{Kind, actor, inspect, prepare};
pub use workload::Scene;
