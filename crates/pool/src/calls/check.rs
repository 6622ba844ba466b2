//! Checking a pool: every place against every reference.
//!
//! Visits each node of each map once, in the state of the last commit, and compares what it finds
//! with the bitmaps, the dead lists and the counts. Uses about 50 bytes of memory for each place in
//! use, but little for what a former volume still has at its old places.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::disk::format::{Entry, FANOUT, NODE, NodeBlock, TABLE};
use crate::disk::record::{LogArea, Record};
use crate::state::branch_table::TABLE_TREE;
use crate::state::branch_table::history::GONE;
use crate::state::commit::{Shared, State};
use crate::state::dead_list::{self, DeadList};
use crate::state::map::{self, span};
use crate::{Error, Pool};
use history::History;
use rows::{Rows, User};
use uses::Uses;

mod history;
mod rows;
mod uses;

/// Most problems that a report lists.
const PROBLEMS_MAX: usize = 100;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Places in use, of 4096 bytes each, without those that are never handed out.
    pub used: u64,
    /// The first hundred problems; empty for a pool that is whole.
    pub problems: Vec<String>,
}

/// The use of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// A node of a tree, at a level from 1 on, or the content of a block, level 0.
    Tree {
        tree: u64,
        level: u8,
        block: u64,
        birth: u32,
    },
    Log,
    Dead,
}

/// The findings of a check that a repair may mend.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Places that are marked as used, and nothing refers to.
    pub(crate) lost: Vec<u64>,
    /// Places that something refers to, and that are marked as free.
    pub(crate) unmarked: Vec<u64>,
    /// Nodes of the history whose count of their own places is wrong, with the right one.
    pub(crate) counts: Vec<(u64, u64)>,
    /// Dead lists that are wrong or can't be read.
    pub(crate) lists: Vec<WrongList>,
    /// Blocks of the branch table that are not there twice any more, or whose nodes are not.
    pub(crate) table: BTreeSet<u64>,
    /// Nodes that are wrong records of merges.
    pub(crate) merges: Vec<u64>,
    /// Zones whose bitmap is wrong or can't be read, each with its places that are in use.
    pub(crate) zones: Vec<(usize, Vec<u64>)>,
    /// Whether a part of a map can't be read: nothing is known of the places below it.
    pub(crate) is_partial: bool,
    /// Places with two uses that exclude each other.
    pub(crate) disputed: BTreeSet<u64>,
    /// How many places are in use.
    pub(crate) used: u64,
    /// Nodes that use a place that an older one has as well, by mistake.
    doubled: BTreeSet<u64>,
    /// How often two nodes that use one place were followed to the node that they come from.
    climbs: u64,
}

/// A dead list that does not say what its node and the parent of that say.
#[derive(Debug)]
pub(crate) struct WrongList {
    pub(crate) node: u64,
    /// The entries that it should have.
    pub(crate) entries: Vec<Entry>,
    /// The places of its blocks; none if it can't be read.
    pub(crate) blocks: Vec<u64>,
}

struct Checker<'p> {
    shared: &'p Shared,
    state: &'p State,
    /// The uses of places, each with the node of the history that was first seen to use it.
    seen: HashMap<u64, (Use, u64)>,
    /// The places that still have the block of the former volume with their own number.
    rows: Rows,
    history: History,
    report: Report,
    found: Found,
}

/// A position in a tree: the level, counted from the contents, and the first block.
#[derive(Clone, Copy)]
struct Position {
    tree: u64,
    level: u8,
    block: u64,
}

impl Position {
    fn below(self, index: usize) -> Self {
        let block = self.block + index as u64 * span(self.level - 1);
        Self { tree: self.tree, level: self.level - 1, block }
    }
}

impl Pool {
    /// Checks that every place is used once or is free, that branches share only what an ancestor
    /// wrote, and that the counts and dead lists are right. Looks at the state of the last commit,
    /// so changes since the last checkpoint of an open branch are not seen.
    ///
    /// Blocks for the I/O: reads all maps. Commits wait for it.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn check(&self) -> Result<Report, Error> {
        self.shared.alive()?;
        let state = self.shared.state.lock();
        Ok(check(&self.shared, &state)?.0)
    }
}

/// Checks the last commit of a pool.
///
/// # Errors
/// Errors of [`Pool::check`].
pub(crate) fn check(shared: &Shared, state: &State) -> Result<(Report, Found), Error> {
    let (seen, rows) = (HashMap::new(), Rows::default());
    let (report, found) = (Report::default(), Found::default());
    let mut records: Vec<&Record> = state.table.records().collect();
    // Parents come first: what a child sees first is its own. Of two, the later one is the younger.
    records.sort_by_key(|record| (record.depth, record.id));
    let history = History::new(&records);
    let mut checker = Checker { shared, state, seen, rows, history, report, found };
    checker.table()?;
    checker.damaged();
    checker.merges(&records);
    for record in &records {
        checker.node(record)?;
    }
    for record in &records {
        checker.dead_list(record)?;
    }
    checker.bitmaps()?;
    checker.name_doubled(&records);
    Ok((checker.report, checker.found))
}

impl Checker<'_> {
    fn problem(&mut self, text: String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(text);
        }
    }

    /// Tells which branches can't be used.
    fn damaged(&mut self) {
        let table = &self.state.table;
        for (id, why) in table.damaged() {
            let name = table.get(*id).map_or("", |record| &record.name);
            self.problem(format!("branch {name:?}: {why}"));
        }
    }

    /// Visits what belongs to no node: the branch table, and the spare logs.
    fn table(&mut self) -> Result<(), Error> {
        let at = Position { tree: TABLE_TREE, level: self.state.table.levels(), block: 0 };
        for place in self.state.spares.iter().flat_map(LogArea::places) {
            self.visit(place, Use::Log, 0);
        }
        self.walk(self.state.root, at, 0).map(drop)
    }

    /// Checks the records of merges. A program that does not know them may leave one without its
    /// result, which is no harm.
    fn merges(&mut self, records: &[&Record]) {
        for record in records.iter().filter(|record| record.merged != 0) {
            let why = self.state.table.complaint_of_merge(record);
            if let Some(why) = why.filter(|why| *why != GONE) {
                self.found.merges.push(record.id);
                self.problem(format!("node {}: a wrong record of a merge: {why}", record.id));
            }
        }
    }

    fn node(&mut self, record: &Record) -> Result<(), Error> {
        let at = Position { tree: 0, level: map::levels(record.blocks), block: 0 };
        let was_partial = std::mem::take(&mut self.found.is_partial);
        let own = self.walk(record.root, at, record.id)?;
        let is_partial = std::mem::replace(&mut self.found.is_partial, was_partial);
        self.found.is_partial |= is_partial;
        if own != record.own && !is_partial {
            let (id, told) = (record.id, record.own);
            self.found.counts.push((id, own));
            self.problem(format!("node {id}: has {own} places of its own, not {told}"));
        }
        if let Some(log) = record.log {
            for place in log.places() {
                self.visit(place, Use::Log, record.id);
            }
        }
        let blocks = self.read_list(record).map_or_else(Vec::new, |(_, blocks)| blocks);
        for place in blocks {
            self.visit(place, Use::Dead, record.id);
        }
        Ok(())
    }

    /// Reads the dead list of a node; `None` if it is damaged, or can't be read.
    fn read_list(&self, record: &Record) -> Option<dead_list::Contents> {
        dead_list::read(&self.shared.disk, DeadList::of(record)).ok()
    }

    /// Enters the use of places that have the blocks with their own numbers, and returns how many
    /// are new.
    fn visit_row(&mut self, range: Range<u64>, birth: u32, node: u64) -> u64 {
        let user = User { birth, node };
        let (new, others) = self.rows.visit(range, user);
        for (place, other) in others {
            if other.birth != birth || birth > self.common_depth(other.node, node) {
                self.found.doubled.insert(node);
                self.problem(format!(
                    "place {place}: nodes {node} and {} use it, and no ancestor of both has it",
                    other.node
                ));
            }
        }
        new
    }

    /// Enters the use of a place, and returns whether it is new.
    fn visit(&mut self, place: u64, used: Use, node: u64) -> bool {
        let Some((former, by)) = self.seen.insert(place, (used, node)) else { return true };
        self.seen.insert(place, (former, by));
        let is_shared = matches!(used, Use::Tree { tree: 0, birth, .. }
            if former == used && birth <= self.common_depth(by, node));
        if !is_shared {
            self.found.doubled.insert(node);
            self.found.disputed.insert(place);
            self.problem(format!(
                "place {place}: node {node} uses it as {used:?}, node {by} as {former:?}"
            ));
        }
        false
    }

    /// Returns the depth of the last node that two nodes have in common; 0 for strangers. `a` was
    /// seen first: where nothing is wrong it is an ancestor of `b`, since a frozen node retains all
    /// that others have from it.
    fn common_depth(&mut self, a: u64, b: u64) -> u32 {
        let table = &self.state.table;
        let (Some(first), Some(second)) = (table.get(a), table.get(b)) else { return 0 };
        if self.history.is_above(a, b) {
            return first.depth;
        }
        self.found.climbs += 1;
        table.common(first, second).map_or(0, |record| record.depth)
    }

    /// Visits the places below an entry, and returns how many are new.
    fn walk(&mut self, entry: Entry, at: Position, node: u64) -> Result<u64, Error> {
        let Position { tree, level, block } = at;
        let layout = self.shared.disk.layout();
        let is_of_volume = tree == 0 && level == 0 && entry.place() == block;
        let new = if entry.is_none() {
            0
        } else if entry.is_row() {
            let places = map::row_places(&layout, entry, level - 1);
            self.visit_row(places, entry.birth(), node)
        } else if is_of_volume && block < layout.first {
            self.visit_row(block..block + 1, entry.birth(), node)
        } else {
            let used = Use::Tree { tree, level, block, birth: entry.birth() };
            if tree == TABLE_TREE {
                self.copy(entry, at);
            }
            u64::from(self.visit(entry.place(), used, node))
        };
        if new == 0 {
            return Ok(0);
        }
        if let Some(record) = self.state.table.get(node)
            && entry.birth() <= self.state.table.own_above(record)
        {
            let place = entry.place();
            self.problem(format!("place {place}: node {node} has it, and its parent does not"));
        }
        if level == 0 || entry.is_row() {
            return Ok(new);
        }
        let entries = match self.entries(entry, at) {
            Ok(entries) => entries,
            Err(error) => {
                self.found.is_partial = true;
                self.problem(format!("node {node}: a part of its map: {error}"));
                return Ok(new);
            }
        };
        let mut own = new;
        for (index, entry) in entries.into_iter().enumerate() {
            own += self.walk(entry, at.below(index), node)?;
        }
        Ok(own)
    }

    /// Visits the copy of a block of the branch table, or of its tree, and reads both.
    fn copy(&mut self, entry: Entry, at: Position) {
        let (disk, magic) = (&self.shared.disk, if at.level == 0 { TABLE } else { NODE });
        let read = |place| disk.read_copy::<NodeBlock>(magic, entry.place(), place).err();
        let bad = entry.table_places().find_map(read).filter(|_| entry.is_twice());
        if let Some(error) = bad {
            self.found.table.insert(at.block);
            self.problem(format!("one of two blocks of the branch table: {error}"));
        }
        if entry.is_twice() {
            let Position { tree, level, block } = at;
            self.visit(entry.place() + 1, Use::Tree { tree, level, block, birth: 2 }, 0);
        }
    }

    /// Reads the entries of a node; all empty if there is none.
    fn entries(&self, entry: Entry, at: Position) -> Result<Vec<Entry>, Error> {
        if entry.is_none() {
            return Ok(vec![Entry::NONE; FANOUT]);
        }
        let disk = &self.shared.disk;
        if entry.is_row() {
            return Ok(map::row_entries(&disk.layout(), entry, at.level - 1).collect());
        }
        let block = map::read_node(disk, at.tree, entry, at.level - 1, at.block)?;
        Ok(block.entries.iter().map(|raw| Entry(raw.get())).collect())
    }

    /// Checks that a dead list has what the parent has and the node has not. That of a zombie only
    /// has to be readable, since its map goes.
    fn dead_list(&mut self, record: &Record) -> Result<(), Error> {
        let read = self.read_list(record);
        if record.is_zombie() && read.is_some() {
            return Ok(());
        }
        let mut found = Vec::new();
        let parent = self.state.table.get(record.parent).filter(|_| !record.is_zombie());
        if let Some(parent) = parent {
            let at = Position { tree: 0, level: map::levels(parent.blocks), block: 0 };
            let root = self.root_at(record, at.level);
            let compared = root.and_then(|root| self.difference(parent.root, root, at, &mut found));
            if compared.is_err() {
                // A map that can't be read says nothing about the list.
                return Ok(());
            }
        }
        found.sort();
        let node = record.id;
        let blocks = match read {
            None => {
                self.problem(format!("node {node}: the dead list is damaged"));
                Vec::new()
            }
            Some((mut told, blocks)) => {
                told.sort();
                if told == found {
                    return Ok(());
                }
                let (told, found) = (told.len(), found.len());
                self.problem(format!(
                    "node {node}: the dead list has {told} places, but {found} have gone, or others"
                ));
                blocks
            }
        };
        self.found.lists.push(WrongList { node, entries: found, blocks });
        Ok(())
    }

    /// Returns what the root of a node's map was at a level: it has grown since then.
    fn root_at(&self, record: &Record, level: u8) -> Result<Entry, Error> {
        let mut root = record.root;
        for level in (level + 1..=map::levels(record.blocks)).rev() {
            root = self.entries(root, Position { tree: 0, level, block: 0 })?[0];
        }
        Ok(root)
    }

    /// Collects what is below `old` and not below `new`.
    fn difference(
        &self,
        old: Entry,
        new: Entry,
        at: Position,
        found: &mut Vec<Entry>,
    ) -> Result<(), Error> {
        if old == new || old.is_none() {
            return Ok(());
        }
        if !old.is_row() {
            found.push(old);
        }
        if at.level > 0 {
            let (old, new) = (self.entries(old, at)?, self.entries(new, at)?);
            for (index, (old, new)) in old.into_iter().zip(new).enumerate() {
                self.difference(old, new, at.below(index), found)?;
            }
        }
        Ok(())
    }

    /// Compares the uses of a place with its bits: whether the last commit has it, and whether it
    /// may be handed out.
    fn place(&mut self, place: u64, (committed, is_free): (bool, bool)) {
        let used = self.seen.get(&place);
        let text = match (committed, used, self.rows.user(place)) {
            (_, Some((used, node)), Some(other)) => {
                let table = &self.state.table;
                let age = |id: u64| (table.get(id).map_or(0, |record| record.depth), id);
                self.found.doubled.insert(std::cmp::max(age(*node), age(other.node)).1);
                format!("node {node} uses it as {used:?}, node {} as a block", other.node)
            }
            (true, None, None) if self.found.is_partial => return,
            (true, None, None) => {
                self.found.lost.push(place);
                "lost".into()
            }
            (false, Some((used, node)), _) => {
                self.found.unmarked.push(place);
                format!("free, but node {node} uses it as {used:?}")
            }
            (false, None, Some(user)) => {
                self.found.unmarked.push(place);
                format!("free, but node {} uses it", user.node)
            }
            _ if committed && is_free => "in use, but may be handed out".into(),
            _ => return,
        };
        self.problem(format!("place {place}: {text}"));
    }

    /// Names the branches that use a place that an older one has as well.
    fn name_doubled(&mut self, records: &[&Record]) {
        let (mut doubled, mut names) = (self.found.doubled.clone(), BTreeSet::new());
        for record in records {
            if doubled.contains(&record.parent) {
                doubled.insert(record.id);
            }
            if doubled.contains(&record.id) && !record.name.is_empty() {
                names.insert(record.name.clone());
            }
        }
        for name in names {
            self.problem(format!(
                "branch {name:?}: has places of an older branch: copy its files, delete it, and \
                 repair again"
            ));
        }
    }

    fn bitmaps(&mut self) -> Result<(), Error> {
        let (layout, space) = (self.shared.disk.layout(), &self.shared.space);
        let uses = Uses::new(&layout, self.seen.keys().copied());
        for zone in 0..layout.zones() {
            let mut range = layout.range(zone);
            if space.is_whole(zone) {
                // All of it is in use: only what no row has is looked at.
                while let Some(gap) = self.rows.gap(range.clone()) {
                    if layout.has(gap) {
                        self.place(gap, (true, false));
                    }
                    range.start = gap + 1;
                }
                continue;
            }
            let bits = match space.bits(zone) {
                Ok(bits) => bits,
                Err(error) => {
                    self.problem(format!("bitmap of zone {zone}: {error}"));
                    let is_used = |place: &u64| {
                        self.seen.contains_key(place) || self.rows.user(*place).is_some()
                    };
                    let used = range.filter(is_used).collect();
                    self.found.zones.push((zone, used));
                    continue;
                }
            };
            let start = range.start;
            let rows = self.rows.runs(range.clone()).map(|run| run.start - start..run.end - start);
            let suspects = uses.suspects(zone, &bits, rows).into_iter().map(|at| start + at);
            // A last zone has bits behind its places.
            for place in suspects.filter(|place| range.contains(place) && layout.has(*place)) {
                self.place(place, space.status(place)?);
            }
        }
        self.report.used = self.seen.len() as u64 + self.rows.count();
        self.found.used = self.report.used;
        if self.report.used != self.state.used && !self.found.is_partial {
            let (found, told) = (self.report.used, self.state.used);
            self.problem(format!("{found} places are in use, not {told}"));
        }
        Ok(())
    }
}
