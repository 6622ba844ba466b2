//! The objects of a file system: super blocks, dentries, inodes, mounts, open file descriptions,
//! and the traits of their driver. Counterparts of `struct super_block`, `struct dentry`, `struct
//! inode`, `struct vfsmount`, `struct file` and the operation tables of Linux.

pub(crate) mod dcache;
pub mod driver;
pub(crate) mod f_pos;
pub(crate) mod file_description;
pub(crate) mod fsnotify;
pub(crate) mod icache;
pub(crate) mod in_lookup;
pub mod inode;
pub(crate) mod inode_ext;
pub(crate) mod inode_xattrs;
pub(crate) mod memfd_seals;
pub(crate) mod permission;
pub(crate) mod remount_flags;
pub(crate) mod seals;
pub(crate) mod seq_file;
pub(crate) mod setattr;
pub(crate) mod sharded_nlink;
pub(crate) mod shrinker;
pub mod super_block;
pub(crate) mod super_ref;
pub(crate) mod take_down;
pub(crate) mod vfsmount;
