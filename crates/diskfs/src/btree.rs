//! The on-disk B+tree, which every index uses.
//!
//! # Purpose
//!
//! One tree serves free space, inode chunks, directories, extents and attributes. A [`Kind`]
//! defines the keys and values; [`Nodes`] provides the blocks, so the tree depends on neither cache
//! nor journal. A [`Tree`] is just the address of a root, which never moves while the tree lives.
//!
//! # Invariants
//!
//! * All leaves are at level 0, and a block at level n points to blocks at level n - 1 only.
//! * Keys in a block ascend strictly. A block at a level above 0 has a bound for each of its
//!   children: all keys below that child are not less than its bound, and less than the next one.
//!   The first bound of a block is its own bound in its parent; that of the root is the least key
//!   of all ([`Kind::KEY_MIN`]). Therefore insertion and removal change bounds only if they split,
//!   merge or rebalance blocks.
//! * All blocks of a level are linked both ways, in order.
//! * A block has between a third of the records that fit and all of them. The first and the last of
//!   a level may have fewer: at least one in a leaf, two above. The root may have fewer: none if it
//!   is a leaf, two if not. So keys inserted in order, forward or backward, leave full blocks
//!   behind.
//!
//! A descent checks the invariants that it can see, for each block every time; the order in the
//! whole block is checked when it arrives from the device; the rest by [`Tree::check`]. Any
//! violation ends the call with a numbered [`Damage`](crate::format::Damage).
//!
//! # All or nothing
//!
//! A change first reads, allocates and makes writable all blocks that it needs ([`Nodes`]): at most
//! one block more than the tree has levels. Only then does it change anything, and nothing can fail
//! any more. A call that returns an error has changed nothing and allocated nothing.
//!
//! # Locks, references
//!
//! None. Reading calls hold the blocks by shared reference, changing ones by unique reference; the
//! owner of the tree (a group, an inode) holds its lock for the whole call. A
//! [`Cursor`](cursor::Cursor) borrows the blocks and so excludes changes.
//!
//! The structure is that of Bayer and McCreight, "Organization and Maintenance of Large Ordered
//! Indices" (1972), with records in the leaves only, and with links between neighbours as in XFS.

mod around;
mod bulk;
mod capacity;
mod check;
pub(crate) mod counted;
mod cursor;
mod descend;
mod destroy;
mod insert;
mod lookup;
#[cfg(test)]
pub(crate) mod memory;
mod node;
mod nodes;
mod remove;
mod salvage;
mod tree;

pub(crate) use crate::format::btree::Branch;
pub use crate::format::btree::{Entry, Kind, LEVELS_MAX, OnDisk, Record};
pub use crate::format::damage::TreeFault;
pub use check::Summary;
pub(crate) use lookup::FoundRecord;
pub use nodes::{Error, Nodes};
pub(crate) use salvage::{Around, Kept};
pub use tree::Tree;

#[cfg(test)]
mod tests;
