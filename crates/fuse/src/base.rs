//! The device and the mount table, errors, and the settings of a mount.

pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod mount_table;
pub(crate) mod polling;
pub(crate) mod sharing;
pub(crate) mod syncing;
pub(crate) mod transport;
pub(crate) mod uring_switches;
