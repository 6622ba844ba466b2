//! All faults of a block, by number.

mod blob;
mod dir;
mod extent;
mod group;
mod inode;
mod tree;

pub use blob::{BlobDamage, BlobFault};
pub use dir::{DirDamage, DirFault};
pub use extent::{ExtentDamage, ExtentFault};
pub use group::{GroupDamage, GroupFault};
pub use inode::{InodeDamage, InodeFault};
pub use tree::{TreeDamage, TreeFault};

use super::magic::Magic;
use super::uuid::Uuid;

/// A fault in data on disk.
///
/// Each kind has a number, which is shown and never changes its meaning. Numbers below 100 are
/// about blocks in general, from 100 on about the superblock, from 200 on about trees, from 300 on
/// about groups, from 400 on about inodes, from 500 on about directories, from 600 on about blobs,
/// from 700 on about the extents of files, from 900 on about the contents of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// 1: The magic is not that of the expected kind of block.
    #[error("V001: block {address}: {found} where {expected} should be")]
    Magic {
        /// Address at which the block was read, in blocks.
        address: u64,
        /// The magic in the block.
        found: Magic,
        /// The expected magic.
        expected: Magic,
    },
    /// 2: The checksum does not match the contents.
    #[error("V002: block {address}: checksum {found:08x}, its contents have {computed:08x}")]
    Checksum {
        /// Address at which the block was read, in blocks.
        address: u64,
        /// The checksum in the block.
        found: u32,
        /// The checksum computed from the contents.
        computed: u32,
    },
    /// 3: The block belongs elsewhere: a write went to the wrong address.
    #[error("V003: block {address}: says that it is block {found}")]
    Address {
        /// Address at which the block was read, in blocks.
        address: u64,
        /// The address in the block.
        found: u64,
    },
    /// 4: The block belongs to another volume.
    #[error("V004: block {address}: of volume {found}")]
    Volume {
        /// Address at which the block was read, in blocks.
        address: u64,
        /// The id of the volume in the block.
        found: Uuid,
    },
    /// 5: The block has another owner.
    #[error("V005: block {address}: of owner {found} instead of {expected}")]
    Owner {
        /// Address at which the block was read, in blocks.
        address: u64,
        /// The owner in the block.
        found: u64,
        /// The expected owner.
        expected: u64,
    },
    /// 6: The device could not read the block.
    #[error("V006: block {address}: {error}")]
    Unreadable {
        /// Address of the block, in blocks.
        address: u64,
        /// The error of the device.
        error: vfscale_block::Error,
    },
    /// 7: The block's log position is later than the log has reached: the log is not the one that
    /// was used last.
    #[error("V007: block {address}: from {lsn} of the log, which ends at {last}")]
    Newer {
        /// Address at which the block was read, in blocks.
        address: u64,
        /// The log position in the block.
        lsn: vfscale_journal::Lsn,
        /// The position of the last record of the log.
        last: vfscale_journal::Lsn,
    },
    /// 100: A block size other than 4 KiB.
    #[error("V100: superblock: blocks of 2 to the power of {log2} bytes")]
    BlockSize {
        /// The block size, as a power of two.
        log2: u8,
    },
    /// 101: A size that no volume has, or that does not fit its groups.
    #[error(
        "V101: superblock: {blocks} blocks in {groups} groups of 2 to the power of {log2} blocks"
    )]
    Geometry {
        /// The size of the volume, in blocks.
        blocks: u64,
        /// Number of groups.
        groups: u32,
        /// The size of a group, as a power of two of blocks.
        log2: u8,
    },
    /// 102: A log that no volume has, or at an address where none can be.
    #[error("V102: superblock: a log of {blocks} blocks from block {start} on")]
    Log {
        /// Its first block.
        start: u64,
        /// Its size, in blocks.
        blocks: u64,
    },
    /// 103: A time with a thousand million nanoseconds or more.
    #[error("V103: superblock: {nanoseconds} nanoseconds")]
    Time {
        /// The nanoseconds.
        nanoseconds: u32,
    },
    /// 104: A label that is not UTF-8, or has bytes other than zero after its end.
    #[error("V104: superblock: the label is no text")]
    Label,
    /// 105: A copy at an address where that copy can't be.
    #[error("V105: superblock: copy {copy} does not belong into block {address}")]
    Copy {
        /// Address at which the copy was read, in blocks.
        address: u64,
        /// The number of the copy, according to the block.
        copy: u64,
    },
    /// 600 and up: The attributes of an inode, or the target of a long link.
    #[error(transparent)]
    Blob(#[from] BlobDamage),
    /// 900: The log has an item of a kind that no version has.
    #[error("V900: log: item {id} of kind {kind}, which does not exist")]
    LogKind {
        /// The kind.
        kind: u32,
        /// The number of the item within its kind.
        id: u64,
    },
    /// 902: The log changes an inode that can't be written without another one, which is damaged.
    #[error(
        "V902: log: inode {ino} can't be written without inode {wrong}, which is damaged: \
         `vfscale copy-out` saves all others, `vfscale fsck --repair` gives inode {wrong} up"
    )]
    LogBeside {
        /// The inode in the log.
        ino: u64,
        /// The damaged one in the same block.
        wrong: u64,
    },
    /// 901: An item of the log can't be applied to the volume.
    #[error("V901: log: item {id} of kind {kind}: {why}")]
    LogItem {
        /// The kind.
        kind: u32,
        /// The number of the item within its kind.
        id: u64,
        /// The fault.
        why: &'static str,
    },
    /// 200 and up: A block of a tree.
    #[error(transparent)]
    Tree(#[from] TreeDamage),
    /// 300 and up: A group.
    #[error(transparent)]
    Group(#[from] GroupDamage),
    /// 400 and up: The record of an inode.
    #[error(transparent)]
    Inode(#[from] InodeDamage),
    /// 500 and up: An entry of a directory.
    #[error(transparent)]
    Directory(#[from] DirDamage),
    /// 700 and up: An extent of a file.
    #[error(transparent)]
    Extent(#[from] ExtentDamage),
}

impl Damage {
    /// Returns the number of the fault.
    pub fn number(&self) -> u32 {
        match self {
            Self::Magic { .. } => 1,
            Self::Checksum { .. } => 2,
            Self::Newer { .. } => 7,
            Self::Address { .. } => 3,
            Self::Volume { .. } => 4,
            Self::Owner { .. } => 5,
            Self::Unreadable { .. } => 6,
            Self::BlockSize { .. } => 100,
            Self::Geometry { .. } => 101,
            Self::Log { .. } => 102,
            Self::Time { .. } => 103,
            Self::Label => 104,
            Self::Copy { .. } => 105,
            Self::Blob(damage) => damage.fault.number(),
            Self::LogKind { .. } => 900,
            Self::LogItem { .. } => 901,
            Self::LogBeside { .. } => 902,
            Self::Tree(damage) => damage.fault.number(),
            Self::Group(damage) => damage.fault.number(),
            Self::Inode(damage) => damage.fault.number(),
            Self::Directory(damage) => damage.fault.number(),
            Self::Extent(damage) => damage.fault.number(),
        }
    }
}
