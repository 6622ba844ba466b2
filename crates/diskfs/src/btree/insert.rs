//! Insertion and update: first everything that can fail, then the change.

use smallvec::SmallVec;
use zerocopy::little_endian::U64;

use super::capacity::{records_least, records_max};
use super::descend::{Step, Target, TreePath};
use super::node::{self, Link, Place};
use super::{Branch, Entry, Error, FoundRecord, Kind, LEVELS_MAX, Nodes, OnDisk, Tree, TreeFault};
use crate::format::Damage;
use crate::format::damage::TreeDamage;

/// The effect of an inserted record on a block.
enum Growth<S> {
    /// The record fits.
    Fits { slot: S },
    /// The block is split: its upper part moves into a new block to the right.
    Splits { slot: S, address: u64, new: (u64, S), behind: Option<S> },
    /// The root is full: both halves move into new blocks below it.
    Rises { slot: S, left: (u64, S), right: (u64, S) },
}

/// The blocks of an insertion, from the leaf upward. The last one is not split, or is the root.
type Plan<S> = SmallVec<[(Growth<S>, u16); 2]>;

impl<K: Kind> Tree<K> {
    /// Inserts a record. Returns whether it did; if the key exists, nothing changes.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be had; nothing has changed then.
    pub fn insert<N: Nodes>(
        &self,
        nodes: &mut N,
        key: K::Key,
        value: K::Value,
    ) -> Result<bool, Error<N::Error>> {
        let mut path = TreePath::new();
        if self.descend(nodes, Target::Key(key), Some(&mut path))?.is_found {
            return Ok(false);
        }
        let mut taken = Vec::new();
        let plan = self.plan_growth(nodes, &path, &mut taken).inspect_err(|_| {
            taken.iter().rev().for_each(|(_, slot)| nodes.cancel(*slot));
        })?;
        let mut carried = None;
        for (step, (growth, level)) in path.iter().rev().zip(&plan) {
            carried = match carried {
                // After the record of the block that was split.
                Some(branch) => Self::grow::<N, U64>(nodes, growth, *level, step.index + 1, branch),
                None => Self::grow(nodes, growth, *level, step.index, Entry { key, value }),
            };
        }
        debug_assert!(carried.is_none());
        Ok(true)
    }

    /// Replaces the value of a key and returns the former one; `None`, and no change, if there is
    /// no such key.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be had; nothing has changed then.
    pub fn update<N: Nodes>(
        &self,
        nodes: &mut N,
        key: K::Key,
        value: K::Value,
    ) -> Result<Option<K::Value>, Error<N::Error>> {
        let Some(found) = self.find(nodes, key)? else { return Ok(None) };
        self.replace(nodes, &found, value)?;
        Ok(Some(found.record.value))
    }

    /// Replaces the value that was [found](Self::find). The tree has not changed since.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be had; nothing has changed then.
    pub(crate) fn replace<N: Nodes>(
        &self,
        nodes: &mut N,
        found: &FoundRecord<K>,
        value: K::Value,
    ) -> Result<(), Error<N::Error>> {
        let slot = nodes.writable(found.address, &self.expected())?;
        node::replace(nodes.edit(slot), found.index, &Entry { key: found.record.key, value });
        Ok(())
    }

    /// Prepares all blocks that an insertion changes. Puts allocated blocks into `taken`, even if
    /// it fails.
    fn plan_growth<N: Nodes>(
        &self,
        nodes: &mut N,
        path: &[Step<K>],
        taken: &mut Vec<(u64, N::Slot)>,
    ) -> Result<Plan<N::Slot>, Error<N::Error>> {
        let expected = self.expected();
        let mut plan = Plan::new();
        for (above, step) in path.iter().enumerate().rev() {
            let address = step.place.address;
            let slot = nodes.writable(address, &expected)?;
            if step.len < records_max::<K>(step.level) {
                plan.push((Growth::Fits { slot }, step.level));
                break;
            }
            let mut allocate = |nodes: &mut N| {
                let new = nodes.allocate(address, &expected)?;
                taken.push(new);
                Ok::<_, Error<N::Error>>(new)
            };
            if above > 0 {
                let new = allocate(nodes)?;
                let behind = self.writable_behind(nodes, &step.place, step.level, step.right)?;
                plan.push((Growth::Splits { slot, address, new, behind }, step.level));
                continue;
            }
            if step.level + 1 >= LEVELS_MAX {
                let (level, highest) = (step.level + 1, LEVELS_MAX - 1);
                let fault = TreeFault::Height { level, highest };
                return Err(Damage::from(TreeDamage { address, fault }).into());
            }
            let (left, right) = (allocate(nodes)?, allocate(nodes)?);
            plan.push((Growth::Rises { slot, left, right }, step.level));
        }
        Ok(plan)
    }

    /// Makes the right neighbour of the block at `place` writable, if any, after checking that it
    /// belongs there.
    pub(super) fn writable_behind<N: Nodes>(
        &self,
        nodes: &mut N,
        place: &Place<K>,
        level: u16,
        right: u64,
    ) -> Result<Option<N::Slot>, Error<N::Error>> {
        if right == 0 {
            return Ok(None);
        }
        let from = place.address;
        {
            let guard = self.read(nodes, from, right)?;
            let view = self.view(right, &guard)?;
            // Only the last block of a level has no bound, and that block has no right neighbour;
            // the descent has checked this.
            let low = place.high.unwrap_or(K::KEY_MIN);
            let left = Link::Is(from);
            let beside = Place {
                address: right,
                level: Some(level),
                low,
                high: None,
                left,
                right: Link::Unknown,
            };
            view.check(&beside)?;
        }
        nodes.writable(right, &self.expected()).map(Some)
    }

    /// Inserts a record into a block, or into the two that it is split into. Returns the record for
    /// the level above.
    fn grow<N: Nodes, V: OnDisk>(
        nodes: &mut N,
        growth: &Growth<N::Slot>,
        level: u16,
        index: usize,
        entry: Entry<K::Key, V>,
    ) -> Option<Branch<K>> {
        let slot = match growth {
            Growth::Fits { slot } => {
                node::insert(nodes.edit(*slot), index, &entry);
                return None;
            }
            Growth::Splits { slot, .. } | Growth::Rises { slot, .. } => *slot,
        };
        let block = nodes.edit(slot);
        let links = node::links(block);
        let mut entries = node::copied::<K::Key, V>(block);
        let index = index.min(entries.len());
        entries.insert(index, entry);
        let (lower, upper) = entries.split_at(split_point(level, index, entries.len(), links));
        // Neither part is empty, for there are at least five records.
        let bound = upper.first()?.key;
        match growth {
            Growth::Fits { .. } => {}
            Growth::Splits { address, new, behind, .. } => {
                node::write_entries(nodes.edit(slot), lower);
                node::set_right(nodes.edit(slot), new.0);
                node::write(nodes.edit(new.1), level, [*address, links[1]], upper);
                if let Some(behind) = behind {
                    node::set_left(nodes.edit(*behind), new.0);
                }
                return Some(Entry { key: bound, value: new.0.into() });
            }
            Growth::Rises { left, right, .. } => {
                node::write(nodes.edit(left.1), level, [0, right.0], lower);
                node::write(nodes.edit(right.1), level, [left.0, 0], upper);
                let first = Entry { key: K::KEY_MIN, value: U64::from(left.0) };
                let second = Entry { key: bound, value: U64::from(right.0) };
                node::write(nodes.edit(slot), level + 1, [0; 2], &[first, second]);
            }
        }
        None
    }
}

/// Returns how many of `len` records stay in the left block: half of them, except at the end of a
/// level. A caller that appends to the last block, or inserts before the first record, will
/// probably do so again: then one block is left full.
fn split_point(level: u16, index: usize, len: usize, links: [u64; 2]) -> usize {
    let least = records_least(level);
    if links[1] == 0 && index + 1 == len {
        len - least
    } else if links[0] == 0 && index < least {
        least
    } else {
        len / 2
    }
}
