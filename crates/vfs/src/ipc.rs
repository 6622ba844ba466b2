//! Pipes and sockets: the buffers, and the waits on both ends. No file of this folder imports
//! inodes.

pub(crate) mod pipe;
pub(crate) mod socket;
