//! Lookups of single records, and the size of a tree.

use super::descend::Target;
use super::{Error, Kind, Nodes, Record, Tree};

/// A record, and its location in the tree.
#[derive(Debug)]
pub(crate) struct FoundRecord<K: Kind> {
    pub(super) address: u64,
    pub(super) index: usize,
    pub(crate) record: Record<K>,
}

impl<K: Kind> Tree<K> {
    /// Returns the value of `key`. Reads one block per level.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn get<N: Nodes>(
        &self,
        nodes: &N,
        key: K::Key,
    ) -> Result<Option<K::Value>, Error<N::Error>> {
        let leaf = self.descend(nodes, Target::Key(key), None)?;
        Ok(if leaf.is_found { leaf.record(self)?.map(|record| record.value) } else { None })
    }

    /// Returns the record of a key and its location; `None` if there is no such key.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub(crate) fn find<N: Nodes>(
        &self,
        nodes: &N,
        key: K::Key,
    ) -> Result<Option<FoundRecord<K>>, Error<N::Error>> {
        let leaf = self.descend(nodes, Target::Key(key), None)?;
        let record = leaf.record(self)?.filter(|_| leaf.is_found);
        let (address, index) = (leaf.address, leaf.index);
        Ok(record.map(|record| FoundRecord { address, index, record }))
    }

    /// Returns the record with the least key that is not less than `key`.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn at_or_after<N: Nodes>(
        &self,
        nodes: &N,
        key: K::Key,
    ) -> Result<Option<Record<K>>, Error<N::Error>> {
        self.seek(nodes, key)?.forward()
    }

    /// Returns the record with the greatest key that is not greater than `key`.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn at_or_before<N: Nodes>(
        &self,
        nodes: &N,
        key: K::Key,
    ) -> Result<Option<Record<K>>, Error<N::Error>> {
        let mut cursor = self.seek(nodes, key)?;
        if cursor.is_found() { cursor.forward() } else { cursor.backward() }
    }

    /// Returns the record with the least key.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn first<N: Nodes>(&self, nodes: &N) -> Result<Option<Record<K>>, Error<N::Error>> {
        self.seek(nodes, K::KEY_MIN)?.forward()
    }

    /// Returns the record with the greatest key.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn last<N: Nodes>(&self, nodes: &N) -> Result<Option<Record<K>>, Error<N::Error>> {
        self.seek_end(nodes)?.backward()
    }

    /// Returns the number of levels: 1 if the root is a leaf.
    ///
    /// # Errors
    /// Returns [`Error`] if the root is damaged or can't be read.
    pub fn height<N: Nodes>(&self, nodes: &N) -> Result<u16, Error<N::Error>> {
        let guard = self.read(nodes, self.root, self.root)?;
        Ok(self.view(self.root, &guard)?.level() + 1)
    }
}
