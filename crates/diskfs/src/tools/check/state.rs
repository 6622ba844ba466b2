//! The knowledge of a check about its volume, which each phase extends for the later ones.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use vfscale_block::Device;

use super::blocks::BlockSet;
use super::finding::{Owner, Part, Problem};
use super::links::Links;
use super::log::LogState;
use super::media::Media;
use super::plan::{InodeFix, Plan};
use super::report::{Figures, Report, Unfinished};
use super::watch::Findings;
use crate::btree::Record;
use crate::format::Damage;
use crate::format::group::{GroupHeader, InodeChunks};
use crate::format::inode::{CHUNK_BLOCKS, block_of, chunk_of};
use crate::format::superblock::{Features, Stopped};
use crate::icache::inactivate::Orphans;
use crate::inode::core::InodeCore;
use crate::volume::copies::FoundSuperblock;

/// The state of a group in a check.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupState {
    /// The stored header; `None` if it can't be read.
    pub(crate) header: Option<GroupHeader>,
    /// The values counted so far.
    pub(crate) counted: GroupHeader,
    /// The blocks of the tree of free space, without its root.
    pub(crate) free_tree: Vec<u64>,
    /// Number of blocks of the tree of chunks, without its root.
    pub(crate) chunk_tree_blocks: u64,
    /// Whether the header and both trees could be read, and everything in them is possible.
    pub(crate) is_readable: bool,
    /// Whether the header and the tree of free space could be read: a block that is in neither is
    /// in use.
    pub(crate) is_space_known: bool,
    /// The unowned blocks, for a repair of the free space.
    pub(crate) unowned: Option<Vec<Range<u64>>>,
}

/// A chunk that was found without its group's tree.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(super) group: u32,
    pub(super) record: Record<InodeChunks>,
    /// Whether a trusted tree or name refers to it.
    pub(super) is_led_to: bool,
    /// Whether a file has one of its blocks.
    pub(super) is_data: bool,
    /// Whether the device can't read one of its blocks.
    pub(super) is_unread: bool,
}

impl Candidate {
    /// Returns whether it may or may not be a chunk.
    pub(super) fn is_unknown(&self) -> bool {
        self.is_unread && !self.is_led_to && !self.is_data
    }

    pub(super) fn blocks(&self) -> Range<u64> {
        let start = self.record.key.get();
        start..start + CHUNK_BLOCKS
    }
}

/// Blocks of trees that nothing references, by the type and the owner in their headers.
pub(crate) type Strays = HashMap<([u8; 4], u64), Vec<u64>>;

/// Parts and blocks that a repair gives up.
#[derive(Clone, Debug, Default)]
pub(crate) struct GivenUp {
    /// Parts of inodes that can't be rebuilt.
    pub(crate) parts: BTreeSet<(u64, Part)>,
    /// Whether blocks that the device can't read, or that are other ones, are lost.
    pub(crate) unreadable: bool,
}

/// A check under way.
pub(crate) struct Check<'d, 'w> {
    pub(crate) media: Media<'d>,
    pub(crate) tell: Findings<'w>,
    /// Blocks that have an owner.
    pub(crate) used: BlockSet,
    /// Number of blocks that were given an owner; a block with two owners counts twice.
    pub(crate) own_count: u64,
    pub(crate) groups: Vec<GroupState>,
    pub(crate) links: Links,
    pub(crate) figures: Figures,
    pub(crate) unfinished: Unfinished,
    pub(super) stopped: Option<Stopped>,
    pub(super) features: Features,
    /// Changes that a repair is to make; `None` in a check without repair.
    pub(crate) plan: Option<Plan>,
    /// Parts and blocks that the repair gives up.
    pub(super) given_up: Option<&'d GivenUp>,
    /// Possible chunks of inodes, where trees of chunks are damaged.
    pub(super) candidates: Vec<Candidate>,
    /// Parts of inodes that can't be read completely, and are to be rebuilt.
    pub(super) broken: Vec<(u64, Part)>,
    /// Unreferenced blocks of trees; searched only when needed.
    pub(super) strays: OnceCell<Strays>,
    /// Whether all metadata in use could be read: then a block without an owner is not in use.
    pub(crate) is_complete: bool,
    /// Whether some blocks have two owners.
    pub(crate) has_shared: bool,
    /// Whether all names could be read.
    pub(crate) is_named: bool,
    /// Whether all chunks of inodes are known.
    pub(crate) has_all_chunks: bool,
}

impl<'d, 'w> Check<'d, 'w> {
    /// Creates the state before the first phase, for the volume on `device`. For a repair, the
    /// check collects the changes to make; `given_up` is what it gives up.
    pub(super) fn new(
        device: &'d dyn Device,
        found: &FoundSuperblock,
        tell: Findings<'w>,
        given_up: Option<&'d GivenUp>,
    ) -> Self {
        let blocks = found.superblock.geometry().blocks();
        Self {
            media: Media::new(device, &found.superblock),
            tell,
            used: BlockSet::new(blocks),
            own_count: 0,
            groups: Vec::new(),
            links: Links::default(),
            figures: Figures { blocks, ..Figures::default() },
            unfinished: Unfinished::default(),
            stopped: found.superblock.stopped.clone(),
            features: found.superblock.features,
            plan: given_up.map(|_| Plan::default()),
            given_up,
            candidates: Vec::new(),
            broken: Vec::new(),
            strays: OnceCell::new(),
            is_complete: true,
            has_shared: false,
            is_named: true,
            has_all_chunks: true,
        }
    }

    /// Reports metadata that can't be read: the blocks that belong to it are then unknown.
    pub(crate) fn lost(&mut self, damage: impl Into<Problem>) {
        self.tell.add(damage);
        self.is_complete = false;
    }

    /// Records the owner of blocks of metadata.
    pub(crate) fn own(&mut self, blocks: Range<u64>, owner: Owner) {
        self.own_as(blocks, owner, |plan, blocks| plan.tree_blocks.push(blocks));
    }

    /// Records the owner of blocks of file data.
    pub(crate) fn own_data(&mut self, blocks: Range<u64>, ino: u64) {
        self.own_as(blocks, Owner::Inode(ino), |plan, blocks| {
            plan.moves.entry(ino).or_default().push(blocks);
        });
    }

    fn own_as(&mut self, blocks: Range<u64>, owner: Owner, shared: impl Fn(&mut Plan, Range<u64>)) {
        if !self.media.is_common(&blocks) {
            return self.lost(Problem::Outside { blocks, owner });
        }
        self.own_count += blocks.end - blocks.start;
        let Self { used, tell, has_shared, plan, .. } = self;
        used.insert(blocks, |blocks| {
            *has_shared = true;
            if let Some(plan) = plan {
                shared(plan, blocks.clone());
            }
            tell.add(Problem::Shared { blocks, owner });
        });
    }

    /// Returns whether, as far as the check knows, each block has one owner or is not in use.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_complete && !self.has_shared
    }

    /// Records a change for the repair.
    pub(crate) fn plan<T>(&mut self, add: impl FnOnce(&mut Plan) -> T) {
        if let Some(plan) = &mut self.plan {
            add(plan);
        }
    }

    /// Records a change of an inode for the repair.
    pub(crate) fn fix(&mut self, ino: u64, fix: impl FnOnce(&mut InodeFix)) {
        self.plan(|plan| fix(plan.inode(ino)));
    }

    pub(super) fn into_report(self, log: LogState) -> Report {
        let Findings { findings, count, .. } = self.tell;
        let (unfinished, finished) = (self.unfinished, Orphans::default());
        let (left, discarded, stopped, figures) = (count, None, self.stopped, self.figures);
        Report { findings, count, left, log, stopped, discarded, unfinished, finished, figures }
    }

    /// Returns whether the next mount removes or truncates an inode, whose contents then do not
    /// matter.
    pub(crate) fn is_orphan(&self, ino: u64) -> bool {
        let chunk = self.links.chunks.get(&chunk_of(block_of(ino)));
        chunk.is_some_and(|chunk| chunk.is_orphan(ino))
    }

    /// Returns whether the next mount removes an inode. The removal may have begun: its trees are
    /// consistent, but have only their first records.
    pub(crate) fn is_being_removed(&self, ino: u64, core: &InodeCore) -> bool {
        core.nlink == 0 && self.is_orphan(ino)
    }

    pub(crate) fn own_blocks(&mut self, mut blocks: Vec<u64>, owner: Owner) {
        blocks.sort_unstable();
        for run in blocks.chunk_by(|a, b| a + 1 == *b) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                self.own(*first..*last + 1, owner);
            }
        }
    }

    /// Records an inode as the owner of the blocks of one of its trees, unless the tree is to be
    /// rebuilt: then the inode has only the readable ones.
    pub(crate) fn own_unless_broken(&mut self, ino: u64, part: Part, blocks: Vec<u64>) {
        // If the part was found broken just now, it is the last one.
        if self.broken.last() != Some(&(ino, part)) {
            self.own_blocks(blocks, Owner::Inode(ino));
        }
    }

    /// Reports a part of an inode that cannot be read completely. If it can be rebuilt, it is
    /// examined again when the rest of the volume is known.
    pub(crate) fn broken(&mut self, ino: u64, part: Part, damages: Vec<Damage>) {
        let is_given = self.gives_up_unreadable()
            || !damages.iter().any(|damage| matches!(damage, Damage::Unreadable { .. }));
        let is_rebuilt = is_given && self.plan.is_some() && !self.is_given_up(ino, part);
        for damage in damages {
            if is_rebuilt { self.tell.add(damage) } else { self.lost(damage) }
        }
        if is_given {
            self.tell.add(Problem::Broken { ino, part });
        }
        if is_rebuilt {
            self.broken.push((ino, part));
        }
        self.is_named &= part != Part::Names;
    }

    /// Returns whether no block of a run has a known owner.
    pub(crate) fn is_unowned(&self, run: &Range<u64>) -> bool {
        let mut absent = 0;
        self.used.absent(run.clone(), |run| absent += run.end - run.start);
        absent == run.end.saturating_sub(run.start)
    }

    fn is_given_up(&self, ino: u64, part: Part) -> bool {
        self.given_up.is_some_and(|given_up| given_up.parts.contains(&(ino, part)))
    }

    /// Returns whether a repair gives up what can't be read today.
    pub(crate) fn gives_up_unreadable(&self) -> bool {
        self.given_up.is_some_and(|given_up| given_up.unreadable)
    }
}
