//! One group in memory.

use vfscale_sync::Mutex;
use vfscale_sync::atomic::{AtomicU64, Ordering};

use super::Layout;
use super::extents::FreeExtents;
use super::index::{Index, available};
use crate::btree::{Error, Nodes, Record};
use crate::format::group::{GroupFault, GroupHeader, InodeChunks, fault};
use crate::format::inode::CHUNK_BLOCKS;
use crate::format::{Block, Damage};
use crate::geometry::LAST_GROUP_BLOCKS_MIN;
use crate::ranks::{GroupIndex, GroupLock};
use crate::{Geometry, LogPlace, Run};

/// One group. On cache lines of its own.
#[repr(align(128))]
pub(super) struct Group {
    /// Where things would lie if it were as large as any group.
    full: Layout,
    /// How many blocks it has.
    end: AtomicU64,
    /// How many of its blocks are accounted for.
    pub(super) blocks: AtomicU64,
    /// What is on disk.
    pub(super) lock: Mutex<(), GroupLock>,
    /// What can be had; none before it is needed.
    pub(super) index: Mutex<Option<Index>, GroupIndex>,
    /// How many blocks files can have, and how many inodes can be had, as the index has it.
    pub(super) available: AtomicU64,
    pub(super) free_inodes: AtomicU64,
    /// What the header on disk says.
    pub(super) counts: Counts,
}

/// The counters of a header that are wanted without reading it.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) free: AtomicU64,
    pub(super) inodes: AtomicU64,
    pub(super) free_inodes: AtomicU64,
    pub(super) orphans: AtomicU64,
    /// Blocks of its trees.
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
    /// Group number `number`; none if there is no such group. Nothing is known of it yet.
    pub(super) fn new(geometry: Geometry, log: LogPlace, number: u32) -> Option<Self> {
        let whole = Layout::new(geometry, log, number)?;
        let blocks = whole.blocks().end - whole.blocks().start;
        Some(Self {
            full: whole.full(geometry, log),
            end: AtomicU64::new(blocks),
            blocks: AtomicU64::new(blocks),
            lock: Mutex::new(()),
            index: Mutex::new(None),
            available: AtomicU64::new(0),
            free_inodes: AtomicU64::new(0),
            counts: Counts::default(),
        })
    }

    /// Where things lie in all of it.
    pub(super) fn whole(&self) -> Layout {
        self.full.clone().with_blocks(self.end.load(Ordering::Acquire))
    }

    /// The most levels that one of its trees can ever have.
    pub(super) fn levels_max(&self) -> u64 {
        self.whole().levels_max()
    }

    /// It has so many blocks from now on, which it does not account for yet.
    pub(super) fn grow(&self, blocks: u64) {
        self.end.store(blocks, Ordering::Release);
    }

    /// That many blocks are accounted for.
    pub(super) fn account(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::Release);
    }

    /// Where things lie, as far as it is accounted for.
    pub(super) fn layout(&self) -> Layout {
        self.full.clone().with_blocks(self.blocks.load(Ordering::Acquire))
    }

    /// The header in a block.
    pub(super) fn decode(&self, block: &Block) -> Result<GroupHeader, Damage> {
        let whole = self.whole();
        let address = whole.header();
        let is_usable = |block| whole.is_usable(block, 1);
        let header = GroupHeader::decode(address, block, is_usable)?;
        let range = whole.blocks();
        if !(LAST_GROUP_BLOCKS_MIN..=range.end - range.start).contains(&header.blocks) {
            return Err(fault(address, GroupFault::Size { blocks: header.blocks }));
        }
        if header.free.saturating_add(header.tree_blocks) > whole.usable_blocks() {
            let GroupHeader { free, inodes, free_inodes, orphans, .. } = header;
            return Err(fault(address, GroupFault::Counts { free, inodes, free_inodes, orphans }));
        }
        Ok(header)
    }

    /// Reads the header, and remembers what it says.
    pub(super) fn read_header<N: Nodes>(&self, nodes: &N) -> Result<GroupHeader, Error<N::Error>> {
        let expected = GroupHeader::expected(self.full.group());
        let block = nodes.read(self.full.header(), &expected)?;
        let header = self.decode(&block)?;
        self.account(header.blocks);
        let tree_total = header.tree_blocks + header.set_aside.len() as u64;
        let available = available(header.free, tree_total, self.layout().tree_blocks_max());
        self.available.store(available, Ordering::Relaxed);
        self.free_inodes.store(header.free_inodes, Ordering::Relaxed);
        self.counts.set(&header);
        Ok(header)
    }

    /// A record of a chunk, as its first block and its masks: free, orphans.
    pub(super) fn chunk(&self, record: &Record<InodeChunks>) -> Result<(u64, (u64, u64)), Damage> {
        let (chunk, free) = (record.key.get(), record.value.free.get());
        let orphan = record.value.orphan.get();
        if !self.layout().is_chunk(chunk) || free & orphan != 0 {
            return Err(fault(
                self.layout().chunk_tree().root(),
                GroupFault::Chunk { start: chunk },
            ));
        }
        Ok((chunk, (free, orphan)))
    }

    /// Makes the index, if there is none. The caller holds the lock of the group.
    pub(super) fn load_index<N: Nodes>(&self, nodes: &N) -> Result<(), Error<N::Error>> {
        if self.index.lock().is_some() {
            return Ok(());
        }
        let header = self.read_header(nodes)?;
        let mut index = Index {
            free: self.read_free(nodes)?,
            tree_total: header.tree_blocks + header.set_aside.len() as u64,
            tree_max: self.layout().tree_blocks_max(),
            ..Index::default()
        };
        for record in self.layout().chunk_tree().range(nodes, ..)? {
            let (chunk, (free, _)) = self.chunk(&record?)?;
            index.add_inodes(chunk, free);
        }
        if index.free.blocks() != header.free || index.free_inodes != header.free_inodes {
            return Err(fault(self.layout().header(), GroupFault::Counter).into());
        }
        self.publish(&index);
        *self.index.lock() = Some(index);
        Ok(())
    }

    /// What the tree of free space has.
    fn read_free<N: Nodes>(&self, nodes: &N) -> Result<FreeExtents, Error<N::Error>> {
        let mut free = FreeExtents::default();
        let mut end = 0;
        for record in self.layout().free_tree().range(nodes, ..)? {
            let record = record?;
            let (start, blocks) = (record.key.get(), record.value.get());
            let is_possible = self.layout().is_usable(start, blocks) && start > end;
            if !is_possible || !free.insert(start, blocks) {
                let what = GroupFault::FreeRun { start, blocks };
                return Err(fault(self.layout().free_tree().root(), what).into());
            }
            end = start + blocks;
        }
        Ok(free)
    }

    /// What others see of the index without its lock. Written with it held.
    fn publish(&self, index: &Index) {
        self.available.store(index.available(), Ordering::Relaxed);
        self.free_inodes.store(index.free_inodes, Ordering::Relaxed);
    }

    /// Changes the index; `None` if there is none.
    pub(super) fn change_index<T>(&self, change: impl FnOnce(&mut Index) -> T) -> Option<T> {
        let mut guard = self.index.lock();
        let index = guard.as_mut()?;
        let changed = change(index);
        self.publish(index);
        Some(changed)
    }

    /// Changes the index, which is made if there is none. The caller holds no lock of a group.
    fn index<N: Nodes, T>(
        &self,
        nodes: &N,
        mut change: impl FnMut(&mut Index) -> Option<T>,
    ) -> Result<Option<T>, Error<N::Error>> {
        if let Some(changed) = self.change_index(&mut change) {
            return Ok(changed);
        }
        let _guard = self.lock.lock();
        self.load_index(nodes)?;
        Ok(self.change_index(change).flatten())
    }

    pub(super) fn claim<N: Nodes>(
        &self,
        nodes: &N,
        near: u64,
        min: u32,
        max: u32,
    ) -> Result<Option<Run>, Error<N::Error>> {
        // Groups that are full need not be read, nor locked.
        if self.available.load(Ordering::Relaxed) < u64::from(min) {
            return Ok(None);
        }
        let near = if self.layout().blocks().contains(&near) {
            near
        } else {
            self.layout().blocks().start
        };
        self.index(nodes, |index| index.claim(near, min.into(), max.into()))
    }

    pub(super) fn claim_inode<N: Nodes>(
        &self,
        nodes: &N,
        near: u64,
    ) -> Result<Option<(u64, u32)>, Error<N::Error>> {
        if self.free_inodes.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        self.index(nodes, |index| index.claim_inode(near))
    }

    pub(super) fn claim_for_chunk<N: Nodes>(
        &self,
        nodes: &N,
        near: u64,
    ) -> Result<Option<Run>, Error<N::Error>> {
        if self.available.load(Ordering::Relaxed) < CHUNK_BLOCKS {
            return Ok(None);
        }
        self.index(nodes, |index| index.claim_for_chunk(near))
    }

    /// Takes up to `blocks` blocks for the trees.
    pub(super) fn claim_for_trees(&self, blocks: u64) -> Option<Run> {
        self.change_index(|index| index.claim_for_trees(blocks)).flatten()
    }

    /// See [`Index::claim_chunk`].
    pub(super) fn claim_chunk(&self, chunk: u64, also: u64) -> Option<u64> {
        self.change_index(|index| index.claim_chunk(chunk, also)).flatten()
    }
}
