//! The lock classes of volumes, in the order in which they may be taken. `docs/LOCKING.md` lists
//! what each protects.
//!
//! A commit runs with inodes and groups locked, so these rank below the locks of the journal (30000
//! to 30080). Every other lock is held only briefly, and ranks above them.

use vfscale_sync::lock_class;

lock_class! {
    /// The right to begin a transaction when the device has hardly any storage left.
    pub CreditsTight = ("credits_tight", 28900) sleeping;
    /// The account of what a volume has reserved on its device.
    pub CreditsLock = ("credits", 30910) sleeping;
    /// The sleep of a thread until no transaction is under way.
    pub CreditsWake = ("credits_wake", 30920) sleeping;
    /// An inode: from its first change in a transaction to the end of its commit.
    pub NodeLock = ("i_node", 29000) sleeping;
    /// The inodes in memory: one shard.
    pub NodeTableLock = ("inode_table", 31030);
    /// The current core of an inode.
    pub NodeCore = ("i_core", 31040);
    /// The growth of a volume, by one thread at a time.
    pub GrowthLock = ("growth", 28600) sleeping;
    /// All orphans of a volume, while one is added or removed; only without the patch `orphan`.
    pub OrphanLock = ("s_orphan_lock", 29050) sleeping;
    /// The on-disk state of a group. Several are taken in the order of their numbers.
    pub GroupLock = ("group_lock", 29100) sleeping;
    /// A discard of free runs, from their claim until they are given back.
    pub DiscardLock = ("discard", 28950) sleeping;
    /// The regions of a volume with freed blocks that are to be discarded.
    pub FreedLock = ("freed_regions", 31057);
    /// The free blocks and inodes of a group.
    pub GroupIndex = ("group_index", 31050);
    /// The sums over the groups of a volume whose headers were not read.
    pub GroupTotalsLock = ("group_totals", 31052);
    /// The list of groups with delayed changes.
    pub DelayedGroupsLock = ("delayed_groups", 31055);
    /// The list of directories with delayed names.
    pub DelayedDirsLock = ("delayed_dirs", 31056);
    /// The delayed names of a directory: one range of positions.
    pub NameRangeLock = ("name_range", 31053);
    /// The write-back of blocks of inodes, against freeing them.
    pub InodeHomes = ("inode_homes", 30900) sleeping;
    /// The buffers of blocks of metadata: one shard.
    pub CacheShard = ("cache_shard", 31000);
    /// The contents of a block of metadata.
    pub BufferContent = ("buffer_content", 31010);
    /// The blocks of inodes that wait for their write-back.
    pub HomePending = ("home_pending", 31012);
    /// The pool of memory for copies of blocks: that of one CPU slot.
    pub BlockPool = ("block_pool", 31015);
    /// The flush of the device for data.
    pub DataFlush = ("data_flush", 31020);
    /// The inodes to be freed in the background.
    pub InactiveQueue = ("inactive_list", 31200);
    /// The inodes among these that wait until the volume can be written again.
    pub InactiveAside = ("inactive_aside", 31210);
    /// The superblock, and the right to write it.
    pub SuperblockLock = ("superblock", 31900) sleeping;
}
