//! The contents of inodes: data of files, targets of links, attributes.

use super::finding::{Part, Problem};
use super::media::{Media, NoChange};
use super::state::Check;
use crate::btree::{Error, Kind, Record, Tree};
use crate::format::attr::CHUNK_BYTES;
use crate::format::extent::{Extent, check_order};
use crate::format::inode::LINK_TARGET_BYTES_MAX;
use crate::format::{BLOCK_BYTES, Damage};
use crate::inode::attr;
use crate::inode::blob::{self, AttrTree, LinkTree};
use crate::inode::core::{AttrFork, DataFork, InodeCore};
use crate::inode::extents::ExtentTree;

/// The result of a walk through a tree.
#[derive(Default)]
pub(crate) struct Walked {
    /// The damage found.
    pub(crate) damages: Vec<Damage>,
    /// The blocks of the tree, in no order.
    pub(crate) blocks: Vec<u64>,
}

/// A walk through the extents of a file, in order.
pub(crate) struct Extents {
    ino: u64,
    /// The last possible extent.
    before: Option<Extent>,
    /// The file's size in blocks, rounded up.
    end: u64,
}

/// The verdict on an extent.
pub(crate) enum Verdict {
    /// A correct extent.
    Good,
    /// Data after the end of the file.
    Behind,
    /// An impossible extent.
    Wrong(Damage),
    /// Blocks that no file can have, between possible ends.
    Across,
}

impl Extents {
    /// Creates a walk through the extents of a file of the checked volume.
    pub(crate) fn new(check: &Check<'_, '_>, ino: u64, size: u64) -> Self {
        let end = match check.is_orphan(ino) {
            true => u64::MAX,
            false => size.div_ceil(BLOCK_BYTES as u64),
        };
        Self { ino, before: None, end }
    }

    /// Checks the next extent.
    pub(crate) fn judge(&mut self, media: &Media<'_>, extent: &Extent) -> Verdict {
        let ino = self.ino;
        let ordered = self.before.map_or(Ok(()), |before| check_order(ino, &before, extent));
        let checked = ordered
            .and_then(|()| extent.checked(ino, |start, blocks| media.has_ends(start, blocks)));
        if let Err(damage) = checked {
            return Verdict::Wrong(damage.into());
        }
        self.before = Some(*extent);
        if !media.is_common(&(extent.start..extent.place_end())) {
            Verdict::Across
        } else if extent.file_block >= self.end && !extent.is_unwritten {
            Verdict::Behind
        } else {
            Verdict::Good
        }
    }
}

impl Check<'_, '_> {
    /// Checks the structure of a tree, and passes its records to `records`. Its blocks may have
    /// other owners too.
    pub(crate) fn tree<K: Kind>(
        &self,
        tree: &Tree<K>,
        records: impl FnMut(&[Record<K>]),
    ) -> Walked {
        let mut walked = Walked::default();
        let found = |damage| walked.damages.push(damage);
        let used = |block| walked.blocks.push(block);
        // Only damage ends a walk that does not write.
        tree.check_records(&self.media, found, used, records).unwrap_or_default();
        walked
    }

    /// Walks a tree of an inode, and records the inode as the owner of its blocks. Returns whether
    /// the tree is undamaged.
    fn inode_tree<K: Kind>(
        &mut self,
        root: u64,
        (ino, part): (u64, Part),
        records: impl FnMut(&[Record<K>]),
    ) -> bool {
        let walked = self.tree(&Tree::<K>::at(root, ino), records);
        let is_whole = walked.damages.is_empty();
        if !is_whole {
            self.broken(ino, part, walked.damages);
        }
        self.own_unless_broken(ino, part, walked.blocks);
        is_whole
    }

    /// Checks the attributes of an inode.
    pub(crate) fn attributes(&mut self, ino: u64, core: &InodeCore) {
        let part = (ino, Part::Attributes);
        let is_whole = match &core.attr {
            AttrFork::Tree { root, .. } => self.inode_tree::<AttrTree>(*root, part, |_| {}),
            AttrFork::None | AttrFork::Inline(_) => true,
        };
        // The damage of a broken tree was reported already.
        if is_whole && !self.is_being_removed(ino, core) {
            self.read(part, attr::load(&self.media, ino, &core.attr));
        }
    }

    /// Checks the target of a symbolic link.
    fn link(&mut self, ino: u64, core: &InodeCore) {
        let DataFork::Tree { root } = core.data else { return };
        let part = (ino, Part::Target);
        let (mut stored, mut is_in_order) = (Vec::new(), true);
        let is_whole = self.inode_tree::<LinkTree>(root, part, |records| {
            for record in records {
                is_in_order &= record.key.get() as usize * CHUNK_BYTES == stored.len();
                stored.extend_from_slice(&record.value.0);
            }
        });
        if !is_whole || self.is_being_removed(ino, core) {
            return;
        }
        match target_bytes(&stored).filter(|_| is_in_order) {
            Some(counted) if counted != core.size => {
                self.tell.add(Problem::TargetSize { ino, found: core.size, counted });
                self.fix(ino, |fix| fix.size = Some(counted));
            }
            Some(_) => {}
            None => {
                // The size was checked when the record was read.
                let bytes = u32::try_from(core.size).unwrap_or(u32::MAX);
                self.read(part, blob::load(&self.media, Tree::<LinkTree>::at(root, ino), bytes));
            }
        }
    }

    /// Reports the damage that prevented a read.
    fn read<T>(&mut self, (ino, part): (u64, Part), read: Result<T, Error<NoChange>>) {
        if let Err(Error::Damage(damage)) = read {
            self.broken(ino, part, vec![damage]);
        }
    }

    /// Checks the data of an inode.
    pub(crate) fn data(&mut self, ino: u64, core: &InodeCore) {
        if core.is_directory() {
            return self.directory(ino, core);
        }
        if core.is_link() {
            return self.link(ino, core);
        }
        let mut extents = Extents::new(self, ino, core.size);
        match &core.data {
            DataFork::None | DataFork::Inline(_) => {}
            DataFork::Extents(list) => {
                for extent in list.iter() {
                    self.extent(&mut extents, *extent, core.size);
                }
            }
            DataFork::Tree { root } => {
                let mut list = Vec::new();
                let records = |records: &[_]| list.extend(records.iter().map(extent_of));
                let part = (ino, Part::Extents);
                self.inode_tree::<ExtentTree>(*root, part, records);
                // If the tree is to be rebuilt, its extents are checked once the salvaged ones are
                // known.
                if self.broken.last() != Some(&part) {
                    for extent in list {
                        self.extent(&mut extents, extent, core.size);
                    }
                }
            }
        }
    }

    fn extent(&mut self, extents: &mut Extents, extent: Extent, size: u64) {
        let (ino, file_block) = (extents.ino, extent.file_block);
        let verdict = extents.judge(&self.media, &extent);
        if !matches!(verdict, Verdict::Good) {
            self.plan(|plan| plan.cut(ino));
        }
        match verdict {
            Verdict::Good => {}
            Verdict::Behind => self.tell.add(Problem::BehindEnd { ino, file_block, size }),
            Verdict::Wrong(damage) => return self.lost(damage),
            // Reported when its blocks get their owner.
            Verdict::Across => {}
        }
        self.own_data(extent.start..extent.place_end(), ino);
    }
}

/// Returns the length of the target of a link in these bytes, in bytes, if they can be one: it has
/// no byte that is zero, and zeros behind it up to the end of its last chunk.
fn target_bytes(stored: &[u8]) -> Option<u64> {
    let length = stored.iter().position(|byte| *byte == 0).unwrap_or(stored.len());
    let is_possible = (1..=LINK_TARGET_BYTES_MAX).contains(&(length as u64))
        && length.next_multiple_of(CHUNK_BYTES) == stored.len()
        && stored[length..].iter().all(|byte| *byte == 0);
    is_possible.then_some(length as u64)
}

/// Returns the extent of a record.
pub(crate) fn extent_of(record: &Record<ExtentTree>) -> Extent {
    Extent::of(record.key.get(), &record.value)
}
