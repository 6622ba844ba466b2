//! The pool's device, and the blocks on it: bytes only.

pub(crate) mod delta_log;
pub(crate) mod device;
pub(crate) mod format;
pub(crate) mod layout;
pub(crate) mod record;
