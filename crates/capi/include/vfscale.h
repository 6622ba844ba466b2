/* vfscale: a file system in user space, for C.
 *
 * A call returns what the call of POSIX returns, or a negative error number: -ENOENT, not -1.
 * vfscale_error() has the text of the last failure on this thread. Flags are those of the system's
 * headers: O_CREAT, AT_FDCWD, S_IFREG. Every call may be made from any thread.
 *
 * A handle (struct vfscale_task *) is a number in the form of a pointer. A handle that was freed is
 * -EBADF in every call, never a crash. A NULL path, buffer or place for a result is -EFAULT.
 *
 * Generated from crates/capi/src; docs/C.md is the manual. MIT or Apache-2.0, at your option. */

#ifndef VFSCALE_H
#define VFSCALE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct timespec;

/** Opens the volume without writing: no byte of the image changes. */
#define VFSCALE_VOLUME_READ_ONLY 1

/** Opens the volume without reading its log and without writing. */
#define VFSCALE_VOLUME_NO_RECOVERY 2

/** If the volume is damaged or its log fails, changes fail with EROFS, not with EIO. */
#define VFSCALE_VOLUME_REMOUNT_RO 4

/** Does not write the data of a file that replaces another before the replacement is durable. */
#define VFSCALE_VOLUME_NO_AUTO_DA_ALLOC 8

/** Discards the blocks of removed files, also on a block device and in an allocated image. */
#define VFSCALE_VOLUME_DISCARD 16

/** Does not discard the blocks of removed files, also in a sparse image. */
#define VFSCALE_VOLUME_NO_DISCARD 32

/**
 * Takes images of Ceph RBD from a holder that is alive: the cluster refuses it from then on, and
 * its log is replayed. Not for images in files (EOPNOTSUPP).
 */
#define VFSCALE_VOLUME_TAKE_OVER 128

/**
 * Writes nothing to the image: branches can only be read, and calls that change the pool fail with
 * EINVAL. Temporary branches that another process has left are not shown.
 */
#define VFSCALE_POOL_READ_ONLY 1

/**
 * Makes the image a pool if it has a volume that is none yet, which becomes the branch `main`.
 * That can't be undone.
 */
#define VFSCALE_POOL_CONVERT 2

/** Takes an image of Ceph RBD from a holder that is alive. Not for images in files (EOPNOTSUPP). */
#define VFSCALE_POOL_TAKE_OVER 4

/** The new branch can only be read. */
#define VFSCALE_FORK_READ_ONLY 1

/** The new branch lives no longer than the pool is open. */
#define VFSCALE_FORK_TEMPORARY 2

/**
 * The new branch has what a power cut would leave of the parent now, not all that calls have
 * returned for.
 */
#define VFSCALE_FORK_AS_SYNCED 4

/** The overlay has the option `userxattr`. */
#define VFSCALE_INGEST_USERXATTR 1

/** The branch now. */
#define VFSCALE_LOG_NOW 1

/** A branch was forked from the state. */
#define VFSCALE_LOG_FORK 2

/** A checkpoint was made. */
#define VFSCALE_LOG_CHECKPOINT 3

/** Another branch was merged into it. */
#define VFSCALE_LOG_MERGE 4

/** The state was merged into another branch. */
#define VFSCALE_LOG_MERGED 5

/** The branch adopted another one. */
#define VFSCALE_LOG_ADOPTION 6

/** No event: a state that was merged into the one before it in the list, and its branch. */
#define VFSCALE_LOG_MERGE_OF 7

/** No event: a branch that has the state before it in the list, or was forked from that. */
#define VFSCALE_LOG_BRANCH 8

/** An event that a later version knows. */
#define VFSCALE_LOG_OTHER 255

/**
 * A conflict is decided for the branch that takes the changes; nothing stands beside. Without a
 * strategy, the file of the other branch stands beside.
 */
#define VFSCALE_MERGE_OURS 1

/** A conflict is decided for the branch whose changes are taken. */
#define VFSCALE_MERGE_THEIRS 2

/** Nothing is changed if there is a conflict. */
#define VFSCALE_MERGE_FAIL 4

/** Nothing is changed: it is only told what would be. */
#define VFSCALE_MERGE_DRY_RUN 8

/** Flag of vfscale_pool_apply: everything is only tried. The branch may be open then. */
#define VFSCALE_APPLY_DRY_RUN 1

/** Both have changed the contents. */
#define VFSCALE_CONFLICT_CONTENT 1

/** Both have changed permissions, owner, group or flags. */
#define VFSCALE_CONFLICT_ATTRIBUTES 2

/** Both have changed an extended attribute. */
#define VFSCALE_CONFLICT_XATTRS 3

/** One has changed or renamed it, the other one has removed it. */
#define VFSCALE_CONFLICT_REMOVED 4

/** Both have renamed it. */
#define VFSCALE_CONFLICT_RENAMED 5

/** Both have given the name to different files. */
#define VFSCALE_CONFLICT_NAME 6

/** Both have moved directories, each into the other. */
#define VFSCALE_CONFLICT_LOOP 7

/** A conflict that a later version knows. */
#define VFSCALE_CONFLICT_OTHER 255

/** Only the second branch has it. */
#define VFSCALE_DIFFERENCE_ADDED 1

/** The second branch does not have it. */
#define VFSCALE_DIFFERENCE_REMOVED 2

/** The two have different files there. */
#define VFSCALE_DIFFERENCE_REPLACED 3

/** The first branch has it at `other`. */
#define VFSCALE_DIFFERENCE_MOVED 4

/** The two have different versions of it. */
#define VFSCALE_DIFFERENCE_CHANGED 5

/** A difference that a later version knows. */
#define VFSCALE_DIFFERENCE_OTHER 255

/** The contents of a file, or the target of a link. */
#define VFSCALE_CHANGED_CONTENT 1

/** Permissions, owner, group, flags, or the time of the last change of the contents. */
#define VFSCALE_CHANGED_ATTRIBUTES 2

/** Extended attributes. */
#define VFSCALE_CHANGED_XATTRS 4

/** The path is new. */
#define VFSCALE_EVENT_CREATED 1

/** The path is gone. With an empty path: a name of the watched file itself. */
#define VFSCALE_EVENT_REMOVED 2

/** The file was written or truncated. */
#define VFSCALE_EVENT_MODIFIED 3

/** Owner, mode, times or extended attributes were changed. */
#define VFSCALE_EVENT_ATTRIBUTES 4

/** An open file was closed through which the file had been changed. */
#define VFSCALE_EVENT_CLOSED 5

/** The file was at `other`. */
#define VFSCALE_EVENT_RENAMED 6

/** The files of `path` and `other` were exchanged. */
#define VFSCALE_EVENT_EXCHANGED 7

/** The file came from a place that is not watched. */
#define VFSCALE_EVENT_MOVED_IN 8

/** The file went to a place that is not watched. */
#define VFSCALE_EVENT_MOVED_OUT 9

/** Events were lost, since the queue was full. */
#define VFSCALE_EVENT_OVERFLOW 10

/** A change that a later version of the library reports. */
#define VFSCALE_EVENT_OTHER 255

/**
 * Copies have the owners of the source, and its set-id bits and capabilities, which copies of
 * another owner lack.
 */
#define VFSCALE_TRANSFER_SOURCE_OWNERS 1

/** Copies have the owner and group of the options. */
#define VFSCALE_TRANSFER_FIXED_OWNER 2

/** Copies have the extended attributes of the source. */
#define VFSCALE_TRANSFER_XATTRS 4

/** Copies have the time of the copy. */
#define VFSCALE_TRANSFER_NO_TIMES 8

/** Devices are made, with the numbers of the source; otherwise they are skipped. */
#define VFSCALE_TRANSFER_DEVICES 16

/**
 * Symbolic links that lead out of the copied tree are skipped: those that are absolute, climb
 * above what is copied, or have a `..` behind a name.
 */
#define VFSCALE_TRANSFER_SKIP_OUTER_LINKS 32

/** Symbolic links that lead out of the copied tree end the copy with EXDEV. */
#define VFSCALE_TRANSFER_REFUSE_OUTER_LINKS 64

/** A budget of memory that the caches of several volumes share. A handle: the pointer is a number. */
struct vfscale_cache_budget;

/** The differences of two branches. A handle: the pointer is a number. */
struct vfscale_diff;

/** A directory stream. A handle: the pointer is a number. */
struct vfscale_dir;

/** A tree of mounted file systems, in memory or on a volume. A handle: the pointer is a number. */
struct vfscale_fs;

/** The branches of an image. A handle: the pointer is a number. */
struct vfscale_pool;

/**
 * A task: a process in terms of POSIX, with a root and a working directory, umask, credentials and
 * descriptors. Any number of threads may use one. A handle: the pointer is a number.
 */
struct vfscale_task;

/** A token that interrupts waits. A handle: the pointer is a number. */
struct vfscale_token;

/** A queue of changes of files, directories and trees. A handle: the pointer is a number. */
struct vfscale_watcher;

/** Limits of the memory of a tree other than the data of its files. 0 is the default of each. */
struct vfscale_limits {
  /** Open files (ENFILE). */
  uint64_t open_files;
  /** Descriptors of each task (EMFILE). */
  uint64_t descriptors;
  /** Pages of all pipes from which on a new pipe gets one page. */
  uint64_t pipe_pages_soft;
  /** Pages of all pipes (ENFILE). */
  uint64_t pipe_pages_hard;
  /** Unread bytes in all sockets (ENOBUFS). */
  uint64_t socket_bytes;
  /** Advisory locks (ENOLCK). */
  uint64_t locks;
  /** 0. */
  uint64_t reserved[2];
};

/** Options of vfscale_fs_memory and vfscale_mount_memory. 0 is the default of each. */
struct vfscale_memory_options {
  /** Maximum memory of files in bytes (ENOSPC); by default half of the machine's. */
  uint64_t size;
  /** Maximum number of inodes; by default as many as fit. */
  uint64_t inodes;
  /** Maximum memory of the files of vfscale_memfd_create; by default `size`. */
  uint64_t memory_files;
  /** Permission bits of the root directory; 0755 by default. */
  uint32_t mode;
  /** Owner of the root directory. */
  uint32_t uid;
  /** Group of the root directory. */
  uint32_t gid;
  /** 0. */
  uint32_t flags;
  /** Limits of other memory; by default those for the size. Not for vfscale_mount_memory. */
  struct vfscale_limits limits;
  /** Options by their names, as after -o of `vfscale mount`, or NULL. They win over the fields. */
  const char *text;
};

/** Options of vfscale_fs_volume. 0 is the default of each. */
struct vfscale_volume_options {
  /** Size in bytes of a sparse image that is created if there is none; 0 for none. */
  uint64_t create_size;
  /** Size in bytes of the log of an image that is created. */
  uint64_t log_size;
  /** Approximate size of the caches in bytes; 320 MiB by default. */
  uint64_t cache_size;
  /** Milliseconds after which changes are durable without a sync: 5,000 by default, -1 for never. */
  int64_t sync_interval_ms;
  /** Path of the log's image or device if it is external, otherwise NULL. */
  const char *log_path;
  /** VFSCALE_VOLUME_* flags. */
  uint32_t flags;
  /** Permission bits of the root directory of an image that is created; 0755 by default. */
  uint32_t mode;
  /** Owner of the root directory of an image that is created. */
  uint32_t uid;
  /** Group of the root directory of an image that is created. */
  uint32_t gid;
  /** Limits of memory other than the caches. */
  struct vfscale_limits limits;
  /**
   * Budget that the caches of this and other volumes share, in place of `cache_size`, which then
   * bounds changed metadata only, by its half; NULL for memory of its own.
   */
  struct vfscale_cache_budget *cache_budget;
  /** 0. */
  uint32_t reserved;
  /**
   * Seconds after which a request of the opening of an image of Ceph RBD fails with ETIMEDOUT; 0
   * to wait for the cluster.
   */
  uint32_t patience_s;
  /**
   * The configuration file of Ceph, for images named rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]; NULL for
   * the one that Ceph's own programs find: CEPH_CONF, or /etc/ceph/ceph.conf.
   */
  const char *ceph_conf;
  /** The user of Ceph, without `client.`; NULL for admin. */
  const char *ceph_id;
  /** Options by their names, as after -o of `vfscale mount`, or NULL. They win over the fields. */
  const char *text;
};

/** The users of a tree, and what they use of its limits. */
struct vfscale_usage {
  /** Tasks. */
  uint64_t tasks;
  /** Open files. */
  uint64_t open_files;
  /** Pages of the capacity of pipes and fifos. */
  uint64_t pipe_pages;
  /** Bytes in sockets. */
  uint64_t socket_bytes;
  /** Advisory locks, and requests that wait for one. */
  uint64_t locks;
  /** 0. */
  uint64_t reserved[3];
};

/** The used part of a budget of vfscale_cache_budget_new. */
struct vfscale_cache_usage {
  /** Size of the budget in bytes. */
  uint64_t bytes;
  /** Bytes of data of files. */
  uint64_t data;
  /** Bytes of blocks of metadata; more than a quarter of the budget only while they are in use. */
  uint64_t metadata;
  /** 0. */
  uint64_t reserved[5];
};

/** Options of vfscale_pool_new. 0 is the default of each. */
struct vfscale_pool_options {
  /** VFSCALE_POOL_* flags. */
  uint32_t flags;
  /** 0. */
  uint32_t reserved;
  /** Memory for the caches of all branches; NULL: 256 MiB of the pool's own. */
  struct vfscale_cache_budget *cache_budget;
  /** Configuration file of Ceph; NULL: CEPH_CONF, or /etc/ceph/ceph.conf. */
  const char *ceph_conf;
  /** User of Ceph without `client.`; NULL: admin. */
  const char *ceph_id;
};

/** A branch, as vfscale_pool_branches lists it. */
struct vfscale_branch {
  /** Size of its volume in bytes. */
  uint64_t size;
  /** Bytes that only this branch has, as of its last checkpoint: deleting it frees them. */
  uint64_t own;
  /** Length of its history: one more with each fork of contents that have changed. */
  uint32_t depth;
  /** 1 if it can only be read, otherwise 0. */
  uint32_t read_only;
  /** Bytes that it may have for itself; 0 for any number. */
  uint64_t limit;
  /** 0. */
  uint64_t reserved[3];
  /** Its name, with a zero behind it: 128 bytes at most. */
  char name[136];
};

/** The space that the branches of a pool share, in bytes. */
struct vfscale_pool_usage {
  /** Size of the image. */
  uint64_t size;
  /** The space that branches can still use. */
  uint64_t free;
  /** 0. */
  uint64_t reserved[6];
};

/** A difference of two branches, by its path from the root directory. */
struct vfscale_difference {
  /** A VFSCALE_DIFFERENCE_* number. */
  uint32_t kind;
  /** VFSCALE_CHANGED_* flags, of VFSCALE_DIFFERENCE_CHANGED. */
  uint32_t changes;
  /** Length of `path` in bytes. A longer path than there is room for is cut. */
  uint32_t path_len;
  /** Length of `other` in bytes. */
  uint32_t other_len;
  /** Path in the second branch, with a zero behind it; of what is removed, that in the first. */
  char path[4096];
  /** Path in the first branch, of what was moved; otherwise empty. */
  char other[4096];
};

/** An entry of the history of a branch, as vfscale_pool_log lists it. */
struct vfscale_log_entry {
  /** One of VFSCALE_LOG_*. */
  uint32_t kind;
  /** 0. */
  uint32_t padding;
  /** The number of the state. */
  uint64_t node;
  /** The number of the state before it in the branch; UINT64_MAX for none. */
  uint64_t parent;
  /** When that was, in nanoseconds since 1970; INT64_MIN if that is not known. */
  int64_t time;
  /** 0. */
  uint64_t reserved[4];
  /** The text of a checkpoint, or the name of a branch, with a zero behind it. */
  char text[136];
};

/** The outcome of a merge. */
struct vfscale_merged {
  /** Files and directories that the branch has got, and those that stand beside. */
  uint64_t added;
  /** Names that were removed, of files that got no other one. */
  uint64_t removed;
  /** Names that its files have got. */
  uint64_t moved;
  /** Files and directories whose contents or attributes were changed. */
  uint64_t changed;
  /** Files among them that both have changed, and that were merged by lines. */
  uint64_t texts;
  /** 1 if the branch was changed, otherwise 0. */
  uint64_t done;
  /** 0. */
  uint64_t reserved[6];
};

/** A change that two branches have made in different ways. */
struct vfscale_conflict {
  /** A VFSCALE_CONFLICT_* number. */
  uint32_t kind;
  /** 0. */
  uint32_t reserved;
  /** Length of `path` in bytes. A longer path than there is room for is cut. */
  uint32_t path_len;
  /** Length of `beside` in bytes. */
  uint32_t beside_len;
  /** Path in the result, with a zero behind it; of a file that that has not, one that it had. */
  char path[4096];
  /** Path of what the other branch has, if it stands beside; otherwise empty. */
  char beside[4096];
};

/** The outcome of vfscale_pool_apply. */
struct vfscale_applied {
  /** 1 if it was a layer, 0 if it was a patch. */
  uint64_t is_layer;
  /** The files and directories that were made, changed or renamed. */
  uint64_t written;
  /** The names that were removed. */
  uint64_t removed;
  /** The lines of a patch that begin with #: what it could not tell. */
  uint64_t untold;
  /** 1 if the branch was changed, otherwise 0. */
  uint64_t done;
  /** 0. */
  uint64_t reserved[3];
};

/** The identity of a task, and its privileges. */
struct vfscale_credentials {
  /** User that files are checked against and created for. */
  uint32_t uid;
  /** Group that files are checked against and created for. */
  uint32_t gid;
  /** User that vfscale_access checks for. */
  uint32_t real_uid;
  /** Group that vfscale_access checks for. */
  uint32_t real_gid;
  /**
   * Bits of the capabilities: 1 << CAP_CHOWN and others of <linux/capability.h>; UINT64_MAX for
   * all.
   */
  uint64_t capabilities;
  /** Supplementary groups, or NULL. */
  const uint32_t *groups;
  /** Number of supplementary groups. */
  uint64_t group_count;
};

/** The arguments of vfscale_openat2, as `struct open_how` of <linux/openat2.h>. */
struct vfscale_open_how {
  /** O_* flags. */
  uint64_t flags;
  /** Permissions of a new file. */
  uint64_t mode;
  /** RESOLVE_* limits of the walk. */
  uint64_t resolve;
};

/** An open file of any task, as vfscale_open_files lists it. */
struct vfscale_open_file {
  /** Identifier of the open file description while it is open. */
  uint64_t id;
  /** Device number of its file system. */
  uint64_t dev;
  /** Inode number. */
  uint64_t ino;
  /** Access mode and status flags: O_RDWR, O_APPEND and others. */
  uint32_t flags;
  /** 0. */
  uint32_t reserved[9];
};

/** A point in time, as `struct statx_timestamp`. */
struct vfscale_timestamp {
  /** Seconds since 1970. */
  int64_t tv_sec;
  /** Nanoseconds, 0 to 999,999,999. */
  uint32_t tv_nsec;
  /** 0. */
  int32_t reserved;
};

/** The attributes of a file. The names are those of `struct stat`. */
struct vfscale_stat {
  /** Device number of the file system. */
  uint64_t st_dev;
  /** Inode number. */
  uint64_t st_ino;
  /** Type and permission bits. */
  uint32_t st_mode;
  /** Number of names. */
  uint32_t st_nlink;
  /** Owner. */
  uint32_t st_uid;
  /** Group. */
  uint32_t st_gid;
  /** Device number of a device node. */
  uint64_t st_rdev;
  /** Length in bytes. */
  uint64_t st_size;
  /** Memory or disk that it occupies, in units of 512 bytes. */
  uint64_t st_blocks;
  /** Preferred unit of I/O in bytes. */
  uint32_t st_blksize;
  /** Number of earlier uses of the inode's number. */
  uint32_t st_gen;
  /** Flags of the inode: FS_IMMUTABLE_FL and others of <linux/fs.h>. */
  uint32_t st_flags;
  /** 1 if it is the root of its mount, otherwise 0. */
  uint32_t st_mount_root;
  /** Number of the mount that it was reached through. */
  uint64_t st_mnt_id;
  /** Last access. */
  struct vfscale_timestamp st_atim;
  /** Last change of the data. */
  struct vfscale_timestamp st_mtim;
  /** Last change of the inode. */
  struct vfscale_timestamp st_ctim;
  /** Creation. */
  struct vfscale_timestamp st_btim;
  /** 0. */
  uint64_t reserved[8];
};

/** The state of a file system. The names are those of `struct statfs`. */
struct vfscale_statfs {
  /** Magic number of the file system. */
  uint64_t f_type;
  /** Size of a block in bytes. */
  uint64_t f_bsize;
  /** Blocks in all. */
  uint64_t f_blocks;
  /** Free blocks. */
  uint64_t f_bfree;
  /** Free blocks that a user without privileges may take. */
  uint64_t f_bavail;
  /** Inodes in all. */
  uint64_t f_files;
  /** Free inodes. */
  uint64_t f_ffree;
  /** Identifier of the file system. */
  uint64_t f_fsid;
  /** Longest name in bytes. */
  uint64_t f_namelen;
  /** Flags of the mount: MS_RDONLY and others of <sys/mount.h>. */
  uint64_t f_flags;
  /** 0. */
  uint64_t reserved[6];
};

/** The identity of an inode of one mounted file system, independent of its names. */
struct vfscale_file_handle {
  /** Device number of the file system. */
  uint64_t dev;
  /** Inode number. */
  uint64_t ino;
  /** Number of earlier uses of the inode's number. */
  uint32_t generation;
  /** 0. */
  uint32_t reserved;
};

/** An entry of a directory. The names are those of `struct dirent`. */
struct vfscale_dirent {
  /** Inode number. */
  uint64_t d_ino;
  /** Position after this entry, for vfscale_seekdir. */
  uint64_t d_off;
  /** Length of the name in bytes. */
  uint32_t d_namlen;
  /** Type of the file: DT_REG, DT_DIR and others of <dirent.h>. */
  uint32_t d_type;
  /** The name, with a zero behind it. */
  char d_name[256];
};

/** A record lock. The names are those of `struct flock`. */
struct vfscale_flock {
  /** F_RDLCK, F_WRLCK or F_UNLCK. */
  int32_t l_type;
  /** SEEK_SET, SEEK_CUR or SEEK_END. */
  int32_t l_whence;
  /** First byte. */
  int64_t l_start;
  /** Number of bytes; 0 reaches to the end. */
  int64_t l_len;
  /** Task that holds the conflicting lock, -1 if an open file does; of F_GETLK and F_OFD_GETLK. */
  int32_t l_pid;
  /** 0. */
  int32_t reserved;
};

/** The range of vfscale_trim_fs, as `struct fstrim_range` of <linux/fs.h>. */
struct vfscale_fstrim_range {
  /** First byte. */
  uint64_t start;
  /** Number of bytes; UINT64_MAX reaches to the end. */
  uint64_t len;
  /**
   * Length in bytes of the shortest free extent that is discarded; 0 for one that suits the
   * device.
   */
  uint64_t minlen;
};

/** A change that a watcher reports. */
struct vfscale_event {
  /** Number of the watch. */
  uint64_t watch;
  /** A VFSCALE_EVENT_* number. */
  uint32_t change;
  /** Type of the file, as d_type of <dirent.h>. */
  uint32_t file_type;
  /** Length of `path` in bytes. A longer path than there is room for is cut. */
  uint32_t path_len;
  /** Length of `other` in bytes. */
  uint32_t other_len;
  /** Path from the watched directory, with a zero behind it; empty for the watched file itself. */
  char path[4096];
  /** Old path of a renamed file, other path of an exchange; otherwise empty. */
  char other[4096];
};

/** Options of vfscale_import and vfscale_export. 0 is the default of each. */
struct vfscale_transfer_options {
  /** VFSCALE_TRANSFER_* flags. */
  uint32_t flags;
  /** Owner of the copies, with VFSCALE_TRANSFER_FIXED_OWNER. */
  uint32_t uid;
  /** Group of the copies, with VFSCALE_TRANSFER_FIXED_OWNER. */
  uint32_t gid;
  /** 0. */
  uint32_t reserved;
};

/** The counts of a copy. */
struct vfscale_transferred {
  /** Files of every type. */
  uint64_t files;
  /** Bytes of data. */
  uint64_t bytes;
  /** Files that were not copied: sockets, and devices and links that the flags leave out. */
  uint64_t skipped;
  /** 0. */
  uint64_t reserved[5];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the text of the last failure on this thread: the call, the paths, and the error. It is
 * never NULL; it is empty if no call has failed. The pointer is valid until the thread ends, and
 * always the same. The text under it becomes that of a later failure, at the latest when it is
 * asked for: copy what shall stay. So printf("%d %s", vfscale_mkdir(...), vfscale_error()) prints
 * the text of this call's failure, whichever argument is evaluated first. A call that succeeds
 * changes nothing. A text of more than 16 KiB is cut.
 */
const char *vfscale_error(void);

/** Returns the version of the library, as "0.1.0". */
const char *vfscale_version(void);

/**
 * Makes a tree whose files are in memory, and stores its handle in `fs`. `options` are
 * `options_size` bytes, sizeof *options; NULL means the default of each.
 *
 * Errors: ENOSPC if the size does not suffice for the root directory.
 */
int vfscale_fs_memory(const struct vfscale_memory_options *options,
                      size_t options_size,
                      struct vfscale_fs **fs);

/**
 * Opens the volume in the image file or on the device at `path`, recovers it if it was not closed,
 * and stores the handle of its tree in `fs`. `options` are `options_size` bytes, sizeof *options;
 * NULL means the default of each. Blocks for the I/O. A path that begins with `rbd:` names an
 * image of Ceph RBD, rbd:POOL[/NAMESPACE]/IMAGE[@SNAP], which needs the library librbd at run
 * time.
 *
 * Errors: ENOENT if there is no image and no create_size; EBUSY if it is in use; EIO and the like
 * of the device; EUCLEAN if it is damaged. vfscale_error names the cause and the remedy.
 */
int vfscale_fs_volume(const char *path,
                      const struct vfscale_volume_options *options,
                      size_t options_size,
                      struct vfscale_fs **fs);

/**
 * Returns 1 if the image of the volume was created when it was opened, and 0 otherwise and for a
 * tree in memory.
 */
int vfscale_fs_is_new(struct vfscale_fs *fs);

/**
 * Makes all changes so far durable. Blocks for the I/O. Does nothing in memory.
 *
 * Errors: EIO and the like if not all changes became durable.
 */
int vfscale_fs_sync(struct vfscale_fs *fs);

/**
 * Asks the devices of a volume whether this process still has them. If another machine has taken
 * one over, shuts the volume down at once: nothing is written any more, and calls fail with EIO.
 * Returns 0 for a tree in memory and for an image in a file, and also if that can't be found out
 * at present. Blocks for the I/O.
 *
 * Errors: ESHUTDOWN if the volume was taken over.
 */
int vfscale_fs_prove(struct vfscale_fs *fs);

/** Stores in `usage` how many tasks and open files a tree has, and how much of its limits is used. */
int vfscale_fs_usage(struct vfscale_fs *fs, struct vfscale_usage *usage);

/**
 * Makes all changes durable, ends a tree, and frees its handle; its image can be opened again.
 * Blocks for the I/O.
 *
 * Errors: EBUSY if it has tasks or open files: it stays as it is, and can be closed again. EIO and
 * the like if not all changes became durable: the handle is freed, unless the tree is in use too.
 */
int vfscale_fs_close(struct vfscale_fs *fs);

/**
 * Drops a volume without a sync, and frees its handle, as a crash of this process would: the next
 * opening recovers all synced changes, and perhaps some later ones. If it has tasks, it stays open
 * until the last of them is freed. A tree in memory ends with its last task too.
 */
int vfscale_fs_abandon(struct vfscale_fs *fs);

/**
 * Makes a budget of `bytes` bytes for the caches of several volumes, which are opened with
 * cache_budget in their options, and stores its handle in `budget`: three quarters for data of
 * files, a quarter for metadata. A volume takes what it uses, and gives back what it has not used
 * for a while when another one needs it.
 *
 * Errors: EINVAL for 0 bytes.
 */
int vfscale_cache_budget_new(uint64_t bytes, struct vfscale_cache_budget **budget);

/** Stores in `usage` how much of a budget is used. */
int vfscale_cache_budget_usage(struct vfscale_cache_budget *budget,
                               struct vfscale_cache_usage *usage);

/** Frees the handle of a budget. Volumes that were opened with it keep it. */
int vfscale_cache_budget_free(struct vfscale_cache_budget *budget);

/**
 * Opens the branches of the image file or device at `path`, and stores the handle of the pool in
 * `pool`. `options` are `options_size` bytes, sizeof *options; NULL means the default of each. One
 * process has an image open at a time. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no image; EINVAL if it has no branches, unless VFSCALE_POOL_CONVERT
 * makes its volume the first one; EBUSY if it is in use; EIO and the like of the device; EUCLEAN
 * if it is damaged.
 */
int vfscale_pool_new(const char *path,
                     const struct vfscale_pool_options *options,
                     size_t options_size,
                     struct vfscale_pool **pool);

/**
 * Makes the next opening of the pool have nothing to recover, ends it, and frees its handle; its
 * image can be opened again when no call uses the handle. Blocks for the I/O.
 *
 * Errors: EBUSY if a branch is open: the pool stays as it is, and can be closed again. EIO and the
 * like: the handle is freed, and nothing is lost that was synced.
 */
int vfscale_pool_close(struct vfscale_pool *pool);

/**
 * Opens the volume in the branch `name`, and stores the handle of its tree in `fs`, which is
 * closed as that of any volume. Only one user has a branch open that can be written. `options` are
 * `options_size` bytes, sizeof *options; NULL means the default of each. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no such branch; EBUSY if it is open; those of vfscale_fs_volume.
 */
int vfscale_pool_open(struct vfscale_pool *pool,
                      const char *name,
                      const struct vfscale_volume_options *options,
                      size_t options_size,
                      struct vfscale_fs **fs);

/**
 * Makes the branch `name`, a copy of the branch `parent` that shares all its blocks. The parent
 * may be open: what calls have returned for is in the copy. `flags` are VFSCALE_FORK_* flags. It
 * is durable at the return. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no such parent; EEXIST; EINVAL if it can't be a name, or for unknown
 * flags; ENOSPC if the pool is full; EIO and the like.
 */
int vfscale_pool_fork(struct vfscale_pool *pool,
                      const char *parent,
                      const char *name,
                      uint32_t flags);

/**
 * Deletes a branch; its space becomes free in the background. Blocks for the I/O. Works if the
 * pool is full.
 *
 * Errors: ENOENT if there is no such branch; EBUSY if it is open; EINVAL for `main`.
 */
int vfscale_pool_delete(struct vfscale_pool *pool, const char *name);

/**
 * Gives a branch another name. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no such branch; EEXIST; EBUSY if it is open; EINVAL for `main`, and
 * if `to` can't be a name.
 */
int vfscale_pool_rename(struct vfscale_pool *pool, const char *name, const char *to);

/**
 * Limits how many bytes a branch may have for itself; 0 ends that. What it has written since it
 * was forked counts until it gives it up. At the limit, calls that need more space fail with
 * EDQUOT. The branch may be open. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no such branch; EINVAL if it can only be read, and for a limit below
 * 16 MiB.
 */
int vfscale_pool_set_limit(struct vfscale_pool *pool, const char *name, uint64_t limit);

/**
 * Gives a branch the contents back that it had at its last fork or adoption. Those until now
 * become another branch, whose name and a zero are written to `kept`, which has `size` bytes; 136
 * are enough. Returns the length of the name, 0 if the branch has written nothing. Blocks for the
 * I/O.
 *
 * Errors: ENOENT if there is no such branch; EBUSY if it is open; EINVAL if it can only be read,
 * or the state is gone; ERANGE if the buffer has fewer than 136 bytes: nothing was changed.
 */
ssize_t vfscale_pool_rollback(struct vfscale_pool *pool, const char *name, char *kept, size_t size);

/**
 * Gives the branch `parent` the contents of `child`, which was forked from it or from one that it
 * comes from, and frees the name of that. Both are closed. It is durable at the return, whole or
 * not at all. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no such branch; EBUSY if one of them is open, or the parent has
 * changed since the fork; EINVAL if they have no state in common, one of them can only be read, or
 * the child is `main`.
 */
int vfscale_pool_adopt(struct vfscale_pool *pool, const char *parent, const char *child);

/**
 * Stores up to `max` branches, by name, in `branches`, and returns how many there are. Waits for
 * changes of the pool that are under way.
 */
ssize_t vfscale_pool_branches(struct vfscale_pool *pool,
                              struct vfscale_branch *branches,
                              size_t max);

/** Stores in `usage` the space that the branches share. */
int vfscale_pool_usage(struct vfscale_pool *pool, struct vfscale_pool_usage *usage);

/**
 * Compares two branches, which may be open, and stores the handle of the differences in `diff`:
 * what has to be done to `a` to get `b`, by path. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no such branch; ENOSPC if the pool is full; EUCLEAN, EIO and the
 * like.
 */
int vfscale_pool_diff(struct vfscale_pool *pool,
                      const char *a,
                      const char *b,
                      struct vfscale_diff **diff);

/** Stores the next difference in `difference`, and returns 1; 0 at the end. Does not block. */
int vfscale_next_difference(struct vfscale_diff *diff, struct vfscale_difference *difference);

/** Frees the handle of differences. */
int vfscale_diff_free(struct vfscale_diff *diff);

/**
 * Makes a checkpoint of a branch, which may be open: a read-only branch with what calls have
 * returned for, and with `text`, a line that may be NULL. Writes its name and a zero to `name`,
 * which has `size` bytes; 136 are enough. Returns the length of the name. It is durable at the
 * return. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no such branch; EINVAL if the text is no line, or has more than 128
 * bytes with the name; ERANGE if the buffer has fewer than 136 bytes; ENOSPC if the pool is full;
 * EIO and the like.
 */
ssize_t vfscale_pool_checkpoint(struct vfscale_pool *pool,
                                const char *branch,
                                const char *text,
                                char *name,
                                size_t size);

/**
 * Gives a branch the contents of `to`, a checkpoint or another read-only branch. Everything else
 * is as for vfscale_pool_rollback.
 *
 * Errors: those of vfscale_pool_rollback; EINVAL if `to` can be written.
 */
ssize_t vfscale_pool_rollback_to(struct vfscale_pool *pool,
                                 const char *name,
                                 const char *to,
                                 char *kept,
                                 size_t size);

/**
 * Stores up to `max` entries of the history of a branch in `entries`, the last state first, and
 * returns how many there are. Behind each state are those that were merged into it
 * (VFSCALE_LOG_MERGE_OF) and the branches that have it (VFSCALE_LOG_BRANCH). Waits for changes of
 * the pool that are under way.
 *
 * Errors: ENOENT if there is no such branch.
 */
ssize_t vfscale_pool_log(struct vfscale_pool *pool,
                         const char *branch,
                         struct vfscale_log_entry *entries,
                         size_t max);

/**
 * Writes a view of the branch `name`, which can only be read, to the file `out`, whole or not at
 * all: metadata of EROFS, by which Linux reads all of the branch in place, if the image is its
 * device (`mount(2)` with the type `erofs` and the option `device=`). It is right as long as the
 * branch exists. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no such branch; EINVAL if it can be written; EOVERFLOW if it has
 * something that a view can't have; EUCLEAN, EIO and the like.
 */
int vfscale_pool_view(struct vfscale_pool *pool, const char *name, const char *out);

/**
 * Takes over into the branch `name`, by one commit, what programs have changed in an overlay of
 * Linux: its lower layer is the view in the file `view`, of `base`, a read-only fork of the
 * branch; `upper` is the directory of its upper layer, and `work` the one for its work. `flags`
 * are VFSCALE_INGEST_* flags. The overlay has the options `index=on` and `xino=on`, or `userxattr`
 * and `xino=on` with VFSCALE_INGEST_USERXATTR. Nothing changes it meanwhile. Blocks for the I/O.
 *
 * If the branch has changed since the fork, or is open, it stays as it is: the changes are another
 * branch then, whose name and a zero are written to `kept`, which has `size` bytes; 136 are
 * enough. Returns the length of the name, 0 if the branch has the changes.
 *
 * Errors: ENOENT if there is no such branch or file; EUCLEAN and others for a file of the overlay
 * that can't be taken over, which vfscale_error names; EPERM if its attributes can't be read;
 * EINVAL for unknown flags; ENOSPC; ERANGE if the buffer has fewer than 136 bytes. Nothing was
 * changed then.
 */
ssize_t vfscale_pool_ingest(struct vfscale_pool *pool,
                            const char *name,
                            const char *base,
                            const char *view,
                            const char *upper,
                            const char *work,
                            uint32_t flags,
                            char *kept,
                            size_t size);

/**
 * Makes in the branch `into` what the branch `from` has changed since both had the same contents,
 * and stores in `merged` what was done. Stores up to `max` conflicts, by path, in `conflicts`, and
 * returns how many there are. `flags` are VFSCALE_MERGE_* flags. `from` may be open, `into` only
 * for a dry run. It is durable at the return, whole or not at all. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no such branch; EBUSY if `into` is open, or is used all the time;
 * EINVAL if it can only be read, both are one or have no state in common, or for unknown flags;
 * ENOSPC if the pool is full; EUCLEAN, EIO and the like. `into` is as before then.
 */
ssize_t vfscale_pool_merge(struct vfscale_pool *pool,
                           const char *from,
                           const char *into,
                           uint32_t flags,
                           struct vfscale_merged *merged,
                           struct vfscale_conflict *conflicts,
                           size_t max);

/**
 * Gives the branch `name` what the branch `onto` has, and in it what `name` has changed since both
 * had the same contents. Everything else is as for vfscale_pool_merge, where `onto` is `into`, and
 * stays as it is, and `name` is `from`, which must not be open. What `name` had becomes the branch
 * NAME@N, with the number after the greatest one in use. Blocks for the I/O.
 *
 * Errors: those of vfscale_pool_merge, about `name` in place of `into`.
 */
ssize_t vfscale_pool_rebase(struct vfscale_pool *pool,
                            const char *name,
                            const char *onto,
                            uint32_t flags,
                            struct vfscale_merged *merged,
                            struct vfscale_conflict *conflicts,
                            size_t max);

/**
 * Compares two branches, which may be open, and writes a patch that makes `b` of `a` to the file
 * `out` of the host, for `git apply`, `patch -p1` and vfscale_pool_apply. Returns the number of
 * files and directories that it tells of. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no such branch; ENOSPC if the pool is full; EUCLEAN, EIO and the
 * like; those of the file, which may have a part of the patch then.
 */
ssize_t vfscale_pool_patch(struct vfscale_pool *pool,
                           const char *a,
                           const char *b,
                           const char *out);

/**
 * Compares two branches, which may be open, and writes a layer that makes `b` of `a` to the file
 * `out` of the host: a tar archive as the OCI image specification has it. Returns the number of
 * files in it. Blocks for the I/O.
 *
 * Errors: those of vfscale_pool_patch; EOVERFLOW if a layer can't have a file.
 */
ssize_t vfscale_pool_layer(struct vfscale_pool *pool,
                           const char *a,
                           const char *b,
                           const char *out);

/**
 * Applies the layer or the patch in the file `input` of the host to the branch `name`, and stores
 * in `applied` what was done. `flags` are VFSCALE_APPLY_* flags. The branch must not be open,
 * unless this is a dry run. It is durable at the return, whole or not at all. Blocks for the I/O.
 *
 * Errors: ENOENT if there is no such branch or file; EBUSY if the branch is open, or was changed
 * meanwhile; EINVAL and others if it can't be applied: vfscale_error names the file and the line;
 * EINVAL for unknown flags, or if the branch can only be read; ENOSPC if the pool is full. The
 * branch is as before then.
 */
int vfscale_pool_apply(struct vfscale_pool *pool,
                       const char *name,
                       const char *input,
                       uint32_t flags,
                       struct vfscale_applied *applied);

/**
 * Makes a task at the root of a tree, and stores its handle in `task`. `creds` are `size` bytes,
 * sizeof *creds; NULL means user 0 with every privilege.
 */
int vfscale_task_new(struct vfscale_fs *fs,
                     const struct vfscale_credentials *creds,
                     size_t size,
                     struct vfscale_task **task);

/**
 * Makes a task whose root and working directory are the directory at `path`: a guest, which can't
 * name a file outside of it. The path is resolved with all privileges. Otherwise as
 * vfscale_task_new.
 */
int vfscale_task_in(struct vfscale_fs *fs,
                    const char *path,
                    const struct vfscale_credentials *creds,
                    size_t size,
                    struct vfscale_task **task);

/**
 * Makes a task with the same root, working directory, umask, credentials and descriptors, as
 * fork(2), and stores its handle in `child`. It does not inherit record locks.
 */
int vfscale_task_fork(struct vfscale_task *task, struct vfscale_task **child);

/**
 * Forks a task into a copy of the mount tree, as unshare(2) with CLONE_NEWNS, and stores the
 * handle of the new task in `child`.
 *
 * Errors: EPERM without CAP_SYS_ADMIN.
 */
int vfscale_task_unshare(struct vfscale_task *task, struct vfscale_task **child);

/**
 * Ends a task: closes its descriptors, releases its record locks, frees its handle. If other
 * threads make calls on the task, the last of them does that when it returns.
 */
int vfscale_task_free(struct vfscale_task *task);

/** Returns the number of a task, which is l_pid of its record locks. */
int64_t vfscale_task_id(struct vfscale_task *task);

/** Closes all descriptors that are marked close-on-exec, as the execution of another program does. */
int vfscale_task_exec(struct vfscale_task *task);

/** Sets the permission bits that new files do not get, and returns the previous ones. */
int vfscale_umask(struct vfscale_task *task, mode_t mask);

/**
 * Sets the limit that the numbers of new descriptors stay below (RLIMIT_NOFILE).
 *
 * Errors: EINVAL for more than 1,048,576; EPERM for a larger limit without CAP_SYS_RESOURCE.
 */
int vfscale_set_descriptors_max(struct vfscale_task *task, size_t max);

/** Returns the limit that the numbers of new descriptors stay below. */
ssize_t vfscale_get_descriptors_max(struct vfscale_task *task);

/** Changes the working directory, as chdir(2). */
int vfscale_chdir(struct vfscale_task *task, const char *path);

/** Changes the working directory to that of a descriptor, as fchdir(2). */
int vfscale_fchdir(struct vfscale_task *task, int fd);

/**
 * Changes the root directory, as chroot(2).
 *
 * Errors: EPERM without CAP_SYS_CHROOT.
 */
int vfscale_chroot(struct vfscale_task *task, const char *path);

/**
 * Writes the path of the working directory and a zero to `buf`, which has `size` bytes. Returns
 * the length of the path without the zero. A size of 0 only asks for the length.
 *
 * Errors: ERANGE if the buffer is too short; ENOENT if the directory was removed.
 */
ssize_t vfscale_getcwd(struct vfscale_task *task, char *buf, size_t size);

/**
 * Writes the path of an open file and a zero to `buf`, as the target of /proc/self/fd/N. Otherwise
 * as vfscale_getcwd.
 */
ssize_t vfscale_fd_path(struct vfscale_task *task, int fd, char *buf, size_t size);

/**
 * Changes the credentials of a task; `credentials` are `size` bytes, sizeof *credentials. NULL
 * means user 0 with every privilege. Running calls continue with the old ones. The program decides
 * who may do this: there is no check.
 */
int vfscale_set_credentials(struct vfscale_task *task,
                            const struct vfscale_credentials *credentials,
                            size_t size);

/**
 * Stores the credentials of a task in `credentials`, and up to `groups_max` of its supplementary
 * groups in `groups`, which may be NULL. group_count is the number that the task has; the pointer
 * is `groups`.
 */
int vfscale_get_credentials(struct vfscale_task *task,
                            struct vfscale_credentials *credentials,
                            uint32_t *groups,
                            size_t groups_max);

/**
 * Opens a file, and returns the lowest free descriptor of the task, as open(2). `mode` matters
 * only with O_CREAT or O_TMPFILE. Opening a fifo waits for the other end, unless O_NONBLOCK.
 */
int vfscale_open(struct vfscale_task *task, const char *path, int flags, mode_t mode);

/** Opens a file relative to a directory, as openat(2); see vfscale_open. */
int vfscale_openat(struct vfscale_task *task, int dirfd, const char *path, int flags, mode_t mode);

/** Opens a file for writing, made or truncated, as creat(2). */
int vfscale_creat(struct vfscale_task *task, const char *path, mode_t mode);

/**
 * Opens a file under the limits of `how`, which has `size` bytes, as openat2(2). `token`
 * interrupts a wait for the other end of a fifo; NULL for none.
 *
 * Errors: those of openat2(2); EINTR if the token is cancelled.
 */
int vfscale_openat2(struct vfscale_task *task,
                    int dirfd,
                    const char *path,
                    const struct vfscale_open_how *how,
                    size_t size,
                    struct vfscale_token *token);

/** Opens the file of a descriptor again, as opening /proc/self/fd/N does. */
int vfscale_reopen(struct vfscale_task *task, int fd, int flags);

/** Closes a descriptor, as close(2), and releases the record locks of the task on the file. */
int vfscale_close(struct vfscale_task *task, int fd);

/** Closes every descriptor of the task. */
int vfscale_close_all(struct vfscale_task *task);

/** Stores up to `max` descriptors of the task in `fds`, in order, and returns how many it has. */
ssize_t vfscale_descriptors(struct vfscale_task *task, int *fds, size_t max);

/**
 * Stores up to `max` open files of the file system of a path in `files`, of all tasks and mounts,
 * and returns how many it has. A file that is opened or closed meanwhile may be missing.
 *
 * Errors: EPERM without CAP_SYS_ADMIN; those of a walk.
 */
ssize_t vfscale_open_files(struct vfscale_task *task,
                           const char *path,
                           struct vfscale_open_file *files,
                           size_t max);

/** Duplicates a descriptor to the lowest free one, as dup(2). */
int vfscale_dup(struct vfscale_task *task, int fd);

/** Duplicates a descriptor to `new_fd`, as dup2(2). */
int vfscale_dup2(struct vfscale_task *task, int fd, int new_fd);

/** Duplicates a descriptor to `new_fd`, with O_CLOEXEC in `flags`, as dup3(2). */
int vfscale_dup3(struct vfscale_task *task, int fd, int new_fd, int flags);

/**
 * Does what fcntl(2) does with F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL,
 * F_GETPIPE_SZ, F_SETPIPE_SZ, F_GET_SEALS and F_ADD_SEALS; vfscale_fcntl_lock has the locks. `arg`
 * is 0 for commands without one.
 *
 * Errors: those of fcntl(2); EINVAL for other commands.
 */
int vfscale_fcntl(struct vfscale_task *task, int fd, int cmd, long arg);

/**
 * Reads up to `count` bytes at the position of a descriptor, as read(2); returns their number, 0
 * at the end. A pipe or socket waits for data, unless O_NONBLOCK.
 */
ssize_t vfscale_read(struct vfscale_task *task, int fd, void *buf, size_t count);

/**
 * Writes `count` bytes at the position of a descriptor, as write(2); returns their number. A write
 * to a pipe without readers fails with EPIPE, and sends no signal.
 */
ssize_t vfscale_write(struct vfscale_task *task, int fd, const void *buf, size_t count);

/** Reads as vfscale_read; `token` interrupts the wait of a pipe or socket (EINTR). */
ssize_t vfscale_read_wait(struct vfscale_task *task,
                          int fd,
                          void *buf,
                          size_t count,
                          struct vfscale_token *token);

/** Writes as vfscale_write; `token` interrupts the wait of a pipe or socket (EINTR). */
ssize_t vfscale_write_wait(struct vfscale_task *task,
                           int fd,
                           const void *buf,
                           size_t count,
                           struct vfscale_token *token);

/** Reads at an offset, as pread(2). */
ssize_t vfscale_pread(struct vfscale_task *task, int fd, void *buf, size_t count, int64_t offset);

/** Writes at an offset, as pwrite(2). */
ssize_t vfscale_pwrite(struct vfscale_task *task,
                       int fd,
                       const void *buf,
                       size_t count,
                       int64_t offset);

/** Reads into `count` buffers at the position of a descriptor, as readv(2). */
ssize_t vfscale_readv(struct vfscale_task *task, int fd, const struct iovec *iov, int count);

/** Writes from `count` buffers at the position of a descriptor, as writev(2). */
ssize_t vfscale_writev(struct vfscale_task *task, int fd, const struct iovec *iov, int count);

/** Reads into `count` buffers at an offset, as preadv(2). */
ssize_t vfscale_preadv(struct vfscale_task *task,
                       int fd,
                       const struct iovec *iov,
                       int count,
                       int64_t offset);

/** Writes from `count` buffers at an offset, as pwritev(2). */
ssize_t vfscale_pwritev(struct vfscale_task *task,
                        int fd,
                        const struct iovec *iov,
                        int count,
                        int64_t offset);

/**
 * Moves the position of a descriptor, as lseek(2), with SEEK_DATA and SEEK_HOLE too; returns the
 * new position.
 */
int64_t vfscale_lseek(struct vfscale_task *task, int fd, int64_t offset, int whence);

/** Truncates or extends a file, as truncate(2). */
int vfscale_truncate(struct vfscale_task *task, const char *path, int64_t size);

/** Truncates or extends an open file, as ftruncate(2). */
int vfscale_ftruncate(struct vfscale_task *task, int fd, int64_t size);

/** Allocates, punches or zeroes a range of a file, as fallocate(2); `mode` has FALLOC_FL_* flags. */
int vfscale_fallocate(struct vfscale_task *task, int fd, int mode, int64_t offset, int64_t len);

/**
 * Copies up to `len` bytes between files of one file system, as copy_file_range(2); returns their
 * number. An offset that is not NULL is used and advanced in place of the position. `flags` is 0.
 */
ssize_t vfscale_copy_file_range(struct vfscale_task *task,
                                int fd_in,
                                int64_t *offset_in,
                                int fd_out,
                                int64_t *offset_out,
                                size_t len,
                                uint32_t flags);

/** Makes the data and attributes of an open file durable, as fsync(2). Blocks for the I/O. */
int vfscale_fsync(struct vfscale_task *task, int fd);

/** Makes the data of an open file durable, as fdatasync(2). Blocks for the I/O. */
int vfscale_fdatasync(struct vfscale_task *task, int fd);

/** Makes all changes of the file system of an open file durable, as syncfs(2). Blocks for the I/O. */
int vfscale_syncfs(struct vfscale_task *task, int fd);

/**
 * Makes all changes of all file systems of the tree durable, as sync(2). Blocks for the I/O. Does
 * not report its errors; vfscale_syncfs and vfscale_fs_sync do.
 */
int vfscale_sync(struct vfscale_task *task);

/** Reads the attributes of a file; follows a symbolic link, as stat(2). */
int vfscale_stat(struct vfscale_task *task, const char *path, struct vfscale_stat *st);

/** Reads the attributes of a file or symbolic link, as lstat(2). */
int vfscale_lstat(struct vfscale_task *task, const char *path, struct vfscale_stat *st);

/** Reads the attributes of an open file, as fstat(2). */
int vfscale_fstat(struct vfscale_task *task, int fd, struct vfscale_stat *st);

/**
 * Reads the attributes of a file relative to a directory, as fstatat(2). `flags`:
 * AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
 */
int vfscale_fstatat(struct vfscale_task *task,
                    int dirfd,
                    const char *path,
                    struct vfscale_stat *st,
                    int flags);

/**
 * Reads the attributes that `mask` requests, with the STATX_* bits, as statx(2). The others are 0,
 * except file system, inode number, type, device and mount.
 */
int vfscale_statx(struct vfscale_task *task,
                  int dirfd,
                  const char *path,
                  int flags,
                  uint32_t mask,
                  struct vfscale_stat *st);

/** Reads the state of the file system of a path, as statfs(2). */
int vfscale_statfs(struct vfscale_task *task, const char *path, struct vfscale_statfs *st);

/** Reads the state of the file system of an open file, as fstatfs(2). */
int vfscale_fstatfs(struct vfscale_task *task, int fd, struct vfscale_statfs *st);

/**
 * Checks whether the real user may read (R_OK), write (W_OK) and execute (X_OK) a file, or whether
 * it exists (F_OK), as access(2).
 */
int vfscale_access(struct vfscale_task *task, const char *path, int want);

/**
 * Checks as vfscale_access, relative to a directory, as faccessat(2). `flags`: AT_EACCESS,
 * AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
 */
int vfscale_faccessat(struct vfscale_task *task, int dirfd, const char *path, int want, int flags);

/** Changes the permission bits of a file, as chmod(2). */
int vfscale_chmod(struct vfscale_task *task, const char *path, mode_t mode);

/** Changes the permission bits of an open file, as fchmod(2). */
int vfscale_fchmod(struct vfscale_task *task, int fd, mode_t mode);

/**
 * Changes permission bits relative to a directory, as fchmodat2(2). `flags`: AT_SYMLINK_NOFOLLOW,
 * AT_EMPTY_PATH.
 */
int vfscale_fchmodat(struct vfscale_task *task,
                     int dirfd,
                     const char *path,
                     mode_t mode,
                     int flags);

/** Changes owner and group of a file, as chown(2); -1 leaves one as it is. */
int vfscale_chown(struct vfscale_task *task, const char *path, uid_t uid, gid_t gid);

/** Changes owner and group of a file or symbolic link, as lchown(2). */
int vfscale_lchown(struct vfscale_task *task, const char *path, uid_t uid, gid_t gid);

/** Changes owner and group of an open file, as fchown(2). */
int vfscale_fchown(struct vfscale_task *task, int fd, uid_t uid, gid_t gid);

/**
 * Changes owner and group relative to a directory, as fchownat(2). `flags`: AT_SYMLINK_NOFOLLOW,
 * AT_EMPTY_PATH.
 */
int vfscale_fchownat(struct vfscale_task *task,
                     int dirfd,
                     const char *path,
                     uid_t uid,
                     gid_t gid,
                     int flags);

/**
 * Changes access and modification time, as utimensat(2): `times` are two, with UTIME_NOW and
 * UTIME_OMIT; NULL means that both are now. `flags`: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
 */
int vfscale_utimensat(struct vfscale_task *task,
                      int dirfd,
                      const char *path,
                      const struct timespec *times,
                      int flags);

/** Changes access and modification time of an open file, as futimens(3); see vfscale_utimensat. */
int vfscale_futimens(struct vfscale_task *task, int fd, const struct timespec *times);

/**
 * Stores the flags of an inode in `flags`: FS_IMMUTABLE_FL and others of <linux/fs.h>, as the
 * ioctl FS_IOC_GETFLAGS.
 */
int vfscale_getflags(struct vfscale_task *task, int fd, uint32_t *flags);

/**
 * Replaces the flags of an inode, as the ioctl FS_IOC_SETFLAGS.
 *
 * Errors: EPERM for a task that does not own the file, and without CAP_LINUX_IMMUTABLE for some;
 * EOPNOTSUPP for a flag that the file system does not store.
 */
int vfscale_setflags(struct vfscale_task *task, int fd, uint32_t flags);

/** Makes a directory, as mkdir(2). */
int vfscale_mkdir(struct vfscale_task *task, const char *path, mode_t mode);

/** Makes a directory relative to another one, as mkdirat(2). */
int vfscale_mkdirat(struct vfscale_task *task, int dirfd, const char *path, mode_t mode);

/**
 * Makes a node, as mknodat(2): a regular file, fifo, socket or device. Sockets and devices can't
 * be opened, except with O_PATH.
 */
int vfscale_mknodat(struct vfscale_task *task,
                    int dirfd,
                    const char *path,
                    mode_t mode,
                    uint64_t dev);

/** Makes a fifo, as mkfifo(3). */
int vfscale_mkfifo(struct vfscale_task *task, const char *path, mode_t mode);

/** Makes a symbolic link at `path`, as symlink(2). */
int vfscale_symlink(struct vfscale_task *task, const char *target, const char *path);

/** Makes a symbolic link relative to a directory, as symlinkat(2). */
int vfscale_symlinkat(struct vfscale_task *task, const char *target, int dirfd, const char *path);

/** Makes another name of a file, as link(2). */
int vfscale_link(struct vfscale_task *task, const char *old_path, const char *new_path);

/** Makes another name of a file, as linkat(2). `flags`: AT_SYMLINK_FOLLOW, AT_EMPTY_PATH. */
int vfscale_linkat(struct vfscale_task *task,
                   int old_dirfd,
                   const char *old_path,
                   int new_dirfd,
                   const char *new_path,
                   int flags);

/** Removes a name that is not that of a directory, as unlink(2). */
int vfscale_unlink(struct vfscale_task *task, const char *path);

/** Removes a name, as unlinkat(2). `flags`: AT_REMOVEDIR. */
int vfscale_unlinkat(struct vfscale_task *task, int dirfd, const char *path, int flags);

/** Removes an empty directory, as rmdir(2). */
int vfscale_rmdir(struct vfscale_task *task, const char *path);

/** Renames a file, as rename(2): replaces the file at `new_path`, if there is one. */
int vfscale_rename(struct vfscale_task *task, const char *old_path, const char *new_path);

/** Renames a file, as renameat2(2). `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT. */
int vfscale_renameat2(struct vfscale_task *task,
                      int old_dirfd,
                      const char *old_path,
                      int new_dirfd,
                      const char *new_path,
                      uint32_t flags);

/**
 * Reads the target of a symbolic link, without a zero, as readlink(2); returns its length. A
 * target that is longer than the buffer is cut.
 */
ssize_t vfscale_readlink(struct vfscale_task *task, const char *path, char *buf, size_t size);

/**
 * Reads the target of a symbolic link relative to a directory, as readlinkat(2); see
 * vfscale_readlink.
 */
ssize_t vfscale_readlinkat(struct vfscale_task *task,
                           int dirfd,
                           const char *path,
                           char *buf,
                           size_t size);

/**
 * Stores in `handle` the handle of a file, which names it independent of its names, as
 * name_to_handle_at(2). `flags`: AT_SYMLINK_FOLLOW, AT_EMPTY_PATH.
 */
int vfscale_name_to_handle_at(struct vfscale_task *task,
                              int dirfd,
                              const char *path,
                              struct vfscale_file_handle *handle,
                              int flags);

/**
 * Opens the file of a handle in the file system of `mount_fd`, as open_by_handle_at(2), and
 * returns a descriptor.
 *
 * Errors: EPERM without CAP_DAC_READ_SEARCH; ESTALE if the file is gone; those of open(2).
 */
int vfscale_open_by_handle_at(struct vfscale_task *task,
                              int mount_fd,
                              const struct vfscale_file_handle *handle,
                              int flags);

/**
 * Opens a stream of the entries of a directory, as opendir(3), and stores its handle in `dir`. It
 * takes no descriptor.
 */
int vfscale_opendir(struct vfscale_task *task, const char *path, struct vfscale_dir **dir);

/**
 * Opens a stream of the entries of the directory of a descriptor, as fdopendir(3), and stores its
 * handle in `dir`. The stream begins at the first entry and has a position of its own; the
 * descriptor stays the caller's, who closes it.
 */
int vfscale_fdopendir(struct vfscale_task *task, int fd, struct vfscale_dir **dir);

/**
 * Stores the next entry of a directory in `entry`, `.` and `..` first, as readdir(3). Returns 1,
 * or 0 at the end. Threads that share a stream get each entry once.
 *
 * Errors: ENOENT if the directory was removed.
 */
int vfscale_readdir(struct vfscale_dir *dir, struct vfscale_dirent *entry);

/**
 * Stores as many of the next entries of a directory in `buf` as its `size` bytes have room for,
 * `.` and `..` first, in the records of getdents64(2): struct dirent64 of <dirent.h>. Returns the
 * length of the records in bytes, or 0 at the end. A name takes at most 280 bytes.
 *
 * Errors: EINVAL if there is no room for the next entry; ENOENT if the directory was removed.
 */
ssize_t vfscale_getdents64(struct vfscale_dir *dir, void *buf, size_t size);

/**
 * Returns the position of a stream, as telldir(3). It is valid despite all changes of the
 * directory, also for another stream of it.
 */
int64_t vfscale_telldir(struct vfscale_dir *dir);

/** Moves a stream to a position of vfscale_telldir or of d_off, as seekdir(3). */
int vfscale_seekdir(struct vfscale_dir *dir, int64_t position);

/** Moves a stream to the first entry, as rewinddir(3). */
int vfscale_rewinddir(struct vfscale_dir *dir);

/** Closes a stream and frees its handle, as closedir(3). */
int vfscale_closedir(struct vfscale_dir *dir);

/**
 * Copies the value of an extended attribute to `value`, which has `size` bytes, and returns its
 * length; a size of 0 only asks for the length. Follows a symbolic link, as getxattr(2).
 *
 * Errors: ENODATA if there is no such attribute; ERANGE if the buffer is too short.
 */
ssize_t vfscale_getxattr(struct vfscale_task *task,
                         const char *path,
                         const char *name,
                         void *value,
                         size_t size);

/**
 * Copies the value of an extended attribute of a file or symbolic link, as lgetxattr(2); see
 * vfscale_getxattr.
 */
ssize_t vfscale_lgetxattr(struct vfscale_task *task,
                          const char *path,
                          const char *name,
                          void *value,
                          size_t size);

/**
 * Copies the value of an extended attribute of an open file, as fgetxattr(2); see
 * vfscale_getxattr.
 */
ssize_t vfscale_fgetxattr(struct vfscale_task *task,
                          int fd,
                          const char *name,
                          void *value,
                          size_t size);

/**
 * Copies the value of an extended attribute relative to a directory, as getxattrat(2). `flags`:
 * AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. See vfscale_getxattr.
 */
ssize_t vfscale_getxattrat(struct vfscale_task *task,
                           int dirfd,
                           const char *path,
                           int flags,
                           const char *name,
                           void *value,
                           size_t size);

/**
 * Sets an extended attribute to the `size` bytes at `value`. `how`: XATTR_CREATE, XATTR_REPLACE.
 * Follows a symbolic link, as setxattr(2).
 */
int vfscale_setxattr(struct vfscale_task *task,
                     const char *path,
                     const char *name,
                     const void *value,
                     size_t size,
                     int how);

/** Sets an extended attribute of a file or symbolic link, as lsetxattr(2); see vfscale_setxattr. */
int vfscale_lsetxattr(struct vfscale_task *task,
                      const char *path,
                      const char *name,
                      const void *value,
                      size_t size,
                      int how);

/** Sets an extended attribute of an open file, as fsetxattr(2); see vfscale_setxattr. */
int vfscale_fsetxattr(struct vfscale_task *task,
                      int fd,
                      const char *name,
                      const void *value,
                      size_t size,
                      int how);

/**
 * Sets an extended attribute relative to a directory, as setxattrat(2). `flags`:
 * AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. See vfscale_setxattr.
 */
int vfscale_setxattrat(struct vfscale_task *task,
                       int dirfd,
                       const char *path,
                       int flags,
                       const char *name,
                       const void *value,
                       size_t size,
                       int how);

/**
 * Copies the names of all extended attributes to `list`, each with a zero behind it, and returns
 * their length; a size of 0 only asks for it. Follows a symbolic link, as listxattr(2).
 *
 * Errors: ERANGE if the buffer is too short.
 */
ssize_t vfscale_listxattr(struct vfscale_task *task, const char *path, char *list, size_t size);

/**
 * Copies the names of the extended attributes of a file or symbolic link, as llistxattr(2); see
 * vfscale_listxattr.
 */
ssize_t vfscale_llistxattr(struct vfscale_task *task, const char *path, char *list, size_t size);

/**
 * Copies the names of the extended attributes of an open file, as flistxattr(2); see
 * vfscale_listxattr.
 */
ssize_t vfscale_flistxattr(struct vfscale_task *task, int fd, char *list, size_t size);

/**
 * Copies the names of the extended attributes relative to a directory, as listxattrat(2). `flags`:
 * AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. See vfscale_listxattr.
 */
ssize_t vfscale_listxattrat(struct vfscale_task *task,
                            int dirfd,
                            const char *path,
                            int flags,
                            char *list,
                            size_t size);

/** Removes an extended attribute; follows a symbolic link, as removexattr(2). */
int vfscale_removexattr(struct vfscale_task *task, const char *path, const char *name);

/** Removes an extended attribute of a file or symbolic link, as lremovexattr(2). */
int vfscale_lremovexattr(struct vfscale_task *task, const char *path, const char *name);

/** Removes an extended attribute of an open file, as fremovexattr(2). */
int vfscale_fremovexattr(struct vfscale_task *task, int fd, const char *name);

/**
 * Removes an extended attribute relative to a directory, as removexattrat(2). `flags`:
 * AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
 */
int vfscale_removexattrat(struct vfscale_task *task,
                          int dirfd,
                          const char *path,
                          int flags,
                          const char *name);

/**
 * Takes or releases the lock of an open file, as flock(2). `operation`: LOCK_SH, LOCK_EX or
 * LOCK_UN, with LOCK_NB to fail with EWOULDBLOCK instead of waiting. `token` interrupts the wait;
 * NULL for none.
 *
 * Errors: those of flock(2); EINTR if the token is cancelled.
 */
int vfscale_flock(struct vfscale_task *task, int fd, int operation, struct vfscale_token *token);

/**
 * Takes, releases or tests a record lock, as fcntl(2) with F_SETLK, F_SETLKW, F_GETLK (locks of
 * the task) and F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK (locks of the open file). `token`
 * interrupts a wait; NULL for none.
 *
 * Errors: those of fcntl(2), EDEADLK among them; EINTR if the token is cancelled.
 */
int vfscale_fcntl_lock(struct vfscale_task *task,
                       int fd,
                       int cmd,
                       struct vfscale_flock *lock,
                       struct vfscale_token *token);

/** Makes a token that is not cancelled, and stores its handle in `token`. */
int vfscale_token_new(struct vfscale_token **token);

/** Ends every wait under a token, now and from now on: the calls fail with EINTR. */
int vfscale_token_cancel(struct vfscale_token *token);

/** Frees a token. Calls that wait under it go on. */
int vfscale_token_free(struct vfscale_token *token);

/**
 * Makes a pipe, as pipe2(2), and stores two descriptors in `fds`: the end to read from, and the
 * end to write to. `flags`: O_CLOEXEC, O_NONBLOCK, O_DIRECT.
 */
int vfscale_pipe2(struct vfscale_task *task, int *fds, int flags);

/**
 * Makes two connected sockets, as socketpair(2), and stores their descriptors in `fds`. `domain`
 * is AF_UNIX, `type` SOCK_STREAM, SOCK_SEQPACKET or SOCK_DGRAM with SOCK_CLOEXEC and
 * SOCK_NONBLOCK, and `protocol` 0.
 */
int vfscale_socketpair(struct vfscale_task *task, int domain, int type, int protocol, int *fds);

/**
 * Shuts down a direction of a socket, or both, as shutdown(2): `how` is SHUT_RD, SHUT_WR or
 * SHUT_RDWR. Calls that wait for it end. Data that was written before can still be read.
 *
 * Errors: ENOTSOCK if it is no socket; EINVAL for another `how`.
 */
int vfscale_shutdown(struct vfscale_task *task, int fd, int how);

/**
 * Makes a file of memory without a name, as memfd_create(2), and returns a descriptor. `flags`:
 * MFD_CLOEXEC, MFD_ALLOW_SEALING, MFD_NOEXEC_SEAL, MFD_EXEC.
 */
int vfscale_memfd_create(struct vfscale_task *task, const char *name, uint32_t flags);

/**
 * Mounts a new file system in memory at `target`. `options` are `options_size` bytes, sizeof
 * *options; NULL means the default of each. `flags`: MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC,
 * MS_NOATIME and others of mount(2).
 *
 * Errors: EPERM without CAP_SYS_ADMIN; those of a walk; ENOTDIR.
 */
int vfscale_mount_memory(struct vfscale_task *task,
                         const char *target,
                         unsigned long flags,
                         const struct vfscale_memory_options *options,
                         size_t options_size);

/**
 * Mounts the state of the task's tree as text at `target`: mounts, counts, locks, as /proc shows
 * them. `flags` as for vfscale_mount_memory.
 */
int vfscale_mount_proc(struct vfscale_task *task, const char *target, unsigned long flags);

/**
 * Makes the file or directory at `source` visible at `target` too, as mount(2) with MS_BIND;
 * `recursive` is 1 to include the mounts below it, otherwise 0.
 *
 * Errors: EPERM without CAP_SYS_ADMIN; those of a walk.
 */
int vfscale_bind(struct vfscale_task *task, const char *source, const char *target, int recursive);

/**
 * Moves the mount at `source` to `target`, as mount(2) with MS_MOVE.
 *
 * Errors: EPERM without CAP_SYS_ADMIN; EINVAL if `source` is no mount; ELOOP.
 */
int vfscale_move_mount(struct vfscale_task *task, const char *source, const char *target);

/**
 * Unmounts the topmost mount at `path`, as umount2(2). `flags`: MNT_DETACH, MNT_EXPIRE, MNT_FORCE,
 * UMOUNT_NOFOLLOW.
 *
 * Errors: EPERM without CAP_SYS_ADMIN; EINVAL if `path` is no mount; EBUSY if it is in use; EAGAIN
 * for the first MNT_EXPIRE.
 */
int vfscale_umount2(struct vfscale_task *task, const char *path, int flags);

/**
 * Sets the flags of the mount at `path`, and MS_RDONLY also of its file system; with `bind` not 0,
 * those of the mount only, as mount(2) with MS_REMOUNT and MS_BIND.
 *
 * Errors: EPERM without CAP_SYS_ADMIN; EINVAL if `path` is no mount; EBUSY for MS_RDONLY while a
 * file is open for writing.
 */
int vfscale_remount(struct vfscale_task *task, const char *path, unsigned long flags, int bind);

/**
 * Sets the propagation of the mount at `path`: MS_SHARED, MS_PRIVATE, MS_SLAVE or MS_UNBINDABLE,
 * with MS_REC for the mounts below it.
 *
 * Errors: EPERM without CAP_SYS_ADMIN; EINVAL if `path` is no mount.
 */
int vfscale_set_propagation(struct vfscale_task *task, const char *path, unsigned long flags);

/**
 * Writes the mounts that the task sees to `buf`, which has `size` bytes: the lines of
 * /proc/self/mountinfo, without a zero. Returns their length; a size of 0 only asks for it.
 *
 * Errors: ERANGE if the buffer is too short.
 */
ssize_t vfscale_mountinfo(struct vfscale_task *task, char *buf, size_t size);

/**
 * Grows the file system of a path while it is in use to `bytes`, rounded down to a valid size.
 * Returns its durable size in bytes. Blocks for the I/O.
 *
 * Errors: EPERM without CAP_SYS_ADMIN; EOPNOTSUPP if it has no fixed size; EINVAL if it is larger
 * already; EFBIG; EROFS; ENOSPC; EIO.
 */
int64_t vfscale_grow_fs(struct vfscale_task *task, int dirfd, const char *path, uint64_t bytes);

/**
 * Discards the free blocks of the file system of a path, as the ioctl FITRIM does, and returns how
 * many bytes. `range` NULL means all of them. Blocks for the I/O; other calls go on.
 *
 * Errors: EPERM without CAP_SYS_ADMIN; EOPNOTSUPP if the file system or its device can't do that;
 * EINVAL for a range outside of it, or of less than a block; EROFS; EIO.
 */
int64_t vfscale_trim_fs(struct vfscale_task *task,
                        int dirfd,
                        const char *path,
                        const struct vfscale_fstrim_range *range);

/**
 * Drops the unused dentries below a path, and returns their number. Later walks look them up
 * again.
 *
 * Errors: EPERM without CAP_SYS_ADMIN.
 */
ssize_t vfscale_drop_cached(struct vfscale_task *task, int dirfd, const char *path);

/**
 * Makes a watcher whose queue holds at most `events_max` events, or 16,384 for 0, and stores its
 * handle in `watcher`. If the queue is full, further events are lost, and one says so.
 */
int vfscale_watcher_new(size_t events_max, struct vfscale_watcher **watcher);

/**
 * Watches the file or directory at `path`, which the task must be allowed to read; with `tree` not
 * 0, the directory and everything below it. Returns the number of the watch, 1 or more. A watch
 * counts as an open file, until it or the watcher ends.
 */
int64_t vfscale_watch(struct vfscale_watcher *watcher,
                      struct vfscale_task *task,
                      const char *path,
                      int tree);

/**
 * Ends a watch. Events that are queued stay.
 *
 * Errors: EINVAL if the watcher has no such watch.
 */
int vfscale_unwatch(struct vfscale_watcher *watcher, int64_t watch);

/**
 * Stores the first event of the queue in `event`. If there is none, waits for one: for
 * `timeout_ms` milliseconds, for ever with -1, not at all with 0. `token` interrupts a wait
 * without a time limit; NULL for none.
 *
 * Errors: EAGAIN with 0; ETIMEDOUT; EINTR if the token is cancelled; EINVAL for a token with a
 * time limit.
 */
int vfscale_next_event(struct vfscale_watcher *watcher,
                       int64_t timeout_ms,
                       struct vfscale_token *token,
                       struct vfscale_event *event);

/** Ends a watcher and its watches, and frees its handle. Threads that wait for an event go on. */
int vfscale_watcher_free(struct vfscale_watcher *watcher);

/**
 * Copies the contents of a file to `buf`, which has `size` bytes, and returns their length; a size
 * of 0 only asks for it.
 *
 * Errors: ERANGE if the buffer is too short; those of opening and reading.
 */
ssize_t vfscale_read_file(struct vfscale_task *task, const char *path, void *buf, size_t size);

/** Writes `size` bytes to a file, which is made or truncated. */
int vfscale_write_file(struct vfscale_task *task, const char *path, const void *buf, size_t size);

/**
 * Replaces the contents of a file at once: any reader, and the volume after a crash, has all of
 * the old or all of the new contents. With `durable` not 0, the new contents survive a crash when
 * the call returns. Blocks for the I/O.
 */
int vfscale_replace_file(struct vfscale_task *task,
                         const char *path,
                         const void *buf,
                         size_t size,
                         int durable);

/** Makes a directory and the missing ones above it. A directory that exists is no error. */
int vfscale_mkdir_all(struct vfscale_task *task, const char *path, mode_t mode);

/** Removes a directory and everything below it. Follows no symbolic link. */
int vfscale_remove_all(struct vfscale_task *task, const char *path);

/**
 * Copies the contents and permission bits of a file, and returns the number of bytes. `to` is made
 * or truncated.
 */
int64_t vfscale_copy_file(struct vfscale_task *task, const char *from, const char *to);

/**
 * Copies the tree at `from` to the new directory `to`, and returns the number of files.
 *
 * Errors: EEXIST if `to` exists; EINVAL if it is in `from`; those of reading and writing. What was
 * copied before stays.
 */
int64_t vfscale_copy_all(struct vfscale_task *task, const char *from, const char *to);

/**
 * Writes the absolute path of a file without symbolic links and a zero to `buf`, which has `size`
 * bytes, as realpath(3). Returns the length of the path without the zero; a size of 0 only asks
 * for it.
 */
ssize_t vfscale_realpath(struct vfscale_task *task, const char *path, char *buf, size_t size);

/**
 * Copies the file or directory `from` of the host to the new name `to` in the tree of the task,
 * with the rights of the task, and stores what it copied in `done`, which may be NULL. `options`
 * are `options_size` bytes; NULL means the default of each. Blocks for the I/O of the host.
 *
 * A copy follows no symbolic link, not even one that takes the place of a directory meanwhile. It
 * gives nobody rights: without the owners of the source it has no set-id bits and no capabilities,
 * and it has no devices unless a flag asks for them. Links are copied as they are, so a program
 * that reads what a guest has made may be led out of it: refuse or skip such links.
 *
 * Errors: EEXIST if `to` exists; EXDEV for a link that is refused; those of reading and writing.
 * Files that were copied before stay.
 */
int vfscale_import(struct vfscale_task *task,
                   const char *from,
                   const char *to,
                   const struct vfscale_transfer_options *options,
                   size_t options_size,
                   struct vfscale_transferred *done);

/**
 * Copies the file or directory `from` in the tree of the task to the new name `to` on the host,
 * with the rights of this process; see vfscale_import.
 */
int vfscale_export(struct vfscale_task *task,
                   const char *from,
                   const char *to,
                   const struct vfscale_transfer_options *options,
                   size_t options_size,
                   struct vfscale_transferred *done);

/**
 * Returns the bytes of memory that no file uses, and that the process keeps for new pages of files
 * in memory and of caches.
 */
ssize_t vfscale_idle_memory(void);

/**
 * Returns the maximum of vfscale_idle_memory, beside half a MiB for each CPU: by default 32 MiB
 * for each CPU, at most a sixteenth of the memory that the process may use, at least 16 MiB.
 */
ssize_t vfscale_get_idle_memory_max(void);

/** Sets the maximum of vfscale_idle_memory in bytes, and gives what exceeds it back to the system. */
int vfscale_set_idle_memory_max(size_t bytes);

/** Gives all of vfscale_idle_memory back to the system. */
int vfscale_trim_idle_memory(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VFSCALE_H */
