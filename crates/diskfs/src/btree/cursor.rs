//! Iteration over records in order, and steps backward.

use std::ops::{Bound, RangeBounds};

use super::descend::{Leaf, Target};
use super::{Error, Kind, Nodes, Record, Tree, TreeFault};
use crate::format::Damage;

/// A position between two records, before the first, or after the last. Holds one leaf for reading.
///
/// It moves from leaf to leaf by the links between them, and checks each time that the next leaf
/// points back and that its keys continue the order. So it visits no leaf twice, whatever the links
/// are.
pub struct Cursor<'n, K: Kind, N: Nodes> {
    tree: Tree<K>,
    nodes: &'n N,
    leaf: Leaf<K, N::Ref<'n>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl<K: Kind> Tree<K> {
    /// Returns a cursor before the first record that is not less than `key`.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn seek<'n, N: Nodes>(
        &self,
        nodes: &'n N,
        key: K::Key,
    ) -> Result<Cursor<'n, K, N>, Error<N::Error>> {
        let leaf = self.descend(nodes, Target::Key(key), None)?;
        Ok(Cursor { tree: *self, nodes, leaf })
    }

    /// Returns a cursor after the last record.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn seek_end<'n, N: Nodes>(
        &self,
        nodes: &'n N,
    ) -> Result<Cursor<'n, K, N>, Error<N::Error>> {
        let leaf = self.descend(nodes, Target::End, None)?;
        Ok(Cursor { tree: *self, nodes, leaf })
    }

    /// Returns an iterator over the records whose keys are in `keys`, in ascending order.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn range<'n, N: Nodes>(
        &self,
        nodes: &'n N,
        keys: impl RangeBounds<K::Key>,
    ) -> Result<Range<'n, K, N>, Error<N::Error>> {
        let cursor = match keys.start_bound() {
            Bound::Unbounded => self.seek(nodes, K::KEY_MIN)?,
            Bound::Included(key) => self.seek(nodes, *key)?,
            Bound::Excluded(key) => self.seek_behind(nodes, *key)?,
        };
        let end = keys.end_bound().cloned();
        Ok(Range { cursor, end, is_over: false })
    }

    /// Returns a cursor after the record with this key, or where that would be.
    fn seek_behind<'n, N: Nodes>(
        &self,
        nodes: &'n N,
        key: K::Key,
    ) -> Result<Cursor<'n, K, N>, Error<N::Error>> {
        let mut cursor = self.seek(nodes, key)?;
        if cursor.is_found() {
            cursor.forward()?;
        }
        Ok(cursor)
    }
}

impl<'n, K: Kind, N: Nodes> Cursor<'n, K, N> {
    /// Returns the record after the cursor, and moves past it. `None` at the end.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read; the cursor does not move then.
    pub fn forward(&mut self) -> Result<Option<Record<K>>, Error<N::Error>> {
        if self.leaf.index as u64 >= self.leaf_records()? && !self.step_right()? {
            return Ok(None);
        }
        let record = self.leaf.record(&self.tree)?;
        self.leaf.index += usize::from(record.is_some());
        Ok(record)
    }

    /// Returns the record before the cursor, and moves before it. `None` at the beginning.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read; the cursor does not move then.
    pub fn backward(&mut self) -> Result<Option<Record<K>>, Error<N::Error>> {
        if self.leaf.index == 0 && !self.step_aside(Side::Left)? {
            return Ok(None);
        }
        self.leaf.index = self.leaf.index.saturating_sub(1);
        Ok(self.leaf.record(&self.tree)?)
    }

    /// Returns whether the sought key exists. Meaningless once the cursor has moved.
    pub(crate) fn is_found(&self) -> bool {
        self.leaf.is_found
    }

    /// Returns the lower bound of the keys after the cursor, if all these are in other leaves and
    /// the bound is known.
    fn bound_ahead(&self) -> Result<Option<K::Key>, Damage> {
        let is_at_end = self.leaf.index as u64 >= self.leaf_records()?;
        Ok(self.leaf.high.filter(|_| is_at_end))
    }

    /// Returns the number of records of its leaf.
    pub(crate) fn leaf_records(&self) -> Result<u64, Damage> {
        Ok(self.tree.view(self.leaf.address, &self.leaf.guard)?.len() as u64)
    }

    /// Moves before the first record of the next leaf. Returns false, and does not move, if there
    /// is none.
    pub(crate) fn step_right(&mut self) -> Result<bool, Error<N::Error>> {
        self.step_aside(Side::Right)
    }

    fn step_aside(&mut self, side: Side) -> Result<bool, Error<N::Error>> {
        let here = self.tree.view(self.leaf.address, &self.leaf.guard)?;
        let address = if side == Side::Right { here.right() } else { here.left() };
        if address == 0 {
            return Ok(false);
        }
        let guard = self.tree.read(self.nodes, self.leaf.address, address)?;
        let there = self.tree.view(address, &guard)?;
        if there.level() != 0 {
            let fault = TreeFault::Level { found: there.level(), expected: 0 };
            return Err(there.fault(fault).into());
        }
        let expected = Some(self.leaf.address);
        let (here, len) = (here.records(), there.len());
        let (link, record, is_ordered) = if side == Side::Right {
            let is_ordered = here.last().zip(there.key(0)).is_some_and(|(a, b)| a.key < b);
            (TreeFault::Left { found: there.left(), expected }, 0, is_ordered)
        } else {
            let last = len.saturating_sub(1);
            let is_ordered = here.first().zip(there.key(last)).is_some_and(|(a, b)| a.key > b);
            (TreeFault::Right { found: there.right(), expected }, last, is_ordered)
        };
        let (TreeFault::Left { found, .. } | TreeFault::Right { found, .. }) = link else {
            return Ok(false);
        };
        if Some(found) != expected {
            return Err(there.fault(link).into());
        }
        if !is_ordered {
            return Err(there.fault(TreeFault::Range { record: record as u16 }).into());
        }
        let index = if side == Side::Right { 0 } else { len };
        self.leaf = Leaf { address, guard, index, is_found: false, high: None };
        Ok(true)
    }
}

/// An iterator over the records of a range of keys, in ascending order. Ends after an error.
pub struct Range<'n, K: Kind, N: Nodes> {
    cursor: Cursor<'n, K, N>,
    end: Bound<K::Key>,
    is_over: bool,
}

impl<K: Kind, N: Nodes> Iterator for Range<'_, K, N> {
    type Item = Result<Record<K>, Error<N::Error>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let is_inside = |key: K::Key| match self.end {
            Bound::Unbounded => true,
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
        };
        // Avoids reading a leaf just to see that it is outside.
        let next = match self.cursor.bound_ahead() {
            Ok(Some(bound)) if !is_inside(bound) => Ok(None),
            Ok(_) => self.cursor.forward(),
            Err(damage) => Err(damage.into()),
        };
        let next = next.map(|record| record.filter(|record| is_inside(record.key)));
        self.is_over = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}
