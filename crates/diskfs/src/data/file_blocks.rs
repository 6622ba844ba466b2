//! The blocks of one file: the store of a regular file that is an inode of a volume.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::page::PageBox;

use super::state::FilesState;
use crate::base::fault::Fault;
use crate::btree::Tree;
use crate::file_io::{Act, Change, Event, Reserved, Store, Truncation, Writing};
use crate::format::extent::{Extent, FILE_BLOCKS_MAX};
use crate::format::{BlockRange, byte_of_block};
use crate::inode::core::{DataFork, InodeCore};
use crate::inode::extents::{ExtentMap, ExtentTree, MapOwner};
use crate::inode::incore::Node;
use crate::page_cache::{Mapping, PAGE, pages_of};
use crate::volume::Volume;
use crate::volume::credits::Purpose;
use crate::volume::tx::{Tx, TxReservation};

/// The most extents that a transaction changes.
const EXTENTS_PER_TX: usize = 8;
/// The number of extents in a transaction if the log is small.
const EXTENTS_PER_SMALL_TX: usize = 2;

/// Write-back of other files, for a writer that has to wait (`balance_dirty_pages`).
pub(super) trait Throttle {
    /// Writes one dirty file back. Returns false if none waits: other threads are writing, and this
    /// one has waited a moment for them.
    fn write_back_one(&self) -> bool;
}

/// The blocks of one file: its inode, and the volume.
#[derive(Clone, Copy)]
pub struct FileBlocks<'a> {
    state: &'a FilesState,
    node: &'a Arc<Node>,
    throttle: &'a dyn Throttle,
}

/// The change of a transaction that frees the blocks of a range, or makes them unwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeStep {
    Free,
    Unwrite,
    /// Frees, and the file ends there.
    Cut {
        size: u64,
    },
}

impl<'a> FileBlocks<'a> {
    pub(super) fn new(
        state: &'a FilesState,
        node: &'a Arc<Node>,
        throttle: &'a dyn Throttle,
    ) -> Self {
        Self { state, node, throttle }
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.state.volume
    }

    /// Notes that data were written to the device: no transaction that is committed from now on
    /// will be durable before them.
    pub(super) fn has_written(&self) {
        self.state.has_room();
        self.node.note_data_written(self.state.volume.mark_data_written());
    }

    /// Returns the owner of the blocks, according to `core`.
    fn owner(&self, core: &InodeCore) -> MapOwner {
        MapOwner { ino: self.node.ino(), list_max: core.extents_room() }
    }

    /// Calls `look` on the map, which no thread changes during the call.
    fn with_map<T>(
        &self,
        look: impl FnOnce(&ExtentMap) -> Result<T, crate::btree::Error<Fault>>,
    ) -> Result<T, Fault> {
        let mut map = ExtentMap::of(&self.node.stored().data);
        // A list was copied with the core; the blocks of a tree are published one after the other.
        let guard = matches!(map, ExtentMap::Tree(_)).then(|| self.node.read());
        if guard.is_some() {
            map = ExtentMap::of(&self.node.stored().data);
        }
        Ok(look(&map)?)
    }

    /// Returns the reservation of a transaction that changes `records` records of the map and
    /// claims or frees `runs` runs of data.
    fn need(&self, records: u32, runs: u32) -> Result<TxReservation, Fault> {
        let volume = &self.state.volume;
        let levels = self.with_map(|map| match map {
            ExtentMap::Empty | ExtentMap::List(_) => Ok(1),
            ExtentMap::Tree(root) => {
                Tree::<ExtentTree>::at(*root, self.node.ino()).height(&volume.reader())
            }
        })?;
        // One level more than the tree has: it may grow.
        let levels = u32::from(levels) + 1;
        let of_tree = records * (3 * levels + 2);
        let of_groups = volume.groups().log_blocks(runs + levels + records / 2, 0);
        let log_blocks = (1 + of_tree + of_groups).min(self.state.log_blocks_max);
        Ok(TxReservation { log_blocks, space: u64::from(levels) + 2, from_pool: true })
    }

    /// Begins a transaction that takes blocks of trees from the pool. If the pool is empty, waits
    /// for blocks that are being freed: they fill the pool first. The caller may hold
    /// `i_writeback`, which no commit needs.
    fn begin(&self, need: TxReservation, purpose: Purpose) -> Result<Tx<'_>, Fault> {
        let volume = &self.state.volume;
        match volume.begin_for(need, purpose) {
            Err(Fault::NoSpace) if volume.space().is_coming() => {
                volume.sync()?;
                volume.await_discard();
                volume.begin_for(need, purpose)
            }
            begun => begun,
        }
    }

    /// Updates the core, and the structures that it refers to, in a transaction, and commits it.
    /// The caller drops it before it begins another.
    fn update<T>(
        &self,
        tx: &mut Tx<'_>,
        change: impl FnOnce(&mut Tx<'_>, &mut InodeCore) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let _guard = self.node.lock();
        let result = tx.edit(self.node, change)?;
        tx.commit_in_place()?;
        Ok(result)
    }

    /// Begins a transaction that also makes `change`, as [`enter`](Self::enter) does. If it can't
    /// begin, or is dropped, the claim of the change is given back.
    ///
    /// # Errors
    /// Errors of [`Volume::begin`].
    pub(crate) fn begin_with(
        &self,
        need: TxReservation,
        change: &Change<'_>,
    ) -> Result<Tx<'a>, Fault> {
        self.with_claim(self.state.volume.begin(need), change)
    }

    /// Transfers the claim of `change` to the transaction that was begun for it, or gives it back
    /// if none was.
    #[inline]
    fn with_claim<'t>(
        &self,
        begun: Result<Tx<'t>, Fault>,
        change: &Change<'_>,
    ) -> Result<Tx<'t>, Fault> {
        let Change::Insert(extent, _) = change else { return begun };
        let unclaim = |_: &Fault| self.state.volume.groups().unclaim(extent.run());
        let mut tx = begun.inspect_err(unclaim)?;
        tx.use_claim(extent.run());
        Ok(tx)
    }

    /// Makes `change` part of a transaction that has [begun with it](Self::begin_with), of a file
    /// without blocks. The caller holds the node locked.
    ///
    /// # Errors
    /// Errors of [`Store::change`].
    pub(crate) fn enter(&self, tx: &mut Tx<'_>, change: Change<'_>) -> Result<(), Fault> {
        tx.edit(self.node, |tx, core| self.apply(tx, core, change))
    }

    /// Applies a change of one transaction to the core, and the structures that it refers to.
    fn apply(
        &self,
        tx: &mut Tx<'_>,
        core: &mut InodeCore,
        change: Change<'_>,
    ) -> Result<(), Fault> {
        match change {
            Change::Insert(extent, size) => {
                core.size = size;
                self.insert(tx, core, extent)
            }
            Change::Written(range, size) => {
                core.size = size;
                self.convert(tx, core, range)
            }
            // Attributes may have taken the room since the change was planned.
            Change::Inline(bytes, _) if bytes.len() > core.data_room() => Err(Fault::NoSpace),
            Change::Inline(bytes, size) => {
                core.size = size;
                core.data = match bytes {
                    [] => DataFork::None,
                    bytes => DataFork::Inline(bytes.into()),
                };
                Ok(())
            }
            Change::Size(size) => {
                core.size = size;
                Ok(())
            }
            // They take several transactions.
            Change::Free(_) | Change::Unwrite(_) => Err(Errno::INVAL.into()),
        }
    }

    /// Inserts a claim into the file.
    fn insert(&self, tx: &mut Tx<'_>, core: &mut InodeCore, extent: Extent) -> Result<(), Fault> {
        let mut map = ExtentMap::of(&core.data);
        let grown = map.insert(tx, self.owner(core), extent)?;
        core.data = map.into_fork();
        count_blocks(core, i64::from(extent.blocks) + grown);
        Ok(())
    }

    /// Marks blocks as written.
    fn convert(
        &self,
        tx: &mut Tx<'_>,
        core: &mut InodeCore,
        range: Range<u64>,
    ) -> Result<(), Fault> {
        let (mut map, mut grown) = (ExtentMap::of(&core.data), 0);
        let (owner, range) = (self.owner(core), (range.start, range.end));
        map.convert(tx, owner, range, false, EXTENTS_PER_TX, &mut grown)?;
        core.data = map.into_fork();
        count_blocks(core, grown);
        Ok(())
    }

    /// Runs one transaction on the blocks `from` to `to`. Returns the first block that it has not
    /// processed.
    pub(super) fn step(&self, step: RangeStep, from: u64, to: u64) -> Result<u64, Fault> {
        self.state.volume.beside_damage(|| self.step_once(step, from, to))
    }

    fn step_once(&self, step: RangeStep, from: u64, to: u64) -> Result<u64, Fault> {
        let extents = match self.state.log_blocks_max {
            0..500 => EXTENTS_PER_SMALL_TX,
            _ => EXTENTS_PER_TX,
        };
        let need = self.need(3 * extents as u32, extents as u32)?;
        let purpose = match step {
            RangeStep::Unwrite => Purpose::Growth,
            RangeStep::Free | RangeStep::Cut { .. } => Purpose::Removal,
        };
        let mut tx = self.begin(need, purpose)?;
        self.update(&mut tx, |tx, core| {
            let (mut map, mut grown, mut freed) = (ExtentMap::of(&core.data), 0, Vec::new());
            let (owner, range) = (self.owner(core), (from, to));
            let end = match step {
                RangeStep::Unwrite => map.convert(tx, owner, range, true, extents, &mut grown)?,
                RangeStep::Free | RangeStep::Cut { .. } => {
                    map.remove(tx, owner, range, extents, &mut freed, &mut grown)?
                }
            };
            if !matches!(core.data, DataFork::Inline(_)) {
                core.data = map.into_fork();
            }
            let blocks: i64 = freed.iter().map(|run| i64::from(run.blocks)).sum();
            count_blocks(core, grown - blocks);
            freed.into_iter().for_each(|run| tx.free(run));
            if let RangeStep::Cut { size } = step {
                cut(core, size);
                // A removed file has the mark until its inode is freed.
                if core.nlink > 0 {
                    tx.set_orphan(self.node, end < to);
                }
            }
            Ok(end)
        })
    }

    /// Runs all transactions on the blocks `from` to `to`.
    fn steps(&self, step: RangeStep, from: u64, to: u64) -> Result<(), Fault> {
        let mut at = from;
        while at < to {
            // A hole needs no transaction.
            let next =
                self.with_map(|map| map.next(&self.state.volume.reader(), self.node.ino(), at))?;
            let Some(extent) = next.filter(|extent| extent.file_block < to) else { break };
            at = self.step(step, at.max(extent.file_block), to)?;
        }
        Ok(())
    }

    /// Returns whether truncation to `size` changes anything.
    fn is_cut(&self, size: u64) -> Result<bool, Fault> {
        let from = pages_of(size);
        let reader = self.state.volume.reader();
        let behind = self.with_map(|map| map.next(&reader, self.node.ino(), from))?;
        Ok(behind.is_none() && self.node.stored().size <= size)
    }

    /// Truncates the file, and removes the mark of an unfinished truncation if it has one.
    pub(super) fn cut(&self, size: u64) -> Truncation {
        let is_marked =
            || self.state.volume.orphans().has(self.node) && self.node.stored().nlink > 0;
        match self.is_cut(size) {
            Ok(true) if !is_marked() => return Truncation::Whole,
            Ok(_) => {}
            Err(fault) => return Truncation::Failed(fault),
        }
        let (mut at, mut is_begun) = (pages_of(size), false);
        loop {
            match self.step(RangeStep::Cut { size }, at, u64::MAX) {
                Ok(u64::MAX) => return Truncation::Whole,
                Ok(end) => (at, is_begun) = (end, true),
                Err(fault) if is_begun => return Truncation::Part(fault),
                Err(fault) => return Truncation::Failed(fault),
            }
        }
    }

    /// Stores times that no transaction has stored yet.
    pub(super) fn store_times(&self) -> Result<(), Fault> {
        let need = TxReservation { log_blocks: 1, space: 0, from_pool: true };
        let mut tx = self.state.volume.begin_for(need, Purpose::WriteBack)?;
        let _guard = self.node.lock();
        // Not if it is free: its block may have been reused by now.
        if self.node.has_new_times() {
            let core = tx.core(self.node);
            tx.set_core(self.node, (*core).clone());
            tx.commit()?;
        }
        Ok(())
    }

    /// Returns the block near which the data of `file_block` should be allocated.
    fn near(&self, file_block: u64) -> Result<u64, Fault> {
        let reader = self.state.volume.reader();
        let before = self.with_map(|map| map.before(&reader, self.node.ino(), file_block))?;
        Ok(before.map_or(self.node.block(), |before| before.place_end()))
    }

    /// Records a failed write-back, which the open files of the file report.
    pub(super) fn write_failed(&self, fault: &Fault) {
        let volume = &self.state.volume;
        if matches!(fault, Fault::Damage(_)) && !volume.is_shut_down() {
            volume.shut_down(fault.clone());
        }
        if let Fault::Device(error) = fault
            && error.is_no_space()
            && self.state.is_new_lack()
        {
            tracing::error!(
                "{error}; written data are lost, and fsync reports it, until there is room"
            );
        }
        let code = fault.errno().raw_os_error();
        self.node.write_errors().record(code);
        self.state.write_errors.record(code);
    }
}

impl Store for FileBlocks<'_> {
    fn may(&self, act: Act) -> Result<(), Fault> {
        let volume = &self.state.volume;
        match act {
            Act::Change => volume.changeable(),
            Act::Extend => volume.changeable().and_then(|()| volume.roomy()),
            // The reserve of tree blocks is not for splitting written extents.
            Act::Unwrite if volume.space().grain() > 1 => {
                volume.changeable().and(Err(Fault::NoSpace))
            }
            Act::Unwrite => volume.changeable(),
            Act::WriteBack => volume.writable().map(|_| ()),
        }
    }

    fn make_room(&self) -> Result<(), Fault> {
        self.state.volume.make_room()
    }

    fn reserve(&self, blocks: u64) -> Result<Reserved<'_, Self>, Fault> {
        let has_space = blocks == 0 || self.state.volume.space().take(blocks, false);
        if has_space { Ok(Reserved::new(self, blocks)) } else { Err(Fault::NoSpace) }
    }

    fn unreserve(&self, blocks: u64) {
        self.state.volume.space().give(blocks);
    }

    fn map(&self, block: u64) -> Result<Mapping, Fault> {
        let volume = &self.state.volume;
        let ino = self.node.ino();
        if block == 0
            && let DataFork::Inline(bytes) = &self.node.stored().data
        {
            return Ok(Mapping::Inline(Arc::clone(bytes)));
        }
        let mapping = self.with_map(|map| map.lookup(&volume.reader(), ino, block))?;
        let (Mapping::Mapped { start, blocks } | Mapping::Unwritten { start, blocks }) = mapping
        else {
            return Ok(mapping);
        };
        // Never read or write blocks that may hold other things, whatever the inode says: each
        // block found is in one group, behind the blocks that describe it, and outside of the log.
        if !volume.is_run_for_files(start, blocks) {
            return Err(outside(ino, block, start, blocks));
        }
        if let Mapping::Unwritten { .. } = mapping {
            return Ok(mapping);
        }
        // After the mapping: the size grows together with the blocks.
        Ok(match pages_of(self.disk_size()).saturating_sub(block) {
            0 => Mapping::Unwritten { start, blocks },
            on_disk => Mapping::Mapped { start, blocks: blocks.min(on_disk) },
        })
    }

    fn is_inline(&self) -> bool {
        matches!(self.node.stored().data, DataFork::Inline(_))
    }

    fn inline_room(&self) -> Option<u64> {
        let core = self.node.stored();
        match &core.data {
            DataFork::None | DataFork::Inline(_) => Some(core.data_room() as u64),
            _ => None,
        }
    }

    fn disk_size(&self) -> u64 {
        self.node.stored().size
    }

    fn read_pages(&self, start: u64, into: &[PageBox]) -> Result<(), Fault> {
        Ok(self.state.volume.device().read_pages(byte_of_block(start), into)?)
    }

    fn begin_write(&self, start: u64, from: &Arc<Vec<PageBox>>) -> Writing<'_> {
        let volume = &self.state.volume;
        let pending = volume.device().begin_write_pages(byte_of_block(start), from);
        Writing::in_flight(move || {
            pending.wait()?;
            self.has_written();
            Ok(())
        })
    }

    fn claim(&self, file_block: u64, near: Option<u64>, blocks: u32) -> Result<BlockRange, Fault> {
        let volume = &self.state.volume;
        let near = near.map_or_else(|| self.near(file_block), Ok)?;
        let claim = || {
            let claimed = volume.groups().claim(&volume.reader(), near, 1, blocks);
            claimed.map_err(Fault::local)
        };
        if let Some(run) = claim()? {
            return Ok(run);
        }
        // Freed blocks are available when the freeing is durable.
        volume.sync()?;
        claim()?.ok_or(Fault::NoSpace)
    }

    fn give_back(&self, claim: BlockRange, is_bad: bool) -> bool {
        let volume = &self.state.volume;
        let blocks = u64::from(claim.blocks);
        if !is_bad || !volume.space().take(blocks, true) {
            volume.groups().unclaim(claim);
            return !is_bad;
        }
        tracing::warn!(start = claim.start, blocks, "can't be written, left out");
        // Returned to a group before they count as free.
        if let Some(old) = self.state.bad_blocks.add(claim) {
            volume.groups().unclaim(old);
            volume.space().give(u64::from(old.blocks));
        }
        true
    }

    fn change(&self, change: Change<'_>) -> Result<(), Fault> {
        let change = match change {
            Change::Free(range) => return self.steps(RangeStep::Free, range.start, range.end),
            Change::Unwrite(range) => {
                return self.steps(RangeStep::Unwrite, range.start, range.end);
            }
            Change::Written(range, size) => Change::Written(self.zero_around(range, size)?, size),
            change => change,
        };
        let (records, purpose) = match &change {
            // An allocation may be refused; the rest was accepted.
            Change::Insert(extent, _) if extent.is_unwritten => (4, Purpose::Growth),
            Change::Insert(..) | Change::Written(..) => (4, Purpose::WriteBack),
            _ => (0, Purpose::WriteBack),
        };
        let begun = self.need(records, 1).and_then(|need| self.begin(need, purpose));
        let mut tx = self.with_claim(begun, &change)?;
        self.update(&mut tx, |tx, core| self.apply(tx, core, change))
    }

    fn truncate(&self, size: u64) -> Truncation {
        self.cut(size)
    }

    fn tell(&self, event: Event<'_>) {
        let state = self.state;
        match event {
            Event::Dirty(pages) => state.set_dirty(self.node, pages),
            Event::Renewed(pages) => {
                if let Some(renewed) = &state.renewed {
                    renewed.note(self.node, pages);
                }
            }
            Event::Filled(pages) => state.write_behind.request(self.node, pages),
            Event::Awaited(pages) => state.read_ahead.request(self.node, pages),
            Event::Failed(fault) => self.write_failed(fault),
        }
    }

    fn write_back_one(&self) -> bool {
        self.throttle.write_back_one()
    }
}

fn count_blocks(core: &mut InodeCore, more: i64) {
    core.blocks = core.blocks.saturating_add_signed(more);
}

/// Reduces the size in `core` to `size`, if it is larger.
fn cut(core: &mut InodeCore, size: u64) {
    core.size = core.size.min(size);
    if let DataFork::Inline(bytes) = &core.data {
        let len = bytes.len().min(usize::try_from(size).unwrap_or(usize::MAX));
        core.data = match &bytes[..len] {
            [] => DataFork::None,
            bytes => DataFork::Inline(bytes.into()),
        };
    }
}

/// Returns the fault of an extent outside of the blocks that files can have.
fn outside(ino: u64, file_block: u64, start: u64, blocks: u64) -> Fault {
    use crate::format::damage::{ExtentDamage, ExtentFault};
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let fault = ExtentFault::Outside { start, blocks };
    Fault::Local(ExtentDamage { ino, file_block, fault }.into())
}

const _: () = assert!(FILE_BLOCKS_MAX == (i64::MAX as u64).div_ceil(PAGE));
