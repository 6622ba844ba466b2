//! The calls of a task, by family: each file holds the calls that a page of the Linux manual holds.

pub(crate) mod attr;
pub(crate) mod create;
pub(crate) mod fd;
pub(crate) mod flock;
pub(crate) mod getcwd;
pub(crate) mod handle;
pub(crate) mod ioctl;
pub(crate) mod link;
pub(crate) mod mount;
pub(crate) mod open;
pub(crate) mod pipe;
pub(crate) mod posix;
pub(crate) mod rename;
pub(crate) mod socket;
pub(crate) mod unlink;
pub(crate) mod watcher;
pub(crate) mod with_inode;
pub(crate) mod xattr;
