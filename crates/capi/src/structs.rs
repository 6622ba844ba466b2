//! The structures of the header.
//!
//! Their fields have fixed widths, and no gaps that a compiler could fill. Results have room for
//! later fields; options are passed with their size.

use std::ffi::c_char;

use vfscale::Timestamp;
use vfscale::posix::{OpenFileInfo, Stat, StatFs};

use crate::args::Plain;

/// A tree of mounted file systems, in memory or on a volume. A handle: the pointer is a number.
pub struct vfscale_fs;

/// A task: a process in terms of POSIX, with a root and a working directory, umask, credentials and
/// descriptors. Any number of threads may use one. A handle: the pointer is a number.
pub struct vfscale_task;

/// A directory stream. A handle: the pointer is a number.
pub struct vfscale_dir;

/// A token that interrupts waits. A handle: the pointer is a number.
pub struct vfscale_token;

/// A queue of changes of files, directories and trees. A handle: the pointer is a number.
pub struct vfscale_watcher;

/// A budget of memory that the caches of several volumes share. A handle: the pointer is a number.
pub struct vfscale_cache_budget;

/// The branches of an image. A handle: the pointer is a number.
pub struct vfscale_pool;

/// The differences of two branches. A handle: the pointer is a number.
pub struct vfscale_diff;

/// A point in time, as `struct statx_timestamp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_timestamp {
    /// Seconds since 1970.
    pub tv_sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub tv_nsec: u32,
    /// 0.
    pub reserved: i32,
}

impl From<Timestamp> for vfscale_timestamp {
    fn from(time: Timestamp) -> Self {
        vfscale_timestamp { tv_sec: time.secs(), tv_nsec: time.nanos(), reserved: 0 }
    }
}

/// The attributes of a file. The names are those of `struct stat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_stat {
    /// Device number of the file system.
    pub st_dev: u64,
    /// Inode number.
    pub st_ino: u64,
    /// Type and permission bits.
    pub st_mode: u32,
    /// Number of names.
    pub st_nlink: u32,
    /// Owner.
    pub st_uid: u32,
    /// Group.
    pub st_gid: u32,
    /// Device number of a device node.
    pub st_rdev: u64,
    /// Length in bytes.
    pub st_size: u64,
    /// Memory or disk that it occupies, in units of 512 bytes.
    pub st_blocks: u64,
    /// Preferred unit of I/O in bytes.
    pub st_blksize: u32,
    /// Number of earlier uses of the inode's number.
    pub st_gen: u32,
    /// Flags of the inode: FS_IMMUTABLE_FL and others of <linux/fs.h>.
    pub st_flags: u32,
    /// 1 if it is the root of its mount, otherwise 0.
    pub st_mount_root: u32,
    /// Number of the mount that it was reached through.
    pub st_mnt_id: u64,
    /// Last access.
    pub st_atim: vfscale_timestamp,
    /// Last change of the data.
    pub st_mtim: vfscale_timestamp,
    /// Last change of the inode.
    pub st_ctim: vfscale_timestamp,
    /// Creation.
    pub st_btim: vfscale_timestamp,
    /// 0.
    pub reserved: [u64; 8],
}

impl From<Stat> for vfscale_stat {
    fn from(stat: Stat) -> Self {
        vfscale_stat {
            st_dev: stat.dev,
            st_ino: stat.ino,
            st_mode: stat.mode,
            st_nlink: stat.nlink,
            st_uid: stat.uid,
            st_gid: stat.gid,
            st_rdev: stat.rdev,
            st_size: stat.size,
            st_blocks: stat.blocks,
            st_blksize: stat.blksize,
            st_gen: stat.generation,
            st_flags: stat.flags.bits(),
            st_mount_root: u32::from(stat.mount_root),
            st_mnt_id: stat.mnt_id,
            st_atim: stat.atime.into(),
            st_mtim: stat.mtime.into(),
            st_ctim: stat.ctime.into(),
            st_btim: stat.btime.into(),
            reserved: [0; 8],
        }
    }
}

/// The state of a file system. The names are those of `struct statfs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_statfs {
    /// Magic number of the file system.
    pub f_type: u64,
    /// Size of a block in bytes.
    pub f_bsize: u64,
    /// Blocks in all.
    pub f_blocks: u64,
    /// Free blocks.
    pub f_bfree: u64,
    /// Free blocks that a user without privileges may take.
    pub f_bavail: u64,
    /// Inodes in all.
    pub f_files: u64,
    /// Free inodes.
    pub f_ffree: u64,
    /// Identifier of the file system.
    pub f_fsid: u64,
    /// Longest name in bytes.
    pub f_namelen: u64,
    /// Flags of the mount: MS_RDONLY and others of <sys/mount.h>.
    pub f_flags: u64,
    /// 0.
    pub reserved: [u64; 6],
}

impl From<StatFs> for vfscale_statfs {
    fn from(stat: StatFs) -> Self {
        vfscale_statfs {
            f_type: stat.magic,
            f_bsize: u64::from(stat.block_size),
            f_blocks: stat.blocks,
            f_bfree: stat.blocks_free,
            f_bavail: stat.blocks_available,
            f_files: stat.files,
            f_ffree: stat.files_free,
            f_fsid: stat.fsid,
            f_namelen: u64::from(stat.name_max),
            f_flags: u64::from(stat.flags.bits()),
            reserved: [0; 6],
        }
    }
}

/// An entry of a directory. The names are those of `struct dirent`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_dirent {
    /// Inode number.
    pub d_ino: u64,
    /// Position after this entry, for vfscale_seekdir.
    pub d_off: u64,
    /// Length of the name in bytes.
    pub d_namlen: u32,
    /// Type of the file: DT_REG, DT_DIR and others of <dirent.h>.
    pub d_type: u32,
    /// The name, with a zero behind it.
    pub d_name: [c_char; 256],
}

/// Limits of the memory of a tree other than the data of its files. 0 is the default of each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_limits {
    /// Open files (ENFILE).
    pub open_files: u64,
    /// Descriptors of each task (EMFILE).
    pub descriptors: u64,
    /// Pages of all pipes from which on a new pipe gets one page.
    pub pipe_pages_soft: u64,
    /// Pages of all pipes (ENFILE).
    pub pipe_pages_hard: u64,
    /// Unread bytes in all sockets (ENOBUFS).
    pub socket_bytes: u64,
    /// Advisory locks (ENOLCK).
    pub locks: u64,
    /// 0.
    pub reserved: [u64; 2],
}

/// Options of vfscale_fs_memory and vfscale_mount_memory. 0 is the default of each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_memory_options {
    /// Maximum memory of files in bytes (ENOSPC); by default half of the machine's.
    pub size: u64,
    /// Maximum number of inodes; by default as many as fit.
    pub inodes: u64,
    /// Maximum memory of the files of vfscale_memfd_create; by default `size`.
    pub memory_files: u64,
    /// Permission bits of the root directory; 0755 by default.
    pub mode: u32,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// 0.
    pub flags: u32,
    /// Limits of other memory; by default those for the size. Not for vfscale_mount_memory.
    pub limits: vfscale_limits,
    /// Options by their names, as after -o of `vfscale mount`, or NULL. They win over the fields.
    pub text: *const c_char,
}

/// Options of vfscale_fs_volume. 0 is the default of each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_volume_options {
    /// Size in bytes of a sparse image that is created if there is none; 0 for none.
    pub create_size: u64,
    /// Size in bytes of the log of an image that is created.
    pub log_size: u64,
    /// Approximate size of the caches in bytes; 320 MiB by default.
    pub cache_size: u64,
    /// Milliseconds after which changes are durable without a sync: 5,000 by default, -1 for never.
    pub sync_interval_ms: i64,
    /// Path of the log's image or device if it is external, otherwise NULL.
    pub log_path: *const c_char,
    /// VFSCALE_VOLUME_* flags.
    pub flags: u32,
    /// Permission bits of the root directory of an image that is created; 0755 by default.
    pub mode: u32,
    /// Owner of the root directory of an image that is created.
    pub uid: u32,
    /// Group of the root directory of an image that is created.
    pub gid: u32,
    /// Limits of memory other than the caches.
    pub limits: vfscale_limits,
    /// Budget that the caches of this and other volumes share, in place of `cache_size`, which then
    /// bounds changed metadata only, by its half; NULL for memory of its own.
    pub cache_budget: *mut vfscale_cache_budget,
    /// 0.
    pub reserved: u32,
    /// Seconds after which a request of the opening of an image of Ceph RBD fails with ETIMEDOUT; 0
    /// to wait for the cluster.
    pub patience_s: u32,
    /// The configuration file of Ceph, for images named rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]; NULL for
    /// the one that Ceph's own programs find: CEPH_CONF, or /etc/ceph/ceph.conf.
    pub ceph_conf: *const c_char,
    /// The user of Ceph, without `client.`; NULL for admin.
    pub ceph_id: *const c_char,
    /// Options by their names, as after -o of `vfscale mount`, or NULL. They win over the fields.
    pub text: *const c_char,
}

/// Opens the volume without writing: no byte of the image changes.
pub const VFSCALE_VOLUME_READ_ONLY: u32 = 1;
/// Opens the volume without reading its log and without writing.
pub const VFSCALE_VOLUME_NO_RECOVERY: u32 = 2;
/// If the volume is damaged or its log fails, changes fail with EROFS, not with EIO.
pub const VFSCALE_VOLUME_REMOUNT_RO: u32 = 4;
/// Does not write the data of a file that replaces another before the replacement is durable.
pub const VFSCALE_VOLUME_NO_AUTO_DA_ALLOC: u32 = 8;
/// Discards the blocks of removed files, also on a block device and in an allocated image.
pub const VFSCALE_VOLUME_DISCARD: u32 = 16;
/// Does not discard the blocks of removed files, also in a sparse image.
pub const VFSCALE_VOLUME_NO_DISCARD: u32 = 32;
/// Takes images of Ceph RBD from a holder that is alive: the cluster refuses it from then on, and
/// its log is replayed. Not for images in files (EOPNOTSUPP).
pub const VFSCALE_VOLUME_TAKE_OVER: u32 = 128;

/// The users of a tree, and what they use of its limits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_usage {
    /// Tasks.
    pub tasks: u64,
    /// Open files.
    pub open_files: u64,
    /// Pages of the capacity of pipes and fifos.
    pub pipe_pages: u64,
    /// Bytes in sockets.
    pub socket_bytes: u64,
    /// Advisory locks, and requests that wait for one.
    pub locks: u64,
    /// 0.
    pub reserved: [u64; 3],
}

/// Options of vfscale_pool_new. 0 is the default of each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_pool_options {
    /// VFSCALE_POOL_* flags.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// Memory for the caches of all branches; NULL: 256 MiB of the pool's own.
    pub cache_budget: *mut vfscale_cache_budget,
    /// Configuration file of Ceph; NULL: CEPH_CONF, or /etc/ceph/ceph.conf.
    pub ceph_conf: *const c_char,
    /// User of Ceph without `client.`; NULL: admin.
    pub ceph_id: *const c_char,
}

/// Writes nothing to the image: branches can only be read, and calls that change the pool fail with
/// EINVAL. Temporary branches that another process has left are not shown.
pub const VFSCALE_POOL_READ_ONLY: u32 = 1;
/// Makes the image a pool if it has a volume that is none yet, which becomes the branch `main`.
/// That can't be undone.
pub const VFSCALE_POOL_CONVERT: u32 = 2;
/// Takes an image of Ceph RBD from a holder that is alive. Not for images in files (EOPNOTSUPP).
pub const VFSCALE_POOL_TAKE_OVER: u32 = 4;

/// The new branch can only be read.
pub const VFSCALE_FORK_READ_ONLY: u32 = 1;
/// The new branch lives no longer than the pool is open.
pub const VFSCALE_FORK_TEMPORARY: u32 = 2;
/// The new branch has what a power cut would leave of the parent now, not all that calls have
/// returned for.
pub const VFSCALE_FORK_AS_SYNCED: u32 = 4;

/// The overlay has the option `userxattr`.
pub const VFSCALE_INGEST_USERXATTR: u32 = 1;

/// A branch, as vfscale_pool_branches lists it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_branch {
    /// Size of its volume in bytes.
    pub size: u64,
    /// Bytes that only this branch has, as of its last checkpoint: deleting it frees them.
    pub own: u64,
    /// Length of its history: one more with each fork of contents that have changed.
    pub depth: u32,
    /// 1 if it can only be read, otherwise 0.
    pub read_only: u32,
    /// Bytes that it may have for itself; 0 for any number.
    pub limit: u64,
    /// 0.
    pub reserved: [u64; 3],
    /// Its name, with a zero behind it: 128 bytes at most.
    pub name: [c_char; 136],
}

/// The branch now.
pub const VFSCALE_LOG_NOW: u32 = 1;
/// A branch was forked from the state.
pub const VFSCALE_LOG_FORK: u32 = 2;
/// A checkpoint was made.
pub const VFSCALE_LOG_CHECKPOINT: u32 = 3;
/// Another branch was merged into it.
pub const VFSCALE_LOG_MERGE: u32 = 4;
/// The state was merged into another branch.
pub const VFSCALE_LOG_MERGED: u32 = 5;
/// The branch adopted another one.
pub const VFSCALE_LOG_ADOPTION: u32 = 6;
/// No event: a state that was merged into the one before it in the list, and its branch.
pub const VFSCALE_LOG_MERGE_OF: u32 = 7;
/// No event: a branch that has the state before it in the list, or was forked from that.
pub const VFSCALE_LOG_BRANCH: u32 = 8;
/// An event that a later version knows.
pub const VFSCALE_LOG_OTHER: u32 = 255;

/// An entry of the history of a branch, as vfscale_pool_log lists it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_log_entry {
    /// One of VFSCALE_LOG_*.
    pub kind: u32,
    /// 0.
    pub padding: u32,
    /// The number of the state.
    pub node: u64,
    /// The number of the state before it in the branch; UINT64_MAX for none.
    pub parent: u64,
    /// When that was, in nanoseconds since 1970; INT64_MIN if that is not known.
    pub time: i64,
    /// 0.
    pub reserved: [u64; 4],
    /// The text of a checkpoint, or the name of a branch, with a zero behind it.
    pub text: [c_char; 136],
}

/// The space that the branches of a pool share, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_pool_usage {
    /// Size of the image.
    pub size: u64,
    /// The space that branches can still use.
    pub free: u64,
    /// 0.
    pub reserved: [u64; 6],
}

/// The outcome of a merge.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_merged {
    /// Files and directories that the branch has got, and those that stand beside.
    pub added: u64,
    /// Names that were removed, of files that got no other one.
    pub removed: u64,
    /// Names that its files have got.
    pub moved: u64,
    /// Files and directories whose contents or attributes were changed.
    pub changed: u64,
    /// Files among them that both have changed, and that were merged by lines.
    pub texts: u64,
    /// 1 if the branch was changed, otherwise 0.
    pub done: u64,
    /// 0.
    pub reserved: [u64; 6],
}

/// The outcome of vfscale_pool_apply.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_applied {
    /// 1 if it was a layer, 0 if it was a patch.
    pub is_layer: u64,
    /// The files and directories that were made, changed or renamed.
    pub written: u64,
    /// The names that were removed.
    pub removed: u64,
    /// The lines of a patch that begin with #: what it could not tell.
    pub untold: u64,
    /// 1 if the branch was changed, otherwise 0.
    pub done: u64,
    /// 0.
    pub reserved: [u64; 3],
}

/// A change that two branches have made in different ways.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_conflict {
    /// A VFSCALE_CONFLICT_* number.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// Length of `path` in bytes. A longer path than there is room for is cut.
    pub path_len: u32,
    /// Length of `beside` in bytes.
    pub beside_len: u32,
    /// Path in the result, with a zero behind it; of a file that that has not, one that it had.
    pub path: [c_char; 4096],
    /// Path of what the other branch has, if it stands beside; otherwise empty.
    pub beside: [c_char; 4096],
}

/// A conflict is decided for the branch that takes the changes; nothing stands beside. Without a
/// strategy, the file of the other branch stands beside.
pub const VFSCALE_MERGE_OURS: u32 = 1;
/// A conflict is decided for the branch whose changes are taken.
pub const VFSCALE_MERGE_THEIRS: u32 = 2;
/// Nothing is changed if there is a conflict.
pub const VFSCALE_MERGE_FAIL: u32 = 4;
/// Nothing is changed: it is only told what would be.
pub const VFSCALE_MERGE_DRY_RUN: u32 = 8;

/// Flag of vfscale_pool_apply: everything is only tried. The branch may be open then.
pub const VFSCALE_APPLY_DRY_RUN: u32 = 1;

/// Both have changed the contents.
pub const VFSCALE_CONFLICT_CONTENT: u32 = 1;
/// Both have changed permissions, owner, group or flags.
pub const VFSCALE_CONFLICT_ATTRIBUTES: u32 = 2;
/// Both have changed an extended attribute.
pub const VFSCALE_CONFLICT_XATTRS: u32 = 3;
/// One has changed or renamed it, the other one has removed it.
pub const VFSCALE_CONFLICT_REMOVED: u32 = 4;
/// Both have renamed it.
pub const VFSCALE_CONFLICT_RENAMED: u32 = 5;
/// Both have given the name to different files.
pub const VFSCALE_CONFLICT_NAME: u32 = 6;
/// Both have moved directories, each into the other.
pub const VFSCALE_CONFLICT_LOOP: u32 = 7;
/// A conflict that a later version knows.
pub const VFSCALE_CONFLICT_OTHER: u32 = 255;

/// A difference of two branches, by its path from the root directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_difference {
    /// A VFSCALE_DIFFERENCE_* number.
    pub kind: u32,
    /// VFSCALE_CHANGED_* flags, of VFSCALE_DIFFERENCE_CHANGED.
    pub changes: u32,
    /// Length of `path` in bytes. A longer path than there is room for is cut.
    pub path_len: u32,
    /// Length of `other` in bytes.
    pub other_len: u32,
    /// Path in the second branch, with a zero behind it; of what is removed, that in the first.
    pub path: [c_char; 4096],
    /// Path in the first branch, of what was moved; otherwise empty.
    pub other: [c_char; 4096],
}

/// Only the second branch has it.
pub const VFSCALE_DIFFERENCE_ADDED: u32 = 1;
/// The second branch does not have it.
pub const VFSCALE_DIFFERENCE_REMOVED: u32 = 2;
/// The two have different files there.
pub const VFSCALE_DIFFERENCE_REPLACED: u32 = 3;
/// The first branch has it at `other`.
pub const VFSCALE_DIFFERENCE_MOVED: u32 = 4;
/// The two have different versions of it.
pub const VFSCALE_DIFFERENCE_CHANGED: u32 = 5;
/// A difference that a later version knows.
pub const VFSCALE_DIFFERENCE_OTHER: u32 = 255;

/// The contents of a file, or the target of a link.
pub const VFSCALE_CHANGED_CONTENT: u32 = 1;
/// Permissions, owner, group, flags, or the time of the last change of the contents.
pub const VFSCALE_CHANGED_ATTRIBUTES: u32 = 2;
/// Extended attributes.
pub const VFSCALE_CHANGED_XATTRS: u32 = 4;

/// The used part of a budget of vfscale_cache_budget_new.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_cache_usage {
    /// Size of the budget in bytes.
    pub bytes: u64,
    /// Bytes of data of files.
    pub data: u64,
    /// Bytes of blocks of metadata; more than a quarter of the budget only while they are in use.
    pub metadata: u64,
    /// 0.
    pub reserved: [u64; 5],
}

/// The identity of a task, and its privileges.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_credentials {
    /// User that files are checked against and created for.
    pub uid: u32,
    /// Group that files are checked against and created for.
    pub gid: u32,
    /// User that vfscale_access checks for.
    pub real_uid: u32,
    /// Group that vfscale_access checks for.
    pub real_gid: u32,
    /// Bits of the capabilities: 1 << CAP_CHOWN and others of <linux/capability.h>; UINT64_MAX for
    /// all.
    pub capabilities: u64,
    /// Supplementary groups, or NULL.
    pub groups: *const u32,
    /// Number of supplementary groups.
    pub group_count: u64,
}

/// The arguments of vfscale_openat2, as `struct open_how` of <linux/openat2.h>.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_open_how {
    /// O_* flags.
    pub flags: u64,
    /// Permissions of a new file.
    pub mode: u64,
    /// RESOLVE_* limits of the walk.
    pub resolve: u64,
}

/// A record lock. The names are those of `struct flock`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_flock {
    /// F_RDLCK, F_WRLCK or F_UNLCK.
    pub l_type: i32,
    /// SEEK_SET, SEEK_CUR or SEEK_END.
    pub l_whence: i32,
    /// First byte.
    pub l_start: i64,
    /// Number of bytes; 0 reaches to the end.
    pub l_len: i64,
    /// Task that holds the conflicting lock, -1 if an open file does; of F_GETLK and F_OFD_GETLK.
    pub l_pid: i32,
    /// 0.
    pub reserved: i32,
}

/// The identity of an inode of one mounted file system, independent of its names.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_file_handle {
    /// Device number of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Number of earlier uses of the inode's number.
    pub generation: u32,
    /// 0.
    pub reserved: u32,
}

/// The range of vfscale_trim_fs, as `struct fstrim_range` of <linux/fs.h>.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_fstrim_range {
    /// First byte.
    pub start: u64,
    /// Number of bytes; UINT64_MAX reaches to the end.
    pub len: u64,
    /// Length in bytes of the shortest free extent that is discarded; 0 for one that suits the
    /// device.
    pub minlen: u64,
}

/// An open file of any task, as vfscale_open_files lists it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_open_file {
    /// Identifier of the open file description while it is open.
    pub id: u64,
    /// Device number of its file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Access mode and status flags: O_RDWR, O_APPEND and others.
    pub flags: u32,
    /// 0.
    pub reserved: [u32; 9],
}

impl From<OpenFileInfo> for vfscale_open_file {
    fn from(file: OpenFileInfo) -> Self {
        let OpenFileInfo { id, dev, ino, flags, .. } = file;
        vfscale_open_file { id, dev, ino, flags: flags.bits(), reserved: [0; 9] }
    }
}

/// A change that a watcher reports.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vfscale_event {
    /// Number of the watch.
    pub watch: u64,
    /// A VFSCALE_EVENT_* number.
    pub change: u32,
    /// Type of the file, as d_type of <dirent.h>.
    pub file_type: u32,
    /// Length of `path` in bytes. A longer path than there is room for is cut.
    pub path_len: u32,
    /// Length of `other` in bytes.
    pub other_len: u32,
    /// Path from the watched directory, with a zero behind it; empty for the watched file itself.
    pub path: [c_char; 4096],
    /// Old path of a renamed file, other path of an exchange; otherwise empty.
    pub other: [c_char; 4096],
}

/// The path is new.
pub const VFSCALE_EVENT_CREATED: u32 = 1;
/// The path is gone. With an empty path: a name of the watched file itself.
pub const VFSCALE_EVENT_REMOVED: u32 = 2;
/// The file was written or truncated.
pub const VFSCALE_EVENT_MODIFIED: u32 = 3;
/// Owner, mode, times or extended attributes were changed.
pub const VFSCALE_EVENT_ATTRIBUTES: u32 = 4;
/// An open file was closed through which the file had been changed.
pub const VFSCALE_EVENT_CLOSED: u32 = 5;
/// The file was at `other`.
pub const VFSCALE_EVENT_RENAMED: u32 = 6;
/// The files of `path` and `other` were exchanged.
pub const VFSCALE_EVENT_EXCHANGED: u32 = 7;
/// The file came from a place that is not watched.
pub const VFSCALE_EVENT_MOVED_IN: u32 = 8;
/// The file went to a place that is not watched.
pub const VFSCALE_EVENT_MOVED_OUT: u32 = 9;
/// Events were lost, since the queue was full.
pub const VFSCALE_EVENT_OVERFLOW: u32 = 10;
/// A change that a later version of the library reports.
pub const VFSCALE_EVENT_OTHER: u32 = 255;

/// Options of vfscale_import and vfscale_export. 0 is the default of each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_transfer_options {
    /// VFSCALE_TRANSFER_* flags.
    pub flags: u32,
    /// Owner of the copies, with VFSCALE_TRANSFER_FIXED_OWNER.
    pub uid: u32,
    /// Group of the copies, with VFSCALE_TRANSFER_FIXED_OWNER.
    pub gid: u32,
    /// 0.
    pub reserved: u32,
}

/// Copies have the owners of the source, and its set-id bits and capabilities, which copies of
/// another owner lack.
pub const VFSCALE_TRANSFER_SOURCE_OWNERS: u32 = 1;
/// Copies have the owner and group of the options.
pub const VFSCALE_TRANSFER_FIXED_OWNER: u32 = 2;
/// Copies have the extended attributes of the source.
pub const VFSCALE_TRANSFER_XATTRS: u32 = 4;
/// Copies have the time of the copy.
pub const VFSCALE_TRANSFER_NO_TIMES: u32 = 8;
/// Devices are made, with the numbers of the source; otherwise they are skipped.
pub const VFSCALE_TRANSFER_DEVICES: u32 = 16;
/// Symbolic links that lead out of the copied tree are skipped: those that are absolute, climb
/// above what is copied, or have a `..` behind a name.
pub const VFSCALE_TRANSFER_SKIP_OUTER_LINKS: u32 = 32;
/// Symbolic links that lead out of the copied tree end the copy with EXDEV.
pub const VFSCALE_TRANSFER_REFUSE_OUTER_LINKS: u32 = 64;

/// The counts of a copy.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vfscale_transferred {
    /// Files of every type.
    pub files: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Files that were not copied: sockets, and devices and links that the flags leave out.
    pub skipped: u64,
    /// 0.
    pub reserved: [u64; 5],
}

// SAFETY: it consists of integers and a pointer.
unsafe impl Plain for vfscale_memory_options {}
// SAFETY: it consists of integers and pointers.
unsafe impl Plain for vfscale_volume_options {}
// SAFETY: it consists of integers and pointers.
unsafe impl Plain for vfscale_pool_options {}
// SAFETY: it consists of integers and a pointer.
unsafe impl Plain for vfscale_credentials {}
// SAFETY: it consists of integers.
unsafe impl Plain for vfscale_open_how {}
// SAFETY: it consists of integers.
unsafe impl Plain for vfscale_flock {}
// SAFETY: it consists of integers.
unsafe impl Plain for vfscale_transfer_options {}
// SAFETY: it consists of integers.
unsafe impl Plain for vfscale_file_handle {}
// SAFETY: it consists of integers.
unsafe impl Plain for vfscale_fstrim_range {}

/// Writes a name and a zero to an array; cuts a name that does not fit. Returns its whole length.
pub(crate) fn copy_name<const N: usize>(name: &[u8], to: &mut [c_char; N]) -> u32 {
    let kept = name.len().min(N - 1);
    for (to, byte) in to.iter_mut().zip(&name[..kept]) {
        *to = byte.cast_signed() as c_char;
    }
    to[kept] = 0;
    name.len() as u32
}
