//! Transactions: a change of several blocks and inodes that happens wholly or not at all.
//!
//! # Purpose
//!
//! A [`Tx`] is how anything on a volume changes. It works on copies: of blocks ([`Nodes`]) and of
//! inodes. Nobody else sees any of it before [`Tx::commit`], so whatever fails before is undone by
//! dropping it: an error of the device, no space, damage that was found half way.
//!
//! # How a commit goes
//!
//! 1. What was claimed and freed is written into the trees of the groups, in copies as well. The
//!    groups are locked for that, in ascending order, and stay locked until the end.
//! 2. Every item is added to the log's transaction, which pins it, so that it does not go home.
//! 3. The copies are published: readers see them.
//! 4. The log's transaction is committed, and the groups are unlocked.
//!
//! Until 1 is done everything can fail and nothing has happened; from 2 on nothing fails but the log
//! itself, after which nothing becomes durable any more.
//!
//! # Invariants
//!
//! * Two transactions never change the same block or inode at once: whoever changes it holds what
//!   owns it, from the first change until the commit has returned. For what an inode owns that is
//!   its lock, for the trees of a group the lock that the commit takes. So the order of two commits
//!   that have a block in common is the order in the log, and a recovery ends with the later one.
//! * What is freed can be had by others only when that is durable ([`Transaction::on_durable`]): a
//!   crash never finds a block both in the file that it was freed from and with another's contents.
//! * A transaction logs no more than it has reserved. One that would is refused, as a
//!   mistake of the program, before anything is published.
//!
//! # Locks
//!
//! [`Volume::begin`] sleeps for log space, and is called without any lock of this crate. Commit is called
//! with inodes locked, and takes the locks of groups.
//!
//! # Who holds which reference
//!
//! A transaction holds the buffers that it changes, so that none of them is evicted, and from the
//! commit on the journal does, until they are home.

/// Consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The address of the first one.
    pub start: u64,
    /// How many there are.
    pub blocks: u32,
}

impl Run {
    /// One block.
    #[must_use]
    pub const fn one(address: u64) -> Self {
        Self { start: address, blocks: 1 }
    }

    /// The address behind the last block; the largest number for a run that no volume has.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.start.saturating_add(self.blocks as u64)
    }
}

/// What a transaction may need at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Blocks and inodes that it may log.
    pub log_blocks: u32,
    /// Blocks that it may take from free space.
    pub space: u64,
    /// Whether they may come from what is kept back for removing and writing back.
    pub from_pool: bool,
}
