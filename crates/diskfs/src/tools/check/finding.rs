//! Findings of a check, by number.

use std::fmt;
use std::ops::Range;

use crate::format::Damage;
use crate::format::damage::{ExtentDamage, ExtentFault};
use crate::format::damage::{GroupDamage, GroupFault};
use crate::format::damage::{InodeDamage, InodeFault};
use crate::format::superblock::GroupSums;

/// An inconsistency of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The problem.
    pub problem: Problem,
    /// Its severity.
    pub severity: Severity,
    /// The remedy of a repair.
    pub remedy: Remedy,
}

impl Finding {
    /// Returns the number of the problem. A number never gets another meaning.
    pub fn number(&self) -> u32 {
        self.problem.number()
    }
}

impl From<Problem> for Finding {
    fn from(problem: Problem) -> Self {
        let (severity, remedy) = (problem.severity(), problem.remedy());
        Self { problem, severity, remedy }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is lost, and nothing can be lost because of it: figures, copies.
    Minor,
    /// Data may be lost when the volume is changed.
    Major,
    /// A part of the volume can't be read.
    Loss,
}

impl Severity {
    /// Returns the severity as a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minor => "minor",
            Self::Major => "major",
            Self::Loss => "loss",
        }
    }
}

/// The remedy for a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Writing the superblock and its copies again.
    Copies,
    /// Completing the interrupted repair.
    Finish,
    /// Replaying the log as far as it can be read, and ending it there.
    Replay,
    /// Writing the right figure.
    Figure,
    /// Rebuilding the free space from the used blocks, if all of them are known.
    FreeSpace,
    /// Following the records of the inodes, or the names in directories.
    Record,
    /// Removing the wrong extent from the file: a hole replaces it.
    Cut,
    /// Giving the second owner, if it is a file, blocks of its own with a copy of the contents.
    Copy,
    /// Removing the name.
    Unlink,
    /// Setting the feature of the superblock that the inodes need.
    Feature,
    /// Clearing the flags that have no meaning.
    Flags,
    /// Linking the inode into `/lost+found`.
    LostFound,
    /// Making an empty root directory; what was in it is linked into `/lost+found`.
    Root,
    /// Rebuilding the tree from its readable part.
    Rebuild,
    /// Freeing the inode, and removing its names.
    Clear,
    /// Writing the block again with what is right in it, or building its tree without it.
    Rewrite,
    /// None: the former contents would be a guess.
    Nothing,
}

impl Remedy {
    /// Returns a description in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Copies => "the superblock and its copies are written again",
            Self::Finish => "the interrupted repair is finished",
            Self::Replay => "the log is replayed as far as it can be read, and ends there",
            Self::Figure => "the counted figure is written",
            Self::FreeSpace => "free space is computed from the used blocks",
            Self::Record => "the record is corrected to match the volume",
            Self::Cut => "the extent is removed from the file, which gets a hole",
            Self::Copy => "the second owner gets a copy, if it is a file",
            Self::Unlink => "the name is removed",
            Self::Feature => "the feature is set in the superblock",
            Self::Flags => "the flags without a meaning are cleared",
            Self::LostFound => "the inode is linked into /lost+found",
            Self::Root => "an empty one is made",
            Self::Rebuild => "the tree is rebuilt from its readable parts",
            Self::Clear => "it is removed",
            Self::Rewrite => {
                "what is right in the block is kept, or its tree is rebuilt without it"
            }
            Self::Nothing => "nothing",
        }
    }
}

/// The owner of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The metadata of a group, and its trees.
    Group(u32),
    /// A chunk of inodes, by its first block.
    Chunk(u64),
    /// An inode: its data and its trees.
    Inode(u64),
    /// Free space of a group.
    Free(u32),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => write!(f, "group {group}"),
            Self::Chunk(block) => write!(f, "the inodes at block {block}"),
            Self::Inode(ino) => write!(f, "inode {ino}"),
            Self::Free(group) => write!(f, "the free space of group {group}"),
        }
    }
}

/// A part of an inode that a repair can rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The entries of a directory.
    Names,
    /// The locations of the data of a file.
    Extents,
    /// The target of a symbolic link.
    Target,
    /// Extended attributes, including access control lists.
    Attributes,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Names => "names in it",
            Self::Extents => "extents",
            Self::Target => "target",
            Self::Attributes => "attributes",
        })
    }
}

/// A stored figure that can also be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Free blocks of a group.
    FreeBlocks,
    /// Inodes of a group that are not in use.
    FreeInodes,
    /// Inodes of a group.
    Inodes,
    /// Inodes of a group that are to be removed or truncated when no program uses them any more.
    Orphans,
    /// Blocks of a group's trees, without the roots.
    TreeBlocks,
}

impl Figure {
    const fn number(self) -> u32 {
        match self {
            Self::FreeBlocks => 1013,
            Self::FreeInodes => 1014,
            Self::Inodes => 1015,
            Self::Orphans => 1016,
            Self::TreeBlocks => 1030,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FreeBlocks => "free blocks",
            Self::FreeInodes => "free inodes",
            Self::Inodes => "inodes",
            Self::Orphans => "orphans",
            Self::TreeBlocks => "blocks of trees",
        })
    }
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Below 1000: a block that is wrong in itself, whatever other blocks contain.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// 1000: A copy of the superblock that differs from the valid one, and is not merely older
    /// because the superblock in block 0 was written and its copies were not.
    #[error("V1000: superblock: the copy in block {address}: {state}")]
    Copy {
        /// Its address, in blocks.
        address: u64,
        /// Its state.
        state: String,
    },
    /// 1001: The log can't be read. Its contents are lost.
    #[error("V1001: log: {why}")]
    Log {
        /// The reason, from the journal.
        why: String,
    },
    /// 1002: A repair was interrupted.
    #[error("V1002: a repair of the volume was interrupted")]
    Interrupted,
    /// 1003: The end of the log, or an inode that it changes, can't be read. The rest can be.
    #[error("V1003: log: {why}")]
    LogPart {
        /// The reason, from the journal.
        why: String,
    },
    /// 1010: Blocks with two owners.
    #[error("V1010: {}: used by {owner} and by another owner", Blocks(.blocks))]
    Shared {
        /// The blocks.
        blocks: Range<u64>,
        /// The second owner.
        owner: Owner,
    },
    /// 1011: Blocks that are in use and in free space.
    #[error("V1011: {}: in the free space of group {group}, and in use", Blocks(.blocks))]
    FreeInUse {
        /// The blocks.
        blocks: Range<u64>,
        /// The group.
        group: u32,
    },
    /// 1012: Blocks that are neither in use nor in free space.
    #[error("V1012: {}: neither free nor in use", Blocks(.blocks))]
    Leaked {
        /// The blocks.
        blocks: Range<u64>,
    },
    /// 1013 to 1016, 1030: A wrong figure of a group.
    #[error("V{}: group {group}: {found} {figure}, where there are {counted}", figure.number())]
    Figure {
        /// The group.
        group: u32,
        /// The figure.
        figure: Figure,
        /// The value in the header of the group.
        found: u64,
        /// The counted value.
        counted: u64,
    },
    /// 1017: Blocks at an address that their owner can't have.
    #[error("V1017: {}: can't belong to {owner}", Blocks(.blocks))]
    Outside {
        /// The blocks.
        blocks: Range<u64>,
        /// The owner that they would have.
        owner: Owner,
    },
    /// 1018: An inode that is in use and counts as free, or the reverse.
    #[error("V1018: inode {ino}: {}", in_use(*.is_free))]
    InUse {
        /// The inode.
        ino: u64,
        /// Whether its record is free.
        is_free: bool,
    },
    /// 1019: An orphan that is free.
    #[error("V1019: inode {ino}: marked as an orphan, but free")]
    NotAnOrphan {
        /// The inode.
        ino: u64,
    },
    /// 1020: An inode without a name that is not marked as an orphan.
    #[error("V1020: inode {ino}: has no name, and is not marked as an orphan")]
    Nameless {
        /// The inode.
        ino: u64,
    },
    /// 1021: An inode with a wrong number of links.
    #[error("V1021: inode {ino}: {found} links, where there are {counted}")]
    Links {
        /// The inode.
        ino: u64,
        /// The value found.
        found: u32,
        /// The counted value.
        counted: u32,
    },
    /// 1022: An inode with a wrong number of blocks.
    #[error("V1022: inode {ino}: {found} blocks, where there are {counted}")]
    BlockCount {
        /// The inode.
        ino: u64,
        /// The value found.
        found: u64,
        /// The counted value.
        counted: u64,
    },
    /// 1023: A name that refers to no inode.
    #[error("V1023: directory {directory}: {name:?} leads to inode {ino}, which does not exist")]
    Dangling {
        /// The directory.
        directory: u64,
        /// The name.
        name: String,
        /// The inode number in the entry.
        ino: u64,
    },
    /// 1024: A name that has another type than its inode.
    #[error(
        "V1024: directory {directory}: {name:?} is of type {found}, and its inode {ino} of {expected}"
    )]
    NameType {
        /// The directory.
        directory: u64,
        /// The name.
        name: String,
        /// The inode number in the entry.
        ino: u64,
        /// The type in the entry.
        found: u8,
        /// The kind of the inode.
        expected: u8,
    },
    /// 1025: A directory with more than one name.
    #[error("V1025: directory {ino}: is in directory {first}, and in {second} as {name:?}")]
    TwoNames {
        /// The directory.
        ino: u64,
        /// The directory of its first name.
        first: u64,
        /// The directory of its second name.
        second: u64,
        /// The second name.
        name: String,
    },
    /// 1026: A directory whose stored parent is not the directory that contains it.
    #[error("V1026: directory {ino}: its parent is recorded as {found}, but is {expected}")]
    Parent {
        /// The directory.
        ino: u64,
        /// The value found.
        found: u64,
        /// The directory that contains it.
        expected: u64,
    },
    /// 1027: A directory that can't be reached from the root.
    #[error("V1027: directory {ino}: not reachable from the root")]
    Unconnected {
        /// The directory.
        ino: u64,
    },
    /// 1028: The root is missing, or not a directory.
    #[error("V1028: the root directory is missing")]
    NoRoot,
    /// 1029: Data of a file after its end.
    #[error("V1029: inode {ino}: data at block {file_block}, behind its size of {size} bytes")]
    BehindEnd {
        /// The file.
        ino: u64,
        /// The first block of the extent, in blocks of the file.
        file_block: u64,
        /// The size of the file, in bytes.
        size: u64,
    },
    /// 1031: A part of an inode that can't be read completely. Earlier findings say what is wrong
    /// with it.
    #[error("V1031: inode {ino}: its {part} can't be read completely")]
    Broken {
        /// The inode.
        ino: u64,
        /// The part.
        part: Part,
    },
    /// 1032: An inode that is immutable or append-only, in a volume without the feature that keeps
    /// programs from changing it that do not know these flags.
    #[error("V1032: inode {ino}: is immutable or append-only, and the volume lacks the feature")]
    Unguarded {
        /// The inode.
        ino: u64,
    },
    /// 1033: An inode with flags that have no meaning in a volume with its features.
    #[error("V1033: inode {ino}: flags without a meaning: {flags:#x}")]
    UnknownFlags {
        /// The inode.
        ino: u64,
        /// These flags.
        flags: u16,
    },
    /// 1035: Data that have another owner too, and that the device can't read.
    #[error("V1035: inode {ino}: data at block {file_block} of the file can't be read")]
    Unread {
        /// The file.
        ino: u64,
        /// The block, in blocks of the file.
        file_block: u64,
    },
    /// 1036: A symbolic link whose target has another length than its size.
    #[error("V1036: inode {ino}: a link of {found} bytes, whose target has {counted}")]
    TargetSize {
        /// The link.
        ino: u64,
        /// The size found.
        found: u64,
        /// The length of the target, in bytes.
        counted: u64,
    },
    /// 1034: Wrong sums over all groups in the superblock.
    #[error(
        "V1034: superblock: the sums over all groups are {}, where they are {}",
        InWords(.found),
        InWords(.counted)
    )]
    Sums {
        /// The sums found.
        found: GroupSums,
        /// The counted sums.
        counted: GroupSums,
    },
}

/// Returns a word for the use of an inode.
const fn in_use(is_free: bool) -> &'static str {
    if is_free { "is free and counts as used" } else { "is in use and counts as free" }
}

/// Sums over all groups, displayed in words.
struct InWords<'a>(&'a GroupSums);

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupSums { available, inodes, free_inodes, trees } = self.0;
        write!(
            f,
            "{available} blocks, {inodes} inodes, {free_inodes} of them free, {trees} at most"
        )
    }
}

/// A range of blocks, displayed in words.
struct Blocks<'a>(&'a Range<u64>);

impl fmt::Display for Blocks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.end.saturating_sub(self.0.start) {
            1 => write!(f, "block {}", self.0.start),
            _ => write!(f, "blocks {} to {}", self.0.start, self.0.end.saturating_sub(1)),
        }
    }
}

impl Problem {
    /// Returns the number of the problem.
    pub fn number(&self) -> u32 {
        match self {
            Self::Damage(damage) => damage.number(),
            Self::Copy { .. } => 1000,
            Self::Log { .. } => 1001,
            Self::Interrupted => 1002,
            Self::LogPart { .. } => 1003,
            Self::Shared { .. } => 1010,
            Self::FreeInUse { .. } => 1011,
            Self::Leaked { .. } => 1012,
            Self::Figure { figure, .. } => figure.number(),
            Self::Outside { .. } => 1017,
            Self::InUse { .. } => 1018,
            Self::NotAnOrphan { .. } => 1019,
            Self::Nameless { .. } => 1020,
            Self::Links { .. } => 1021,
            Self::BlockCount { .. } => 1022,
            Self::Dangling { .. } => 1023,
            Self::NameType { .. } => 1024,
            Self::TwoNames { .. } => 1025,
            Self::Parent { .. } => 1026,
            Self::Unconnected { .. } => 1027,
            Self::NoRoot => 1028,
            Self::BehindEnd { .. } => 1029,
            Self::Broken { .. } => 1031,
            Self::Unguarded { .. } => 1032,
            Self::UnknownFlags { .. } => 1033,
            Self::Sums { .. } => 1034,
            Self::Unread { .. } => 1035,
            Self::TargetSize { .. } => 1036,
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::Copy { .. } | Self::Figure { .. } | Self::Leaked { .. } => Severity::Minor,
            Self::BlockCount { .. } | Self::NotAnOrphan { .. } => Severity::Minor,
            Self::UnknownFlags { .. } | Self::Sums { .. } => Severity::Minor,
            Self::Damage(_) | Self::Log { .. } | Self::LogPart { .. } => Severity::Loss,
            Self::NoRoot | Self::Broken { .. } => Severity::Loss,
            Self::Nameless { .. } | Self::Dangling { .. } | Self::Unconnected { .. } => {
                Severity::Loss
            }
            Self::Unread { .. } => Severity::Loss,
            _ => Severity::Major,
        }
    }

    pub(crate) fn remedy(&self) -> Remedy {
        match self {
            Self::Copy { .. } | Self::Sums { .. } => Remedy::Copies,
            Self::Interrupted => Remedy::Finish,
            Self::LogPart { .. } => Remedy::Replay,
            Self::Unguarded { .. } => Remedy::Feature,
            Self::UnknownFlags { .. } => Remedy::Flags,
            // To write zero links would remove the inode.
            Self::Links { counted: 0, .. } | Self::Nameless { .. } => Remedy::LostFound,
            Self::InUse { .. } | Self::NotAnOrphan { .. } => Remedy::Record,
            Self::Parent { .. } | Self::NameType { .. } => Remedy::Record,
            Self::Damage(Damage::Group(GroupDamage {
                fault: GroupFault::Chunk { .. }, ..
            })) => Remedy::Record,
            Self::Damage(Damage::Extent(ExtentDamage { fault, .. })) => match fault {
                ExtentFault::List { .. } => Remedy::Nothing,
                _ => Remedy::Cut,
            },
            Self::Damage(Damage::Inode(InodeDamage {
                fault: InodeFault::Checksum { .. }, ..
            })) => Remedy::Clear,
            Self::Damage(Damage::Checksum { .. }) => Remedy::Rewrite,
            Self::NoRoot => Remedy::Root,
            Self::BehindEnd { .. } | Self::Unread { .. } => Remedy::Cut,
            Self::Broken { part: Part::Target, .. } => Remedy::Clear,
            Self::Broken { .. } => Remedy::Rebuild,
            Self::Outside { owner: Owner::Inode(_), .. } => Remedy::Cut,
            Self::Shared { .. } => Remedy::Copy,
            // The contents of a directory that is its own ancestor go to `/lost+found`.
            Self::Dangling { .. } | Self::TwoNames { .. } | Self::Unconnected { .. } => {
                Remedy::Unlink
            }
            Self::Figure { .. } | Self::Links { .. } | Self::BlockCount { .. } => Remedy::Figure,
            Self::TargetSize { .. } => Remedy::Figure,
            Self::FreeInUse { .. } | Self::Leaked { .. } => Remedy::FreeSpace,
            _ => Remedy::Nothing,
        }
    }
}
