//! File data: a sparse radix tree of 4 KiB pages.
//!
//! # Purpose
//!
//! Each regular file with data has a [`PageTree`]. Nodes have 64 slots. The highest page that it
//! ever contained determines the height of the tree: a file of one page is a slot with the page,
//! and one of 16 GiB has four levels of nodes. (Linux's page cache has the same shape.)
//!
//! A slot is empty (a hole), *reserved* (space that `fallocate` has reserved but no write has used:
//! the bytes are charged, the page does not exist), or a page.
//!
//! # Concurrency
//!
//! * Readers ([`read`](PageTree::read), [`seek_data`](PageTree::seek_data),
//!   [`seek_hole`](PageTree::seek_hole)) take no lock and write no memory. During a concurrent
//!   change they see each byte as it was at some moment of the call; a page that is being removed
//!   reads as before, or as zeros.
//! * [`overwrite`](PageTree::overwrite) changes bytes of existing pages, but not the tree.
//!   Concurrent overwrites of a page exclude each other ([`page_locks`](crate::page_locks)).
//! * All other calls change the tree. The caller serialises these calls on one tree with each other
//!   and with overwrites (the VFS holds the inode's lock). It holds an RCU guard of its own only if
//!   it holds a lock that deferred work may wait for: long calls pin a guard per node.
//!
//! # Invariants
//!
//! * All slots of a node of shift 0 are empty, reserved or pages; all slots of higher nodes are
//!   empty or nodes. The root slot is any of these, but a page or reservation in it has index 0.
//! * A node other than one that is being filled has a non-empty slot.
//! * [`PAGE_BYTES`] are charged for each page and each reservation, [`NODE_BYTES`] for each node.
//! * Removed memory is freed after a grace period; see [`space`](crate::space) for when its bytes
//!   are uncharged.
//! * The bytes of a page past the end of the file are zero, provided that the caller truncates
//!   whenever it lowers the size, and raises the size after it has written. Therefore a file that
//!   is extended never shows old bytes.

use std::ops::Range;

use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::page::{PAGE_SIZE, Page, PageBox, read_pages, write_pages};
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::slot::{Contents, Entry, Slot};

use crate::page_locks::{PAGES_MAX, PageLocks};
use crate::space::{NoSpace, Space};

mod fill;

pub(crate) use fill::pages_within;

/// Size of a page, for offsets.
pub(crate) const PAGE: u64 = PAGE_SIZE as u64;

/// Overhead of an allocation.
pub(crate) const MALLOC_BYTES: u64 = 16;

/// Charge of a page or a reservation: the page, and its share of the header of the pool's region (a
/// page for 511 others).
pub(crate) const PAGE_BYTES: u64 = PAGE + 16;

/// Charge of a node.
pub(crate) const NODE_BYTES: u64 = size_of::<Node>() as u64 + MALLOC_BYTES;

const FANOUT_BITS: u32 = 6;
const FANOUT: usize = 1 << FANOUT_BITS;

type PageSlot = Slot<PageBox, Node>;

/// An inner node.
struct Node {
    /// Each slot covers `1 << shift` pages.
    shift: u32,
    slots: [PageSlot; FANOUT],
}

impl Node {
    fn boxed(shift: u32) -> Box<Node> {
        Box::new(Node { shift, slots: std::array::from_fn(|_| Slot::empty()) })
    }

    /// Returns the number of the slot for page `index`.
    #[inline]
    fn slot_of(&self, index: u64) -> usize {
        (index >> self.shift) as usize & (FANOUT - 1)
    }

    /// Returns whether a tree with this root includes page `index`.
    #[inline]
    fn covers(&self, index: u64) -> bool {
        index >> self.shift >> FANOUT_BITS == 0
    }
}

/// The contents of a tree at an index and after it.
enum Run<'g> {
    /// The slots from this index to the end of its node: at least one.
    Slots(&'g [PageSlot]),
    /// The contents of the root slot when it was read; the index is 0.
    Root(Entry<'g, PageBox, Node>),
    /// A hole of this many pages.
    Hole(u64),
}

/// The result of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes written, from the start of the buffer.
    pub(crate) bytes: usize,
    /// Number of pages added to the file.
    pub(crate) pages: u64,
}

/// The data of a file. See the [module](self).
#[derive(Default)]
pub(crate) struct PageTree {
    root: PageSlot,
    /// Upper bound (exclusive) of the indices of pages and reservations, so a truncation that
    /// removes nothing need not search. Written by writers only.
    end: AtomicU64,
}

impl PageTree {
    /// Finds the contents at `index`.
    #[inline]
    fn find<'g>(&'g self, index: u64, guard: &'g Guard) -> Run<'g> {
        let mut node = match self.root.read(guard) {
            Entry::Node(node) if node.covers(index) => node,
            Entry::Node(_) => return Run::Hole(u64::MAX - index),
            entry if index == 0 => return Run::Root(entry),
            _ => return Run::Hole(u64::MAX - index),
        };
        loop {
            let at = node.slot_of(index);
            if node.shift == 0 {
                return Run::Slots(&node.slots[at..]);
            }
            match node.slots[at].read(guard) {
                Entry::Node(below) => node = below,
                _ => {
                    let span = 1 << node.shift;
                    return Run::Hole(span - (index & (span - 1)));
                }
            }
        }
    }

    /// Returns the slots from `index` to the end of its node, if the tree has the node. For
    /// writers.
    #[inline]
    fn slots<'g>(&'g self, index: u64, guard: &'g Guard) -> Option<&'g [PageSlot]> {
        match self.find(index, guard) {
            Run::Slots(slots) => Some(slots),
            // Only writers change the root, and this thread is the only one.
            Run::Root(_) => Some(std::slice::from_ref(&self.root)),
            Run::Hole(_) => None,
        }
    }

    /// Raises the upper bound to `end`. Must be called before pages below `end` are added, or a
    /// truncation might miss them.
    fn raise_end(&self, end: u64) {
        if end > self.end.load(Ordering::Relaxed) {
            self.end.store(end, Ordering::Relaxed);
        }
    }

    /// Returns whether there may be a page, or a part of one, beyond `size` bytes. If the caller
    /// does not exclude writers, the result is only momentary.
    pub(crate) fn reaches_beyond(&self, size: u64) -> bool {
        !size.is_multiple_of(PAGE) || self.end.load(Ordering::Acquire) > size / PAGE
    }

    /// Fills `buf` with the bytes from `offset` on; holes read as zeros.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) {
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            // A guard per node: a long read must not delay the freeing of memory. If the caller's
            // memory faults meanwhile, grace periods wait for the fault.
            let guard = rcu::pin();
            let done = self.read_run(offset, rest, &guard);
            offset += done as u64;
            rest = &mut rest[done..];
        }
    }

    /// Reads at least a byte, and at most the rest of one node; returns the number of bytes.
    #[inline]
    fn read_run(&self, offset: u64, buf: &mut [u8], guard: &Guard) -> usize {
        let within = (offset % PAGE) as usize;
        match self.find(offset / PAGE, guard) {
            Run::Slots(slots) if buf.len() <= PAGE_SIZE - within => {
                read_entry(slots[0].read(guard), within, buf);
                buf.len()
            }
            Run::Slots(slots) => read_slots(slots, within, buf, guard),
            Run::Root(entry) => {
                let len = buf.len().min(PAGE_SIZE - within);
                read_entry(entry, within, &mut buf[..len]);
                len
            }
            Run::Hole(pages) => {
                let bytes = pages.saturating_mul(PAGE) - within as u64;
                let len = usize::try_from(bytes).map_or(buf.len(), |bytes| bytes.min(buf.len()));
                buf[..len].fill(0);
                len
            }
        }
    }

    /// Writes `buf` at `offset`. Writes fewer bytes if space runs out.
    pub(crate) fn write(&self, offset: u64, buf: &[u8], space: &Space) -> Written {
        let mut all = Written::default();
        self.raise_end((offset + buf.len() as u64).div_ceil(PAGE));
        while all.bytes < buf.len() {
            let guard = rcu::pin();
            let run = self.write_run(offset + all.bytes as u64, &buf[all.bytes..], space, &guard);
            let Ok(run) = run else { break };
            all.bytes += run.bytes;
            all.pages += run.pages;
        }
        all
    }

    /// Overwrites bytes of at most [`PAGES_MAX`] pages with `buf` if all these pages exist;
    /// otherwise does nothing. Returns whether it has written.
    pub(crate) fn overwrite(&self, offset: u64, buf: &[u8], ino: u64, locks: &PageLocks) -> bool {
        let guard = rcu::pin();
        let (first, within) = (offset / PAGE, (offset % PAGE) as usize);
        let count = (within + buf.len()).div_ceil(PAGE_SIZE);
        let mut pages = [None; PAGES_MAX];
        for (page, index) in pages[..count].iter_mut().zip(first..) {
            *page = self.page(index, &guard);
            if page.is_none() {
                return false;
            }
        }
        let _locked = locks.lock(ino, first, count);
        write_pages(pages.iter().flatten().copied(), within, buf);
        true
    }

    /// Returns the page at `index`, if it exists.
    #[inline]
    fn page<'g>(&'g self, index: u64, guard: &'g Guard) -> Option<&'g Page> {
        let entry = match self.find(index, guard) {
            Run::Slots(slots) => slots[0].read(guard),
            Run::Root(entry) => entry,
            Run::Hole(_) => Entry::Empty,
        };
        match entry {
            Entry::Leaf(page) => Some(page),
            _ => None,
        }
    }

    /// Writes at least a byte, and at most the rest of one node.
    fn write_run(
        &self,
        offset: u64,
        buf: &[u8],
        space: &Space,
        guard: &Guard,
    ) -> Result<Written, NoSpace> {
        let index = offset / PAGE;
        let (slots, mut page_taken) = match self.slots(index, guard) {
            Some(slots) => (slots, false),
            None => {
                // Charges nodes and a page together, so no unused node is created.
                space.take(self.nodes_missing(index, guard) * NODE_BYTES + PAGE_BYTES)?;
                (self.build(index, guard), true)
            }
        };
        let mut within = (offset % PAGE) as usize;
        if buf.len() <= PAGE_SIZE - within {
            return write_page(&slots[0], within, buf, (!page_taken).then_some(space), guard);
        }
        let (mut done, mut at) = (Written::default(), 0);
        while at < slots.len() && done.bytes < buf.len() {
            let rest = &buf[done.bytes..];
            let wanted = (within + rest.len()).div_ceil(PAGE_SIZE).min(slots.len() - at);
            let ahead = &slots[at..at + wanted];
            let len = match ahead[0].read(guard) {
                Entry::Leaf(_) => write_pages(leaves(ahead, guard), within, rest),
                Entry::Reserved => fill(&ahead[..1], within, rest, guard),
                Entry::Empty | Entry::Node(_) => {
                    let missing = ahead.iter().take_while(|slot| slot.is_empty()).count();
                    let count = take_pages(missing, std::mem::take(&mut page_taken), space);
                    done.pages += count as u64;
                    fill(&ahead[..count], within, rest, guard)
                }
            };
            if len == 0 {
                break;
            }
            at += (within + len).div_ceil(PAGE_SIZE);
            done.bytes += len;
            within = 0;
        }
        if done.bytes == 0 { Err(NoSpace) } else { Ok(done) }
    }

    /// Removes everything from `size` on; returns the number of removed pages. The rest of the last
    /// page is set to zero.
    pub(crate) fn truncate(&self, size: u64, space: &Space) -> u64 {
        if self.root.is_empty() {
            return 0;
        }
        let guard = rcu::pin();
        let pages = size.div_ceil(PAGE)..self.end.load(Ordering::Relaxed);
        let removed = self.remove(pages.clone(), space, &guard);
        if !pages.is_empty() {
            self.end.store(pages.start, Ordering::Relaxed);
        }
        self.zero_within(size, size.next_multiple_of(PAGE), &guard);
        removed
    }

    /// Uncharges the whole tree, and leaves pages and nodes to the drop of the tree; returns the
    /// number of pages. For trees that are about to be dropped without a grace period.
    pub(crate) fn give_up(&self, space: &Space) -> u64 {
        let (pages, nodes) = count(&self.root, &rcu::pin());
        space.give(pages * PAGE_BYTES + nodes * NODE_BYTES);
        pages
    }

    /// Makes a hole of `range` (bytes); returns the number of removed pages. A page that the range
    /// covers only partly remains, and that part of it is set to zero.
    pub(crate) fn punch(&self, range: Range<u64>, space: &Space) -> u64 {
        let guard = rcu::pin();
        self.zero_edges(&range, &guard);
        let whole = whole_pages(&range);
        self.remove(whole.start..whole.end.min(self.end.load(Ordering::Relaxed)), space, &guard)
    }

    /// Returns the first offset with data at or after `offset`, in a file of `size` bytes.
    pub(crate) fn seek_data(&self, offset: u64, size: u64) -> Option<u64> {
        let index = self.next_data(offset / PAGE, size.div_ceil(PAGE))?;
        Some(offset.max(index * PAGE)).filter(|&found| found < size)
    }

    /// Returns the first offset in a hole at or after `offset`, in a file of `size` bytes; `size`
    /// if there is none.
    pub(crate) fn seek_hole(&self, offset: u64, size: u64) -> u64 {
        let index = self.next_hole(offset / PAGE, size.div_ceil(PAGE));
        offset.max(index * PAGE).min(size)
    }

    /// Returns the index of the first page at or after `index`. `end` bounds the search, but if a
    /// node straddles it, the result may be after it.
    fn next_data(&self, index: u64, end: u64) -> Option<u64> {
        let mut index = index;
        while index < end {
            let guard = rcu::pin();
            index = match self.find(index, &guard) {
                Run::Slots(slots) => {
                    let data = slots.iter().position(|s| is_data(s.read(&guard)));
                    match data {
                        Some(n) => return Some(index + n as u64),
                        None => index + slots.len() as u64,
                    }
                }
                Run::Root(entry) if is_data(entry) => return Some(index),
                Run::Root(_) => index + 1,
                Run::Hole(pages) => index.saturating_add(pages),
            };
        }
        None
    }

    /// Returns the index of the first hole (or reservation) at or after `index`, or `end` if there
    /// is none before it. If a node straddles `end`, the result may be after it.
    fn next_hole(&self, index: u64, end: u64) -> u64 {
        let mut index = index;
        while index < end {
            let guard = rcu::pin();
            index = match self.find(index, &guard) {
                Run::Slots(slots) => match slots.iter().position(|s| !is_data(s.read(&guard))) {
                    Some(n) => return index + n as u64,
                    None => index + slots.len() as u64,
                },
                Run::Root(entry) if is_data(entry) => index + 1,
                Run::Root(_) | Run::Hole(_) => return index,
            };
        }
        end
    }

    /// Removes the pages of `range`; returns their number.
    fn remove(&self, range: Range<u64>, space: &Space, guard: &Guard) -> u64 {
        if range.is_empty() { 0 } else { cut(&self.root, 0, &range, space, guard) }
    }

    /// Sets the bytes from `start` to `end`, which are within one page, to zero.
    fn zero_within(&self, start: u64, end: u64, guard: &Guard) {
        if start >= end {
            return;
        }
        let index = start / PAGE;
        if let Some(page) = self.page(index, guard) {
            page.zero((start - index * PAGE) as usize..(end - index * PAGE) as usize);
        }
    }

    /// Zeros the bytes of `range` in pages that it covers only partly.
    fn zero_edges(&self, range: &Range<u64>, guard: &Guard) {
        let whole = whole_pages(range);
        if whole.start > whole.end {
            // Within one page.
            self.zero_within(range.start, range.end, guard);
        } else {
            self.zero_within(range.start, whole.start * PAGE, guard);
            self.zero_within(whole.end * PAGE, range.end, guard);
        }
    }
}

/// Returns the pages that are entirely in a range of bytes. The result starts after its end if the
/// range is within one page and touches neither of its ends.
fn whole_pages(range: &Range<u64>) -> Range<u64> {
    range.start.div_ceil(PAGE)..range.end / PAGE
}

#[inline]
fn read_entry(entry: Entry<'_, PageBox, Node>, within: usize, buf: &mut [u8]) {
    match entry {
        Entry::Leaf(page) => page.read(within, buf),
        _ => buf.fill(0),
    }
}

#[inline]
fn is_data(entry: Entry<'_, PageBox, Node>) -> bool {
    matches!(entry, Entry::Leaf(_))
}

/// Returns the pages at the beginning of `slots`, up to the first hole or reservation.
#[inline]
fn leaves<'g>(slots: &'g [PageSlot], guard: &'g Guard) -> impl Iterator<Item = &'g Page> {
    slots.iter().map_while(|slot| match slot.read(guard) {
        Entry::Leaf(page) => Some(page),
        _ => None,
    })
}

/// Fills `buf` with the bytes of `slots`, from `within` of the first one on, until it is full or
/// there are no more slots. Returns the number of bytes.
fn read_slots(slots: &[PageSlot], within: usize, buf: &mut [u8], guard: &Guard) -> usize {
    let (mut within, mut done, mut at) = (within, 0, 0);
    while at < slots.len() && done < buf.len() {
        let rest = &mut buf[done..];
        let mut len = read_pages(leaves(&slots[at..], guard), within, rest);
        if len == 0 {
            len = rest.len().min(PAGE_SIZE - within);
            rest[..len].fill(0);
        }
        at += (within + len).div_ceil(PAGE_SIZE);
        done += len;
        within = 0;
    }
    done
}

/// Writes `buf` to the page of `slot`, which it is within. Charges a page that does not exist to
/// `space`; without one it has been charged already.
#[inline]
fn write_page(
    slot: &PageSlot,
    within: usize,
    buf: &[u8],
    space: Option<&Space>,
    guard: &Guard,
) -> Result<Written, NoSpace> {
    let mut pages = 0;
    match slot.read(guard) {
        Entry::Leaf(page) => page.write(within, buf),
        entry => {
            if !matches!(entry, Entry::Reserved) {
                space.map_or(Ok(()), |space| space.take(PAGE_BYTES))?;
                pages = 1;
            }
            drop(slot.replace(Contents::Leaf(Page::with(within, buf)), guard));
        }
    }
    Ok(Written { bytes: buf.len(), pages })
}

/// Charges up to `count` pages, the first of which has been charged already if `has_first`. Returns
/// their number.
fn take_pages(count: usize, has_first: bool, space: &Space) -> usize {
    let first = usize::from(has_first);
    if count == first || space.take((count - first) as u64 * PAGE_BYTES).is_ok() {
        return count;
    }
    first + (first..count).take_while(|_| space.take(PAGE_BYTES).is_ok()).count()
}

/// Fills slots without a page with new pages that have the beginning of `bytes` from `within` of
/// the first one on. Returns the number of bytes.
fn fill(slots: &[PageSlot], within: usize, bytes: &[u8], guard: &Guard) -> usize {
    match slots {
        [] => 0,
        [slot] => {
            let len = bytes.len().min(PAGE_SIZE - within);
            drop(slot.replace(Contents::Leaf(Page::with(within, &bytes[..len])), guard));
            len
        }
        _ => {
            let len = bytes.len().min(slots.len() * PAGE_SIZE - within);
            let pages = Page::many_with(slots.len(), within, &bytes[..len]);
            for (slot, page) in slots.iter().zip(pages) {
                drop(slot.replace(Contents::Leaf(page), guard));
            }
            len
        }
    }
}

/// Empties a slot whose contents were charged `bytes`.
fn retire(slot: &PageSlot, bytes: u64, space: &Space, guard: &Guard) {
    drop(slot.replace(Contents::Empty, guard));
    space.give_deferred(bytes);
    guard.note_bytes(bytes as usize);
}

/// Removes the contents of `range` from `slot`, whose first page is `first`; returns the number of
/// pages. A node that becomes empty is removed, too. The recursion is as deep as the tree: at most
/// nine levels.
fn cut(slot: &PageSlot, first: u64, range: &Range<u64>, space: &Space, guard: &Guard) -> u64 {
    let node = match slot.read(guard) {
        Entry::Node(node) => node,
        _ if !range.contains(&first) => return 0,
        Entry::Empty => return 0,
        Entry::Reserved => {
            drop(slot.replace(Contents::Empty, guard));
            space.give(PAGE_BYTES);
            return 1;
        }
        Entry::Leaf(_) => {
            retire(slot, PAGE_BYTES, space, guard);
            return 1;
        }
    };
    let last = first + ((FANOUT as u64) << node.shift) - 1;
    if node.shift == 0 && range.start <= first && last < range.end {
        return cut_whole(slot, node, space, guard);
    }
    let (from, to) = (range.start.max(first), (range.end - 1).min(last));
    if from > to {
        return 0;
    }
    let mut pages = 0;
    for at in node.slot_of(from)..=node.slot_of(to) {
        let first = first + ((at as u64) << node.shift);
        pages += cut(&node.slots[at], first, range, space, guard);
    }
    if node.slots.iter().all(Slot::is_empty) {
        retire(slot, NODE_BYTES, space, guard);
    }
    pages
}

/// Counts the pages, including reservations, and the nodes in a slot.
fn count(slot: &PageSlot, guard: &Guard) -> (u64, u64) {
    match slot.read(guard) {
        Entry::Empty => (0, 0),
        Entry::Reserved | Entry::Leaf(_) => (1, 0),
        Entry::Node(node) => {
            let counts = node.slots.iter().map(|slot| count(slot, guard));
            counts.fold((0, 1), |(pages, nodes), (p, n)| (pages + p, nodes + n))
        }
    }
}

/// Removes a node of pages as a whole, with one deferred call for 64 pages.
fn cut_whole(slot: &PageSlot, node: &Node, space: &Space, guard: &Guard) -> u64 {
    let (mut leaves, mut reserved) = (0, 0);
    for slot in &node.slots {
        match slot.read(guard) {
            Entry::Leaf(_) => leaves += 1,
            Entry::Reserved => reserved += 1,
            Entry::Empty | Entry::Node(_) => {}
        }
    }
    retire(slot, NODE_BYTES + leaves * PAGE_BYTES, space, guard);
    space.give(reserved * PAGE_BYTES);
    leaves + reserved
}

#[cfg(test)]
mod tests;
