//! Path walks: the walk under RCU, lookups that a driver answers, and changes of names in
//! directories of such drivers.

pub(crate) mod dir_ops;
pub(crate) mod lookup;
pub(crate) mod walk;
