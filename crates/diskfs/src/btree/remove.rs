//! Removal, with merging and rebalancing: first everything that can fail, then the change.

use smallvec::SmallVec;
use zerocopy::little_endian::U64;

use super::capacity::{records_max, records_min};
use super::descend::{Step, Target, TreePath};
use super::node;
use super::{Entry, Error, Kind, Nodes, OnDisk, Tree, TreeFault};
use crate::format::damage::TreeDamage;

/// The effect of a removed record on its block.
enum Shrinking<S> {
    /// The block retains enough records, or may have fewer.
    Stays { slot: S },
    /// The block is merged with a sibling, since both fit into one; the right one is freed.
    Merges { pair: Pair<S>, behind: Option<S> },
    /// The block gets records of a sibling. This changes the bound of the right one.
    Evens { pair: Pair<S>, above: S },
    /// The root retains one child only: it takes over the contents of the child, which is freed.
    Sinks { slot: S, child: S },
}

/// The blocks of a removal, from the leaf upward.
type Plan<S> = SmallVec<[Shrinking<S>; 2]>;

/// Two siblings.
struct Pair<S> {
    left: (u64, S),
    right: S,
    /// Whether the record is removed from the right one.
    is_right: bool,
    /// The record of the parent that points to the right one.
    index: usize,
}

impl<S: Copy> Pair<S> {
    fn changed(&self) -> S {
        if self.is_right { self.right } else { self.left.1 }
    }
}

/// The sibling that a block is merged or rebalanced with.
struct Peer {
    address: u64,
    len: usize,
    right: u64,
}

impl<K: Kind> Tree<K> {
    /// Removes a record and returns its value; `None`, and no change, if there is no such key.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be had; nothing has changed then.
    pub fn remove<N: Nodes>(
        &self,
        nodes: &mut N,
        key: K::Key,
    ) -> Result<Option<K::Value>, Error<N::Error>> {
        let mut path = TreePath::new();
        let leaf = self.descend(nodes, Target::Key(key), Some(&mut path))?;
        let Some(former) = leaf.record(self)?.filter(|_| leaf.is_found) else { return Ok(None) };
        let mut index = leaf.index;
        drop(leaf);
        let plan = self.plan_shrinking(nodes, &path)?;
        for (step, shrinking) in path.iter().rev().zip(&plan) {
            match step.level {
                0 => Self::shrink::<N, K::Value>(nodes, shrinking, index),
                _ => Self::shrink::<N, U64>(nodes, shrinking, index),
            }
            if let Shrinking::Merges { pair, .. } = shrinking {
                index = pair.index;
            }
        }
        Ok(Some(former.value))
    }

    /// Prepares all blocks that a removal changes, from the leaf upward.
    fn plan_shrinking<N: Nodes>(
        &self,
        nodes: &mut N,
        path: &[Step<K>],
    ) -> Result<Plan<N::Slot>, Error<N::Error>> {
        let expected = self.expected();
        let mut plan = Plan::new();
        for (at, step) in path.iter().enumerate().rev() {
            let address = step.place.address;
            let left = step.len.saturating_sub(1);
            let Some((above_at, above)) = at.checked_sub(1).map(|at| (at, &path[at])) else {
                let slot = nodes.writable(address, &expected)?;
                plan.push(match plan.last() {
                    Some(Shrinking::Merges { pair, .. }) if left == 1 => {
                        let child = nodes.freeable(pair.left.0, &expected)?;
                        Shrinking::Sinks { slot, child }
                    }
                    _ => Shrinking::Stays { slot },
                });
                break;
            };
            if left >= records_min::<K>(step.level) {
                plan.push(Shrinking::Stays { slot: nodes.writable(address, &expected)? });
                break;
            }
            let is_right = above.index > 0;
            let peer = if is_right { above.index - 1 } else { above.index + 1 };
            let peer = self.peer(nodes, above, peer)?;
            let index = above.index + usize::from(!is_right);
            let [to_left, to_right] =
                if is_right { [peer.address, address] } else { [address, peer.address] };
            let left_slot = nodes.writable(to_left, &expected)?;
            if left + peer.len > records_max::<K>(step.level) {
                let right = nodes.writable(to_right, &expected)?;
                let pair = Pair { left: (to_left, left_slot), right, is_right, index };
                let above = nodes.writable(path[above_at].place.address, &expected)?;
                plan.push(Shrinking::Evens { pair, above });
                break;
            }
            let right = nodes.freeable(to_right, &expected)?;
            let pair = Pair { left: (to_left, left_slot), right, is_right, index };
            let (place, link) = self.right_of_pair(nodes, above, index, step, &peer)?;
            let behind = self.writable_behind(nodes, &place, step.level, link)?;
            plan.push(Shrinking::Merges { pair, behind });
        }
        Ok(plan)
    }

    /// Returns the position of the right block of a pair, and its link to the right.
    fn right_of_pair<N: Nodes>(
        &self,
        nodes: &N,
        above: &Step<K>,
        index: usize,
        step: &Step<K>,
        peer: &Peer,
    ) -> Result<(node::Place<K>, u64), Error<N::Error>> {
        if index == above.index {
            return Ok((step.place, step.right));
        }
        let guard = self.read(nodes, above.place.address, above.place.address)?;
        let view = self.view(above.place.address, &guard)?;
        let place = view.child(&above.place, index);
        Ok((place.ok_or_else(|| lone(above))?, peer.right))
    }

    /// Reads the child of record `index` of the block at `above`.
    fn peer<N: Nodes>(
        &self,
        nodes: &N,
        above: &Step<K>,
        index: usize,
    ) -> Result<Peer, Error<N::Error>> {
        let from = above.place.address;
        let guard = self.read(nodes, from, from)?;
        let view = self.view(from, &guard)?;
        let place = view.child(&above.place, index).ok_or_else(|| lone(above))?;
        let guard = self.read(nodes, from, place.address)?;
        let view = self.view(place.address, &guard)?;
        view.check(&place)?;
        Ok(Peer { address: place.address, len: view.len(), right: view.right() })
    }

    /// Removes a record from a block, and executes the plan for the block.
    fn shrink<N: Nodes, V: OnDisk>(nodes: &mut N, shrinking: &Shrinking<N::Slot>, index: usize) {
        match shrinking {
            Shrinking::Stays { slot } => node::remove::<K::Key, V>(nodes.edit(*slot), index),
            Shrinking::Merges { pair, behind } => {
                node::remove::<K::Key, V>(nodes.edit(pair.changed()), index);
                let right = nodes.edit(pair.right);
                let (mut upper, [_, link]) = (node::copied::<K::Key, V>(right), node::links(right));
                let left = nodes.edit(pair.left.1);
                let mut entries = node::copied::<K::Key, V>(left);
                entries.append(&mut upper);
                node::write_entries(left, &entries);
                node::set_right(left, link);
                if let Some(behind) = behind {
                    node::set_left(nodes.edit(*behind), pair.left.0);
                }
                nodes.free(pair.right);
            }
            Shrinking::Evens { pair, above } => {
                node::remove::<K::Key, V>(nodes.edit(pair.changed()), index);
                let mut entries = node::copied::<K::Key, V>(nodes.edit(pair.left.1));
                entries.extend(node::copied::<K::Key, V>(nodes.edit(pair.right)));
                let (lower, upper) = entries.split_at(entries.len() / 2);
                node::write_entries(nodes.edit(pair.left.1), lower);
                node::write_entries(nodes.edit(pair.right), upper);
                let mut branches = node::copied::<K::Key, U64>(nodes.edit(*above));
                // Both exist: the pair was found through its parent, and has more records than fit
                // into one block.
                if let (Some(first), Some(branch)) = (upper.first(), branches.get_mut(pair.index)) {
                    *branch = Entry { key: first.key, value: branch.value };
                    node::replace(nodes.edit(*above), pair.index, branch);
                }
            }
            Shrinking::Sinks { slot, child } => {
                let only = nodes.edit(*child).clone();
                *nodes.edit(*slot).body_mut() = *only.body();
                nodes.free(*child);
            }
        }
    }
}

/// Returns the damage of a block with one record where two are the minimum; the descent has checked
/// for it.
fn lone<K: Kind>(above: &Step<K>) -> crate::format::Damage {
    let most = records_max::<K>(above.level) as u16;
    let fault = TreeFault::Count { found: above.len as u16, least: 2, most };
    TreeDamage { address: above.place.address, fault }.into()
}
