//! The error of the crate, the choice of what it leads to, the classes of its locks, maps by
//! numbers, lists of delayed changes, and sums with a part for each CPU.

pub(crate) mod batched_parts;
pub mod fault;
pub(crate) mod numbers;
pub mod on_error;
pub mod open_error;
pub mod ranks;
pub(crate) mod reserve;
pub(crate) mod shared_limit;
