//! Check of a whole directory.

use super::entry::{damage, possible};
use super::tree::{Assembly, Outcome};
use super::{DirEntry, DirFault, Directory, entry_bytes, inline};
use crate::btree::{Nodes, Record, Summary};
use crate::format::Damage;
use crate::format::dir::{COLLISIONS_MAX, DirTree};
use crate::inode::core::{DataFork, InodeCore};

/// The entries seen so far.
struct SeenEntries<'d> {
    dir: &'d Directory,
    size: u64,
    /// The names of the current sixteen positions.
    names: Vec<Box<[u8]>>,
    base: u64,
}

impl SeenEntries<'_> {
    fn entry(&mut self, entry: &DirEntry<'_>) -> Result<(), Damage> {
        self.size = self.size.saturating_add(entry_bytes(entry.name));
        let damage = |fault| damage(self.dir.ino, entry.position, fault);
        let base = entry.position & !(COLLISIONS_MAX - 1);
        if self.dir.hash.position(entry.name) != base {
            return Err(damage(DirFault::Hash));
        }
        if self.base != base {
            (self.base, self.names) = (base, Vec::new());
        }
        if self.names.iter().any(|name| **name == *entry.name) {
            return Err(damage(DirFault::Twice));
        }
        self.names.push(entry.name.into());
        Ok(())
    }
}

impl Directory {
    /// Passes `each` every entry that can be assembled from records in order.
    pub(crate) fn entries_of(
        &self,
        records: &[Record<DirTree>],
        each: &mut dyn FnMut(DirEntry<'_>),
    ) {
        let mut assembly = Assembly::new(self.ino);
        for record in records {
            // A record that does not belong is skipped.
            assembly.push_any(record, each).unwrap_or_default();
        }
    }

    /// Returns the size of a directory with these records.
    pub(crate) fn size_of(&self, records: &[Record<DirTree>]) -> u64 {
        let mut size = 0_u64;
        self.entries_of(records, &mut |entry| size = size.saturating_add(entry_bytes(entry.name)));
        size
    }

    /// Reads the whole directory. Calls `found` with each fault, `used` with the address of each
    /// block of its tree, and `each` with every entry that can be assembled, in order, even if its
    /// name belongs elsewhere. The caller checks the inodes of the entries. Returns the contents of
    /// the tree, if there is one.
    ///
    /// # Errors
    /// [`Error::Nodes`](crate::btree::Error) only.
    pub fn check<N: Nodes>(
        &self,
        nodes: &N,
        core: &InodeCore,
        found: &mut dyn FnMut(Damage),
        used: &mut dyn FnMut(u64),
        each: &mut dyn FnMut(DirEntry<'_>),
    ) -> Outcome<Option<Summary>, N> {
        let mut seen = SeenEntries { dir: self, size: 0, names: Vec::new(), base: 0 };
        let mut is_tree_whole = true;
        // Reports the damage of entries after that of the tree.
        let mut wrong: Vec<Damage> = Vec::new();
        let mut look = |entry: DirEntry<'_>, wrong: &mut Vec<Damage>| {
            wrong.extend(seen.entry(&entry).err());
            wrong.extend(possible(self.ino, nodes, entry.found()).err());
            each(entry);
        };
        let summary = match &core.data {
            DataFork::Tree { root } => {
                let mut assembly = Assembly::new(self.ino);
                let records = |records: &[_]| {
                    for record in records {
                        let pushed =
                            assembly.push_any(record, &mut |entry| look(entry, &mut wrong));
                        wrong.extend(pushed.err());
                    }
                };
                let tree = self.tree(*root);
                let of_tree = |damage| {
                    is_tree_whole = false;
                    found(damage);
                };
                let summary = tree.check_records(nodes, of_tree, used, records)?;
                wrong.extend(assembly.finish().err());
                Some(summary)
            }
            data => {
                for entry in inline::entries(self.ino, inline::bytes(data)) {
                    match entry {
                        Ok((_, entry)) => look(entry, &mut wrong),
                        Err(damage) => wrong.push(damage),
                    }
                }
                None
            }
        };
        if seen.size != core.size && wrong.is_empty() && is_tree_whole {
            let fault = DirFault::Size { found: core.size, computed: seen.size };
            wrong.push(damage(self.ino, 0, fault));
        }
        wrong.into_iter().for_each(found);
        Ok(summary)
    }
}
