//! A set that remembers the order of insertion, and removes a member without a search.
//!
//! The mounts on a mount and the members of a peer group are listed in the order in which they
//! came, and each may leave at any time. An array would be searched for each member that leaves, so
//! an unmount of a tree of `n` mounts would take `n²` steps.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// The set; see the [module](self).
#[derive(Debug)]
pub(crate) struct OrderedSet<T> {
    /// The members, by their number in the order of insertion.
    members: BTreeMap<u64, T>,
    numbers: HashMap<T, u64>,
    next: u64,
}

impl<T> Default for OrderedSet<T> {
    fn default() -> Self {
        Self { members: BTreeMap::new(), numbers: HashMap::new(), next: 0 }
    }
}

impl<T: Copy + Eq + Hash> OrderedSet<T> {
    /// Inserts a member behind all others; does nothing if it is one already.
    pub(crate) fn insert(&mut self, member: T) {
        let number = self.next;
        self.numbers.entry(member).or_insert_with(|| {
            self.members.insert(number, member);
            self.next += 1;
            number
        });
    }

    /// Removes a member; does nothing if it is none.
    pub(crate) fn remove(&mut self, member: T) {
        if let Some(number) = self.numbers.remove(&member) {
            self.members.remove(&number);
        }
    }

    /// Returns the members in the order of insertion.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = T> + '_ {
        self.members.values().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

impl<T: Copy + Eq + Hash> Extend<T> for OrderedSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, members: I) {
        members.into_iter().for_each(|member| self.insert(member));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
