//! The calls on a pool.

pub(crate) mod adoption;
pub(crate) mod check;
pub(crate) mod convert;
pub(crate) mod credit;
pub(crate) mod discard;
pub(crate) mod fork;
pub(crate) mod freeze;
pub(crate) mod grow;
pub(crate) mod handle;
pub(crate) mod limit;
pub(crate) mod log;
pub(crate) mod pool;
pub(crate) mod reap;
pub(crate) mod rebase;
pub(crate) mod recovery;
pub(crate) mod repair;
pub(crate) mod switch;
pub(crate) mod travel;
