//! The blocks of a tree that changes of some records may need.

use std::ops::Deref;

use super::descend::{Step, Target, TreePath};
use super::{Error, Kind, Nodes, Tree};
use crate::format::{Block, Expected};

/// Number of neighbours to the right: one to merge with, and the one behind, which then gets
/// another link.
const NEIGHBOURS_RIGHT: usize = 2;

/// The lowest key of some leaves, and the bound behind them, if there is one.
type Bounds<K> = (<K as Kind>::Key, Option<<K as Kind>::Key>);

impl<K: Kind> Tree<K> {
    /// Passes `hold` each block on the path to a record: those that another value in its place
    /// takes.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be had.
    pub(crate) fn along<N: Nodes>(
        &self,
        nodes: &N,
        key: K::Key,
        mut hold: impl FnMut(u64, &Expected) -> Result<(), Error<N::Error>>,
    ) -> Result<(), Error<N::Error>> {
        let mut path = TreePath::new();
        self.descend(nodes, Target::Key(key), Some(&mut path))?;
        path.iter().try_for_each(|step| hold(step.place.address, &self.expected()))
    }

    /// Passes `hold` each block that changes of the records from `first` to `last` may need: the
    /// blocks on the paths to them, and beside each of these the one to the left and two to the
    /// right. Returns the lowest key of the leaves, and the bound behind them, if there is one.
    ///
    /// # Why these suffice for any number of changes
    ///
    /// If each change is covered by such a call on the tree before the first one, and the changes
    /// are made in the order of keys, then they need no other block. A block that gets too small is
    /// merged or evened with a neighbour, and one that gets too large is split: both are on the
    /// list of some change in it, and so is the one behind. A neighbour that no change is in has at
    /// least the records that a block must have, or is the end of its level. So a block that it is
    /// merged with does not get too small again, or there is no other neighbour on that side. If
    /// changes are in the neighbour, its own neighbours are on the list for these.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be had.
    pub(crate) fn around<N: Nodes, B: Deref<Target = Block>>(
        &self,
        nodes: &N,
        (first, last): (K::Key, K::Key),
        hold: impl Fn(u64, &Expected) -> Result<B, Error<N::Error>>,
    ) -> Result<Bounds<K>, Error<N::Error>> {
        let (mut low, mut key) = (None, first);
        loop {
            let mut path = TreePath::new();
            let high = self.descend(nodes, Target::Key(key), Some(&mut path))?.high;
            for step in &path {
                self.beside(nodes, step, &hold)?;
            }
            let lowest = path.last().map_or(K::KEY_MIN, |leaf| leaf.place.low);
            let low = *low.get_or_insert(lowest);
            match high {
                Some(next) if next <= last => key = next,
                high => return Ok((low, high)),
            }
        }
    }

    /// Passes `hold` a block of the path, and its neighbours.
    fn beside<N: Nodes, B: Deref<Target = Block>>(
        &self,
        nodes: &N,
        step: &Step<K>,
        hold: &impl Fn(u64, &Expected) -> Result<B, Error<N::Error>>,
    ) -> Result<(), Error<N::Error>> {
        let (expected, address) = (self.expected(), step.place.address);
        let held = |from, address| {
            Self::check_address(nodes, from, address)?;
            hold(address, &expected)
        };
        let block = held(address, address)?;
        let view = self.view(address, &block)?;
        if view.left() != 0 {
            held(address, view.left())?;
        }
        let (mut from, mut next) = (address, view.right());
        for _ in 0..NEIGHBOURS_RIGHT {
            if next == 0 {
                break;
            }
            let block = held(from, next)?;
            (from, next) = (next, self.view(next, &block)?.right());
        }
        Ok(())
    }
}
