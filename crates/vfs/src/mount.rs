//! Mount trees: the topology of all mounts of a namespace, attaching and detaching trees of mounts,
//! propagation between peers, and paths as seen through mounts.

pub(crate) mod atime;
pub(crate) mod attach;
pub(crate) mod change;
pub(crate) mod d_path;
pub(crate) mod fs_struct;
pub(crate) mod mountinfo;
pub mod namespace;
pub(crate) mod ordered_set;
pub(crate) mod propagation;
pub(crate) mod pseudo_fs;
pub(crate) mod topology;
pub(crate) mod umount;
pub(crate) mod vfs_shared;
