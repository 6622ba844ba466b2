//! The virtual file system: path walk, dentries, inodes, mounts, open files, tasks.

pub mod acl;
pub mod types;
pub mod xattr;
