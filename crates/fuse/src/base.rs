//! The device, the mount table, the rights of processes, errors, and the settings of a mount.

pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod floor;
pub mod mount_table;
pub(crate) mod polling;
pub(crate) mod process;
pub mod recording;
pub(crate) mod sharing;
pub(crate) mod syncing;
pub(crate) mod transport;
pub(crate) mod uring_switches;
