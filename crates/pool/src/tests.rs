//! Tests of whole pools.

mod calls;
mod convert;
pub(crate) mod crash;
mod damage;
mod faults;
pub(crate) mod full;
mod full_host;
mod hostile;
pub(crate) mod plants;
mod read_faults;
mod repair;
mod repair_crash;
