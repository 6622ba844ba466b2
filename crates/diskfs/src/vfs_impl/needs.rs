//! The reservation of each kind of transaction of the driver.
//!
//! A directory's tree has up to five levels. A name of 255 bytes is nine adjacent records, which
//! lie in at most two leaves, so each level is split at most twice or merged at most once.
//! Everything that a transaction allocates or frees may lie in another group
//! ([`Groups::log_blocks`]).

use crate::alloc::Groups;
use crate::format::attr::CHUNK_BYTES;
use crate::format::inode::ATTR_BLOB_BYTES_MAX;
use crate::volume::tx::TxReservation;
use crate::volume::tx::names::{NAME_BLOCKS, NAME_RUNS};

/// The blocks of the largest blob: each holds eight chunks, and there is a level above.
const BLOB_BLOCKS: u32 = (ATTR_BLOB_BYTES_MAX as usize).div_ceil(8 * CHUNK_BYTES) as u32 + 4;
/// The runs in which the blocks of a blob are allocated or freed: they are allocated one by one,
/// and are adjacent if there is room.
const BLOB_RUNS: u32 = 16;
/// The blocks of the target of the longest link.
const TARGET_BLOCKS: u32 = 4;

/// The divisor of the log's size that limits the reservation of one transaction: a third of the
/// log.
const LOG_SHARE: u64 = 3;

/// The reservations of the transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct TxReservations {
    /// A change of the record of an inode only.
    pub(super) record: TxReservation,
    /// A change of extended attributes.
    pub(super) xattrs: TxReservation,
    /// The creation of an inode, with or without a name.
    pub(super) create: TxReservation,
    /// A creation with extended attributes.
    pub(super) create_xattrs: TxReservation,
    /// The addition of a name.
    pub(super) link: TxReservation,
    /// The removal of a name.
    pub(super) unlink: TxReservation,
    /// The removal of a name and the addition of another one, with the new data of a small file.
    pub(super) rename: TxReservation,
    /// A rename that makes a file under the old name.
    pub(super) rename_whiteout: TxReservation,
}

impl TxReservations {
    /// Computes the reservations for a volume with these groups and a log of `log_blocks` blocks.
    pub(super) fn new(groups: &Groups, log_blocks: u64) -> Self {
        // In the smallest logs the largest attributes do not fit if each of their blocks lies in
        // another group: such a transaction is refused when it commits.
        let most = u32::try_from(log_blocks / LOG_SHARE).unwrap_or(u32::MAX);
        let need = |own: u32, runs: u32, inodes: u32, space: u32, from_pool: bool| TxReservation {
            log_blocks: (own + groups.log_blocks(runs, inodes)).min(most),
            space: space.into(),
            from_pool,
        };
        let name =
            |inodes, space, from_pool| need(NAME_BLOCKS, NAME_RUNS, inodes, space, from_pool);
        let created = NAME_BLOCKS + TARGET_BLOCKS;
        // Creating an inode may allocate a chunk of inodes, which has eight blocks.
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
            rename: need(2 * NAME_BLOCKS, 2 * NAME_RUNS + 1, 1, NAME_RUNS, false),
            rename_whiteout: need(
                2 * NAME_BLOCKS + BLOB_BLOCKS,
                2 * NAME_RUNS + BLOB_RUNS + 1,
                2,
                created_space + NAME_RUNS + BLOB_BLOCKS,
                false,
            ),
        }
    }
}
