//! Files that no driver stores: pipes, sockets, texts made when they are opened, memory files, and the
//! internal file system that they belong to.

pub(crate) mod memfd_seals;
pub(crate) mod pipe;
pub(crate) mod pseudo_fs;
pub(crate) mod seq_file;
pub(crate) mod socket;
