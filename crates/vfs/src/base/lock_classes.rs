//! The lock classes of the VFS, with their ranks: a thread that holds a lock takes only locks of a
//! higher rank. Debug builds check that. `docs/LOCKING.md` describes what each lock protects.

use vfscale_sync::lock_class;

lock_class! {
    /// Changes of the mount tree (`namespace_sem`).
    pub NamespaceSem = ("namespace_sem", 10);
    /// Remounts of a superblock and its mounts, one at a time (`s_umount`).
    pub SuperRemount = ("s_umount", 15) sleeping;
    /// Moves of directories between directories, shared or exclusive (`s_vfs_rename_mutex`).
    pub DirectoryMove = ("s_vfs_rename_mutex", 20);
    /// A task's working directory, root, mask and credentials.
    pub TaskFs = ("fs_struct", 30);
    /// The descriptors of a task from number 64 on.
    pub DescriptorTable = ("file_lock", 32);
    /// The list of files on which a task holds record locks.
    pub TaskLocks = ("task_locks", 36);
    /// The position of an open file (`f_pos_lock`).
    pub FilePosition = ("f_pos_lock", 40) sleeping;
    /// All children tables of a superblock, if the patch `dcache-hash` is disabled (`dcache_lock`).
    pub DcacheLock = ("dcache_lock", 48);
    /// A bucket of a directory's children table.
    pub Children = ("d_children", 50);
    /// Crossings of mounts, which exclude changes of the mount tree, if crossings take a lock.
    pub VfsmountLock = ("vfsmount_lock", 55);
    /// Readers for which no directory may move, and the moves of directories that they exclude.
    pub RenameLock = ("rename_lock", 60);
    /// Data and attributes of an inode (`i_rwsem`).
    pub InodeData = ("i_rwsem", 70) sleeping;
    /// Extended attributes of an inode.
    pub Xattrs = ("xattrs", 80);
    /// The marks of an inode that is watched (`mark->lock`).
    pub InodeMarksLock = ("fsnotify_marks", 82);
    /// The events of a watcher that wait to be read (`notification_lock`).
    pub EventQueueLock = ("notification_lock", 111);
    /// The watches of a watcher (`mark_mutex`).
    pub WatcherLock = ("fsnotify_watches", 38);
    /// The table of mountpoints.
    pub MountHash = ("mount_hash", 62);
    /// The count of a detached mount.
    pub MountCount = ("mnt_count", 64);
    /// The mounts of a superblock.
    pub SuperMounts = ("s_mounts", 66);
    /// The inode hash of a superblock, if the patch `inode-hash` is disabled (`inode_lock`).
    pub InodeLock = ("inode_lock", 88);
    /// A bucket of a superblock's inode hash.
    pub InodeHash = ("inode_hash", 90);
    /// The threads that wait for the eviction of an inode.
    pub InodeWaiters = ("inode_waiters", 91);
    /// The hold on writers while a remount checks for them (`MNT_WRITE_HOLD`).
    pub WriteHold = ("mnt_write_hold", 105);
    /// One slot of a superblock's lists of open files.
    pub FilesLock = ("files_lock", 110);
    /// The set of names that a driver is looking up; not held during a lookup.
    pub InLookup = ("in_lookup", 46);
    /// One slot of a superblock's LRU lists of dentries.
    pub DcacheLru = ("dcache_lru_lock", 94);
    /// One slot of a superblock's lists of inodes.
    pub InodeSbList = ("inode_sb_list_lock", 96);
    /// The list of the dentries of an inode that has several (`i_lock`).
    pub InodeAliases = ("i_lock", 97);
    /// The uses that hold a superblock after its last mount.
    pub SuperUses = ("s_uses", 92);
    /// The contents of a pipe, and its waiters (`pipe->mutex`).
    pub PipeMutex = ("pipe_mutex", 108);
    /// The contents of a pair of message sockets, and its waiters (`sk_lock`).
    pub SocketLock = ("sk_lock", 107);
    /// The text snapshots of the open files of an inode whose text is generated when it is read.
    pub TextSnapshots = ("text_snapshots", 109);
}
