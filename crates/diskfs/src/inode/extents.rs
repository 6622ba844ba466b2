//! The map from blocks of a file to blocks of the volume: a list in the inode, or a tree.
//!
//! # Purpose
//!
//! An [`ExtentMap`] is the part of an inode that locates the data of a file. It begins as a list;
//! when the list gets longer than the inode has room for, it becomes a B+tree ([`ExtentTree`]), and
//! when the last extent is removed, the tree is freed, too. [`Nodes`] allocates the tree's blocks.
//! Hence the map can be read outside of a transaction and changed within one.
//!
//! # Invariants
//!
//! * Extents don't overlap, and are in order of the blocks of the file.
//! * No two adjacent extents could be one: every change of the map merges them.
//! * Every extent read from disk is checked ([`ExtentFault`]) before it is used, so no extent leads
//!   outside of the volume.
//!
//! # All or nothing
//!
//! A change of one record is all or nothing ([`btree`](crate::btree)), one of several is not: after
//! an error the caller discards the map together with the nodes, as by dropping the transaction.
//!
//! # Locks, references
//!
//! None. A reader has the map as of some moment, and the tree does not change while it reads; a
//! writer has exclusive access.

use std::sync::Arc;

use zerocopy::little_endian::U64;

use crate::btree::counted::Counted;
use crate::btree::{Error, Kind, Nodes, Record, Tree};
use crate::format::damage::{ExtentDamage, ExtentFault};
use crate::format::extent::{EXTENT_MAGIC, Extent, FILE_BLOCKS_MAX, RawPlace};
use crate::format::{BlockRange, Damage, Magic};
use crate::inode::core::DataFork;
use crate::page_cache::Mapping;

/// The tree of a file with many extents.
#[derive(Clone, Copy, Debug)]
pub enum ExtentTree {}

impl Kind for ExtentTree {
    type Key = U64;
    type Value = RawPlace;
    const MAGIC: Magic = EXTENT_MAGIC;
    const KEY_MIN: U64 = U64::ZERO;
}

/// The map of a file's extents. See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ExtentMap {
    /// No extents. Not an empty list: all files would share the cache line of its reference count.
    #[default]
    Empty,
    /// A few extents, in order; at least one.
    List(Arc<[Extent]>),
    /// Many extents: the root of an [`ExtentTree`].
    Tree(u64),
}

/// The inode whose map is changed.
#[derive(Clone, Copy, Debug)]
pub struct MapOwner {
    /// Number of the inode.
    pub ino: u64,
    /// Number of extents that the inode has room for: at most
    /// [`LIST_MAX`](crate::format::extent::LIST_MAX).
    pub list_max: usize,
}

type Outcome<T, N> = Result<T, Error<<N as Nodes>::Error>>;

impl ExtentMap {
    /// Returns the map of a file with this fork.
    pub(crate) fn of(data: &DataFork) -> Self {
        match data {
            DataFork::None | DataFork::Inline(_) => Self::default(),
            DataFork::Extents(list) if list.is_empty() => Self::Empty,
            DataFork::Extents(list) => Self::List(Arc::clone(list)),
            DataFork::Tree { root } => Self::Tree(*root),
        }
    }

    /// Returns the fork of a file with this map.
    pub(crate) fn into_fork(self) -> DataFork {
        match self {
            Self::Empty => DataFork::None,
            Self::List(list) => DataFork::Extents(list),
            Self::Tree(root) => DataFork::Tree { root },
        }
    }

    /// Returns the map of a file with these few extents, in order.
    pub(crate) fn of_list(list: &[Extent]) -> Self {
        if list.is_empty() { Self::Empty } else { Self::List(list.into()) }
    }

    /// Returns the extents of a list; none for a tree.
    fn listed(&self) -> &[Extent] {
        if let Self::List(list) = self { list } else { &[] }
    }

    /// Returns whether there is no extent. (A tree without extents is freed.)
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// Returns the mapping of block `block` of the file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn lookup<N: Nodes>(&self, nodes: &N, ino: u64, block: u64) -> Outcome<Mapping, N> {
        Ok(match self.next(nodes, ino, block)? {
            Some(extent) if extent.file_block <= block => {
                let start = extent.start + (block - extent.file_block);
                let blocks = extent.end() - block;
                match extent.is_unwritten {
                    true => Mapping::Unwritten { start, blocks },
                    false => Mapping::Mapped { start, blocks },
                }
            }
            Some(extent) => Mapping::Hole { blocks: extent.file_block - block },
            None => Mapping::Hole { blocks: FILE_BLOCKS_MAX.saturating_sub(block) },
        })
    }

    /// Returns the first extent that ends behind block `block`: the one that contains it, or else
    /// the next one.
    ///
    /// # Errors
    /// [`Error`].
    pub fn next<N: Nodes>(&self, nodes: &N, ino: u64, block: u64) -> Outcome<Option<Extent>, N> {
        match self {
            Self::Empty => Ok(None),
            Self::List(list) => {
                let at = list.partition_point(|extent| extent.end() <= block);
                Ok(list.get(at).copied())
            }
            Self::Tree(root) => {
                let mut cursor = tree(*root, ino).seek(nodes, block.into())?;
                if cursor.is_found() {
                    return checked(nodes, ino, cursor.forward()?);
                }
                let before = checked(nodes, ino, cursor.backward()?)?;
                if before.is_some_and(|before| before.end() > block) {
                    return Ok(before);
                }
                if before.is_some() {
                    cursor.forward()?;
                }
                checked(nodes, ino, cursor.forward()?)
            }
        }
    }

    /// Returns the last extent that begins before block `block`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn before<N: Nodes>(&self, nodes: &N, ino: u64, block: u64) -> Outcome<Option<Extent>, N> {
        match self {
            Self::Empty => Ok(None),
            Self::List(list) => {
                let at = list.partition_point(|extent| extent.file_block < block);
                Ok(at.checked_sub(1).and_then(|at| list.get(at)).copied())
            }
            Self::Tree(root) => {
                let mut cursor = tree(*root, ino).seek(nodes, block.into())?;
                checked(nodes, ino, cursor.backward()?)
            }
        }
    }

    /// Inserts an extent into a hole. Returns the number of blocks by which the tree has grown.
    ///
    /// # Errors
    /// [`Error`]; [`ExtentFault::Overlap`] if the range is not a hole.
    pub fn insert<N: Nodes>(
        &mut self,
        nodes: &mut N,
        owner: MapOwner,
        extent: Extent,
    ) -> Outcome<i64, N> {
        let Extent { file_block, .. } = extent;
        let ino = owner.ino;
        extent
            .checked(ino, |start, blocks| nodes.is_for_data(start, blocks))
            .map_err(Damage::from)?;
        let before = self.before(nodes, ino, file_block)?;
        let next = self.next(nodes, ino, file_block)?;
        let overlapped = [before, next].into_iter().flatten();
        if let Some(other) =
            overlapped.into_iter().find(|other| other.part(file_block, extent.end()).is_some())
        {
            let fault = ExtentFault::Overlap { end: other.end() };
            return Err(Damage::from(ExtentDamage { ino, file_block, fault }).into());
        }
        self.replace(nodes, owner, before, &[], &[extent], next)
    }

    /// Removes the blocks `from` to `to` of the file. Stops after changing `extents_max` extents,
    /// and returns the first block that was not processed: `to` if all were. Freed runs of the
    /// device are added to `freed`. `grown` is raised by the number of blocks by which the tree has
    /// grown.
    ///
    /// # Errors
    /// [`Error`].
    pub fn remove<N: Nodes>(
        &mut self,
        nodes: &mut N,
        owner: MapOwner,
        (from, to): (u64, u64),
        extents_max: usize,
        freed: &mut Vec<BlockRange>,
        grown: &mut i64,
    ) -> Outcome<u64, N> {
        let mut at = from;
        for _ in 0..extents_max {
            let next = self.next(nodes, owner.ino, at)?;
            let Some(extent) = next.filter(|extent| extent.file_block < to) else { return Ok(to) };
            let Some(removed) = extent.part(from, to) else { return Ok(to) };
            let left = extent.part(0, removed.file_block);
            let right = extent.part(removed.end(), u64::MAX);
            let rest: Vec<_> = left.into_iter().chain(right).collect();
            *grown += self.replace(nodes, owner, None, &[extent], &rest, None)?;
            freed.push(removed.run());
            at = removed.end();
        }
        Ok(at.min(to))
    }

    /// Marks the blocks `from` to `to` of the file, where they exist, as written, or with
    /// `is_unwritten` as unwritten, in which case they read as zeros. Stops after changing
    /// `extents_max` extents, and returns the first block that was not processed: `to` if all were.
    /// `grown` is raised by the number of blocks by which the tree has grown.
    ///
    /// # Errors
    /// [`Error`].
    pub fn convert<N: Nodes>(
        &mut self,
        nodes: &mut N,
        owner: MapOwner,
        (from, to): (u64, u64),
        is_unwritten: bool,
        extents_max: usize,
        grown: &mut i64,
    ) -> Outcome<u64, N> {
        let (mut at, mut changed) = (from, 0);
        while let Some(extent) = self.next(nodes, owner.ino, at)? {
            let Some(part) = extent.part(at, to) else { break };
            if extent.is_unwritten == is_unwritten {
                at = part.end();
                continue;
            }
            if changed == extents_max {
                return Ok(at);
            }
            at = part.end();
            changed += 1;
            let before = self.before(nodes, owner.ino, extent.file_block)?;
            let next = self.next(nodes, owner.ino, extent.end())?;
            let left = extent.part(0, part.file_block);
            let right = extent.part(part.end(), u64::MAX);
            let written = Extent { is_unwritten, ..part };
            let parts: Vec<_> = left.into_iter().chain([written]).chain(right).collect();
            *grown += self.replace(nodes, owner, before, &[extent], &parts, next)?;
        }
        Ok(to)
    }

    /// Replaces extents by others for the same blocks of the file, and merges these with each other
    /// and with their neighbours where possible. Returns the number of blocks by which the tree has
    /// grown.
    fn replace<N: Nodes>(
        &mut self,
        nodes: &mut N,
        owner: MapOwner,
        before: Option<Extent>,
        old: &[Extent],
        new: &[Extent],
        next: Option<Extent>,
    ) -> Outcome<i64, N> {
        let mut joined: Vec<Extent> = before.into_iter().collect();
        for extent in new.iter().copied().chain(next) {
            match joined.last_mut().and_then(|last| Some((last.joined(&extent)?, last))) {
                Some((both, last)) => *last = both,
                None => joined.push(extent),
            }
        }
        let old: Vec<Extent> = before.into_iter().chain(old.iter().copied()).chain(next).collect();
        // Unchanged extents are not rewritten.
        let same = |extent: &&Extent, others: &[Extent]| others.contains(extent);
        let removed: Vec<Extent> = old.iter().filter(|e| !same(e, &joined)).copied().collect();
        let added: Vec<Extent> = joined.iter().filter(|e| !same(e, &old)).copied().collect();
        let mut nodes = Counted::new(nodes);
        self.change(&mut nodes, owner, &removed, &added)?;
        Ok(nodes.grown())
    }

    /// Removes records and inserts others.
    fn change<N: Nodes>(
        &mut self,
        nodes: &mut N,
        owner: MapOwner,
        removed: &[Extent],
        added: &[Extent],
    ) -> Outcome<(), N> {
        match self {
            Self::Empty | Self::List(_) => {
                let mut changed = self.listed().to_vec();
                changed.retain(|extent| !removed.contains(extent));
                for extent in added {
                    let at = changed.partition_point(|other| other.file_block < extent.file_block);
                    changed.insert(at, *extent);
                }
                *self = if changed.len() > owner.list_max {
                    Self::Tree(grown_out(nodes, owner.ino, &changed)?)
                } else {
                    Self::of_list(&changed)
                };
            }
            Self::Tree(root) => {
                let tree = tree(*root, owner.ino);
                let stays = |key: u64| added.iter().any(|extent| extent.file_block == key);
                for extent in removed.iter().filter(|extent| !stays(extent.file_block)) {
                    tree.remove(nodes, extent.file_block.into())?;
                }
                for extent in added {
                    let (key, value) = (U64::from(extent.file_block), extent.place());
                    if tree.update(nodes, key, value)?.is_none() {
                        tree.insert(nodes, key, value)?;
                    }
                }
                if added.is_empty() && tree.first(nodes)?.is_none() {
                    let slot = nodes.freeable(*root, &tree.expected())?;
                    nodes.free(slot);
                    *self = Self::default();
                }
            }
        }
        Ok(())
    }
}

fn tree(root: u64, ino: u64) -> Tree<ExtentTree> {
    Tree::at(root, ino)
}

/// Creates a tree from a list; returns its root.
fn grown_out<N: Nodes>(nodes: &mut N, ino: u64, list: &[Extent]) -> Outcome<u64, N> {
    let record = |extent: &Extent| Record::<ExtentTree> {
        key: extent.file_block.into(),
        value: extent.place(),
    };
    let records: Vec<_> = list.iter().map(record).collect();
    let near = list.last().map_or(0, Extent::place_end);
    Ok(Tree::<ExtentTree>::build(nodes, ino, near, &records, 100)?.root())
}

/// Checks a record, and returns its extent.
fn checked<N: Nodes>(
    nodes: &N,
    ino: u64,
    record: Option<Record<ExtentTree>>,
) -> Outcome<Option<Extent>, N> {
    let Some(record) = record else { return Ok(None) };
    let extent = Extent::of(record.key.get(), &record.value);
    let extent = extent
        .checked(ino, |start, blocks| nodes.is_for_data(start, blocks))
        .map_err(Damage::from)?;
    Ok(Some(extent))
}

#[cfg(test)]
mod tests;
