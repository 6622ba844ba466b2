//! The check of all metadata.

use std::collections::HashMap;
use std::collections::hash_map;

use super::{Inode, Layout, Part, Reader, damage};
use crate::error::Error;
use crate::format::{DIRECTORY, LINK, NAME_MAX, REGULAR, SLOT, TYPE_MASK, type_of};

/// The sizes that a [check](Reader::check) has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of inodes.
    pub inodes: u64,
    /// The number of names, the root's aside.
    pub names: u64,
    /// The bytes of the file with the metadata.
    pub bytes: u64,
}

impl Reader<'_> {
    /// Reads everything, and checks it: every directory has one name, in order and with the right
    /// parent; every other inode has as many names as it says, and each of them its type; and all
    /// contents are where they may be.
    ///
    /// Blocks for the I/O. Takes memory for each inode, and for the names of directories.
    ///
    /// # Errors
    /// [`Error`] with the first finding.
    pub fn check(&self) -> Result<Totals, Error> {
        let mut totals = Totals { bytes: self.bytes, ..Totals::default() };
        // Of each inode: how many names it says that it has, and how many were found.
        let mut seen: HashMap<u64, (u32, u32)> = HashMap::new();
        let root = self.inode(self.root)?;
        let mut stack = vec![(root, self.root)];
        while let Some((inode, parent)) = stack.pop() {
            if seen.insert(inode.nid, (0, 0)).is_some() {
                return damage(inode.nid * SLOT, "a directory with two names");
            }
            for found in self.names(&inode)? {
                let own = match &*found.name {
                    b"." => Some(inode.nid),
                    b".." => Some(parent),
                    name if name.contains(&b'/') || name.len() > NAME_MAX => {
                        return damage(inode.nid * SLOT, "a name that can't be one");
                    }
                    _ => None,
                };
                match own {
                    Some(own) if own == found.nid && found.kind == 2 => continue,
                    Some(_) => return damage(inode.nid * SLOT, "a wrong parent"),
                    None => totals.names += 1,
                }
                let is_new = match seen.entry(found.nid) {
                    hash_map::Entry::Occupied(mut known) => {
                        known.get_mut().1 += 1;
                        false
                    }
                    hash_map::Entry::Vacant(_) => true,
                };
                let kid = self.inode(found.nid)?;
                if type_of(kid.attributes.mode) != Some(found.kind) {
                    return damage(found.nid * SLOT, "another type than its name says");
                }
                if kid.attributes.mode & TYPE_MASK == DIRECTORY {
                    stack.push((kid, inode.nid));
                } else if is_new {
                    self.check_contents(&kid)?;
                    seen.insert(kid.nid, (kid.attributes.links, 1));
                }
            }
        }
        if let Some((nid, _)) = seen.iter().find(|(_, (links, names))| links != names) {
            return damage(nid * SLOT, "another number of names than it says");
        }
        totals.inodes = seen.len() as u64;
        match totals.inodes == self.inodes {
            true => Ok(totals),
            false => damage(0, "another number of inodes than the superblock says"),
        }
    }

    /// Checks where the contents of an inode are.
    fn check_contents(&self, inode: &Inode) -> Result<(), Error> {
        match inode.attributes.mode & TYPE_MASK {
            LINK => drop(self.target(inode)?),
            REGULAR => {
                let mut at = 0;
                while at < inode.size {
                    let (part, length) = self.part(inode, at)?;
                    let is_plain = inode.layout == Layout::Plain;
                    if is_plain && part == Part::Hole || length == 0 {
                        return damage(inode.nid * SLOT, "contents that end too early");
                    }
                    at += length;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
