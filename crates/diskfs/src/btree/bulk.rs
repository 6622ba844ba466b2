//! Building a tree of records that are sorted: for repair, and for contents that no longer fit into
//! their inode.

use zerocopy::little_endian::U64;

use super::capacity::records_max;
use super::{Branch, Entry, Error, Kind, LEVELS_MAX, Nodes, OnDisk, Record, Tree, TreeFault, node};
use crate::format::Damage;
use crate::format::damage::TreeDamage;

impl<K: Kind> Tree<K> {
    /// Builds a tree of `records`, whose keys ascend strictly. Fills blocks to about `fill`
    /// percent; values outside of 50 to 100 count as the nearest of these. Allocates all blocks
    /// before it writes any.
    ///
    /// # Errors
    /// * The error of [`Nodes::allocate`]; nothing is allocated then.
    /// * [`TreeFault::Order`] with `hint` as the address, if the keys don't ascend. A record number
    ///   above 65,535 is reported as 65,535.
    pub fn build<N: Nodes>(
        nodes: &mut N,
        owner: u64,
        hint: u64,
        records: &[Record<K>],
        fill: u8,
    ) -> Result<Self, Error<N::Error>> {
        let fault = |fault| Damage::from(TreeDamage { address: hint, fault });
        if let Some(before) = records.windows(2).position(|pair| pair[0].key >= pair[1].key) {
            let record = u16::try_from(before + 1).unwrap_or(u16::MAX);
            return Err(fault(TreeFault::Order { record }).into());
        }
        let shape = shape::<K>(records.len(), fill);
        let Some(level) = u16::try_from(shape.len()).ok().filter(|len| *len <= LEVELS_MAX) else {
            let highest = LEVELS_MAX - 1;
            return Err(fault(TreeFault::Height { level: LEVELS_MAX, highest }).into());
        };
        let expected = Self::at(0, owner).expected();
        let mut taken = Vec::new();
        for _ in 0..shape.iter().sum::<usize>() {
            let near = taken.last().map_or(hint, |(address, _)| *address);
            match nodes.allocate(near, &expected) {
                Ok(new) => taken.push(new),
                Err(error) => {
                    taken.iter().rev().for_each(|(_, slot)| nodes.cancel(*slot));
                    return Err(error);
                }
            }
        }
        // The blocks of each level are next to each other in the order of allocation.
        let (leaves, mut rest) = taken.split_at(shape[0]);
        let mut branches = Self::fill(nodes, 0, leaves, records);
        for (level, blocks) in (1..level).zip(&shape[1..]) {
            let (here, above) = rest.split_at(*blocks);
            branches = Self::fill(nodes, level, here, &branches);
            rest = above;
        }
        let root = taken.last().map_or(hint, |(address, _)| *address);
        Ok(Self::at(root, owner))
    }

    /// Returns the number of blocks that [`build`](Self::build) takes for `records` records.
    pub fn blocks_to_build(records: usize, fill: u8) -> usize {
        shape::<K>(records, fill).iter().sum()
    }

    /// Writes the blocks of a level. Returns the records that point to them.
    fn fill<N: Nodes, V: OnDisk>(
        nodes: &mut N,
        level: u16,
        blocks: &[(u64, N::Slot)],
        entries: &[Entry<K::Key, V>],
    ) -> Vec<Branch<K>> {
        let mut branches = Vec::with_capacity(blocks.len());
        let address = |at: Option<usize>| at.and_then(|at| blocks.get(at)).map_or(0, |to| to.0);
        for (at, (own, slot)) in blocks.iter().enumerate() {
            let cut =
                |at: usize| (entries.len() as u128 * at as u128 / blocks.len() as u128) as usize;
            let here = &entries[cut(at)..cut(at + 1)];
            let links = [address(at.checked_sub(1)), address(Some(at + 1))];
            node::write(nodes.edit(*slot), level, links, here);
            let bound = here.first().filter(|_| at > 0).map_or(K::KEY_MIN, |first| first.key);
            branches.push(Entry { key: bound, value: U64::from(*own) });
        }
        branches
    }
}

/// Returns the number of blocks of each level, from the leaves to the root.
fn shape<K: Kind>(records: usize, fill: u8) -> Vec<usize> {
    let fill = usize::from(fill.clamp(50, 100));
    let mut shape = Vec::new();
    let mut entries = records;
    for level in 0.. {
        let most = records_max::<K>(level);
        let here = (most * fill / 100).max(3);
        let blocks = if entries <= most { 1 } else { entries.div_ceil(here) };
        shape.push(blocks);
        if blocks == 1 {
            break;
        }
        entries = blocks;
    }
    shape
}
