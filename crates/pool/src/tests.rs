//! Tests of whole pools.

mod calls;
mod convert;
pub(crate) mod crash;
mod damage;
mod discards;
mod faults;
pub(crate) mod full;
mod full_host;
mod growth;
pub(crate) mod harness;
mod hostile;
mod merges;
pub(crate) mod plants;
mod read_faults;
mod repair;
mod repair_crash;
