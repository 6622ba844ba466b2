//! The reservation of each kind of transaction of the driver.
//!
//! A directory's tree has up to five levels: a name of 255 bytes is nine records next to each
//! other, which lie in two leaves at most, so that each level is split twice or merged once.
//! Everything that a transaction takes or gives back may be in another group
//! ([`Groups::log_blocks`]).

use crate::alloc::Groups;
use crate::format::attr::CHUNK_BYTES;
use crate::format::inode::ATTR_BLOB_BYTES_MAX;
use crate::volume::tx::TxReservation;

/// Blocks of a directory that a name changes which comes or goes: two on each level, and their
/// neighbours.
const NAME_BLOCKS: u32 = 16;
/// Blocks that a directory grows or shrinks by: two splits of each level.
const NAME_RUNS: u32 = 8;
/// Blocks of the largest blob: eight chunks in each, and a level above.
const BLOB_BLOCKS: u32 = (ATTR_BLOB_BYTES_MAX as usize).div_ceil(8 * CHUNK_BYTES) as u32 + 4;
/// Runs that they come in, or go in: they are taken one by one, and lie together if there is room.
const BLOB_RUNS: u32 = 16;
/// Blocks of the target of the longest link.
const TARGET_BLOCKS: u32 = 4;

/// The part of the log that one transaction may ask for at most.
const LOG_SHARE: u64 = 3;

/// The reservations of the transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct TxReservations {
    /// Nothing but the record of an inode.
    pub(super) record: TxReservation,
    /// Attributes change.
    pub(super) xattrs: TxReservation,
    /// An inode is created, with a name or without.
    pub(super) create: TxReservation,
    /// Creation with extended attributes.
    pub(super) create_xattrs: TxReservation,
    /// A name is added.
    pub(super) link: TxReservation,
    /// A name is removed.
    pub(super) unlink: TxReservation,
    /// A name is removed and another one added.
    pub(super) rename: TxReservation,
}

impl TxReservations {
    /// Computes the reservations for a volume with these groups and a log of `log_blocks` blocks.
    pub(super) fn new(groups: &Groups, log_blocks: u64) -> Self {
        // In the smallest logs the largest attributes find no room if all of their blocks lie in
        // groups of their own: such a transaction is refused when it commits.
        let most = u32::try_from(log_blocks / LOG_SHARE).unwrap_or(u32::MAX);
        let need = |own: u32, runs: u32, inodes: u32, space: u32, from_pool: bool| TxReservation {
            log_blocks: (own + groups.log_blocks(runs, inodes)).min(most),
            space: space.into(),
            from_pool,
        };
        let name =
            |inodes, space, from_pool| need(NAME_BLOCKS, NAME_RUNS, inodes, space, from_pool);
        let created = NAME_BLOCKS + TARGET_BLOCKS;
        // Eight blocks of inodes may come with one.
        let created_space = NAME_RUNS + TARGET_BLOCKS + 8;
        Self {
            record: TxReservation { log_blocks: 2, space: 0, from_pool: true },
            xattrs: need(2 * BLOB_BLOCKS, BLOB_RUNS, 0, BLOB_BLOCKS, false),
            create: need(created, NAME_RUNS + TARGET_BLOCKS, 1, created_space, false),
            create_xattrs: need(
                created + BLOB_BLOCKS,
                NAME_RUNS + TARGET_BLOCKS + BLOB_RUNS,
                1,
                created_space + BLOB_BLOCKS,
                false,
            ),
            link: name(1, NAME_RUNS, false),
            unlink: name(1, 0, true),
            rename: need(2 * NAME_BLOCKS, 2 * NAME_RUNS, 1, NAME_RUNS, false),
        }
    }
}
