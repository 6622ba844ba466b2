//! What can be wrong with a block, by number.

use super::attr::BlobDamage;
use super::btree::TreeDamage;
use super::dir::DirDamage;
use super::extent::ExtentDamage;
use super::group::GroupDamage;
use super::header::Magic;
use super::inode::InodeDamage;
use super::uuid::Uuid;

/// Something on disk that must not be so.
///
/// Each kind has a number, which is shown and which never changes its meaning. Those below 100 are
/// about blocks in general, those from 100 on about the superblock, those from 200 on about trees,
/// those from 300 on about groups, those from 400 on about inodes, those from 700 on about the
/// extents of files, those from 900 on about what the log has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// 1: The block does not begin as such a block does.
    #[error("V001: block {address}: {found} where {expected} should be")]
    Magic {
        /// Where it was read, in blocks.
        address: u64,
        /// What it begins with.
        found: Magic,
        /// What it should begin with.
        expected: Magic,
    },
    /// 2: The checksum is not that of the contents.
    #[error("V002: block {address}: checksum {found:08x}, its contents have {computed:08x}")]
    Checksum {
        /// Where it was read, in blocks.
        address: u64,
        /// The checksum in the block.
        found: u32,
        /// The checksum of the block.
        computed: u32,
    },
    /// 3: The block belongs elsewhere: a write went to the wrong place.
    #[error("V003: block {address}: says that it is block {found}")]
    Address {
        /// Where it was read, in blocks.
        address: u64,
        /// Where it says it is.
        found: u64,
    },
    /// 4: The block is of another volume.
    #[error("V004: block {address}: of volume {found}")]
    Volume {
        /// Where it was read, in blocks.
        address: u64,
        /// The volume that it says it is of.
        found: Uuid,
    },
    /// 5: The block belongs to something else.
    #[error("V005: block {address}: of owner {found} instead of {expected}")]
    Owner {
        /// Where it was read, in blocks.
        address: u64,
        /// The owner that it names.
        found: u64,
        /// The owner that it should name.
        expected: u64,
    },
    /// 6: The device could not read the block.
    #[error("V006: block {address}: {error}")]
    Unreadable {
        /// Where it was to be read, in blocks.
        address: u64,
        /// What the device said.
        error: vfscale_block::Error,
    },
    /// 7: The block is from a later place than the log has reached, which is not the one that was
    /// used last.
    #[error("V007: block {address}: from {lsn} of the log, which ends at {last}")]
    Newer {
        /// Where it was read, in blocks.
        address: u64,
        /// The place in the log that it names.
        lsn: vfscale_journal::Lsn,
        /// The last record of the log.
        last: vfscale_journal::Lsn,
    },
    /// 100: Blocks of another size than 4 KiB.
    #[error("V100: superblock: blocks of 2 to the power of {log2} bytes")]
    BlockSize {
        /// The power.
        log2: u8,
    },
    /// 101: A size that no volume has, or that does not go with its groups.
    #[error(
        "V101: superblock: {blocks} blocks in {groups} groups of 2 to the power of {log2} blocks"
    )]
    Geometry {
        /// The size of the volume, in blocks.
        blocks: u64,
        /// How many groups.
        groups: u32,
        /// The size of a group, as a power of two of blocks.
        log2: u8,
    },
    /// 102: A log that no volume has, or that lies where it can't.
    #[error("V102: superblock: a log of {blocks} blocks from block {start} on")]
    Log {
        /// Where it begins, in blocks.
        start: u64,
        /// Its size, in blocks.
        blocks: u64,
    },
    /// 103: A moment with a thousand million nanoseconds or more.
    #[error("V103: superblock: {nanoseconds} nanoseconds")]
    Time {
        /// The nanoseconds.
        nanoseconds: u32,
    },
    /// 104: A label that is not UTF-8, or has something behind its end.
    #[error("V104: superblock: the label is no text")]
    Label,
    /// 105: No such copy lies there.
    #[error("V105: superblock: copy {copy} does not belong into block {address}")]
    Copy {
        /// Where it was read, in blocks.
        address: u64,
        /// Which copy it says it is.
        copy: u64,
    },
    /// 600 and up: The attributes of an inode, or the target of a long link.
    #[error(transparent)]
    Blob(#[from] BlobDamage),
    /// 900: The log has something of a kind that no version has.
    #[error("V900: log: item {id} of kind {kind}, which does not exist")]
    LogKind {
        /// The kind.
        kind: u32,
        /// Which one of that kind.
        id: u64,
    },
    /// 901: What the log has can't be put into the volume.
    #[error("V901: log: item {id} of kind {kind}: {why}")]
    LogItem {
        /// The kind.
        kind: u32,
        /// Which one of that kind.
        id: u64,
        /// What is wrong.
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
    /// Its number.
    #[must_use]
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
            Self::Tree(damage) => damage.fault.number(),
            Self::Group(damage) => damage.fault.number(),
            Self::Inode(damage) => damage.fault.number(),
            Self::Directory(damage) => damage.fault.number(),
            Self::Extent(damage) => damage.fault.number(),
        }
    }
}
