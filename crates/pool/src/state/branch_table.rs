//! The branch table in memory, and writing it.
//!
//! # Invariants
//!
//! * A parent exists, can't be written, and has a smaller depth. So there are no circles.
//! * Names and ids are unique.
//!
//! The table's blocks hang from a tree like those of a branch. A commit writes the blocks that
//! changed to fresh places, and the nodes above them. The tree has one level as long as that is
//! enough, for 7560 nodes of the history, so that a commit writes one block less; then two.
//!
//! Each block of the table and of its tree has a copy in the next place, if the pool had two free
//! places in a row when it was written: one bad block would lose all branches otherwise.

use std::collections::{BTreeSet, HashMap, hash_map};

use vfscale_sync::percpu::Budget;

use crate::Error;
use crate::disk::device::Disk;
use crate::disk::format::{self, Entry, TABLE, TABLE_RECORDS};
use crate::disk::record::{self, Record};
use crate::space::bitmaps::Purse;
use crate::state::map::{Map, Written, span};
use merges::Merges;

pub(crate) mod history;
mod merges;

/// Number of the tree that leads to the blocks of the branch table.
pub(crate) const TABLE_TREE: u64 = 1;
/// Most levels of that tree.
pub(crate) const TABLE_LEVELS: u8 = 2;
/// The nodes that one call adds at most, and some more.
const CALL_NODES: usize = 4;

/// The branch table.
#[derive(Debug)]
pub(crate) struct Table {
    disk: Disk,
    slots: Vec<Option<Record>>,
    slot_of: HashMap<u64, usize>,
    id_of: HashMap<String, u64>,
    /// The branches by their origins.
    origins: HashMap<u64, u64>,
    kids: HashMap<u64, Kids>,
    merges: Merges,
    /// The nodes without a name that the reaper looks for, but for damaged ones, by their fates.
    nameless: [BTreeSet<u64>; Fate::ALL.len()],
    free: BTreeSet<usize>,
    /// The branches that can't be used, with the reasons. Nothing of them changes.
    damaged: HashMap<u64, Error>,
    /// Blocks that changed since the last commit.
    dirty: BTreeSet<usize>,
    map: Map,
    /// The levels of the tree.
    levels: u8,
    /// The entry of its root in the last commit.
    root: Entry,
    /// For the nodes of the tree, which live on the reserve.
    unbounded: Budget,
    /// How many nodes of the history the table can have.
    pub(crate) nodes_max: usize,
}

/// The fate of a node without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Has no kids, and is freed.
    Childless,
    /// Has one kid, and is merged into it.
    Single,
    /// Has one kid, a branch that may be rolled back to it.
    Kept,
    /// Was merged, and has one kid beside the records of that: the next merge compares with it.
    Merged,
    /// Was merged, and has nothing but the records of that below it.
    Ended,
}

impl Fate {
    pub(crate) const ALL: [Self; 5] =
        [Self::Childless, Self::Single, Self::Kept, Self::Merged, Self::Ended];
}

/// The nodes that were forked from a node.
#[derive(Clone, Copy, Debug, Default)]
struct Kids {
    count: u64,
    /// Their ids, each with an exclusive or to the others: that of the only one, if it is one.
    ids: u64,
}

impl Table {
    /// Reads the table.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn open(disk: &Disk, root: Entry, levels: u8, blocks: u64) -> Result<Self, Error> {
        if blocks > span(levels) {
            return Err(Error::Damage { place: 0, what: "the size of the branch table" });
        }
        let mut this = Self {
            disk: disk.clone(),
            slots: Vec::new(),
            slot_of: HashMap::new(),
            id_of: HashMap::new(),
            origins: HashMap::new(),
            kids: HashMap::new(),
            merges: Merges::default(),
            nameless: Default::default(),
            free: BTreeSet::new(),
            damaged: HashMap::new(),
            dirty: BTreeSet::new(),
            map: Map::open(disk, TABLE_TREE, root, levels)?,
            levels,
            root,
            unbounded: Budget::new(u64::MAX, 1),
            nodes_max: span(TABLE_LEVELS) as usize * TABLE_RECORDS,
        };
        for number in 0..blocks {
            let entry = this.map.find(number)?;
            let (place, block) = (entry.place(), disk.read_twice(TABLE, entry)?);
            for record in record::read_block(&block, number, place, &disk.layout())? {
                let slot = this.slots.len();
                this.slots.push(None);
                match record {
                    Some(record) => this.put(slot, record, place)?,
                    None => _ = this.free.insert(slot),
                }
            }
        }
        this.check_parents()?;
        this.find_merges();
        Ok(this)
    }

    fn put(&mut self, slot: usize, record: Record, place: u64) -> Result<(), Error> {
        let twice = Err(Error::Damage { place, what: "two branches with one id or name" });
        if self.slot_of.insert(record.id, slot).is_some() {
            return twice;
        }
        if !record.name.is_empty() && self.id_of.insert(record.name.clone(), record.id).is_some() {
            return twice;
        }
        self.put_in(slot, record);
        Ok(())
    }

    fn check_parents(&self) -> Result<(), Error> {
        for record in self.records().filter(|record| record.parent != 0) {
            let parent = self.get(record.parent);
            if !parent.is_some_and(|parent| parent.is_frozen() && parent.depth < record.depth) {
                return Err(Error::Damage { place: 0, what: "the parent of a branch" });
            }
        }
        Ok(())
    }

    /// Returns all nodes.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.slots.iter().flatten()
    }

    /// Returns a node.
    pub(crate) fn get(&self, id: u64) -> Option<&Record> {
        self.slots[*self.slot_of.get(&id)?].as_ref()
    }

    /// Returns the number of nodes with a name.
    pub(crate) fn names(&self) -> usize {
        self.id_of.len()
    }

    /// Returns the node with a name, whether it can be used or not.
    pub(crate) fn find(&self, name: &str) -> Option<&Record> {
        self.get(*self.id_of.get(name)?)
    }

    /// Returns the node with a name.
    ///
    /// # Errors
    /// [`Error::NoBranch`], and the reason why the branch can't be used.
    pub(crate) fn named(&self, name: &str) -> Result<&Record, Error> {
        let record = self.find(name).ok_or_else(|| Error::NoBranch(name.into()))?;
        self.damaged.get(&record.id).map_or(Ok(record), |why| Err(why.clone()))
    }

    /// Has the next commit write a block of the table again, with the nodes that lead to it.
    pub(crate) fn renew(&mut self, block: u64) {
        self.dirty.insert(block as usize);
    }

    /// Notes that a branch can't be used.
    pub(crate) fn damage(&mut self, id: u64, why: Error) {
        self.damaged.entry(id).or_insert(why);
        self.sort_in(id);
    }

    /// Returns the reasons why branches can't be used.
    pub(crate) fn damaged(&self) -> &HashMap<u64, Error> {
        &self.damaged
    }

    /// Checks that a new branch may have a name.
    ///
    /// # Errors
    /// [`Error::Name`] and [`Error::Exists`].
    pub(crate) fn check_new(&self, name: &str) -> Result<(), Error> {
        if !record::is_name(name) {
            return Err(Error::Name(name.into()));
        }
        if self.id_of.contains_key(name) {
            return Err(Error::Exists(name.into()));
        }
        Ok(())
    }

    /// Returns the only node that was forked from a node.
    pub(crate) fn kid(&self, id: u64) -> Option<&Record> {
        let kids = self.kids.get(&id).filter(|kids| kids.count == 1)?;
        self.get(kids.ids)
    }

    /// Returns how many nodes were forked from a node.
    pub(crate) fn kids(&self, id: u64) -> u64 {
        self.kids.get(&id).map_or(0, |kids| kids.count)
    }

    /// Returns the depth from which on births are not a node's own: that of its parent.
    pub(crate) fn own_above(&self, record: &Record) -> u32 {
        self.get(record.parent).map_or(0, |parent| parent.depth)
    }

    /// Returns the node with the state that a branch had at its last fork or adoption.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none.
    pub(crate) fn base_of<'t>(&'t self, record: &'t Record) -> Result<&'t Record, Error> {
        let refused = |why| Error::Refused { name: record.name.clone(), why };
        let mut at = record;
        loop {
            if at.flags & record::MERGED != 0 {
                return Err(refused("no branch has kept the state of its last fork"));
            }
            at = self.get(at.parent).ok_or_else(|| refused("it was never forked"))?;
            if !at.has(record::PASSING) {
                return Ok(at);
            }
        }
    }

    /// Returns the branch that a branch was forked from, or the next one that it comes from and
    /// that is there: a branch retains its origin when others are forked from it.
    pub(crate) fn parent_branch<'t>(&'t self, record: &'t Record) -> Option<&'t Record> {
        let (mut at, mut origin) = (record, record.origin);
        loop {
            at = self.get(at.parent)?;
            if at.origin != origin {
                origin = at.origin;
                if let Some(parent) = self.of_origin(origin) {
                    return Some(parent);
                }
            }
        }
    }

    /// Returns how many places become free if a branch is deleted, at most: those that only it has,
    /// and what the other one has replaced that comes from the same state. Does not count what the
    /// volume had that the pool was.
    pub(crate) fn freed_by_deletion(&self, record: &Record) -> u64 {
        // The lines that go on from a node, but for one.
        let lines = |id: u64, but: u64| {
            let merges = self.merges_of(id);
            let kids = self.kids.get(&id).copied().unwrap_or_default();
            let ids = merges.iter().fold(kids.ids ^ but, |ids, merge| ids ^ merge.id);
            (kids.count - merges.len() as u64 - u64::from(but != 0), ids)
        };
        let merged = |node: &Record, (count, ids): (u64, u64)| match count {
            1 => self.get(ids).map_or(0, |kid| node.own.min(kid.dead_count)),
            _ => 0,
        };
        let below = lines(record.id, 0);
        if below.0 > 0 {
            return merged(record, below);
        }
        let (mut at, mut freed) = (record, record.own);
        while let Some(parent) = self.get(at.parent).filter(|parent| parent.name.is_empty()) {
            let others = lines(parent.id, at.id);
            if others.0 > 0 {
                return freed + merged(parent, others);
            }
            if parent.parent == 0 {
                break;
            }
            (at, freed) = (parent, freed + parent.own);
        }
        freed
    }

    /// Returns how many places a branch has of what it has written since it began: those of its
    /// node, and of the nodes before that it has gone on from.
    pub(crate) fn line(&self, record: &Record) -> u64 {
        let before = |node: &&Record| self.get(node.parent).filter(|it| it.origin == record.origin);
        std::iter::successors(Some(record), before).map(|node| node.own).sum()
    }

    /// Returns the branch that began as node `origin`.
    pub(crate) fn of_origin(&self, origin: u64) -> Option<&Record> {
        self.origins.get(&origin).and_then(|id| self.get(*id))
    }

    /// Returns the last node that two nodes come from, or are: whose places both may have. It
    /// is there as long as both are, since two lines hang from it.
    pub(crate) fn common<'t>(&'t self, a: &'t Record, b: &'t Record) -> Option<&'t Record> {
        let (mut a, mut b) = (a, b);
        while a.id != b.id {
            // A parent has a smaller depth.
            let deeper = if a.depth >= b.depth { &mut a } else { &mut b };
            *deeper = self.get(deeper.parent)?;
        }
        Some(a)
    }

    /// Checks that the table has room for the nodes that a call may add.
    ///
    /// # Errors
    /// [`Error::Nodes`].
    pub(crate) fn check_room(&self) -> Result<(), Error> {
        let is_room = self.slot_of.len() + CALL_NODES <= self.nodes_max;
        if is_room { Ok(()) } else { Err(Error::Nodes(self.nodes_max)) }
    }

    /// Adds a node.
    pub(crate) fn insert(&mut self, record: Record) {
        let slot = self.free.pop_first().unwrap_or_else(|| {
            let first = self.slots.len();
            self.slots.resize(first + TABLE_RECORDS, None);
            self.free.extend(first + 1..first + TABLE_RECORDS);
            first
        });
        self.dirty.insert(slot / TABLE_RECORDS);
        self.slot_of.insert(record.id, slot);
        if !record.name.is_empty() {
            self.id_of.insert(record.name.clone(), record.id);
        }
        self.put_in(slot, record);
    }

    fn put_in(&mut self, slot: usize, record: Record) {
        let (id, parent) = (record.id, record.parent);
        if !record.name.is_empty() {
            self.origins.insert(record.origin, id);
        }
        if record.merged != 0 && self.complaint_of_merge(&record).is_none() {
            self.merges.insert(&record);
        }
        self.slots[slot] = Some(record);
        let kids = self.kids.entry(parent).or_default();
        (kids.count, kids.ids) = (kids.count + 1, kids.ids ^ id);
        self.sort_in(id);
        self.sort_in(parent);
    }

    /// Notes whether a node is one that the reaper looks for.
    fn sort_in(&mut self, id: u64) {
        let fate = self.get(id).and_then(|record| self.fate(record));
        for (nodes, of) in self.nameless.iter_mut().zip(Fate::ALL) {
            if fate == Some(of) {
                nodes.insert(id)
            } else {
                nodes.remove(&id)
            };
        }
    }

    fn fate(&self, record: &Record) -> Option<Fate> {
        let is_left = self.damaged.contains_key(&record.id) || self.merges.has(record);
        if !record.name.is_empty() || is_left {
            return None;
        }
        // Whether a rollback of a branch leads here.
        let is_base = |kid: &Record| {
            kid.flags & record::MERGED == 0 && (!kid.name.is_empty() || kid.has(record::PASSING))
        };
        let merges = self.merges.count_of(record.id);
        match (self.kids(record.id) - merges, merges) {
            (0, 0) => Some(Fate::Childless),
            (0, _) => Some(Fate::Ended),
            (1, 0) if record.has(record::KEPT) && self.kid(record.id).is_some_and(is_base) => {
                Some(Fate::Kept)
            }
            (1, 0) => Some(Fate::Single),
            (1, _) => Some(Fate::Merged),
            _ => None,
        }
    }

    /// Returns the nodes without a name that have this fate, but for damaged ones.
    pub(crate) fn nameless(&self, fate: Fate) -> impl Iterator<Item = &Record> {
        self.nameless[fate as usize].iter().filter_map(|id| self.get(*id))
    }

    /// Removes a node, and returns it.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Record> {
        let slot = self.slot_of.remove(&id)?;
        let record = self.slots[slot].take()?;
        if record.merged != 0 {
            self.merges.remove(&record);
        }
        self.dirty.insert(slot / TABLE_RECORDS);
        self.free.insert(slot);
        self.id_of.remove(&record.name);
        if self.origins.get(&record.origin) == Some(&id) {
            self.origins.remove(&record.origin);
        }
        if let hash_map::Entry::Occupied(mut kids) = self.kids.entry(record.parent) {
            let Kids { count, ids } = *kids.get();
            match count {
                1 => _ = kids.remove(),
                _ => _ = kids.insert(Kids { count: count - 1, ids: ids ^ id }),
            }
        }
        self.sort_in(id);
        self.sort_in(record.parent);
        Some(record)
    }

    /// Changes a node, all but its id.
    pub(crate) fn update(&mut self, id: u64, change: impl FnOnce(&mut Record)) {
        if let Some(mut record) = self.remove(id) {
            change(&mut record);
            self.insert(record);
        }
    }

    /// Writes the blocks that changed into `written`. Returns the entry of the root, and the places
    /// that are given up. `place` hands out places.
    ///
    /// # Errors
    /// Errors of `place`, errors of reading, and [`Error::Damage`].
    pub(crate) fn write(
        &mut self,
        generation: u64,
        place: &mut dyn FnMut() -> Result<Entry, Error>,
        written: &mut Written,
    ) -> Result<(Entry, Vec<u64>), Error> {
        let mut given_up = Vec::new();
        if self.blocks() > span(self.levels) {
            self.grow()?;
            given_up.extend(self.root.table_places());
        }
        for number in std::mem::take(&mut self.dirty) {
            let new = place()?;
            let path = self.map.path(number as u64)?;
            let mut homes = Vec::new();
            let mut note = |home: Entry| homes.push(home);
            path.make_dirty(&Purse::new(&self.unbounded, 0), &mut note)?;
            homes.push(path.leaf().replace(number as u64, new));
            given_up.extend(homes.iter().flat_map(|home| home.table_places()));
            let expected = self.disk.expect(TABLE, new.place());
            let header = format::header(expected, generation, TABLE_TREE, number as u64);
            let first = number * TABLE_RECORDS;
            let bytes = record::seal_block(&self.slots[first..first + TABLE_RECORDS], header);
            written.push_twice(new, bytes);
        }
        self.root = self.map.write(generation, place, written)?;
        Ok((self.root, given_up))
    }

    /// Gives the tree another level, in memory. Nothing has changed in it since the last commit,
    /// and all of its entries are in use.
    fn grow(&mut self) -> Result<(), Error> {
        let levels = self.levels + 1;
        let map = Map::open(&self.disk, TABLE_TREE, Entry::NONE, levels)?;
        for number in 0..span(self.levels) {
            let path = map.path(number)?;
            path.make_dirty(&Purse::new(&self.unbounded, 0), &mut |_| ())?;
            path.leaf().replace(number, self.map.find(number)?);
        }
        (self.map, self.levels) = (map, levels);
        Ok(())
    }

    /// Returns how many levels the tree has that leads to the blocks.
    pub(crate) fn levels(&self) -> u8 {
        self.levels
    }

    /// Returns the number of blocks of the table.
    pub(crate) fn blocks(&self) -> u64 {
        (self.slots.len() / TABLE_RECORDS) as u64
    }
}

#[cfg(test)]
mod tests;
