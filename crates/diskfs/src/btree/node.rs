//! A block of a tree in memory: its checks, and the writing of records.

use std::marker::PhantomData;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use super::capacity::{records_least, records_max};
use super::{Branch, Kind, OnDisk, Record};
use crate::format::btree::{Entry, LEVELS_MAX, RawNode, raw, raw_mut};
use crate::format::damage::{TreeDamage, TreeFault};
use crate::format::{Block, Damage};

/// A block with a valid header, level and number of records.
pub(crate) struct View<'b, K: Kind> {
    address: u64,
    raw: &'b RawNode,
    kind: PhantomData<fn() -> K>,
}

/// Knowledge about a link to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// There is no neighbour.
    Nothing,
    /// There is a neighbour, at an unknown address.
    Something,
    /// There is a neighbour, at this address.
    Is(u64),
    /// Whether there is a neighbour is unknown.
    Unknown,
}

impl Link {
    /// Returns the correct target of a link, or `None` if `found` agrees with what is known.
    pub(crate) fn differs(self, found: u64) -> Option<Option<u64>> {
        match self {
            Self::Nothing => (found != 0).then_some(Some(0)),
            Self::Something => (found == 0).then_some(None),
            Self::Is(address) => (found != address).then_some(Some(address)),
            Self::Unknown => None,
        }
    }
}

/// The position of a block in its tree, according to the blocks above it.
#[derive(Debug)]
pub(crate) struct Place<K: Kind> {
    pub(crate) address: u64,
    /// The level; `None` for the root.
    pub(crate) level: Option<u16>,
    /// The lower bound of its keys, inclusive.
    pub(crate) low: K::Key,
    /// The upper bound of its keys, exclusive; `None` if there is none.
    pub(crate) high: Option<K::Key>,
    pub(crate) left: Link,
    pub(crate) right: Link,
}

impl<K: Kind> Clone for Place<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kind> Copy for Place<K> {}

impl<'b, K: Kind> View<'b, K> {
    /// Returns a view of the block that was read at `address`. Checks its header as far as that is
    /// cheap, its level and its number of records.
    pub(crate) fn new(address: u64, owner: u64, block: &'b Block) -> Result<Self, Damage> {
        let header = block.header();
        if header.magic != K::MAGIC {
            let (found, expected) = (header.magic, K::MAGIC);
            return Err(Damage::Magic { address, found, expected });
        }
        if header.address.get() != address {
            return Err(Damage::Address { address, found: header.address.get() });
        }
        if header.owner.get() != owner {
            let (found, expected) = (header.owner.get(), owner);
            return Err(Damage::Owner { address, found, expected });
        }
        Self::of_body(address, block)
    }

    fn of_body(address: u64, block: &'b Block) -> Result<Self, Damage> {
        let view = Self { address, raw: raw(block), kind: PhantomData };
        if view.level() >= LEVELS_MAX {
            let (level, highest) = (view.level(), LEVELS_MAX - 1);
            return Err(view.fault(TreeFault::Height { level, highest }));
        }
        if view.len() > records_max::<K>(view.level()) {
            return Err(view.miscounted(0));
        }
        Ok(view)
    }

    pub(crate) fn fault(&self, fault: TreeFault) -> Damage {
        TreeDamage { address: self.address, fault }.into()
    }

    fn miscounted(&self, least: usize) -> Damage {
        let most = records_max::<K>(self.level());
        // Both are less than the bytes of a block.
        let (least, most) = (least as u16, most as u16);
        self.fault(TreeFault::Count { found: self.raw.records.get(), least, most })
    }

    pub(crate) fn level(&self) -> u16 {
        self.raw.level.get()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.raw.records.get())
    }

    pub(crate) fn left(&self) -> u64 {
        self.raw.left.get()
    }

    pub(crate) fn right(&self) -> u64 {
        self.raw.right.get()
    }

    /// Returns the records of a leaf; none if the block is not a leaf.
    pub(crate) fn records(&self) -> &'b [Record<K>] {
        if self.level() == 0 { entries(self.raw) } else { &[] }
    }

    /// Returns the records of a block above the leaves; none if the block is a leaf.
    pub(crate) fn branches(&self) -> &'b [Branch<K>] {
        if self.level() == 0 { &[] } else { entries(self.raw) }
    }

    /// Returns the key of a record, at any level.
    pub(crate) fn key(&self, index: usize) -> Option<K::Key> {
        match self.level() {
            0 => self.records().get(index).map(|entry| entry.key),
            _ => self.branches().get(index).map(|entry| entry.key),
        }
    }

    /// Returns the first record that is not greater than the one before it.
    pub(crate) fn disorder(&self) -> Option<usize> {
        fn first<K: Ord, V>(entries: &[Entry<K, V>]) -> Option<usize> {
            let is_wrong = |pair: &[Entry<K, V>]| pair[0].key >= pair[1].key;
            entries.windows(2).position(is_wrong).map(|before| before + 1)
        }
        if self.level() == 0 { first(self.records()) } else { first(self.branches()) }
    }

    /// Passes `report` each fault of the block at this position that is visible without reading
    /// every record.
    pub(crate) fn faults(&self, place: &Place<K>, mut report: impl FnMut(TreeFault)) {
        if let Some(expected) = place.level
            && expected != self.level()
        {
            return report(TreeFault::Level { found: self.level(), expected });
        }
        let least = match (place.level, self.level()) {
            (None, 0) => 0,
            (None, _) => 2,
            (Some(_), level) => records_least(level),
        };
        if self.len() < least {
            let Damage::Tree(damage) = self.miscounted(least) else { return };
            report(damage.fault);
        }
        if let Some(expected) = place.left.differs(self.left()) {
            report(TreeFault::Left { found: self.left(), expected });
        }
        if let Some(expected) = place.right.differs(self.right()) {
            report(TreeFault::Right { found: self.right(), expected });
        }
        let is_low = |key| if self.level() == 0 { key < place.low } else { key != place.low };
        if self.key(0).is_some_and(is_low) {
            report(TreeFault::Range { record: 0 });
        }
        let last = self.len().saturating_sub(1);
        if self.key(last).zip(place.high).is_some_and(|(key, high)| key >= high) {
            report(TreeFault::Range { record: last as u16 });
        }
    }

    /// Checks that the block can be at this position.
    pub(crate) fn check(&self, place: &Place<K>) -> Result<(), Damage> {
        let mut first = None;
        self.faults(place, |fault| {
            first.get_or_insert(fault);
        });
        first.map_or(Ok(()), |fault| Err(self.fault(fault)))
    }

    /// Returns the position of the child of record `index`, if this block is at `place`.
    pub(crate) fn child(&self, place: &Place<K>, index: usize) -> Option<Place<K>> {
        let branches = self.branches();
        let branch = branches.get(index)?;
        let beside = |neighbour: Option<&Branch<K>>, edge: u64| match neighbour {
            Some(neighbour) => Link::Is(neighbour.value.get()),
            None if edge == 0 => Link::Nothing,
            None => Link::Something,
        };
        let before = index.checked_sub(1).and_then(|before| branches.get(before));
        let behind = branches.get(index + 1);
        Some(Place {
            address: branch.value.get(),
            level: self.level().checked_sub(1),
            low: branch.key,
            high: behind.map(|behind| behind.key).or(place.high),
            left: beside(before, self.left()),
            right: beside(behind, self.right()),
        })
    }
}

/// Checks a block that was read from the device: its level, its number of records, their order.
pub(crate) fn check_order<K: Kind>(address: u64, block: &Block) -> Result<(), Damage> {
    let view = View::<K>::of_body(address, block)?;
    match view.disorder() {
        Some(record) => Err(view.fault(TreeFault::Order { record: record as u16 })),
        None => Ok(()),
    }
}

/// Returns the records of a block, or none if it has no room for the number of records it claims.
fn entries<K: OnDisk, V: OnDisk>(raw: &RawNode) -> &[Entry<K, V>] {
    let len = usize::from(raw.records.get());
    <[Entry<K, V>]>::ref_from_prefix_with_elems(&raw.area, len).map_or(&[], |(entries, _)| entries)
}

/// Copies the records of a block out, for a change.
pub(crate) fn copied<K: OnDisk, V: OnDisk>(block: &Block) -> Vec<Entry<K, V>> {
    entries(raw(block)).to_vec()
}

/// Writes a whole block: level, links to the left and to the right, and records.
pub(crate) fn write<K: OnDisk, V: OnDisk>(
    block: &mut Block,
    level: u16,
    links: [u64; 2],
    entries: &[Entry<K, V>],
) {
    let raw = raw_mut(block);
    raw.level = level.into();
    raw.left = links[0].into();
    raw.right = links[1].into();
    write_entries(block, entries);
}

/// Writes the records, and zeros after them.
pub(crate) fn write_entries<K: OnDisk, V: OnDisk>(block: &mut Block, entries: &[Entry<K, V>]) {
    let raw = raw_mut(block);
    let bytes = entries.as_bytes();
    debug_assert!(bytes.len() <= raw.area.len());
    // Always fits: the caller has counted the records.
    let Some((area, rest)) = raw.area.split_at_mut_checked(bytes.len()) else { return };
    area.copy_from_slice(bytes);
    rest.fill(0);
    raw.records = (entries.len() as u16).into();
}

/// Inserts a record; there is room for it.
pub(crate) fn insert<K: OnDisk, V: OnDisk>(block: &mut Block, index: usize, entry: &Entry<K, V>) {
    let raw = raw_mut(block);
    let (size, len) = (size_of::<Entry<K, V>>(), usize::from(raw.records.get()));
    let (at, end) = (index * size, len * size);
    debug_assert!(index <= len && end + size <= raw.area.len());
    raw.area.copy_within(at..end, at + size);
    raw.area[at..at + size].copy_from_slice(entry.as_bytes());
    raw.records = (len as u16 + 1).into();
}

/// Removes a record.
pub(crate) fn remove<K: OnDisk, V: OnDisk>(block: &mut Block, index: usize) {
    let raw = raw_mut(block);
    let (size, len) = (size_of::<Entry<K, V>>(), usize::from(raw.records.get()));
    let (at, end) = (index * size, len * size);
    debug_assert!(index < len && end <= raw.area.len());
    raw.area.copy_within(at + size..end, at);
    raw.area[end - size..end].fill(0);
    raw.records = (len as u16 - 1).into();
}

/// Replaces a record.
pub(crate) fn replace<K: OnDisk, V: OnDisk>(block: &mut Block, index: usize, entry: &Entry<K, V>) {
    let size = size_of::<Entry<K, V>>();
    let at = index * size;
    raw_mut(block).area[at..at + size].copy_from_slice(entry.as_bytes());
}

/// Returns the links of a block to the left and to the right.
pub(crate) fn links(block: &Block) -> [u64; 2] {
    [raw(block).left.get(), raw(block).right.get()]
}

/// Sets the link to the left.
pub(crate) fn set_left(block: &mut Block, address: u64) {
    raw_mut(block).left = U64::from(address);
}

/// Sets the link to the right.
pub(crate) fn set_right(block: &mut Block, address: u64) {
    raw_mut(block).right = U64::from(address);
}
