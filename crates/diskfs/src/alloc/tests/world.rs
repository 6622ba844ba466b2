//! A volume in memory, and the invariants that every test checks after each step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::initial;
use crate::alloc::chunks::Chunks;
use crate::alloc::zones::UNKNOWN;
use crate::alloc::{Busy, Changes, Finished, GroupNodes, Groups, Layout, Recorded};
use crate::btree::memory::{Failure, Memory, VOLUME};
use crate::btree::{Error, Nodes, Record};
use crate::buffer::Buffer;
use crate::format::group::{GroupHeader, InodeChunks};
use crate::format::inode::{CHUNK_BLOCKS, INODES_PER_BLOCK};
use crate::format::{BlockRange, Expected};
use crate::{Geometry, LogPlace};

impl GroupNodes for Memory {
    fn create(&mut self, address: u64, expected: &Expected) -> Result<u64, Error<Failure>> {
        self.call()?;
        self.place(address, expected);
        Ok(address)
    }

    fn destroy(&mut self, slot: u64) {
        self.free(slot);
    }

    fn uncreate(&mut self, slot: u64) {
        self.cancel(slot);
    }

    fn hold(&self, _: u64, _: &Expected) -> Result<Option<Arc<Buffer>>, Error<Failure>> {
        Ok(None)
    }

    fn no_space() -> Failure {
        Failure::NoSpace
    }
}

/// Writes the changes of a transaction into the trees of the groups.
pub(super) fn finish<'g>(
    groups: &'g Groups,
    nodes: &mut Memory,
    changes: &mut Changes,
) -> Result<Finished<'g>, Error<Failure>> {
    let mut finished = groups.finished();
    groups.finish(nodes, changes, &mut finished)?;
    Ok(finished)
}

/// A volume, with its used blocks and those that are freed but not durable.
pub(super) struct World {
    pub(super) nodes: Memory,
    pub(super) groups: Groups,
    pub(super) log: LogPlace,
    pub(super) layouts: Vec<Layout>,
    /// Blocks of files.
    pub(super) used: BTreeSet<u64>,
    /// Inodes in use, and whether they are orphans.
    pub(super) inodes: BTreeMap<u64, bool>,
    /// Claims that are in no transaction.
    pub(super) claims: Vec<BlockRange>,
    pub(super) busy: Vec<Busy>,
}

/// Writes a group in which nothing is used.
fn write(nodes: &mut Memory, layout: &Layout) {
    let places = [
        (layout.header(), GroupHeader::expected(layout.group())),
        (layout.free_tree().root(), layout.free_tree().expected()),
        (layout.chunk_tree().root(), layout.chunk_tree().expected()),
    ];
    for ((address, expected), block) in places.iter().zip(initial::blocks(layout, VOLUME)) {
        nodes.place(*address, expected);
        nodes.blocks.insert(*address, block);
    }
}

impl World {
    pub(super) fn new(blocks: u64, group_log2: u8) -> Self {
        let geometry = Geometry::new(blocks, group_log2).unwrap();
        let log = LogPlace::inside(geometry, None);
        let mut nodes = Memory::new();
        let layouts: Vec<_> =
            (0..geometry.groups()).map(|at| Layout::new(geometry, log, at).unwrap()).collect();
        layouts.iter().for_each(|layout| write(&mut nodes, layout));
        nodes.commit();
        let groups = Groups::load(&nodes, geometry, log, None).unwrap();
        let (used, inodes) = (BTreeSet::new(), [(64, false)].into());
        let (claims, busy) = (Vec::new(), Vec::new());
        Self { nodes, groups, log, layouts, used, inodes, claims, busy }
    }

    /// Reopens the volume, after all changes have become durable.
    pub(super) fn reopen(&mut self) {
        self.open_as(self.groups.geometry());
    }

    /// Reopens the volume after it has grown: new groups are created, and the former last group
    /// does not account for its new blocks.
    pub(super) fn open_as(&mut self, geometry: Geometry) {
        self.write_delayed();
        self.write_new(geometry);
        self.claims.clear();
        self.busy.clear();
        let sums = self.groups.sums().filter(|_| geometry == self.groups.geometry());
        let recorded = sums.map(|sums| Recorded { sums, last: None });
        self.groups = Groups::load(&self.nodes, geometry, self.log, recorded).unwrap();
    }

    /// Grows the volume while it is open.
    pub(super) fn grow(&mut self, geometry: Geometry) -> bool {
        self.write_new(geometry);
        let guard = self.groups.growth();
        let has_grown = self.groups.grow(&self.nodes, geometry).unwrap();
        drop(guard);
        assert!(!has_grown || self.groups.geometry() == geometry);
        has_grown
    }

    fn write_new(&mut self, geometry: Geometry) {
        for number in self.groups.count()..geometry.groups() {
            write(&mut self.nodes, &Layout::new(geometry, self.log, number).unwrap());
        }
        self.nodes.commit();
        let layout = |group| Layout::new(geometry, self.log, group).unwrap();
        self.layouts = (0..geometry.groups()).map(layout).collect();
    }

    pub(super) fn claim(&mut self, near: u64, min: u32, max: u32) -> Option<BlockRange> {
        let run = self.groups.claim(&self.nodes, near, min, max).unwrap()?;
        assert!((min..=max).contains(&run.blocks));
        assert!(!run.range().any(|block| self.used.contains(&block)));
        let overlaps = |claim: &BlockRange| claim.start < run.end() && run.start < claim.end();
        assert!(!self.claims.iter().any(overlaps));
        self.claims.push(run);
        Some(run)
    }

    pub(super) fn unclaim(&mut self, at: usize) {
        let run = self.claims.swap_remove(at);
        self.groups.unclaim(run);
    }

    /// Commits. Returns the chunks that were created and freed.
    pub(super) fn commit(&mut self, mut changes: Changes) -> (Vec<u64>, Vec<u64>) {
        let mut finished = finish(&self.groups, &mut self.nodes, &mut changes).unwrap();
        self.busy.push(finished.busy());
        let chunks = (changes.new_chunks().collect(), changes.freed_chunks().collect());
        let chunk_blocks = |chunk: &u64| *chunk..*chunk + CHUNK_BLOCKS;
        let made: BTreeSet<_> = changes.new_chunks().collect();
        for run in changes.claims().filter(|run| !made.contains(&run.start)) {
            self.used.extend(run.range());
        }
        for run in changes.freed() {
            run.range().for_each(|block| assert!(self.used.remove(&block)));
        }
        for (ino, change) in &changes.inodes {
            if change.is_freed {
                self.inodes.remove(ino);
            } else {
                let orphan = self.inodes.entry(*ino).or_default();
                *orphan = change.orphan.unwrap_or(*orphan);
            }
        }
        let gone: BTreeSet<_> = changes.freed_chunks().flat_map(|at| chunk_blocks(&at)).collect();
        assert!(!self.inodes.keys().any(|ino| gone.contains(&(ino / INODES_PER_BLOCK))));
        finished.committed(&changes, 0);
        self.nodes.commit();
        chunks
    }

    /// Writes the delayed changes of all groups into their trees.
    pub(super) fn write_delayed(&mut self) {
        for group in 0..self.groups.count() {
            let written = self.groups.write_delayed(&mut self.nodes, group).unwrap();
            if let Some(mut finished) = written {
                self.busy.push(finished.busy());
                finished.committed(&Changes::new(), 0);
            }
            self.nodes.commit();
        }
    }

    /// Returns the masks of a chunk, delayed changes included.
    fn masks(&self, record: &Record<InodeChunks>) -> (u64, u64) {
        let chunk = record.key.get();
        let group = self.groups.group_of(chunk).and_then(|group| self.groups.at(group)).unwrap();
        let delayed = group.lock.lock().delayed.masks.get(&chunk).copied();
        delayed.unwrap_or((record.value.free.get(), record.value.orphan.get()))
    }

    /// Uses the claim with this index.
    pub(super) fn use_claim(&mut self, at: usize, changes: &mut Changes) {
        changes.use_claim(self.claims.swap_remove(at));
    }

    pub(super) fn durable(&mut self) {
        for busy in self.busy.drain(..) {
            self.groups.durable(&busy);
        }
    }

    /// Checks that every block has exactly one use, that all counters agree, and that the index has
    /// the free blocks that are neither claimed nor busy; all of it with delayed changes.
    pub(super) fn check(&self) {
        let mut sum = (0, 0, 0, 0);
        for layout in &self.layouts {
            let (header, free) = self.check_disk(layout);
            let is_left_out = self.groups.at(layout.group()).unwrap().is_left_out();
            let free_inodes = if is_left_out { 0 } else { header.free_inodes };
            sum = (
                sum.0 + header.free,
                sum.1 + header.inodes - header.free_inodes + free_inodes,
                sum.2 + free_inodes,
                sum.3 + header.orphans,
            );
            self.check_index(layout, &header, &free);
        }
        let totals = self.groups.totals();
        assert_eq!((totals.inodes, totals.free_inodes, totals.orphans), (sum.1, sum.2, sum.3));
        assert!(totals.available <= sum.0);
        assert_eq!(self.inodes.len() as u64, sum.1 - sum.2);
    }

    /// Returns the header, with the counters of inodes as they are with delayed changes.
    fn check_disk(&self, layout: &Layout) -> (GroupHeader, BTreeSet<u64>) {
        let group = self.groups.at(layout.group()).unwrap();
        let mut header = group.decode(&self.nodes.blocks[&layout.header()]).unwrap();
        let mut whole: BTreeSet<u64> =
            group.layout().usable().flat_map(BlockRange::range).collect();
        let mut take = |block: u64| assert!(whole.remove(&block), "block {block} has two uses");
        let roots = [layout.free_tree().root(), layout.chunk_tree().root()];
        let mut tree_blocks = Vec::new();
        let mut used = |block| {
            if !roots.contains(&block) {
                tree_blocks.push(block);
            }
        };
        let damage = |damage| panic!("{damage}");
        layout.free_tree().check(&self.nodes, damage, &mut used).unwrap();
        layout.chunk_tree().check(&self.nodes, damage, &mut used).unwrap();
        tree_blocks.iter().chain(&header.set_aside).for_each(|block| take(*block));
        assert_eq!(header.tree_blocks, tree_blocks.len() as u64);
        let most = group.layout().tree_blocks_max();
        assert!(header.tree_blocks + header.set_aside.len() as u64 <= most);
        let (mut free, mut end) = (BTreeSet::new(), 0);
        for record in layout.free_tree().range(&self.nodes, ..).unwrap() {
            let record = record.unwrap();
            assert!(record.key.get() > end, "runs don't touch");
            end = record.key.get() + record.value.get();
            (record.key.get()..end).for_each(&mut take);
            free.extend(record.key.get()..end);
        }
        assert_eq!(header.free, free.len() as u64);
        let (mut inodes, mut stored, mut shown) = (0, (0, 0), (0, 0));
        let count = |(free, orphans): &mut (u64, u64), masks: (u64, u64)| {
            *free += u64::from(masks.0.count_ones());
            *orphans += u64::from(masks.1.count_ones());
        };
        for record in layout.chunk_tree().range(&self.nodes, ..).unwrap() {
            let record = record.unwrap();
            let chunk = record.key.get();
            (chunk..chunk + CHUNK_BLOCKS).for_each(&mut take);
            let masks = self.masks(&record);
            for bit in 0..64 {
                let is = |mask: u64| mask & (1 << bit) != 0;
                let state = match self.inodes.get(&(chunk * INODES_PER_BLOCK + bit)) {
                    None => (true, false),
                    Some(orphan) => (false, *orphan),
                };
                assert_eq!((is(masks.0), is(masks.1)), state);
            }
            inodes += 64;
            count(&mut stored, (record.value.free.get(), record.value.orphan.get()));
            count(&mut shown, masks);
        }
        assert_eq!((header.inodes, (header.free_inodes, header.orphans)), (inodes, stored));
        (header.free_inodes, header.orphans) = shown;
        let mut of_files: BTreeSet<_> = self.used.range(layout.blocks()).copied().collect();
        // As the tree has them: without the delayed claims, and with the delayed frees.
        let [claims, frees, gone] = group.lock.lock().delayed.runs.all().map(blocks_of);
        assert!(of_files.is_superset(&claims) && of_files.is_disjoint(&frees));
        assert!(of_files.is_disjoint(&gone) && free.is_superset(&gone));
        of_files = of_files.difference(&claims).chain(&frees).copied().collect();
        assert!(whole == of_files, "all other blocks are of files");
        (header, free)
    }

    fn check_index(&self, layout: &Layout, header: &GroupHeader, free: &BTreeSet<u64>) {
        let number = layout.group();
        let group = self.groups.at(number).unwrap();
        let records = layout.chunk_tree().range(&self.nodes, ..).unwrap().map(Result::unwrap);
        let free_inodes: Vec<_> =
            records.map(|record| (record.key.get(), self.masks(&record).0)).collect();
        let [claims, _, gone] = group.lock.lock().delayed.runs.all();
        let delayed = [claims, gone];
        let guard = group.index.lock();
        let Some(index) = guard.as_ref() else { return };
        let (mut taken, mut drained) = (BTreeSet::new(), 0);
        for part in self.busy.iter().flat_map(|busy| &busy.parts) {
            if part.group == number {
                taken.extend(part.runs.iter().flat_map(|run| run.range()));
                drained += part.drained;
            }
        }
        let claims = self.claims.iter().filter(|run| layout.blocks().contains(&run.start));
        taken.extend(claims.flat_map(|run| run.range()));
        taken.extend(delayed.into_iter().flat_map(blocks_of));
        let pending: BTreeSet<_> =
            index.pending.runs().flat_map(|(at, len)| at..at + len).collect();
        assert!(pending == taken, "group {number}");
        assert!(free.is_superset(&taken));
        let to_be_had: BTreeSet<_> = free.difference(&taken).copied().collect();
        assert_eq!(index.blocks, to_be_had.len() as u64);
        let has: BTreeSet<_> = index.free.runs().flat_map(|(at, len)| at..at + len).collect();
        for zone in 0..index.zones.len() {
            let range = index.zones.first(zone)..index.zones.first(zone + 1);
            let here: Vec<_> = to_be_had.range(range.clone()).copied().collect();
            let loaded: Vec<_> = has.range(range).copied().collect();
            match index.zones.summary(zone) {
                None => assert_eq!(loaded, here),
                Some(summary) => check_summary(summary, &loaded, &here),
            }
        }
        let aside = header.set_aside.len() as u64;
        assert_eq!(index.tree_total, header.tree_blocks + aside + drained);
        if self.busy.is_empty() {
            assert_eq!(index.tree_max, group.layout().tree_blocks_max());
        }
        check_chunks(&free_inodes, &index.chunks);
        assert_eq!(index.chunks.inodes, header.free_inodes);
    }

    /// Drops all zones of the indexes that can be dropped.
    pub(super) fn shrink(&self) {
        for group in self.groups.list.all_made() {
            for _ in 0..2 {
                while group.change_index(|index| index.drop_zone()) == Some(true) {}
            }
        }
    }
}

fn blocks_of(runs: Vec<BlockRange>) -> BTreeSet<u64> {
    runs.into_iter().flat_map(BlockRange::range).collect()
}

/// Checks the index of the inodes of a group, of whose chunks these inodes are free.
fn check_chunks(free_inodes: &[(u64, u64)], chunks: &Chunks) {
    let mut masks = chunks.masks().clone();
    for zone in 0..chunks.zones.len() {
        let range = chunks.zones.first(zone)..chunks.zones.first(zone + 1);
        let mut inodes = 0;
        for &(chunk, free) in free_inodes.iter().filter(|(chunk, _)| range.contains(chunk)) {
            inodes += free.count_ones();
            if chunks.zones.is_loaded(zone) && free != 0 {
                assert_eq!(masks.remove(&chunk), Some(free));
            }
        }
        let known = chunks.zones.summary(zone).filter(|known| *known != UNKNOWN);
        assert!(known.is_none_or(|known| u32::from(known) == inodes));
    }
    assert!(masks.is_empty(), "{masks:?}");
}

/// Checks the summary of a zone that is not loaded, in which the blocks `here` are free.
fn check_summary(summary: u16, loaded: &[u64], here: &[u64]) {
    assert!(loaded.is_empty());
    if summary == UNKNOWN {
        return;
    }
    let pieces: Vec<_> = here.chunk_by(|a, b| a + 1 == *b).collect();
    let most = pieces.iter().map(|piece| piece.len()).max().unwrap_or(0);
    let known = usize::from(summary & 0x7fff);
    assert!(known <= most && (known > 0) == (most > 0), "{known} of {most} blocks");
    let has_place = |piece: &&[u64]| piece[0].next_multiple_of(8) + 7 <= *piece.last().unwrap();
    assert!(summary & 0x8000 != 0 || !pieces.iter().any(has_place));
}
