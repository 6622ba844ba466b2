//! Where two maps differ: in the time of the difference.
//!
//! An entry of a frozen map never changes, nor what it leads to. So below equal entries nothing
//! differs, and is not read.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::{Map, MapNode, span};
use crate::Error;
use crate::disk::format::{Entry, FANOUT};

/// A node of each of the two maps; `None` if it has no place below there.
type Pair<'m> = [Option<&'m MapNode>; 2];

impl Map {
    /// Returns the blocks whose places differ in two maps, in order. Both are frozen: none of their
    /// nodes is dirty.
    ///
    /// # Errors
    /// Errors of reading and [`Error::Damage`].
    pub(crate) fn differing(&self, other: &Self) -> Result<Vec<Range<u64>>, Error> {
        let level = self.root.level.max(other.root.level);
        let mut found = Vec::new();
        let roots = [Some(&self.root), Some(&other.root)];
        differ([self, other], roots, level, 0, &mut found)?;
        Ok(found)
    }
}

/// Adds the blocks that differ below two nodes of one position. A smaller map has its root in place
/// of the first of the nodes below.
fn differ(
    maps: [&Map; 2],
    nodes: Pair<'_>,
    level: u8,
    first: u64,
    found: &mut Vec<Range<u64>>,
) -> Result<(), Error> {
    for index in 0..FANOUT {
        let block = first + index as u64 * span(level);
        let [one, other] = nodes.map(|node| entry(node, level, index));
        if one == other {
            continue;
        }
        if level == 0 {
            match found.last_mut() {
                Some(last) if last.end == block => last.end += 1,
                _ => found.push(block..block + 1),
            }
            continue;
        }
        let below = |side: usize, entry: Option<Entry>| match (nodes[side], entry) {
            (Some(node), Some(_)) if node.level == level => maps[side].kid(node, block, false),
            (node, None) => Ok(node),
            _ => Ok(None),
        };
        differ(maps, [below(0, one)?, below(1, other)?], level - 1, block, found)?;
    }
    Ok(())
}

/// Returns an entry of the node at a level; `None` if the smaller map's root is in its place.
fn entry(node: Option<&MapNode>, level: u8, index: usize) -> Option<Entry> {
    match node {
        Some(node) if node.level == level => {
            Some(Entry(node.entries[index].load(Ordering::Acquire)))
        }
        Some(_) if index == 0 => None,
        _ => Some(Entry::NONE),
    }
}
