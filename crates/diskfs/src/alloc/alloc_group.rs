//! One group in memory: its layout, locks, index and counters.

use std::ops::Range;
use std::sync::Arc;

use vfscale_journal::Lsn;
use vfscale_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vfscale_sync::lock::assert_held;
use vfscale_sync::{Mutex, MutexGuard, cpu};

use super::delayed::GroupState;
use super::headers::{self, Shared};
use super::heat::{Came, Heat};
use super::index::Index;
use super::load::{Effort, Half, RECORDS_MAX, Source, Zone};
use super::search::{FreeRuns, Reach, Search};
use super::{Layout, Totals};
use crate::base::ranks::{GroupIndex, GroupLock};
use crate::btree::{Error, Nodes};
use crate::format::damage::GroupFault;
use crate::format::group::{GroupHeader, fault};
use crate::format::inode::CHUNK_BLOCKS;
use crate::format::{Block, BlockRange, Damage};
use crate::{Geometry, LogPlace};

/// The number of available blocks of a group whose header was not read.
const UNREAD: u64 = u64::MAX;

/// A group in memory, on cache lines of its own. Counterpart of `struct xfs_perag` of XFS.
#[repr(align(128))]
pub(super) struct Group {
    /// The layout of the group at full size.
    full: Layout,
    /// Number of blocks of the group.
    end: AtomicU64,
    /// Number of blocks of the group that are accounted for.
    pub(super) blocks: AtomicU64,
    shared: Arc<Shared>,
    /// The lock of the header and trees on disk, with the changes that are not in them yet.
    pub(super) lock: Mutex<GroupState, GroupLock>,
    /// Whether several CPUs contend for that lock.
    pub(super) heat: Heat,
    /// The blocks and inodes that can be claimed; `None` before the first use.
    pub(super) index: Mutex<Option<Index>, GroupIndex>,
    /// Number of blocks that files can have, as published from the index; [`UNREAD`] before the
    /// header is read.
    pub(super) available: AtomicU64,
    /// Whether nothing is claimed here, because the group can't be read.
    pub(super) is_left_out: AtomicBool,
    /// Whether that is because it is damaged, and remains so until a repair.
    pub(super) is_damaged: AtomicBool,
    /// Whether what was available then was withdrawn.
    pub(super) is_withdrawn: AtomicBool,
    pub(super) free_inodes: AtomicU64,
    /// The counters of the header on disk, with the delayed changes.
    pub(super) counts: Counts,
}

/// The counters of a header that are needed without reading it.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) free: AtomicU64,
    pub(super) inodes: AtomicU64,
    pub(super) free_inodes: AtomicU64,
    pub(super) orphans: AtomicU64,
    /// Number of blocks of its trees.
    pub(super) trees: AtomicU64,
}

impl Counts {
    pub(super) fn set(&self, header: &GroupHeader) {
        self.free.store(header.free, Ordering::Relaxed);
        self.inodes.store(header.inodes, Ordering::Relaxed);
        self.free_inodes.store(header.free_inodes, Ordering::Relaxed);
        self.orphans.store(header.orphans, Ordering::Relaxed);
        self.trees.store(header.tree_blocks, Ordering::Relaxed);
    }
}

impl Group {
    /// Creates group number `number`; `None` if there is no such group. Nothing of it is read yet.
    pub(super) fn new(
        geometry: Geometry,
        log: LogPlace,
        number: u32,
        shared: &Arc<Shared>,
    ) -> Option<Self> {
        let whole = Layout::new(geometry, log, number)?;
        let blocks = whole.blocks().end - whole.blocks().start;
        Some(Self {
            full: whole.full(geometry, log),
            end: AtomicU64::new(blocks),
            blocks: AtomicU64::new(blocks),
            shared: Arc::clone(shared),
            lock: Mutex::new(GroupState::default()),
            heat: Heat::default(),
            index: Mutex::new(None),
            available: AtomicU64::new(UNREAD),
            is_left_out: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
            is_withdrawn: AtomicBool::new(false),
            free_inodes: AtomicU64::new(0),
            counts: Counts::default(),
        })
    }

    /// Returns the layout of the whole group.
    pub(super) fn whole(&self) -> Layout {
        self.full.clone().with_blocks(self.end.load(Ordering::Acquire))
    }

    /// Takes the lock for the changes of a transaction, which takes the locks of groups in order.
    pub(super) fn lock_to_change(&self) -> MutexGuard<'_, GroupState, GroupLock> {
        let is_waiting = self.lock.is_locked();
        if is_waiting {
            self.heat.note(Came::Waiting);
        }
        let mut state = self.lock.lock_nested();
        let cpu = cpu::current();
        let is_other = std::mem::replace(&mut state.cpu, cpu) != cpu;
        if !is_waiting {
            self.heat.note(if is_other { Came::FromOther } else { Came::FromSame });
        }
        state
    }

    /// Sets the number of blocks to `blocks`, which are not accounted for yet.
    pub(super) fn grow(&self, blocks: u64) {
        self.end.store(blocks, Ordering::Release);
    }

    /// Sets the number of blocks that are accounted for.
    pub(super) fn account(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::Release);
    }

    /// Returns the layout of the blocks that are accounted for.
    pub(super) fn layout(&self) -> Layout {
        self.full.clone().with_blocks(self.blocks.load(Ordering::Acquire))
    }

    /// Decodes and checks the header in a block.
    pub(super) fn decode(&self, block: &Block) -> Result<GroupHeader, Damage> {
        headers::decode(&self.whole(), block)
    }

    /// Returns whether the header was read.
    pub(super) fn is_read(&self) -> bool {
        self.available.load(Ordering::Acquire) != UNREAD
    }

    /// Returns whether the group is left out.
    #[inline]
    pub(super) fn is_left_out(&self) -> bool {
        self.is_left_out.load(Ordering::Acquire)
    }

    /// Returns whether the group is left out because it is damaged.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Acquire)
    }

    /// Notes that the header was read, with nothing free: it can't be read.
    pub(super) fn read_as_used(&self) {
        self.available.store(0, Ordering::Release);
    }

    /// Reads the header if it was not read before. The caller does not hold the lock of the group.
    #[inline]
    pub(super) fn ensure_read<N: Nodes>(&self, nodes: &N) -> Result<(), Error<N::Error>> {
        if self.is_read() { Ok(()) } else { self.read_first(nodes) }
    }

    #[cold]
    fn read_first<N: Nodes>(&self, nodes: &N) -> Result<(), Error<N::Error>> {
        let _guard = self.lock.lock();
        self.read_header(nodes).map(drop)
    }

    /// Reads the header. The first time, moves its counters to this group from the sums of those
    /// that were not read.
    fn read_header<N: Nodes>(&self, nodes: &N) -> Result<GroupHeader, Error<N::Error>> {
        assert_held::<GroupLock>();
        let expected = GroupHeader::expected(self.full.group());
        let block = nodes.read(self.full.header(), &expected)?;
        let header = self.decode(&block)?;
        if self.is_left_out() {
            // Its counts were withdrawn, or will be.
            self.account(header.blocks);
        } else if !self.is_read() {
            let (lsn, address) = (Lsn::from_bits(block.header().lsn.get()), self.full.header());
            if let Some(last) = self.shared.last.filter(|last| lsn > *last) {
                return Err(Damage::Newer { address, lsn, last }.into());
            }
            let mut unread = self.shared.unread.lock();
            self.account(header.blocks);
            let counts = Totals::of(&self.layout(), &header);
            unread.subtract(&counts);
            headers::raise(&self.shared.largest_trees, header.tree_blocks);
            self.free_inodes.store(header.free_inodes, Ordering::Relaxed);
            self.counts.set(&header);
            self.available.store(counts.available, Ordering::Release);
        }
        Ok(header)
    }

    /// Returns the counts of the group, whose header was read.
    pub(super) fn totals(&self) -> Totals {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let totals = Totals {
            blocks: headers::blocks_in(&self.layout()).0,
            available: value(&self.available),
            inodes: value(&self.counts.inodes),
            free_inodes: value(&self.counts.free_inodes),
            orphans: value(&self.counts.orphans),
        };
        if self.is_left_out() { totals.without_free() } else { totals }
    }

    /// Returns the counts of the group if they are those of its header on disk: all blocks are
    /// accounted for, none is claimed or was freed a moment ago, and no change is delayed.
    pub(super) fn settled(&self) -> Option<Totals> {
        let state = self.lock.lock();
        let index = self.index.lock();
        let has_pending = index.as_ref().is_some_and(|index| !index.pending.is_empty());
        let is_settled = !has_pending && state.delayed.is_empty() && self.layout() == self.whole();
        // Claims publish the count under the lock of the index.
        is_settled.then(|| self.totals())
    }

    /// Creates the index from the header if there is none, with nothing loaded.
    pub(super) fn make_index<N: Nodes>(
        &self,
        state: &mut GroupState,
        nodes: &N,
    ) -> Result<(), Error<N::Error>> {
        if state.has_index {
            return Ok(());
        }
        let header = self.read_header(nodes)?;
        let full = self.full.blocks();
        let mut index = Index::new(full.start, full.end - full.start);
        index.blocks = header.free;
        index.tree_total = header.tree_blocks + header.set_aside.len() as u64;
        index.tree_max = self.layout().tree_blocks_max();
        index.chunks.inodes = header.free_inodes;
        self.publish(&mut index);
        *self.index.lock() = Some(index);
        state.has_index = true;
        Ok(())
    }

    /// Publishes the counters that are read without the lock of the index.
    fn publish(&self, index: &mut Index) {
        // A header that could not be read counts as read only once its group is withdrawn.
        self.available.store(index.available(), Ordering::Relaxed);
        self.free_inodes.store(index.chunks.inodes, Ordering::Relaxed);
        let entries = index.entries();
        self.shared.memory.count(&mut index.counted, entries);
    }

    /// Changes the index; `None` if there is none.
    pub(super) fn change_index<T>(&self, change: impl FnOnce(&mut Index) -> T) -> Option<T> {
        let mut guard = self.index.lock();
        let index = guard.as_mut()?;
        let changed = change(index);
        self.publish(index);
        Some(changed)
    }

    /// Searches the index, creates it if there is none, and loads the zones that the search names.
    /// The caller holds no lock of a group.
    fn search<N: Nodes, T>(
        &self,
        nodes: &N,
        half: Half,
        effort: &mut Effort,
        mut search: impl FnMut(&mut Index, Reach) -> Search<T>,
    ) -> Result<Option<T>, Error<N::Error>> {
        let mut found = self.change_index(|index| search(index, effort.reach()));
        loop {
            match found {
                Some(Search::Taken(taken)) => return Ok(Some(taken)),
                Some(Search::Nothing) => return Ok(None),
                Some(Search::Load(zone)) => {
                    let guard = self.lock.lock();
                    let delayed = Some(&guard.delayed.masks);
                    let source = Source { nodes, layout: &self.layout(), delayed };
                    found = self.load(&source, half, zone, effort, &mut search)?;
                }
                None => {
                    let mut state = self.lock.lock();
                    self.make_index(&mut state, nodes)?;
                    found = self.change_index(|index| search(index, effort.reach()));
                }
            }
        }
    }

    /// Loads the zone `zone` and others behind it, unless it is loaded, and repeats the `search`
    /// before another thread can drop what was loaded.
    ///
    /// The result is the content of the trees, with delayed changes and without the pending blocks.
    /// Hence the trees may be read before a transaction, or through the copies of one that is half
    /// finished: a run that it takes out of free space or puts into it is pending before that,
    /// until the transaction is published or abandoned. This does not hold for inodes, which are
    /// not loaded while a transaction is half finished.
    fn load<N: Nodes, T>(
        &self,
        source: &Source<'_, N>,
        half: Half,
        zone: usize,
        effort: &mut Effort,
        search: impl FnOnce(&mut Index, Reach) -> Search<T>,
    ) -> Result<Option<Search<T>>, Error<N::Error>> {
        assert_held::<GroupLock>();
        let zones = self.read_zones(source, half, zone)?;
        effort.spend(zones.iter().map(|zone| zone.records.len()).sum());
        let found = self.change_index(|index| {
            let mut is_right = true;
            for Zone { first, end, records } in &zones {
                is_right &= match half {
                    Half::Free => index.load(*first, *end, records),
                    Half::Chunks => index.chunks.load(*first, *end, records),
                };
            }
            if !is_right {
                // No thread may use a part of it: the next one finds the same error.
                index.unload();
                return None;
            }
            Some(search(index, effort.reach()))
        });
        match found {
            Some(None) => Err(fault(source.layout.header(), GroupFault::Counter).into()),
            found => Ok(found.flatten()),
        }
    }

    /// Reads zones from `zone` on that are not loaded, and those at the beginning of the group if
    /// there are few records.
    fn read_zones<N: Nodes>(
        &self,
        source: &Source<'_, N>,
        half: Half,
        zone: usize,
    ) -> Result<Vec<Zone>, Error<N::Error>> {
        let next_loaded = |zone| {
            self.change_index(|index| {
                let zones = if half == Half::Free { &index.zones } else { &index.chunks.zones };
                (zones.next_loaded(zone), zones.len())
            })
        };
        let mut read = Vec::new();
        let Some((end, count)) = next_loaded(zone).filter(|(end, _)| zone < *end) else {
            return Ok(read);
        };
        let here = source.read_half(half, zone..end, RECORDS_MAX, true)?;
        let left =
            RECORDS_MAX.saturating_sub(here.iter().map(|zone| zone.records.len() as u64).sum());
        let is_at_end = here.as_ref().is_some_and(|zone| zone.end == count);
        read.extend(here);
        if is_at_end && let Some((end, _)) = next_loaded(0).filter(|(end, _)| *end > 0) {
            read.extend(source.read_half(half, 0..end.min(zone), left, false)?);
        }
        Ok(read)
    }

    pub(super) fn claim<N: Nodes>(
        &self,
        nodes: &N,
        near: u64,
        (min, max): (u32, u32),
        effort: &mut Effort,
    ) -> Result<Option<BlockRange>, Error<N::Error>> {
        if self.is_left_out() {
            return Ok(None);
        }
        self.ensure_read(nodes)?;
        // Full groups need not be searched, nor locked.
        if self.available.load(Ordering::Relaxed) < u64::from(min) {
            return Ok(None);
        }
        let near = if self.layout().blocks().contains(&near) {
            near
        } else {
            self.layout().blocks().start
        };
        self.search(nodes, Half::Free, effort, |index, reach| {
            index.claim(near, min.into(), max.into(), reach)
        })
    }

    /// Takes free runs within `range`, which lies in the group: those of one zone.
    pub(super) fn claim_within<N: Nodes>(
        &self,
        nodes: &N,
        range: &Range<u64>,
        bounds: (u64, u64),
    ) -> Result<Option<FreeRuns>, Error<N::Error>> {
        if self.is_left_out() {
            return Ok(None);
        }
        let effort = &mut Effort::anything();
        self.search(nodes, Half::Free, effort, |index, _| index.claim_within(range, bounds))
    }

    pub(super) fn claim_inode<N: Nodes>(
        &self,
        nodes: &N,
        near: u64,
        effort: &mut Effort,
    ) -> Result<Option<(u64, u32)>, Error<N::Error>> {
        if self.is_left_out() {
            return Ok(None);
        }
        self.ensure_read(nodes)?;
        if self.free_inodes.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        self.search(nodes, Half::Chunks, effort, |index, reach| index.chunks.claim(near, reach))
    }

    pub(super) fn claim_for_chunk<N: Nodes>(
        &self,
        nodes: &N,
        near: u64,
        effort: &mut Effort,
    ) -> Result<Option<BlockRange>, Error<N::Error>> {
        if self.is_left_out() {
            return Ok(None);
        }
        self.ensure_read(nodes)?;
        if self.available.load(Ordering::Relaxed) < CHUNK_BLOCKS {
            return Ok(None);
        }
        self.search(nodes, Half::Free, effort, |index, reach| index.claim_for_chunk(near, reach))
    }

    /// Takes up to `blocks` blocks for the trees, once the index is created.
    pub(super) fn claim_for_trees<N: Nodes>(
        &self,
        source: &Source<'_, N>,
        blocks: u64,
    ) -> Result<Option<BlockRange>, Error<N::Error>> {
        let mut found = self.change_index(|index| index.claim_for_trees(blocks));
        while let Some(Search::Load(zone)) = found {
            let claim = |index: &mut Index, _| index.claim_for_trees(blocks);
            found = self.load(source, Half::Free, zone, &mut Effort::anything(), claim)?;
        }
        Ok(if let Some(Search::Taken(run)) = found { Some(run) } else { None })
    }

    /// Calls [`Chunks::claim_whole`](super::chunks::Chunks::claim_whole).
    pub(super) fn claim_chunk(&self, chunk: u64, also: u64) -> Option<u64> {
        self.change_index(|index| index.chunks.claim_whole(chunk, also)).flatten()
    }
}
