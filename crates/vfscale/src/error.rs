//! Errors of volumes and pools.

pub(crate) mod pool;
pub(crate) mod volume;
