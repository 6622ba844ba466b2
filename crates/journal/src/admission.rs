//! The conditions under which a transaction may begin: no freeze, log space, and memory.

pub(crate) mod freeze;
pub(crate) mod grant;
pub(crate) mod memory;
pub(crate) mod ticket;
