//! Writes the changes of a transaction into the trees of one group, or delays them.
//!
//! # The trees always get the blocks they need
//!
//! An insertion takes at most as many blocks as its tree has levels, plus one. [`AgUpdate::top_up`]
//! is called before each change, and ensures that more than twice as many are set aside. Their
//! sources:
//!
//! * A freed run gives blocks directly: that needs no tree.
//! * Otherwise free space. Removing blocks from its tree may be an insertion itself, when another
//!   transaction has claimed the blocks behind them; that is why twice as many are set aside. They
//!   are taken from the end of the longest run, so one change fetches many blocks as long as there
//!   is a long run.
//! * Free space never lacks these blocks. All blocks that the trees could ever need
//!   ([`Layout::tree_blocks_max`]), and don't have, are withheld from claims of files
//!   (`Index::available`).
//!
//! One case is left: a group whose free space is in single blocks, all of them between claims of
//! other transactions, whose leaves are all full. Then a transaction can find nothing set aside and
//! fails with [`GroupNodes::no_space`]; nothing has changed then.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_sync::atomic::Ordering;
use vfscale_sync::lock::assert_held;
use zerocopy::little_endian::U64;

use super::agfl::{FreeList, TreeNodes};
use super::alloc_group::Group;
use super::changes::{InodeChange, Inodes, Undo};
use super::delayed::{DelayedChunks, DelayedUpdate, Masks, RUNS_MAX, RunsToWrite};
use super::index::Index;
use super::load::{Source, chunk_masks};
use super::{GroupNodes, Layout};
use crate::base::ranks::GroupLock;
use crate::btree::{Entry, Error, FoundRecord, Nodes};
use crate::buffer::Buffer;
use crate::format::damage::GroupFault;
use crate::format::group::{GroupHeader, InodeChunks, ROOT_CHUNK, RawChunk, fault};
use crate::format::inode::{CHUNK_BLOCKS, CHUNK_INODES, INODES_PER_BLOCK, block_of, chunk_of};
use crate::format::{BlockRange, Damage};

/// Maximum number of blocks that stay set aside.
const FREE_LIST_MAX: u64 = 48;
/// Number of blocks beyond the minimum that are set aside when some are fetched.
pub(super) const FREE_LIST_EXTRA: u64 = 8;
/// Number of free inodes that stay in a group when an empty chunk is freed. Without them, creating
/// and removing a file could create and free a chunk each time.
const INODES_KEPT: u64 = CHUNK_INODES;

/// The changes of a transaction in one group.
#[derive(Debug, Default)]
pub(super) struct AgChanges {
    /// In order, without overlaps.
    pub(super) claims: Vec<BlockRange>,
    /// In order, without overlaps.
    pub(super) frees: Vec<BlockRange>,
    pub(super) destroyed: Vec<BlockRange>,
    /// In ascending order.
    pub(super) inodes: Inodes,
    pub(super) new_chunks: Vec<u64>,
    /// Whether the group is to account for all of its blocks.
    pub(super) is_extended: bool,
}

impl AgChanges {
    /// Returns whether only existing inodes change, in which case mostly no tree gets more or fewer
    /// records.
    pub(super) fn is_of_inodes(&self) -> bool {
        self.claims.is_empty()
            && self.frees.is_empty()
            && self.destroyed.is_empty()
            && self.new_chunks.is_empty()
            && !self.is_extended
    }

    /// Returns whether these changes may be delayed: of existing inodes, and few runs of files.
    pub(super) fn is_small(&self) -> bool {
        self.destroyed.is_empty()
            && self.new_chunks.is_empty()
            && !self.is_extended
            && self.claims.len() + self.frees.len() <= RUNS_MAX
    }

    /// Returns whether nothing changes.
    pub(super) fn is_empty(&self) -> bool {
        self.is_of_inodes() && self.inodes.is_empty()
    }

    /// Forgets the blocks that become free, in group `number`, which is left out: they stay in use
    /// on disk.
    pub(super) fn forget_frees(&mut self, number: u32) {
        let runs = self.frees.drain(..).chain(self.destroyed.drain(..));
        let blocks: u64 = runs.map(|run| run.len()).sum();
        if blocks > 0 {
            tell_lost(number, blocks);
        }
    }
}

/// Tells that freed blocks of a group were forgotten.
pub(super) fn tell_lost(group: u32, blocks: u64) {
    tracing::warn!(group, blocks, "freed blocks are lost until a repair");
}

/// The result of applying [`AgChanges`].
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) header: GroupHeader,
    /// Runs that are free on disk, and can be used by files once the transaction is durable.
    pub(super) busy: Vec<BlockRange>,
    /// Blocks that were claimed, and are no longer free in the tree.
    pub(super) used: Vec<BlockRange>,
    /// Runs that are free now and were claimed in the same transaction.
    pub(super) freed_claims: Vec<BlockRange>,
    /// Number of blocks in `busy` that were tree blocks before.
    pub(super) drained: u64,
    /// Number of freed blocks that were added to the trees' free list.
    pub(super) donated: u64,
    /// Number of blocks in `busy` that were not accounted for before.
    pub(super) extended: u64,
    /// Freed inodes: the chunk, and a mask.
    pub(super) freed_inodes: SmallVec<[(u64, u64); 1]>,
}

impl Outcome {
    /// Enters the changes into the index, after the journal has the transaction.
    pub(super) fn enter(&self, index: &mut Index) {
        index.tree_total += self.donated;
        self.used.iter().for_each(|run| index.forget(*run));
        for run in &self.freed_claims {
            index.withhold(*run);
        }
        for (chunk, freed) in &self.freed_inodes {
            index.chunks.add(*chunk, *freed);
        }
    }
}

/// Changes to the trees and the header of a group whose index is loaded.
pub(super) struct AgUpdate<'a, N: Nodes> {
    group: &'a Group,
    layout: Layout,
    nodes: &'a mut N,
    header: N::Slot,
    /// Empty while `is_counters_only`.
    free_list: FreeList,
    outcome: Outcome,
    undo: &'a mut Undo,
    tree_max: u64,
    /// Whether the free list has not been decoded, because no tree gets more or fewer records.
    is_counters_only: bool,
    has_fetched: bool,
}

/// Returns the minimum number of blocks to be set aside before a change that may take `need`.
const fn free_list_min(need: u64) -> u64 {
    2 * (need + 1)
}

type Done<N> = Result<(), Error<<N as Nodes>::Error>>;

impl<'a, N: GroupNodes> AgUpdate<'a, N> {
    /// Executes `part`, and writes the runs and chunks that are `delayed`. If this fails, `undo`
    /// lists what was taken out of the index, and the transaction must not be committed.
    pub(super) fn run(
        group: &'a Group,
        nodes: &'a mut N,
        undo: &'a mut Undo,
        part: AgChanges,
        delayed: &DelayedChunks,
    ) -> Result<Outcome, Error<N::Error>> {
        assert_held::<GroupLock>();
        let former = group.layout();
        let layout = if part.is_extended { group.whole() } else { former.clone() };
        let expected = GroupHeader::expected(layout.group());
        let header = nodes.writable(layout.header(), &expected)?;
        let outcome =
            Outcome { header: GroupHeader::counters(nodes.edit(header)), ..Outcome::default() };
        let mut work = Self {
            group,
            layout,
            nodes,
            header,
            free_list: FreeList::default(),
            outcome,
            undo,
            tree_max: 0,
            is_counters_only: true,
            has_fetched: false,
        };
        if !part.is_of_inodes() || !delayed.runs.is_empty() {
            work.decode_free_list()?;
        }
        let AgChanges { claims, frees, destroyed, inodes, new_chunks, .. } = part;
        let runs = delayed.runs.with(claims, frees, destroyed);
        let runs = runs.map_err(|run| impossible(work.layout.header(), run, false))?;
        let RunsToWrite { claims, mut frees, destroyed, gone } = runs;
        work.extend(former.blocks().end)?;
        work.donate(&mut frees)?;
        for run in &claims {
            work.top_up()?;
            work.take(*run)?;
        }
        work.outcome.used.extend(claims);
        work.delayed(&delayed.masks)?;
        let empty = work.inodes(&new_chunks, &inodes)?;
        for run in frees.into_iter().chain(destroyed).chain(empty) {
            work.top_up()?;
            work.give(run)?;
            work.outcome.busy.push(run);
        }
        work.drain()?;
        work.outcome.busy.extend(gone);
        Ok(work.done())
    }

    /// Decodes the free list, before a tree gets more or fewer records.
    fn decode_free_list(&mut self) -> Done<N> {
        if self.is_counters_only {
            let whole = self.group.decode(self.nodes.edit(self.header))?;
            let (list, tree_blocks) = (whole.set_aside, whole.tree_blocks);
            self.free_list = FreeList { list, fresh: Vec::new(), tree_blocks };
            self.tree_max = self.layout.tree_blocks_max();
            self.is_counters_only = false;
        }
        Ok(())
    }

    /// Writes the header and returns the outcome.
    fn done(self) -> Outcome {
        let Self { free_list, mut outcome, nodes, header, is_counters_only, .. } = self;
        let block = nodes.edit(header);
        if is_counters_only {
            outcome.header.encode_counters(block);
            return outcome;
        }
        outcome.header.tree_blocks = free_list.tree_blocks;
        outcome.header.set_aside = free_list.list;
        outcome.header.set_aside.extend(free_list.fresh);
        outcome.header.encode_over(block);
        outcome
    }

    fn tree_nodes(&mut self) -> TreeNodes<'_, N> {
        TreeNodes { nodes: &mut *self.nodes, layout: &self.layout, free_list: &mut self.free_list }
    }

    fn fault<T>(&self, what: GroupFault) -> Result<T, Error<N::Error>> {
        Err(Error::Damage(fault(self.layout.header(), what)))
    }

    /// Returns the maximum number of blocks that a change of a tree may take.
    fn need(&mut self) -> Result<u64, Error<N::Error>> {
        let (free, chunks) = (self.layout.free_tree(), self.layout.chunk_tree());
        let height = free.height(&self.tree_nodes())?.max(chunks.height(&self.tree_nodes())?);
        Ok(u64::from(height) + 1)
    }

    /// Returns how many blocks the trees may still need beyond those that can be used in this
    /// transaction.
    fn room(&self) -> u64 {
        self.tree_max.saturating_sub(self.free_list.tree_blocks + self.free_list.list.len() as u64)
    }

    /// Frees the blocks behind `end`.
    fn extend(&mut self, end: u64) -> Done<N> {
        let blocks = self.layout.blocks();
        self.outcome.header.blocks = blocks.end - blocks.start;
        // The log does not lie there: its blocks were part of the volume before it grew.
        if end < blocks.end {
            let run = BlockRange::new(end, (blocks.end - end) as u32);
            self.top_up()?;
            self.give(run)?;
            self.outcome.busy.push(run);
            self.outcome.extended = run.len();
        }
        Ok(())
    }

    /// Takes blocks from the freed runs, if too few are set aside.
    fn donate(&mut self, frees: &mut Vec<BlockRange>) -> Done<N> {
        if frees.is_empty() {
            return Ok(());
        }
        let low = free_list_min(self.need()?);
        loop {
            let have = self.free_list.list.len() as u64;
            if have >= low || self.room() == 0 {
                return Ok(());
            }
            let Some(run) = frees.pop() else { return Ok(()) };
            // A block that is already free must not be set aside.
            self.neighbours(run)?;
            let blocks = (low + FREE_LIST_EXTRA - have).min(self.room()).min(run.len());
            self.free_list.list.extend(run.end() - blocks..run.end());
            self.outcome.donated += blocks;
            let rest = BlockRange::new(run.start, (run.len() - blocks) as u32);
            if !rest.is_empty() {
                frees.push(rest);
            }
        }
    }

    /// Ensures that enough blocks are set aside for a change of a tree. After the first fetch in a
    /// transaction, which is accounted for in its log space, only the strict minimum.
    fn top_up(&mut self) -> Done<N> {
        let need = self.need()?;
        let low = free_list_min(need);
        loop {
            let have = self.free_list.list.len() as u64;
            let wanted = (low + FREE_LIST_EXTRA).saturating_sub(have).min(self.room());
            let is_enough = have >= if self.has_fetched { need } else { low };
            if is_enough || wanted == 0 {
                return Ok(());
            }
            let source = Source { nodes: &*self.nodes, layout: &self.layout, delayed: None };
            let Some(run) = self.group.claim_for_trees(&source, wanted)? else { return Ok(()) };
            self.undo.fetched.push(run);
            self.outcome.used.push(run);
            self.has_fetched = true;
            self.take(run)?;
            self.free_list.list.extend(run.range());
        }
    }

    /// Removes a run from the tree of free space.
    fn take(&mut self, run: BlockRange) -> Done<N> {
        let tree = self.layout.free_tree();
        let (start, end) = (run.start, run.end());
        let found = tree.at_or_before(&self.tree_nodes(), start.into())?;
        let found = found.map(|record| (record.key.get(), record.value.get()));
        let inside = found.filter(|(at, len)| at.checked_add(*len).is_some_and(|to| end <= to));
        let Some((at, len)) = inside else {
            return self.fault(GroupFault::NotFree { start, blocks: run.len() });
        };
        let nodes = &mut self.tree_nodes();
        if at == start {
            tree.remove(nodes, at.into())?;
        } else {
            tree.update(nodes, at.into(), U64::from(start - at))?;
        }
        if end < at + len {
            tree.insert(nodes, end.into(), U64::from(at + len - end))?;
        }
        self.count(|header| &mut header.free, 0, run.len())
    }

    /// Returns the free runs that touch a run which is in use: the start and length of the one
    /// before it, and the length of the one behind it.
    fn neighbours(&mut self, run: BlockRange) -> Result<Neighbours, Error<N::Error>> {
        let layout = self.layout.clone();
        match touching(&layout, &self.tree_nodes(), run)? {
            Some(neighbours) => Ok(neighbours),
            None => self.fault(GroupFault::NotInUse { start: run.start, blocks: run.len() }),
        }
    }

    /// Adds a run to the tree of free space.
    fn give(&mut self, run: BlockRange) -> Done<N> {
        let tree = self.layout.free_tree();
        let Neighbours { before, behind } = self.neighbours(run)?;
        // Before the run is in the tree: no search may find it there.
        self.undo.withheld.push(run);
        if self.group.change_index(|index| index.withhold(run)) == Some(false) {
            self.outcome.freed_claims.push(run);
        }
        let nodes = &mut self.tree_nodes();
        if behind.is_some() {
            tree.remove(nodes, run.end().into())?;
        }
        let blocks = run.len().saturating_add(behind.unwrap_or(0));
        match before {
            Some((at, len)) => {
                tree.update(nodes, at.into(), U64::from(len.saturating_add(blocks)))?;
            }
            None => {
                tree.insert(nodes, run.start.into(), U64::from(blocks))?;
            }
        }
        self.count(|header| &mut header.free, run.len(), 0)
    }

    /// Frees surplus blocks of the free list.
    fn drain(&mut self) -> Done<N> {
        if self.is_counters_only {
            return Ok(());
        }
        loop {
            let free_list = self.free_list.len();
            let is_enough = free_list <= FREE_LIST_MAX
                && free_list + self.free_list.tree_blocks <= self.tree_max;
            // Blocks from this transaction first: the next transaction can use the others
            // immediately.
            let drained = if is_enough { None } else { self.free_list.fresh.pop() };
            let drained =
                if is_enough { None } else { drained.or_else(|| self.free_list.list.pop()) };
            let Some(address) = drained else { return Ok(()) };
            let run = BlockRange::new(address, 1);
            self.give(run)?;
            self.outcome.busy.push(run);
            self.outcome.drained += 1;
        }
    }

    /// Adds `more` to a counter, and subtracts `less`.
    fn count(
        &mut self,
        counter: fn(&mut GroupHeader) -> &mut u64,
        more: u64,
        less: u64,
    ) -> Done<N> {
        let counter = counter(&mut self.outcome.header);
        match counter.checked_add(more).and_then(|sum| sum.checked_sub(less)) {
            Some(now) => {
                *counter = now;
                Ok(())
            }
            // The counter is wrong anyway, and the push must not fail for it.
            None if self.nodes.leaves_out() => {
                *counter = counter.saturating_add(more).saturating_sub(less);
                Ok(())
            }
            None => self.fault(GroupFault::Counter),
        }
    }

    /// Writes the records of chunks with delayed changes.
    fn delayed(&mut self, delayed: &BTreeMap<u64, Masks>) -> Done<N> {
        for (&chunk, &now) in delayed {
            let found = self.chunk_of(chunk * INODES_PER_BLOCK)?;
            self.write_chunk(&found, now)?;
        }
        Ok(())
    }

    /// Creates chunks, and changes inodes. Returns the chunks that are freed, as runs.
    fn inodes(
        &mut self,
        new_chunks: &[u64],
        inodes: &[(u64, InodeChange)],
    ) -> Result<Vec<BlockRange>, Error<N::Error>> {
        let tree = self.layout.chunk_tree();
        for &chunk in new_chunks {
            self.top_up()?;
            let value = RawChunk { free: u64::MAX.into(), orphan: U64::ZERO };
            let is_possible = self.layout.is_chunk(chunk);
            if !is_possible || !tree.insert(&mut self.tree_nodes(), chunk.into(), value)? {
                return self.fault(GroupFault::Chunk { start: chunk });
            }
            self.count(|header| &mut header.inodes, CHUNK_INODES, 0)?;
            self.count(|header| &mut header.free_inodes, CHUNK_INODES, 0)?;
        }
        let mut empty = Vec::new();
        let mut rest = inodes.iter().peekable();
        while let Some(&&(ino, _)) = rest.peek() {
            let found = self.chunk_of(ino)?;
            let (chunk, former) = (found.record.key.get(), found.record.value);
            let end = (chunk + CHUNK_BLOCKS) * INODES_PER_BLOCK;
            let mut now = (former.free.get(), former.orphan.get());
            let mut freed = 0;
            while let Some(&(ino, change)) = rest.next_if(|(ino, _)| *ino < end) {
                let bit = 1 << (ino - chunk * INODES_PER_BLOCK);
                if !apply(&mut now, bit, change) {
                    return self.fault(GroupFault::Inode { ino });
                }
                freed |= if change.is_freed { bit } else { 0 };
            }
            // Replacing a value takes no block, nor does removing a record.
            self.write_chunk(&found, now)?;
            if self.give_up(chunk, now.0, freed)? {
                empty.push(BlockRange::new(chunk, CHUNK_BLOCKS as u32));
            } else if freed != 0 {
                self.outcome.freed_inodes.push((chunk, freed));
            }
        }
        Ok(empty)
    }

    /// Finds the chunk of an inode.
    fn chunk_of(&mut self, ino: u64) -> Result<FoundRecord<InodeChunks>, Error<N::Error>> {
        let tree = self.layout.chunk_tree();
        // Mostly the record is in the root; preparing the root first spares a second search for the
        // change.
        self.nodes.writable(tree.root(), &tree.expected())?;
        match tree.find(&self.tree_nodes(), chunk_of(block_of(ino)).into())? {
            Some(found) => Ok(found),
            None => self.fault(GroupFault::Inode { ino }),
        }
    }

    /// Writes the record of a chunk, and updates the counters by the difference.
    fn write_chunk(&mut self, found: &FoundRecord<InodeChunks>, now: (u64, u64)) -> Done<N> {
        let former = (found.record.value.free.get(), found.record.value.orphan.get());
        if former == now {
            return Ok(());
        }
        let tree = self.layout.chunk_tree();
        let value = RawChunk { free: now.0.into(), orphan: now.1.into() };
        tree.replace(&mut self.tree_nodes(), found, value)?;
        let bits = |mask: u64| u64::from(mask.count_ones());
        self.count(|header| &mut header.free_inodes, bits(now.0), bits(former.0))?;
        self.count(|header| &mut header.orphans, bits(now.1), bits(former.1))
    }

    /// Removes a chunk from the tree if all of its inodes are free, none is claimed, and enough
    /// others are free. Returns whether it did.
    fn give_up(&mut self, chunk: u64, free: u64, freed: u64) -> Result<bool, Error<N::Error>> {
        let free_inodes = self.outcome.header.free_inodes;
        if is_needed(chunk, free, free_inodes) || self.group.is_left_out() {
            return Ok(false);
        }
        self.decode_free_list()?;
        let Some(mask) = self.group.claim_chunk(chunk, freed) else { return Ok(false) };
        self.undo.chunks.push((chunk, mask));
        let tree = self.layout.chunk_tree();
        tree.remove(&mut self.tree_nodes(), chunk.into())?;
        self.count(|header| &mut header.inodes, 0, CHUNK_INODES)?;
        self.count(|header| &mut header.free_inodes, 0, CHUNK_INODES)?;
        Ok(true)
    }
}

impl Group {
    /// Returns the delayed form of changes of existing inodes, whose numbers ascend; `None` if they
    /// have to be written into the trees, because a chunk becomes empty.
    ///
    /// # Errors
    /// [`Error`].
    pub(super) fn delay<N: GroupNodes>(
        &self,
        nodes: &N,
        delayed: &DelayedChunks,
        inodes: &[(u64, InodeChange)],
    ) -> Result<Option<DelayedUpdate>, Error<N::Error>> {
        assert_held::<GroupLock>();
        let mut update = DelayedUpdate::default();
        for (ino, change) in inodes {
            let chunk = chunk_of(block_of(*ino));
            let former = match update.get(chunk).or_else(|| delayed.masks.get(&chunk).copied()) {
                Some(masks) => masks,
                None => {
                    update.blocks += 1;
                    self.hold_chunk(nodes, *ino, &mut update.held)?;
                    self.stored_masks(nodes, *ino)?
                }
            };
            let (mut now, bit) = (former, 1 << (ino - chunk * INODES_PER_BLOCK));
            if !apply(&mut now, bit, *change) {
                return Err(self.no_inode(*ino));
            }
            let more = |now: u64, former: u64| {
                i64::from(now.count_ones()) - i64::from(former.count_ones())
            };
            update.free_inodes += more(now.0, former.0);
            update.orphans += more(now.1, former.1);
            update.add(chunk, now);
            if change.is_freed {
                let free = self.counts.free_inodes.load(Ordering::Relaxed);
                let free = free.saturating_add_signed(update.free_inodes);
                if !is_needed(chunk, now.0, free) && !self.is_left_out() {
                    return Ok(None);
                }
                update.freed.push((chunk, bit));
            }
        }
        // The header, unless another transaction has set space aside for it.
        if delayed.blocks == 0 {
            update.blocks += 1;
            let layout = self.layout();
            let header = nodes.hold(layout.header(), &GroupHeader::expected(layout.group()))?;
            update.held.extend(header);
        }
        Ok(Some(update))
    }

    /// Reads the blocks that a change of the record of an inode's chunk takes into `held`.
    fn hold_chunk<N: GroupNodes>(
        &self,
        nodes: &N,
        ino: u64,
        held: &mut Vec<Arc<Buffer>>,
    ) -> Result<(), Error<N::Error>> {
        let key = chunk_of(block_of(ino)).into();
        self.layout().chunk_tree().along(nodes, key, |address, expected| {
            held.extend(nodes.hold(address, expected)?);
            Ok(())
        })
    }

    /// Reads the masks of the chunk of an inode from the tree.
    fn stored_masks<N: Nodes>(&self, nodes: &N, ino: u64) -> Result<Masks, Error<N::Error>> {
        let layout = self.layout();
        let key = chunk_of(block_of(ino)).into();
        let value = layout.chunk_tree().get(nodes, key)?.ok_or_else(|| self.no_inode(ino))?;
        Ok(chunk_masks(&layout, &Entry { key, value })?.1)
    }

    fn no_inode<E>(&self, ino: u64) -> Error<E> {
        Error::Damage(fault(self.whole().header(), GroupFault::Inode { ino }))
    }
}

/// Returns the free runs that touch a run, unless some of it is free, or it can't be.
pub(super) fn touching<N: Nodes>(
    layout: &Layout,
    nodes: &N,
    run: BlockRange,
) -> Result<Option<Neighbours>, Error<N::Error>> {
    if !layout.is_usable(run.start, run.len()) {
        return Ok(None);
    }
    let tree = layout.free_tree();
    let record = tree.at_or_before(nodes, run.start.into())?;
    let before = record.map(|record| (record.key.get(), record.value.get()));
    let record = tree.at_or_after(nodes, run.start.into())?;
    let behind = record.map(|record| (record.key.get(), record.value.get()));
    // A length that exceeds the range of u64 overlaps the next run, too.
    let is_free = before.is_some_and(|(at, len)| at.saturating_add(len) > run.start)
        || behind.is_some_and(|(at, _)| at < run.end());
    Ok((!is_free).then(|| Neighbours {
        before: before.filter(|(at, len)| at + len == run.start),
        behind: behind.filter(|(at, _)| *at == run.end()).map(|(_, len)| len),
    }))
}

/// The free runs that touch a run.
pub(super) struct Neighbours {
    before: Option<(u64, u64)>,
    behind: Option<u64>,
}

/// Returns whether a chunk stays in the tree of a group with `free_inodes` free inodes; `free` is
/// the mask of those in the chunk.
fn is_needed(chunk: u64, free: u64, free_inodes: u64) -> bool {
    free != u64::MAX || chunk == ROOT_CHUNK || free_inodes < CHUNK_INODES + INODES_KEPT
}

/// Changes an inode in the masks of its chunk: free, orphan. Returns false if its state does not
/// permit the change.
fn apply((free, orphan): &mut Masks, bit: u64, change: InodeChange) -> bool {
    if (*free & bit != 0) != change.is_new {
        return false;
    }
    *free &= !bit;
    match change.orphan {
        Some(true) => *orphan |= bit,
        Some(false) => *orphan &= !bit,
        None => {}
    }
    if change.is_freed {
        *free |= bit;
        *orphan &= !bit;
    }
    true
}

/// Returns the corruption that describes a run which can't be used or freed.
pub(super) fn impossible(address: u64, run: BlockRange, is_free: bool) -> Damage {
    let (start, blocks) = (run.start, run.len());
    let what = if is_free {
        GroupFault::NotFree { start, blocks }
    } else {
        GroupFault::NotInUse { start, blocks }
    };
    fault(address, what)
}
