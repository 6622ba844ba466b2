//! Growth of a page tree: new levels, new nodes, reservations.

use std::ops::Range;

use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::slot::{Contents, Entry};

use super::{
    FANOUT, FANOUT_BITS, NODE_BYTES, Node, PAGE, PAGE_BYTES, PageSlot, PageTree, whole_pages,
};
use crate::space::{NoSpace, Space};

/// Returns the number of levels of nodes above page `index` in the lowest tree that includes it.
fn height_for(index: u64) -> u32 {
    (u64::BITS - index.leading_zeros()).div_ceil(FANOUT_BITS)
}

/// Returns the number of pages, from the beginning of a file, that fit into `bytes` together with
/// the nodes above them.
pub(crate) fn pages_within(bytes: u64) -> u64 {
    let (mut most, mut beyond) = (0, bytes / PAGE_BYTES + 1);
    while beyond - most > 1 {
        let middle = most + (beyond - most) / 2;
        if full_bytes(middle) <= bytes.into() {
            most = middle;
        } else {
            beyond = middle;
        }
    }
    most
}

/// Returns the charge of the first `pages` pages of a file, at least one, with their nodes.
fn full_bytes(pages: u64) -> u128 {
    let last = pages - 1;
    let nodes: u64 = (1..=height_for(last)).map(|level| (last >> (level * FANOUT_BITS)) + 1).sum();
    u128::from(nodes) * u128::from(NODE_BYTES) + u128::from(pages) * u128::from(PAGE_BYTES)
}

/// The contents of a range of a tree.
#[derive(Default)]
struct Census {
    nodes: u64,
    /// Pages and reservations.
    pages: u64,
}

impl PageTree {
    /// Returns the number of levels of nodes, and whether the tree has any contents.
    fn height(&self, guard: &Guard) -> (u32, bool) {
        match self.root.read(guard) {
            Entry::Empty => (0, false),
            Entry::Reserved | Entry::Leaf(_) => (0, true),
            Entry::Node(node) => (node.shift / FANOUT_BITS + 1, true),
        }
    }

    /// Returns the number of nodes that page `index` lacks.
    pub(super) fn nodes_missing(&self, index: u64, guard: &Guard) -> u64 {
        self.cost(index..index + 1, guard).nodes
    }

    /// Returns the nodes and pages that are missing to fill `range`, which is not empty. The time
    /// depends on the contents of the range, not on its length.
    fn cost(&self, range: Range<u64>, guard: &Guard) -> Census {
        let last = range.end - 1;
        let (height_now, occupied) = self.height(guard);
        let height = height_now.max(height_for(last));
        let mut nodes = 0;
        for level in 1..=height {
            let shift = level * FANOUT_BITS;
            nodes += (last >> shift) - (range.start >> shift) + 1;
            // A new level on top of the tree starts with a node for the present contents, which may
            // be outside of the range.
            if level > height_now && occupied && range.start >> shift != 0 {
                nodes += 1;
            }
        }
        let mut there = Census::default();
        census(&self.root, 0, &range, guard, &mut there);
        Census { nodes: nodes - there.nodes, pages: range.end - range.start - there.pages }
    }

    /// Creates the nodes that page `index` needs, whose space has been charged, and returns the
    /// slots from `index` to the end of its node.
    pub(super) fn build<'g>(&'g self, index: u64, guard: &'g Guard) -> &'g [PageSlot] {
        let mut node = loop {
            match self.root.read(guard) {
                Entry::Node(node) if node.covers(index) => break node,
                Entry::Node(node) => self.raise(node.shift + FANOUT_BITS, guard),
                _ if index == 0 => return std::slice::from_ref(&self.root),
                Entry::Reserved | Entry::Leaf(_) => self.raise(0, guard),
                Entry::Empty => self.raise((height_for(index) - 1) * FANOUT_BITS, guard),
            }
        };
        loop {
            let at = node.slot_of(index);
            if node.shift == 0 {
                return &node.slots[at..];
            }
            match node.slots[at].read(guard) {
                Entry::Node(below) => node = below,
                _ => {
                    let below = Node::boxed(node.shift - FANOUT_BITS);
                    drop(node.slots[at].replace(Contents::Node(below), guard));
                }
            }
        }
    }

    /// Adds a node on top of the tree.
    fn raise(&self, shift: u32, guard: &Guard) {
        self.root.nest(Node::boxed(shift), |node| &mut node.slots[0], guard);
    }

    /// Reserves space for all pages that `range` (bytes) touches and that have none; returns their
    /// number.
    ///
    /// # Errors
    /// Returns [`NoSpace`] if there is not enough space; then nothing is reserved.
    pub(crate) fn allocate(&self, range: Range<u64>, space: &Space) -> Result<u64, NoSpace> {
        let range = range.start / PAGE..range.end.div_ceil(PAGE);
        if range.is_empty() {
            return Ok(0);
        }
        let missing = self.cost(range.clone(), &rcu::pin());
        // No file has 2^51 pages, so this stays below 2^64.
        space.take(missing.nodes * NODE_BYTES + missing.pages * PAGE_BYTES)?;
        self.raise_end(range.end);
        let mut index = range.start;
        while index < range.end {
            let guard = rcu::pin();
            let slots = self.build(index, &guard);
            let wanted = usize::try_from(range.end - index).unwrap_or(FANOUT).min(slots.len());
            for slot in slots[..wanted].iter().filter(|slot| slot.is_empty()) {
                drop(slot.replace(Contents::Reserved, &guard));
            }
            index += wanted as u64;
        }
        Ok(missing.pages)
    }

    /// Makes `range` (bytes) read as zeros and reserves its space; returns the number of pages that
    /// had none.
    ///
    /// # Errors
    /// Returns [`NoSpace`] if there is not enough space; then nothing has changed.
    pub(crate) fn zero_range(&self, range: Range<u64>, space: &Space) -> Result<u64, NoSpace> {
        let added = self.allocate(range.clone(), space)?;
        self.zero_edges(&range, &rcu::pin());
        let whole = whole_pages(&range);
        let mut index = whole.start;
        while index < whole.end {
            let guard = rcu::pin();
            let Some(slots) = self.slots(index, &guard) else { break };
            let wanted = usize::try_from(whole.end - index).unwrap_or(FANOUT).min(slots.len());
            slots[..wanted].iter().for_each(|slot| unwrite(slot, space, &guard));
            index += wanted as u64;
        }
        Ok(added)
    }
}

/// Replaces a page by a reservation. If too much freed memory already waits for a grace period,
/// sets the page to zero instead: the space stays charged, so the memory must not be retained.
fn unwrite(slot: &PageSlot, space: &Space, guard: &Guard) {
    if let Entry::Leaf(page) = slot.read(guard)
        && !space.retire_keeping(PAGE_BYTES, || slot.replace(Contents::Reserved, guard))
    {
        page.zero(0..PAGE as usize);
    }
}

/// Counts the contents of `range` in `slot`, whose first page is `first`.
fn census(slot: &PageSlot, first: u64, range: &Range<u64>, guard: &Guard, all: &mut Census) {
    match slot.read(guard) {
        Entry::Empty => {}
        Entry::Reserved | Entry::Leaf(_) => all.pages += u64::from(range.contains(&first)),
        Entry::Node(node) => {
            let last = first + ((FANOUT as u64) << node.shift) - 1;
            let (from, to) = (range.start.max(first), (range.end - 1).min(last));
            if from > to {
                return;
            }
            all.nodes += 1;
            for at in node.slot_of(from)..=node.slot_of(to) {
                let first = first + ((at as u64) << node.shift);
                census(&node.slots[at], first, range, guard, all);
            }
        }
    }
}
