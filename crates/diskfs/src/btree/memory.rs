//! Blocks in memory, for tests. They count calls, and fail the call that a test selects.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Error, Kind, Nodes, Tree, node};
use crate::Uuid;
use crate::format::{Block, Damage, Expected, Identity};

pub(crate) const VOLUME: Uuid = Uuid::from_bytes(*b"volume of trees.");

/// Reason why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The test selected this call.
    Injected,
    NoSpace,
    /// There is no block at this address.
    Missing(u64),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A volume of blocks 1 to `limit` - 1. Changed blocks are in the state of a transaction, others in
/// that of the device.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    pub(crate) blocks: BTreeMap<u64, Box<Block>>,
    identities: BTreeMap<u64, Identity>,
    /// Blocks that were changed, or made writable, since they were sealed.
    dirty: BTreeSet<u64>,
    freeable: BTreeSet<u64>,
    allocated: BTreeSet<u64>,
    /// Blocks that can't be read.
    pub(crate) lost: BTreeSet<u64>,
    /// Number of blocks; 0 for no limit.
    pub(crate) limit: u64,
    pub(crate) reads: Cell<u64>,
    pub(crate) writes: u64,
    /// Number of calls so far that may fail.
    pub(crate) calls: Cell<u64>,
    /// The call to fail, counted from 1 on.
    pub(crate) failing: Option<u64>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Ends a transaction: all changed blocks are sealed, as for the device.
    pub(crate) fn commit(&mut self) {
        for address in std::mem::take(&mut self.dirty) {
            let identity = self.identities[&address];
            self.blocks.get_mut(&address).unwrap().seal(&identity, 0);
        }
        self.freeable.clear();
        self.allocated.clear();
    }

    /// Returns the bytes of all blocks, without their headers.
    pub(crate) fn bodies(&self) -> BTreeMap<u64, Vec<u8>> {
        self.blocks.iter().map(|(address, block)| (*address, block.body().to_vec())).collect()
    }

    /// Applies a change to a block without the tree, and makes its checksum right if `sealed`.
    pub(crate) fn damage(&mut self, address: u64, sealed: bool, change: impl FnOnce(&mut Block)) {
        let block = self.blocks.get_mut(&address).unwrap();
        change(block);
        if sealed {
            block.seal(&self.identities[&address], 0);
        }
    }

    pub(crate) fn set_owner(&mut self, address: u64, owner: u64) {
        self.identities.get_mut(&address).unwrap().owner = owner;
        self.damage(address, true, |_| {});
    }

    /// Creates a block at this address, as [`Nodes::allocate`] does.
    pub(crate) fn place(&mut self, address: u64, expected: &Expected) {
        assert!(!self.blocks.contains_key(&address), "block {address} is in use");
        let Expected { magic, owner, .. } = *expected;
        let identity = Identity { magic, address, owner, volume: VOLUME };
        let mut block = Block::zeroed();
        block.seal(&identity, 0);
        self.blocks.insert(address, block);
        self.identities.insert(address, identity);
        self.dirty.insert(address);
        self.allocated.insert(address);
    }

    pub(crate) fn call(&self) -> Result<(), Error<Failure>> {
        self.calls.set(self.calls.get() + 1);
        match self.failing {
            Some(failing) if failing == self.calls.get() => Err(Error::Nodes(Failure::Injected)),
            _ => Ok(()),
        }
    }

    fn verified(&self, address: u64, expected: &Expected) -> Result<&Block, Error<Failure>> {
        assert!(self.is_possible(address), "a wild read of {address}");
        let block = self.blocks.get(&address).filter(|_| !self.lost.contains(&address));
        let block = block.ok_or(Error::Nodes(Failure::Missing(address)))?;
        if !self.dirty.contains(&address) {
            let Expected { magic, owner, check } = *expected;
            block.verify(&Identity { magic, address, owner, volume: VOLUME })?;
            check(address, block)?;
        }
        Ok(block)
    }
}

impl Nodes for Memory {
    type Error = Failure;
    type Ref<'a> = &'a Block;
    type Slot = u64;

    fn is_possible(&self, address: u64) -> bool {
        address > 0 && address < 1 << 32
    }

    fn is_for_data(&self, start: u64, blocks: u64) -> bool {
        start > 0 && blocks > 0 && start.saturating_add(blocks) <= 1 << 32
    }

    fn read(&self, address: u64, expected: &Expected) -> Result<&Block, Error<Failure>> {
        self.call()?;
        self.reads.set(self.reads.get() + 1);
        self.verified(address, expected)
    }

    fn writable(&mut self, address: u64, expected: &Expected) -> Result<u64, Error<Failure>> {
        self.call()?;
        self.verified(address, expected)?;
        self.dirty.insert(address);
        Ok(address)
    }

    fn freeable(&mut self, address: u64, expected: &Expected) -> Result<u64, Error<Failure>> {
        self.writable(address, expected)?;
        self.freeable.insert(address);
        Ok(address)
    }

    fn allocate(&mut self, hint: u64, expected: &Expected) -> Result<(u64, u64), Error<Failure>> {
        self.call()?;
        if self.limit != 0 && self.blocks.len() as u64 >= self.limit {
            return Err(Error::Nodes(Failure::NoSpace));
        }
        let near = (hint.max(1)..).find(|address| !self.blocks.contains_key(address));
        let address = near.ok_or(Error::Nodes(Failure::NoSpace))?;
        self.place(address, expected);
        Ok((address, address))
    }

    fn edit(&mut self, slot: u64) -> &mut Block {
        assert!(self.dirty.contains(&slot), "block {slot} was not prepared");
        self.writes += 1;
        self.blocks.get_mut(&slot).unwrap()
    }

    fn free(&mut self, slot: u64) {
        assert!(self.freeable.remove(&slot), "block {slot} was not prepared");
        self.dirty.remove(&slot);
        self.blocks.remove(&slot).unwrap();
    }

    fn cancel(&mut self, slot: u64) {
        assert!(self.allocated.remove(&slot), "block {slot} was not allocated");
        self.dirty.remove(&slot);
        self.blocks.remove(&slot).unwrap();
    }
}

/// Returns the number of the damage in an error, if any.
pub(crate) fn number(error: &Error<Failure>) -> Option<u32> {
    match error {
        Error::Damage(damage) => Some(Damage::number(damage)),
        Error::Nodes(_) => None,
    }
}

impl<K: Kind> Tree<K> {
    /// Creates an empty tree of one block, near the address `hint` if possible.
    ///
    /// # Errors
    /// Returns the error of [`Nodes::allocate`].
    pub(crate) fn create<N: Nodes>(
        nodes: &mut N,
        owner: u64,
        hint: u64,
    ) -> Result<Self, Error<N::Error>> {
        let expected = Self::at(0, owner).expected();
        let (root, slot) = nodes.allocate(hint, &expected)?;
        node::write::<K::Key, K::Value>(nodes.edit(slot), 0, [0; 2], &[]);
        Ok(Self::at(root, owner))
    }

    /// Counts the records. Reads all leaves.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub(crate) fn count<N: Nodes>(&self, nodes: &N) -> Result<u64, Error<N::Error>> {
        let mut cursor = self.seek(nodes, K::KEY_MIN)?;
        let mut records = cursor.leaf_records()?;
        while cursor.step_right()? {
            records += cursor.leaf_records()?;
        }
        Ok(records)
    }
}
