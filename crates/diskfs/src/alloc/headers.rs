//! The headers of groups: what they add up to, and those that were not read.
//!
//! # Groups are read when they are used
//!
//! A group is made, and its header read, when a call needs either: a claim, a commit that changes
//! it, the choice of a group for a directory. Until then the volume has a pointer for it, and its
//! counts are a part of the sums of the groups that were *not read* ([`Shared::unread`]), which the
//! opening gets from the superblock. Reading moves the counts of the group from these sums to the
//! group, under the lock of the sums; so the sum over both is right at any time
//! ([`totals`](super::Groups::totals)), and reserving space needs no header.
//!
//! The superblock has the sums only if the log was closed and no group had an orphan or unaccounted
//! blocks ([`sums`](super::Groups::sums)). After anything else, such as a crash, the opening reads
//! all headers, as it does on a volume of an older program; it makes no group even so, but those
//! whose blocks are to be accounted for.
//!
//! Before its header is read, nothing of a group is claimed or changed: both need its index, which
//! is created from the header. So the header is the same whenever it is read first.
//!
//! An opening compares the headers with the end of the log, so that a log which is older than its
//! volume is refused. Of a closed log nothing is replayed, so a header may be compared later: when
//! it is read.
//!
//! An error of the reading, damage among them, is one of the call that reads, unless another group
//! serves that call: then the group is [left out](super::left_out). Otherwise nothing is stored,
//! and the next call reads again.
//!
//! # Locks
//!
//! `group_totals` is a leaf, held to move the counts of a group, or to sum them up. The first
//! reading of a header holds the lock of the group.

use vfscale_journal::Lsn;
use vfscale_sync::Mutex;
use vfscale_sync::atomic::{AtomicU64, Ordering};

use super::Layout;
use super::index::available;
use super::memory::IndexMemory;
use crate::base::ranks::GroupTotalsLock;
use crate::btree::{Error, Nodes};
use crate::format::Damage;
use crate::format::damage::GroupFault;
use crate::format::geometry::LAST_GROUP_BLOCKS_MIN;
use crate::format::group::{GroupHeader, fault};
use crate::format::{Block, superblock::GroupSums};
use crate::{Geometry, LogPlace};

/// Sums over all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Blocks that files can have on an empty volume.
    pub blocks: u64,
    /// Blocks that are neither used nor claimed nor reserved for the groups' own trees.
    pub available: u64,
    /// Inodes of all chunks.
    pub inodes: u64,
    /// Inodes that are free on disk.
    pub free_inodes: u64,
    /// Inodes that are orphans on disk.
    pub orphans: u64,
}

/// Knowledge about the groups of a volume whose log was closed.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The sums that the superblock has.
    pub sums: GroupSums,
    /// The end of the log, if it is known: no header that was not read is from later.
    pub last: Option<Lsn>,
}

/// Things that the groups of a volume share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The memory that the indexes take.
    pub(super) memory: IndexMemory,
    /// The end of the log when the volume was opened, if headers are still to be compared with it.
    pub(super) last: Option<Lsn>,
    /// The sums over the groups whose headers were not read.
    pub(super) unread: Mutex<Totals, GroupTotalsLock>,
    /// Upper bound on the tree blocks of any group so far.
    pub(super) largest_trees: AtomicU64,
}

/// Raises the [upper bound](Shared::largest_trees) on the tree blocks of a group. Writes nothing if
/// it suffices, as other CPUs read it.
pub(super) fn raise(largest_trees: &AtomicU64, trees: u64) {
    if trees > largest_trees.load(Ordering::Relaxed) {
        largest_trees.fetch_max(trees, Ordering::Relaxed);
    }
}

/// Knowledge of an opening about the headers of a volume's groups.
#[derive(Debug)]
pub(super) struct Headers<E> {
    /// The sums over all groups.
    pub(super) unread: Totals,
    /// Upper bound on the tree blocks of a group.
    pub(super) trees: u64,
    /// The groups with orphans.
    pub(super) with_orphans: Vec<u32>,
    /// The groups that don't account for all of their blocks.
    pub(super) unfinished: Vec<u32>,
    /// The groups whose headers can't be read, and why.
    pub(super) unusable: Vec<(u32, Error<E>)>,
}

impl<E> Headers<E> {
    fn new(unread: Totals, trees: u64) -> Self {
        let (with_orphans, unfinished, unusable) = (Vec::new(), Vec::new(), Vec::new());
        Self { unread, trees, with_orphans, unfinished, unusable }
    }

    /// Returns what recorded sums tell about a volume.
    pub(super) fn recorded(geometry: Geometry, log: LogPlace, sums: GroupSums) -> Self {
        let blocks = blocks_of(geometry, log);
        let GroupSums { available, inodes, free_inodes, trees } = sums;
        let available = available.min(blocks);
        let unread = Totals { blocks, available, inodes, free_inodes, orphans: 0 };
        Self::new(unread, trees)
    }

    /// Reads the headers of all groups from number `first` on.
    ///
    /// # Errors
    /// The first error, if no header can be read.
    pub(super) fn read<N: Nodes<Error = E>>(
        nodes: &N,
        (geometry, log): (Geometry, LogPlace),
        first: u32,
    ) -> Result<Self, Error<E>> {
        let mut all = Self::new(Totals::default(), 0);
        for number in first..geometry.groups() {
            let Some(whole) = Layout::new(geometry, log, number) else { break };
            let read = nodes.read(whole.header(), &GroupHeader::expected(number));
            let header = match read.and_then(|block| Ok(decode(&whole, &block)?)) {
                Ok(header) => header,
                Err(why) => {
                    all.unusable.push((number, why));
                    continue;
                }
            };
            let layout = whole.clone().with_blocks(header.blocks);
            all.unread.add(&Totals::of(&layout, &header));
            all.trees = all.trees.max(header.tree_blocks);
            if header.orphans > 0 {
                all.with_orphans.push(number);
            }
            if layout != whole {
                all.unfinished.push(number);
            }
        }
        let is_any = all.unusable.len() < (first..geometry.groups()).len();
        match all.unusable.pop() {
            Some((_, why)) if !is_any => Err(why),
            last => {
                all.unusable.extend(last);
                Ok(all)
            }
        }
    }
}

impl Totals {
    /// Returns the counts of a group with this header, for the blocks that are accounted for.
    pub(crate) fn of(accounted: &Layout, header: &GroupHeader) -> Self {
        let (blocks, tree_max) = blocks_in(accounted);
        let tree_total = header.tree_blocks + header.set_aside.len() as u64;
        Self {
            blocks,
            available: available(header.free, tree_total, tree_max),
            inodes: header.inodes,
            free_inodes: header.free_inodes,
            orphans: header.orphans,
        }
    }

    /// Returns the counts with nothing free: free inodes are left out.
    pub(super) fn without_free(self) -> Self {
        let inodes = self.inodes.saturating_sub(self.free_inodes);
        Self { available: 0, inodes, free_inodes: 0, ..self }
    }

    /// Adds the counts of other groups. The sums of headers that make no sense are bounded.
    pub(crate) fn add(&mut self, more: &Self) {
        self.change(more, u64::saturating_add);
    }

    /// Subtracts the counts of a group.
    pub(super) fn subtract(&mut self, less: &Self) {
        self.change(less, u64::saturating_sub);
    }

    fn change(&mut self, by: &Self, change: impl Fn(u64, u64) -> u64) {
        self.blocks = change(self.blocks, by.blocks);
        self.available = change(self.available, by.available);
        self.inodes = change(self.inodes, by.inodes);
        self.free_inodes = change(self.free_inodes, by.free_inodes);
        self.orphans = change(self.orphans, by.orphans);
    }
}

/// Decodes and checks the header in a block of a group, which was read with its expected
/// properties.
pub(super) fn decode(whole: &Layout, block: &Block) -> Result<GroupHeader, Damage> {
    let address = whole.header();
    let is_usable = |block| whole.is_usable(block, 1);
    let header = GroupHeader::decode_expected(address, block, is_usable)?;
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

/// Returns how many blocks of a group files can have, and how many its trees may need.
pub(super) fn blocks_in(layout: &Layout) -> (u64, u64) {
    let tree_max = layout.tree_blocks_max();
    (layout.usable_blocks().saturating_sub(tree_max), tree_max)
}

/// Returns how many blocks files can have in an empty volume.
fn blocks_of(geometry: Geometry, log: LogPlace) -> u64 {
    let of = |group| Layout::new(geometry, log, group).map_or(0, |layout| blocks_in(&layout).0);
    let log_group = match log {
        LogPlace::Inside { start, .. } => geometry.group_of(start),
        LogPlace::Outside { .. } => None,
    };
    let last = geometry.groups() - 1;
    let mut special = vec![last];
    special.extend(log_group.filter(|group| *group != last));
    // All others are of one size. There are at least four groups.
    let other = (0..last).find(|group| !special.contains(group)).map_or(0, of);
    let others = u64::from(geometry.groups()) - special.len() as u64;
    others * other + special.into_iter().map(of).sum::<u64>()
}

/// Returns the maximum number of levels that a tree of a group of the volume can ever have.
pub(super) fn levels_max(geometry: Geometry, log: LogPlace) -> u32 {
    // One of the first three is neither the last one nor that of the log: none has more blocks.
    let layouts = (0..3).filter_map(|group| Layout::new(geometry, log, group));
    layouts.map(|layout| layout.levels_max()).max().unwrap_or(1) as u32
}
