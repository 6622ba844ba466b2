//! Pipes and sockets: the buffers, and the waiting on both ends. Nothing here knows an inode.

pub(crate) mod pipe;
pub(crate) mod socket;
