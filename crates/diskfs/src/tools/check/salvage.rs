//! Salvage of the parts of an inode that cannot be read completely.
//!
//! A tree with a damaged block hides everything below that block, and hence which blocks are free:
//! no repair that depends on them would be possible. So the check of a repair continues with the
//! contents that the repair is going to write instead: all that can be read of the tree
//! ([`Tree::salvage`]). Its other blocks are given up, and are unowned from then on; but only if
//! the device could read all requested blocks, because a block that the device can't read today may
//! be readable tomorrow, or from a copy.
//!
//! A part that could not be rebuilt for lack of room remains unchanged, and then the rest of its
//! tree is unknown again.

use crate::btree::{Around, Kept, Kind, Record, Tree};
use crate::dir::{self, DirTree, Directory, NameHash};
use crate::format::attr::CHUNK_BYTES;
use crate::format::extent::Extent;
use crate::inode::attr;
use crate::inode::blob::AttrTree;
use crate::inode::core::{AttrFork, DataFork, InodeCore};
use crate::inode::extents::ExtentTree;

use super::contents::{Extents, Verdict, extent_of};
use super::finding::{Owner, Part};
use super::overlay::Overlay;
use super::plan::{Content, Rebuilt, SalvagedName};
use super::state::{Check, Strays};

/// The knowledge of a check about the blocks around a tree of an inode.
struct SalvageContext<'c, 'd, 'w, A> {
    check: &'c Check<'d, 'w>,
    ino: u64,
    agrees: A,
}

impl<K: Kind, A: Fn(&[Record<K>], u64) -> bool> Around<K> for SalvageContext<'_, '_, '_, A> {
    fn is_unowned(&self, block: u64) -> bool {
        self.check.is_unowned(&(block..block + 1))
    }

    fn search(&self) -> Vec<u64> {
        let strays = self.check.strays.get_or_init(|| self.check.search_strays());
        let like = strays.get(&(K::MAGIC.0, self.ino)).into_iter().flatten();
        like.copied().filter(|block| self.check.is_unowned(&(*block..*block + 1))).collect()
    }

    fn agrees(&self, records: &[Record<K>], leaves: usize) -> bool {
        (self.agrees)(records, leaves as u64)
    }
}

impl Check<'_, '_> {
    /// Finds all blocks without a known owner whose header names a tree of an inode. Reads all free
    /// blocks, once for all trees.
    fn search_strays(&self) -> Strays {
        let mut strays = Strays::new();
        self.used.absent(0..self.figures.blocks, |run| {
            self.media.each_block(run, |address, header| {
                let magic = header.magic;
                if [DirTree::MAGIC, ExtentTree::MAGIC, AttrTree::MAGIC].contains(&magic) {
                    strays.entry((magic.0, header.owner.get())).or_default().push(address);
                }
            });
        });
        strays
    }

    /// Determines the salvaged contents of all broken parts, and plans to write them.
    pub(crate) fn salvage(&mut self) {
        for (ino, part) in std::mem::take(&mut self.broken) {
            let Some(core) = Overlay::new(&self.media).core(ino) else { continue };
            let (content, blocks) = match part {
                Part::Names => self.names_of(ino, &core),
                Part::Extents => self.extents_of(ino, &core),
                Part::Attributes => self.attributes_of(ino, &core),
                Part::Target => (Content::Target, Vec::new()),
            };
            self.own_blocks(blocks.clone(), Owner::Inode(ino));
            self.plan(|plan| plan.rebuilt.push(Rebuilt { ino, content, blocks }));
        }
    }

    fn kept<K: Kind>(
        &self,
        root: u64,
        ino: u64,
        agrees: impl Fn(&[Record<K>], u64) -> bool,
    ) -> Kept<K> {
        let around = SalvageContext { check: self, ino, agrees };
        // Only damage ends a walk that does not write.
        let kept = Tree::<K>::at(root, ino).salvage(&self.media, &around);
        kept.unwrap_or_else(|_| Kept { records: Vec::new(), blocks: Vec::new() })
    }

    fn names_of(&self, ino: u64, core: &InodeCore) -> (Content, Vec<u64>) {
        let mut names = Vec::new();
        let mut keep = |entry: dir::DirEntry<'_>| {
            let (name, ino, kind) = (entry.name.into(), entry.ino, entry.kind);
            names.push(SalvagedName { name, ino, kind });
        };
        let directory = Directory::new(ino, NameHash::of(self.media.volume()));
        let mut blocks = Vec::new();
        if let DataFork::Tree { root } = core.data {
            let agrees = |records: &[_], _| directory.size_of(records) == core.size;
            let kept = self.kept::<DirTree>(root, ino, agrees);
            directory.entries_of(&kept.records, &mut keep);
            blocks = kept.blocks;
        } else {
            let checked = directory.check(&self.media, core, &mut |_| {}, &mut |_| {}, &mut keep);
            checked.map(drop).unwrap_or_default();
        }
        (Content::Names(names), blocks)
    }

    fn extents_of(&mut self, ino: u64, core: &InodeCore) -> (Content, Vec<u64>) {
        let DataFork::Tree { root } = core.data else {
            return (Content::Extents(Vec::new()), Vec::new());
        };
        let agrees = |records: &[Record<ExtentTree>], leaves: u64| {
            let extents = records.iter().map(extent_of);
            let data: u64 = extents.clone().map(|extent| u64::from(extent.blocks)).sum();
            let mut places = extents.map(|extent| extent.start..extent.place_end());
            // The blocks of the inode besides data and leaves: the blocks above the leaves, and
            // those of attributes.
            let rest = core.blocks.saturating_sub(data.saturating_add(leaves));
            (1..=leaves + Self::ATTRIBUTE_BLOCKS).contains(&rest)
                && places.all(|run| self.is_unowned(&run))
        };
        let kept = self.kept::<ExtentTree>(root, ino, agrees);
        let mut walk = Extents::new(self, ino, core.size);
        let is_good = |extent: &Extent| matches!(walk.judge(&self.media, extent), Verdict::Good);
        let good: Vec<_> = kept.records.iter().map(extent_of).filter(is_good).collect();
        for extent in &good {
            self.own_data(extent.start..extent.place_end(), ino);
        }
        (Content::Extents(good), kept.blocks)
    }

    /// Approximate maximum number of blocks for the attributes of an inode.
    const ATTRIBUTE_BLOCKS: u64 = 64;

    fn attributes_of(&self, ino: u64, core: &InodeCore) -> (Content, Vec<u64>) {
        let (mut list, mut blocks, mut blob) = (Vec::new(), Vec::new(), Vec::new());
        match &core.attr {
            AttrFork::None => {}
            AttrFork::Inline(bytes) => blob.extend_from_slice(bytes),
            AttrFork::Tree { root, bytes } => {
                let chunks = (*bytes as usize).div_ceil(CHUNK_BYTES);
                let kept = self.kept::<AttrTree>(*root, ino, |records, _| records.len() == chunks);
                // Data after a missing piece is meaningless.
                let known = (0..).zip(&kept.records).take_while(|(at, piece)| piece.key == *at);
                known.for_each(|(_, piece)| blob.extend_from_slice(&piece.value.0));
                blob.truncate(*bytes as usize);
                blocks = kept.blocks;
            }
        }
        // The attributes before the damage are salvaged.
        attr::decode_into(&blob, &mut list).unwrap_or_default();
        (Content::Attributes(list), blocks)
    }
}
