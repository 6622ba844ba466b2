//! Trees of places: which place has the content of a block.
//!
//! # Purpose
//!
//! A radix tree of nodes with 504 entries, in memory as far as it was visited. Lookups take no
//! lock. A node that changes is written to a fresh place by the next checkpoint, and so are all
//! nodes above it, up to the root.
//!
//! A node has room for the nodes below it in groups of 21, each made when the first of its nodes
//! is: an open branch has visited few of them.
//!
//! # Invariants
//!
//! * A node is in memory at most once, and stays until the map is dropped. So a reference to it
//!   lives as long as the map.
//! * All nodes above a dirty node are dirty. For each dirty node one place is taken from the
//!   budget, so a checkpoint always finds the places that it needs.
//! * The place that a node had on the device is reported once, when the node becomes dirty.
//! * An entry of an inner node whose child is in memory is that of the last checkpoint.
//! * A row of blocks has no node on the device. Its nodes are made in memory when they are needed;
//!   those that do not change are never written.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Error;
use crate::disk::device::Disk;
use crate::disk::format::{self, Bytes, Entry, FANOUT, NODE, NodeBlock};
use crate::disk::layout::Layout;
use crate::space::bitmaps::Purse;

mod differing;
pub(crate) mod walk;

/// Most levels of nodes.
pub(crate) const LEVELS_MAX: usize = 4;

/// How many nodes below a node have their room together.
const KIDS: usize = 21;
const _: () = assert!(FANOUT.is_multiple_of(KIDS));

/// Room for consecutive nodes below a node.
type Kids = Box<[OnceLock<Box<MapNode>>; KIDS]>;

/// Returns how many levels a map of `blocks` needs.
pub(crate) fn levels(blocks: u64) -> u8 {
    let mut levels = 1;
    while span(levels) < blocks {
        levels += 1;
    }
    levels
}

/// Returns the number of blocks below a node with `levels` levels, itself included; one for none.
pub(crate) fn span(levels: u8) -> u64 {
    (FANOUT as u64).pow(u32::from(levels))
}

/// A node in memory.
#[derive(Debug)]
pub(crate) struct MapNode {
    /// 0 for a leaf.
    level: u8,
    /// The first block below it.
    first: u64,
    entries: Box<[AtomicU64]>,
    /// The nodes below it that are in memory, in groups; none for a leaf.
    kids: Box<[OnceLock<Kids>]>,
    /// Where it is on the device, as an [`Entry`]; of no meaning while it is dirty.
    home: AtomicU64,
    dirty: AtomicBool,
}

/// The nodes from the root to a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'m> {
    nodes: [Option<&'m MapNode>; LEVELS_MAX],
}

/// The blocks of a map that a checkpoint collects.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The blocks to be written.
    pub(crate) blocks: Vec<(u64, Box<Bytes>)>,
    /// The indices of those of them that are written to the next place, too.
    pub(crate) twice: Vec<usize>,
    /// Dirty nodes that need no place any more, since they are empty.
    pub(crate) spared: u64,
}

impl Written {
    /// Adds a block of the branch table, or of its tree, with its copy if it has one.
    pub(crate) fn push_twice(&mut self, entry: Entry, bytes: Box<Bytes>) {
        if entry.is_twice() {
            self.twice.push(self.blocks.len());
        }
        self.blocks.push((entry.place(), bytes));
    }
}

/// A tree of places.
#[derive(Debug)]
pub(crate) struct Map {
    disk: Disk,
    /// The number of the tree, which its nodes name: 0 for branches.
    tree: u64,
    root: MapNode,
}

impl MapNode {
    fn empty(level: u8, first: u64) -> Self {
        let kids = if level == 0 { 0 } else { FANOUT / KIDS };
        Self {
            level,
            first,
            entries: (0..FANOUT).map(|_| AtomicU64::new(0)).collect(),
            kids: (0..kids).map(|_| OnceLock::new()).collect(),
            home: AtomicU64::new(0),
            dirty: AtomicBool::new(false),
        }
    }

    fn index(&self, block: u64) -> usize {
        ((block - self.first) / span(self.level)) as usize
    }

    /// Returns the node at an index below an inner node, if it is in memory.
    fn kid_at(&self, index: usize) -> Option<&MapNode> {
        Some(self.kids[index / KIDS].get()?[index % KIDS].get()?)
    }

    /// Puts a node at an index below an inner node, unless there is one, and returns the one there.
    fn put_kid(&self, index: usize, kid: MapNode) -> &MapNode {
        let group = || Box::new([const { OnceLock::new() }; KIDS]);
        self.kids[index / KIDS].get_or_init(group)[index % KIDS].get_or_init(|| Box::new(kid))
    }

    /// Returns the nodes below it that are in memory, each with its index.
    fn kids(&self) -> impl Iterator<Item = (usize, &MapNode)> {
        let groups = self.kids.iter().enumerate().filter_map(|(at, kids)| Some((at, kids.get()?)));
        let slots = groups.flat_map(|(at, kids)| (at * KIDS..).zip(kids.iter()));
        slots.filter_map(|(index, kid)| Some((index, &**kid.get()?)))
    }

    /// Returns the entry of a block in a leaf.
    pub(crate) fn entry(&self, block: u64) -> Entry {
        Entry(self.entries[self.index(block)].load(Ordering::Acquire))
    }

    /// Replaces the entry of a block in a leaf, and returns the former one. The caller has made the
    /// leaf dirty.
    pub(crate) fn replace(&self, block: u64, entry: Entry) -> Entry {
        Entry(self.entries[self.index(block)].swap(entry.0, Ordering::AcqRel))
    }

    fn home(&self) -> Entry {
        Entry(self.home.load(Ordering::Relaxed))
    }

    /// Makes the node of a row of blocks.
    fn of_row(layout: &Layout, row: Entry, level: u8) -> Self {
        let node = Self::empty(level, row.place());
        for (entry, of_row) in node.entries.iter().zip(row_entries(layout, row, level)) {
            entry.store(of_row.0, Ordering::Relaxed);
        }
        node.home.store(row.0, Ordering::Relaxed);
        node
    }
}

/// Returns the entries that a node at `level` would have for a row of blocks, which ends with the
/// volume that the pool was.
pub(crate) fn row_entries(
    layout: &Layout,
    row: Entry,
    level: u8,
) -> impl Iterator<Item = Entry> + use<> {
    let end = layout.first;
    (0..FANOUT as u64).map(move |index| match row.place() + index * span(level) {
        block if block >= end => Entry::NONE,
        block if level == 0 => Entry::new(block, row.birth()),
        block => Entry::row(block, row.birth()),
    })
}

/// Returns the places of a row of blocks, whose node would be at `level`.
pub(crate) fn row_places(layout: &Layout, row: Entry, level: u8) -> Range<u64> {
    row.place()..(row.place() + span(level + 1)).min(layout.first)
}

impl Map {
    /// Opens a tree, whose root is read if there is one.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn open(disk: &Disk, tree: u64, root: Entry, levels: u8) -> Result<Self, Error> {
        let root = match root {
            Entry::NONE => MapNode::empty(levels - 1, 0),
            row if row.is_row() => MapNode::of_row(&disk.layout(), row, levels - 1),
            entry => load(disk, tree, entry, levels - 1, 0)?,
        };
        Ok(Self { disk: disk.clone(), tree, root })
    }

    /// Returns the child that an inner node has for a block. `None` if there is none, unless
    /// `create` is set.
    fn kid<'m>(
        &self,
        node: &'m MapNode,
        block: u64,
        create: bool,
    ) -> Result<Option<&'m MapNode>, Error> {
        let index = node.index(block);
        if let Some(kid) = node.kid_at(index) {
            return Ok(Some(kid));
        }
        let entry = Entry(node.entries[index].load(Ordering::Acquire));
        let (level, first) = (node.level - 1, node.first + index as u64 * span(node.level));
        let kid = match entry {
            Entry::NONE if !create => return Ok(None),
            Entry::NONE => MapNode::empty(level, first),
            entry if entry.is_row() => MapNode::of_row(&self.disk.layout(), entry, level),
            entry => load(&self.disk, self.tree, entry, level, first)?,
        };
        // Another thread may have been faster; both have read the same block, which nobody reuses
        // while a reader or writer of the branch is inside.
        Ok(Some(node.put_kid(index, kid)))
    }

    /// Returns the leaf of a block; `None` if no block of the leaf has a place.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn leaf(&self, block: u64) -> Result<Option<&MapNode>, Error> {
        let mut node = &self.root;
        while node.level > 0 {
            let Some(kid) = self.kid(node, block, false)? else { return Ok(None) };
            node = kid;
        }
        Ok(Some(node))
    }

    /// Returns the entry of a block.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn find(&self, block: u64) -> Result<Entry, Error> {
        let mut node = &self.root;
        while node.level > 0 {
            let index = node.index(block);
            let entry = Entry(node.entries[index].load(Ordering::Acquire));
            if entry.is_row() && node.kid_at(index).is_none() {
                // A reader needs no node of a row.
                let is_inside = block < self.disk.layout().first;
                let found = is_inside.then(|| Entry::new(block, entry.birth()));
                return Ok(found.unwrap_or(Entry::NONE));
            }
            let Some(kid) = self.kid(node, block, false)? else { return Ok(Entry::NONE) };
            node = kid;
        }
        Ok(node.entry(block))
    }

    /// Returns the first of some blocks that may have a place, but for rows of blocks with a birth
    /// of `above` at most: those are passed over, and need no node. The caller keeps checkpoints
    /// out.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn skip(&self, blocks: Range<u64>, above: u32) -> Result<Option<u64>, Error> {
        let (mut block, mut node) = (blocks.start, &self.root);
        while block < blocks.end && node.level > 0 {
            let index = node.index(block);
            let entry = Entry(node.entries[index].load(Ordering::Acquire));
            let is_dirty = node.kid_at(index).is_some_and(|kid| kid.dirty.load(Ordering::Acquire));
            let is_shared_row = entry.is_row() && entry.birth() <= above;
            let kid = match is_dirty || !is_shared_row {
                true => self.kid(node, block, false)?,
                false => None,
            };
            if kid.is_none() {
                block = node.first + (index as u64 + 1) * span(node.level);
            }
            node = kid.unwrap_or(&self.root);
        }
        Ok((block < blocks.end).then_some(block))
    }

    /// Returns the nodes that lead to a block; those that do not exist are made in memory.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn path(&self, block: u64) -> Result<Path<'_>, Error> {
        let mut path = Path { nodes: [None; LEVELS_MAX] };
        let mut node = &self.root;
        loop {
            path.nodes[usize::from(node.level)] = Some(node);
            match node.level {
                0 => return Ok(path),
                _ => node = self.kid(node, block, true)?.unwrap_or(node),
            }
        }
    }

    /// Empties the map, up to about `left` places, of which those with a birth above `above` are
    /// collected in `freed`. Returns whether it is empty now. Otherwise the nodes that have changed
    /// are dirty, and are to be written to places of the reserve. No other thread may use the map.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn prune(&self, above: u32, left: u64, freed: &mut Vec<u64>) -> Result<bool, Error> {
        let home = self.root.home();
        if home.is_none() || home.birth() <= above {
            return Ok(true);
        }
        self.prune_node(&self.root, above, left as usize, freed)
    }

    /// Empties a node that has a place of its own.
    fn prune_node(
        &self,
        node: &MapNode,
        above: u32,
        left: usize,
        freed: &mut Vec<u64>,
    ) -> Result<bool, Error> {
        let mut is_empty = true;
        for (index, slot) in node.entries.iter().enumerate() {
            let entry = Entry(slot.load(Ordering::Relaxed));
            // Of a shared node everything below is shared.
            if !entry.is_none() && entry.birth() > above {
                if node.level == 0 {
                    freed.push(entry.place());
                } else if freed.len() >= left {
                    is_empty = false;
                    break;
                } else {
                    let block = node.first + index as u64 * span(node.level);
                    let kid = self.kid(node, block, false)?;
                    let gone = match kid {
                        Some(kid) => self.prune_node(kid, above, left, freed)?,
                        None => true,
                    };
                    if !gone {
                        is_empty = false;
                        break;
                    }
                }
            }
            slot.store(0, Ordering::Relaxed);
        }
        if !node.home().is_row() {
            freed.push(node.home().place());
        }
        node.dirty.store(!is_empty, Ordering::Relaxed);
        Ok(is_empty)
    }

    /// Writes the dirty nodes into blocks, and returns the entry of the root. No other thread may
    /// change the map meanwhile. `place` hands out the places that dirty nodes have taken from the
    /// budget, each with the birth of what it is for.
    ///
    /// # Errors
    /// Errors of `place`; the map is of no use then.
    pub(crate) fn write(
        &self,
        generation: u64,
        place: &mut dyn FnMut() -> Result<Entry, Error>,
        written: &mut Written,
    ) -> Result<Entry, Error> {
        self.write_node(&self.root, generation, place, written)
    }

    fn write_node(
        &self,
        node: &MapNode,
        generation: u64,
        place: &mut dyn FnMut() -> Result<Entry, Error>,
        written: &mut Written,
    ) -> Result<Entry, Error> {
        if !node.dirty.load(Ordering::Relaxed) {
            return Ok(node.home());
        }
        for (index, kid) in node.kids() {
            if kid.dirty.load(Ordering::Relaxed) {
                let new = self.write_node(kid, generation, place, written)?;
                node.entries[index].store(new.0, Ordering::Release);
            }
        }
        let mut home = Entry::NONE;
        if node.entries.iter().all(|entry| entry.load(Ordering::Relaxed) == 0) {
            written.spared += 1;
        } else {
            home = place()?;
            let bytes = self.block(node, home, generation);
            match self.tree {
                0 => written.blocks.push((home.place(), bytes)),
                _ => written.push_twice(home, bytes),
            }
        }
        node.home.store(home.0, Ordering::Relaxed);
        node.dirty.store(false, Ordering::Release);
        Ok(home)
    }

    /// Returns the block of a node at `level`, below which all of a smaller tree is: the node
    /// becomes the root.
    pub(crate) fn above(
        disk: &Disk,
        root: Entry,
        level: u8,
        home: Entry,
        generation: u64,
    ) -> Box<Bytes> {
        let map = Self { disk: disk.clone(), tree: 0, root: MapNode::empty(level, 0) };
        map.root.entries[0].store(root.0, Ordering::Relaxed);
        map.block(&map.root, home, generation)
    }

    fn block(&self, node: &MapNode, home: Entry, generation: u64) -> Box<Bytes> {
        let mut block: NodeBlock = format::zeroed();
        let expected = self.disk.expect(NODE, home.place());
        block.header = format::header(expected, generation, self.tree, node.first);
        block.header.extra = (u64::from(node.level) | u64::from(home.birth()) << 32).into();
        for (disk, entry) in block.entries.iter_mut().zip(&node.entries) {
            disk.set(entry.load(Ordering::Relaxed));
        }
        format::seal(&block)
    }
}

/// Reads a node, and checks that it is the expected one.
///
/// # Errors
/// Errors of reading and [`Error::Damage`].
pub(crate) fn read_node(
    disk: &Disk,
    tree: u64,
    entry: Entry,
    level: u8,
    first: u64,
) -> Result<NodeBlock, Error> {
    let place = entry.place();
    let block: NodeBlock = match tree {
        0 => disk.read(NODE, place)?,
        _ => disk.read_twice(NODE, entry)?,
    };
    let damage = |what| Err(Error::Damage { place, what });
    if block.header.owner.get() != tree || block.header.number.get() != first {
        return damage("a node of another place in the tree");
    }
    if block.header.extra.get() != u64::from(level) | u64::from(entry.birth()) << 32 {
        return damage("a node of another level or birth");
    }
    let wrong = |(index, raw): (usize, &zerocopy::little_endian::U64)| {
        let below = Entry(raw.get());
        match below.is_row() {
            _ if tree != 0 => disk.layout().complaint_of_table(below),
            true => complaint_of_row(disk, below, entry.birth(), level, first, index as u64),
            false => disk.layout().complaint(below, entry.birth()),
        }
    };
    match block.entries.iter().enumerate().find_map(wrong) {
        Some(what) => damage(what),
        None => Ok(block),
    }
}

/// Returns what is wrong with the entry of a row in a node.
fn complaint_of_row(
    disk: &Disk,
    row: Entry,
    depth: u32,
    level: u8,
    first: u64,
    index: u64,
) -> Option<&'static str> {
    if level == 0 || row.place() != first + index * span(level) {
        return Some("an entry for a row of blocks where there can be none");
    }
    if row.birth() == 0 || row.birth() > depth {
        return Some("an entry was born later than its reader");
    }
    disk.layout().complaint_of_row(row_places(&disk.layout(), row, level - 1))
}

fn load(disk: &Disk, tree: u64, entry: Entry, level: u8, first: u64) -> Result<MapNode, Error> {
    let block = read_node(disk, tree, entry, level, first)?;
    let node = MapNode::empty(level, first);
    for (entry, disk) in node.entries.iter().zip(&block.entries) {
        entry.store(disk.get(), Ordering::Relaxed);
    }
    node.home.store(entry.0, Ordering::Relaxed);
    Ok(node)
}

impl<'m> Path<'m> {
    /// Returns the leaf.
    pub(crate) fn leaf(&self) -> &'m MapNode {
        // A path always has a leaf: `Map::path` ends with it.
        match self.nodes[0] {
            Some(leaf) => leaf,
            None => unreachable!("a path ends at a leaf"),
        }
    }

    /// Returns how many nodes a change would copy because others have them: those with a birth of
    /// `above` at most.
    pub(crate) fn shared(&self, above: u32) -> usize {
        let is_shared = |node: &&MapNode| {
            let home = node.home();
            !node.dirty.load(Ordering::Acquire) && !home.is_none() && home.birth() <= above
        };
        self.nodes.iter().flatten().copied().filter(is_shared).count()
    }

    /// Makes the nodes dirty, and pays for a place for each one that was not. `note` is told their
    /// places on the device, which they give up, or none.
    ///
    /// # Errors
    /// [`Error::Full`]; nodes that are dirty by then stay so.
    pub(crate) fn make_dirty(
        &self,
        purse: &Purse<'_>,
        note: &mut dyn FnMut(Entry),
    ) -> Result<(), Error> {
        for node in self.nodes.iter().rev().flatten() {
            if node.dirty.load(Ordering::Acquire) {
                continue;
            }
            if !purse.take(1) {
                return Err(Error::Full);
            }
            if node.dirty.swap(true, Ordering::AcqRel) {
                purse.give(1);
            } else {
                note(if node.home().is_row() { Entry::NONE } else { node.home() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
