//! Repair of everything that follows from the readable parts of a volume.
//!
//! # Rounds
//!
//! One problem hides others: a lost name shows only when all directories can be read, and the free
//! blocks are known only when all files are undamaged. So a repair proceeds in rounds. Each round
//! checks the volume, and makes the first kind of repair that is due, in this order: blocks of
//! inodes ([`records`]), directories, extents and attributes that can't be read completely
//! ([`trees`]), trees of chunks, the root directory, masks of inodes in use, impossible extents,
//! blocks with two owners ([`files`]), names ([`names`]), inodes without a name ([`found`]). The
//! last round writes figures and free space.
//!
//! # Why it never makes things worse
//!
//! * The log is replayed first, into the volume, as a mount does it. The repair tries the replay on
//!   a copy in memory before; if it fails there, the repair writes nothing at all. If the volume
//!   can't be written, that is no damage of the log, and no problem to report.
//! * The free space of a group is rebuilt only if everything in the volume that can be in use could
//!   be read: then every unowned block is free.
//! * The link count of an inode is written only if all names could be read, and is never set to
//!   zero, which would remove the inode. An inode that has no name gets one in `/lost+found`.
//! * A name is removed only if all inodes are known.
//! * New structures get unowned blocks, and only if the unowned blocks are known.
//! * Changes that belong together are written in one transaction of the volume's log: after a crash
//!   the next repair finds all of them or none, and continues. Until then the free space may
//!   contain blocks that are in use. So before the first change the superblock records that a
//!   repair is under way; mounts are refused until a repair has completed and cleared that record
//!   ([`Features::NEEDS_REPAIR`](crate::Features::NEEDS_REPAIR)).
//!
//! The exception to the first rule is a repair that may discard the log. The volume then gets a new
//! log first ([`discard`]), and blocks of inodes that were never written back are repaired as far
//! as possible without the former one ([`records`]).
//!
//! Blocks that the device can't read, or that are quite other ones, are left as they are, because a
//! read that failed proves nothing. A repair that may [give them up](Options::give_up_unreadable)
//! proceeds as if they were destroyed.
//!
//! Afterwards the volume is checked again, and the findings of that check are the problems that
//! remain. If there are none, the repair completes the work that a mount has begun: it removes
//! inodes without a name, as the next mount would.

mod files;
mod found;
mod names;
mod records;
mod trees;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_journal::{ItemState, Journal, LogItem, LogKey, LogVector, Lsn, Pushed, Reservation};

use super::discard;
use super::error::CheckError;
use super::finding::{Part, Problem};
use super::inspect::inspect;
use super::links::UNREADABLE;
use super::log::{CheckedLog, LogState};
use super::media::NoChange;
use super::options::Options;
use super::overlay::Overlay;
use super::plan::Plan;
use super::report::Report;
use super::run::run;
use super::state::{Check, GivenUp, GroupState};
use super::watch::{Findings, Phase, Watch};
use crate::Settings;
use crate::btree::{Entry, Error, Record, Tree};
use crate::buffer::KIND_BLOCK;
use crate::format::group::{
    CHUNK_ROOT_AT, FREE_ROOT_AT, FreeSpace, GroupHeader, HEADER_AT, InodeChunks, RawChunk,
};
use crate::format::inode::{CHUNK_INODES, block_of};
use crate::format::superblock::{Features, Superblock, Timestamp};
use crate::format::{BLOCK_BYTES, Block, Identity, byte_of_block};
use crate::icache::inactivate::Orphans;
use crate::vfs_impl::DiskFs;
use crate::volume;
use crate::volume::copies::{self, FoundSuperblock};

/// Fill level of the leaves of a new tree, in percent.
const FILL: u8 = 80;
/// Number of blocks that are set aside in a group for its trees.
const SET_ASIDE: usize = 8;
/// Number of blocks of inodes that one transaction repairs.
const INODE_BLOCKS: usize = 16;
/// Maximum number of blocks that a transaction of a repair may need for trees of directories or
/// files.
const TREE_BLOCKS: usize = 64;
/// Maximum number of rounds that make one kind of repair.
const TRIES_MAX: u32 = 8;

/// Replays the log, checks the volume, repairs it, and checks it again.
pub(crate) fn repair(
    device: Arc<dyn Device>,
    found: &FoundSuperblock,
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Report, CheckError> {
    if found.is_read_only() {
        return Err(CheckError::ReadOnly);
    }
    let renewed = options.discard_log.then(|| discard::renew(&device, found, options));
    let renewed = renewed.transpose()?;
    let why = renewed.as_ref().and_then(|renewed| renewed.discarded.why.clone());
    let superblock = renewed.as_ref().map_or(&found.superblock, |renewed| &renewed.superblock);
    // The mark in the superblock may be from `renew` above, and then no repair was interrupted.
    let was_cut_off = found.superblock.features.needs_repair();
    let mut found = found.clone();
    found.superblock.clone_from(superblock);
    found.superblock.features = superblock.features.with_repair(was_cut_off);
    let logged = CheckedLog::new(device.clone(), options.log.as_ref(), superblock)?;
    let logged = logged.giving_up(options.give_up_unreadable);
    // This repair has discarded it, or one that was interrupted.
    let without_log = superblock.features.has_lost_log();
    let state = State::new(without_log, options);
    let mut rounds =
        Rounds { logged, found: &found, superblock: superblock.clone(), state, lost: Vec::new() };
    let mut tell = Findings::new(watch, options.findings);
    why.into_iter().for_each(|why| tell.add(Problem::Log { why }));
    let (mut report, mut end) = rounds.round(tell)?;
    if let Some(renewed) = renewed {
        (report.log, report.discarded) = (renewed.log, Some(renewed.discarded));
    }
    report.left = report.count;
    loop {
        while end == End::NotYet {
            let next;
            (next, end) = rounds.round(Findings::new(&mut (), 0))?;
            report.figures = next.figures;
        }
        if end == End::Repaired {
            rounds.end()?;
        }
        let before = report.left;
        report.left = match end {
            // A check that plans repairs counts more than one that does not.
            End::NotReplayed => report.count,
            _ if report.count == 0 => 0,
            _ => again(&device, options)?.count,
        };
        if end != End::Repaired || !(1..before).contains(&report.left) {
            break;
        }
        // An inode that has a name again is no longer being removed, so it must be undamaged.
        end = End::NotYet;
        rounds.state = State::new(without_log, options);
    }
    if report.left == 0 && end == End::Repaired {
        rounds.is_whole()?;
    }
    if report.left == 0 && (report.unfinished.removals, report.unfinished.cuts) != (0, 0) {
        report.finished = finish(&device, options)?;
        let after = again(&device, options)?;
        (report.left, report.figures) = (after.count, after.figures);
    }
    for problem in std::mem::take(&mut rounds.lost) {
        report.add(problem.into(), options.findings, watch);
    }
    watch.progress(Phase::Repair, 1, 1);
    Ok(report)
}

/// A repair under way.
struct Rounds<'r> {
    logged: CheckedLog,
    found: &'r FoundSuperblock,
    /// The superblock as it was written last.
    superblock: Superblock,
    state: State,
    /// Data that were given up.
    lost: Vec<Problem>,
}

/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// There may be more to repair.
    NotYet,
    /// Everything that can be repaired is repaired.
    Repaired,
    /// The log can't be replayed: nothing was written.
    NotReplayed,
}

impl Rounds<'_> {
    /// Replays the log, checks the volume, and makes the first repair that is due. All changes are
    /// written back when it returns.
    fn round(&mut self, mut tell: Findings<'_>) -> Result<(Report, End), CheckError> {
        tell.progress(Phase::Log, 0, 1);
        let (journal, log) = match self.replay(&mut tell) {
            Ok((journal, state)) => (Some(journal), state),
            Err(error) => {
                if let Some(error) = error.unwritten() {
                    return Err(CheckError::NotReplayed { error: error.clone() });
                }
                tell.add(error);
                (None, LogState::Unusable)
            }
        };
        let (device, given_up) = (self.logged.device.clone(), self.state.given_up.clone());
        // A log that is new may have been used and written home since the sums were recorded.
        let sums = self.superblock.sums.filter(|_| !self.logged.known.is_new);
        let check = run(&*device, self.found, tell, Some(&given_up), sums);
        let mut end = End::NotReplayed;
        if let (Some(journal), Some(plan)) = (journal, &check.plan) {
            if plan.lacks_immutable {
                // Written with the mark of a repair, or when the repair ends.
                self.superblock.features.ro_compat |= Features::IMMUTABLE;
            }
            if check.tell.count > 0 {
                self.begin()?;
            }
            let lost = RefCell::default();
            let repair = Repair { check: &check, plan, journal: &journal, device: &device, lost };
            let written = repair.write(&mut self.state);
            self.lost.append(&mut repair.lost.into_inner());
            let closed = journal.close();
            end = if written? { End::Repaired } else { End::NotYet };
            closed?;
            self.logged.known = journal.known().unwrap_or(self.logged.known);
            self.superblock.log_seen = volume::seen(self.logged.known);
            self.superblock.sums = None;
        }
        Ok((check.into_report(log), end))
    }

    /// Replays the log into the volume, if it can be replayed completely, or else as far as it can
    /// be read. Then that is reported.
    fn replay(&self, tell: &mut Findings<'_>) -> vfscale_journal::Result<(Journal, LogState)> {
        let superblock = &self.found.superblock;
        let whole = self.logged.is_clean().and_then(|is_clean| match is_clean {
            true => Ok(()),
            // A log that is damaged in the middle must not be written back by half.
            false => self.logged.copied().replay(superblock, false).map(drop),
        });
        match whole {
            Ok(()) => return self.logged.replay(superblock, false),
            Err(error) => match self.logged.copied().replay(superblock, true) {
                Ok(_) => tell.add(Problem::LogPart { why: error.to_string() }),
                Err(_) => return Err(error),
            },
        }
        self.logged.replay(superblock, true)
    }

    /// Marks the volume as under repair, so it cannot be mounted. Durable when it returns.
    fn begin(&mut self) -> Result<(), vfscale_block::Error> {
        if self.superblock.features.needs_repair() {
            return Ok(());
        }
        self.superblock.features = self.superblock.features.with_repair(true);
        self.superblock.sums = None;
        copies::write(&*self.logged.device, &mut self.superblock)
    }

    /// Clears the record of an event that stopped a mount, because the volume is undamaged. Durable
    /// when it returns.
    fn is_whole(&mut self) -> Result<(), vfscale_block::Error> {
        match self.superblock.stopped.take() {
            None => Ok(()),
            Some(_) => copies::write(&*self.logged.device, &mut self.superblock),
        }
    }

    /// Ends the repair, so the volume can be mounted. Durable when it returns.
    fn end(&mut self) -> Result<(), vfscale_block::Error> {
        let features = self.superblock.features;
        self.superblock.features = features.with_repair(false).with_lost_log(false);
        self.superblock.checked = Timestamp::now();
        copies::write(&*self.logged.device, &mut self.superblock)
    }
}

/// Checks the volume again. Writes nothing.
fn again(device: &Arc<dyn Device>, options: &Options) -> Result<Report, CheckError> {
    let again = Options { repair: false, discard_log: false, findings: 0, ..options.clone() };
    inspect(device.clone(), &copies::read(&**device)?, &again, &mut ())
}

/// Removes inodes without a name and truncates files, as a mount does. The volume is undamaged.
fn finish(device: &Arc<dyn Device>, options: &Options) -> Result<Orphans, CheckError> {
    let options =
        Settings { sync_interval: None, log_device: options.log.clone(), ..Settings::default() };
    let finished = DiskFs::open(device.clone(), options).and_then(|opened| {
        let orphans = opened.opened().orphans;
        opened.close().map(|()| orphans)
    });
    finished.map_err(|fault| CheckError::Finish(Arc::new(fault)))
}

/// A round of a repair: the result of its check, the plan, and the log that receives the changes.
struct Repair<'r, 'd, 'w> {
    check: &'r Check<'d, 'w>,
    plan: &'r Plan,
    journal: &'r Journal,
    device: &'r Arc<dyn Device>,
    /// Data that the repair gives up.
    lost: RefCell<Vec<Problem>>,
}

/// Number of kinds of repairs that may reveal further problems, and are repeated.
const STEPS: usize = 7;

/// The state that a repair carries from round to round.
#[derive(Default)]
pub(crate) struct State {
    /// Whether the contents of the log are lost, or may be.
    without_log: bool,
    /// Number of rounds that repaired blocks of inodes.
    records: u32,
    /// Number of rounds that made each kind of repair.
    tries: [u32; STEPS],
    /// Parts of inodes that were rebuilt, or that a round tried to rebuild.
    rebuilt: BTreeSet<(u64, Part)>,
    /// Parts and blocks that are given up.
    given_up: GivenUp,
}

impl State {
    fn new(without_log: bool, options: &Options) -> Self {
        let given_up = GivenUp { unreadable: options.give_up_unreadable, ..GivenUp::default() };
        Self { without_log, given_up, ..Self::default() }
    }
}

/// Result of a write: whether anything was written.
pub(crate) type Written = vfscale_journal::Result<bool>;

impl<'d> Repair<'_, 'd, '_> {
    /// Makes the first repair that is due. Returns whether it was the last one.
    fn write(&self, state: &mut State) -> Written {
        if state.records < TRIES_MAX && self.records(state)? {
            state.records += 1;
            return Ok(false);
        }
        // Until these parts are rebuilt or given up, the check describes the rest as it will be
        // after that.
        if self.trees(state)? {
            return Ok(false);
        }
        let steps: [fn(&Self) -> Written; STEPS] = [
            Self::chunks,
            Self::root,
            Self::masks,
            Self::cuts,
            Self::moves,
            Self::names,
            Self::lost,
        ];
        for (step, tries) in steps.iter().zip(&mut state.tries) {
            // A problem that is found again and again cannot be repaired.
            if *tries < TRIES_MAX && step(self)? {
                *tries += 1;
                return Ok(false);
            }
        }
        self.inodes()?;
        for (number, group) in (0..).zip(&self.check.groups) {
            // The second check reports problems that cannot be repaired.
            if let Some(overlay) = fix_group(self.check, self.plan, number, group) {
                // The blocks of the tree below its root are free or belong to the former tree,
                // which an interrupted repair can't leave for a mount.
                let start = self.check.media.geometry().blocks_of(number).unwrap_or_default().start;
                let fixed = [start + HEADER_AT, start + FREE_ROOT_AT];
                self.commit_large(overlay, |address| !fixed.contains(&address))?;
            }
        }
        self.journal.force_all()?;
        Ok(true)
    }

    fn overlay(&self) -> Overlay<'_, 'd> {
        Overlay::new(&self.check.media)
    }

    /// Commits a change, and waits until it is written back: the next change may have blocks in
    /// common with it, and reads them from the device.
    fn commit(&self, overlay: Overlay<'_, '_>) -> Written {
        let has_written = commit(self.journal, self.device, overlay)?;
        if has_written {
            self.journal.quiesce()?;
        }
        Ok(has_written)
    }

    /// Commits a change like [`commit`](Self::commit), even if it is too large for one transaction
    /// of the log. Then the blocks for which `is_new` returns true are written home first, and the
    /// rest in one transaction. Nothing on the device may refer to a new block, and no transaction
    /// of this round may have changed it.
    fn commit_large(&self, mut overlay: Overlay<'_, '_>, is_new: impl Fn(u64) -> bool) -> Written {
        if !fits(self.journal, overlay.blocks.len())? {
            write_home(self.device, &mut overlay, is_new)?;
        }
        self.commit(overlay)
    }

    /// Commits one change for all of `parts`; if that is impossible, one change for each part.
    fn commit_each<T>(
        &self,
        parts: &[T],
        change: &dyn Fn(&mut Overlay<'_, '_>, &[T]) -> Option<()>,
    ) -> Written {
        let mut has_written = false;
        let mut overlay = self.overlay();
        if change(&mut overlay, parts).is_some() {
            has_written = self.commit(overlay)?;
        } else if parts.len() > 1 {
            for part in parts.chunks(1) {
                has_written |= self.commit_each(part, change)?;
            }
        }
        Ok(has_written)
    }

    /// Rebuilds trees of chunks at the same roots.
    fn chunks(&self) -> Written {
        let mut pool = Pool::new(self.plan);
        let mut has_written = false;
        for (group, records) in &self.plan.chunk_trees {
            let Some(blocks) = self.check.media.geometry().blocks_of(*group) else { continue };
            let below_root = Tree::<InodeChunks>::blocks_to_build(records.len(), FILL) - 1;
            let mut overlay = self.overlay();
            // The root is allocated last.
            overlay.pool = vec![blocks.start + CHUNK_ROOT_AT];
            overlay.pool.extend((0..below_root).map_while(|_| pool.next()));
            let owner = (*group).into();
            let built =
                Tree::<InodeChunks>::build(&mut overlay, owner, blocks.start, records, FILL);
            if overlay.pool.is_empty() && built.is_ok() {
                has_written |= self.commit(overlay)?;
            }
        }
        Ok(has_written)
    }

    /// Sets the masks of chunks according to the records of their inodes.
    fn masks(&self) -> Written {
        let mut has_written = false;
        for start in &self.plan.masks {
            let mut overlay = self.overlay();
            if self.mask(&mut overlay, *start).is_some() {
                has_written |= self.commit(overlay)?;
            }
        }
        Ok(has_written)
    }

    fn mask(&self, overlay: &mut Overlay<'_, '_>, start: u64) -> Option<()> {
        let chunk = self.check.links.chunks.get(&start)?;
        let (mut free, mut orphan) = (chunk.free, chunk.orphan);
        for (ino, seen) in chunk.inodes(start) {
            let bit = 1 << (ino % CHUNK_INODES);
            match seen.kind {
                // An unreadable record may be in use.
                UNREADABLE => {}
                0 => (free, orphan) = (free | bit, orphan & !bit),
                _ => free &= !bit,
            }
        }
        self.set_mask(overlay, start, free, orphan)
    }

    /// Sets the mask of a chunk's record. The figures of its group follow in the last round.
    fn set_mask(
        &self,
        overlay: &mut Overlay<'_, '_>,
        start: u64,
        free: u64,
        orphan: u64,
    ) -> Option<()> {
        let geometry = self.check.media.geometry();
        let group = geometry.group_of(start)?;
        let root = geometry.blocks_of(group)?.start + CHUNK_ROOT_AT;
        let value = RawChunk { free: free.into(), orphan: orphan.into() };
        Tree::<InodeChunks>::at(root, group.into())
            .update(overlay, start.into(), value)
            .ok()?
            .map(drop)
    }

    /// Writes figures and flags of inodes, and parents of directories.
    fn inodes(&self) -> vfscale_journal::Result<()> {
        let fixes: Vec<_> = self.plan.inodes.iter().collect();
        let by_block = fixes.chunk_by(|(a, _), (b, _)| block_of(**a) == block_of(**b));
        for part in by_block.collect::<Vec<_>>().chunks(INODE_BLOCKS) {
            let mut overlay = self.overlay();
            for (ino, fix) in part.iter().copied().flatten() {
                let Some(mut core) = overlay.core(**ino) else { continue };
                core.nlink = fix.nlink.unwrap_or(core.nlink);
                core.blocks = fix.blocks.unwrap_or(core.blocks);
                core.parent = fix.parent.unwrap_or(core.parent);
                core.flags = fix.flags.unwrap_or(core.flags);
                core.size = fix.size.unwrap_or(core.size);
                overlay.set_core(**ino, &core);
            }
            // No two of these have a block in common.
            commit(self.journal, self.device, overlay)?;
        }
        Ok(())
    }
}

/// Unowned blocks that new structures can get.
struct Pool<'p> {
    runs: std::slice::Iter<'p, Range<u64>>,
    run: Range<u64>,
    /// Blocks that were taken and not used.
    back: Vec<u64>,
}

impl<'p> Pool<'p> {
    fn new(plan: &'p Plan) -> Self {
        Self { runs: plan.pool.iter(), run: 0..0, back: Vec::new() }
    }

    fn next(&mut self) -> Option<u64> {
        if let Some(block) = self.back.pop() {
            return Some(block);
        }
        while self.run.is_empty() {
            self.run = self.runs.next()?.clone();
        }
        self.run.next()
    }

    /// Returns some blocks that follow each other, at least one and at most `most`.
    fn next_run(&mut self, most: u64) -> Option<Range<u64>> {
        let start = self.next()?;
        let mut run = start..start + 1;
        while run.end - run.start < most {
            match self.next() {
                Some(next) if next == run.end => run.end += 1,
                Some(other) => {
                    self.back.push(other);
                    break;
                }
                None => break,
            }
        }
        Some(run)
    }

    /// Gives an overlay blocks for its trees.
    fn lend(&mut self, overlay: &mut Overlay<'_, '_>) {
        overlay.pool.extend((0..TREE_BLOCKS).map_while(|_| self.next()));
    }

    /// Takes back the blocks that an overlay has not used.
    fn settle(&mut self, overlay: &mut Overlay<'_, '_>) {
        self.back.append(&mut overlay.pool);
    }
}

/// Returns the repaired blocks of a group; `None` if it needs no repair, or can't be repaired.
fn fix_group<'m, 'd>(
    check: &'m Check<'d, '_>,
    plan: &Plan,
    number: u32,
    group: &GroupState,
) -> Option<Overlay<'m, 'd>> {
    let start = check.media.geometry().blocks_of(number)?.start;
    let mut overlay = Overlay::new(&check.media);
    let mut header = group.counted.clone();
    match (&group.unowned, &group.header) {
        (Some(unowned), _) if check.is_complete => {
            let free = free_runs(unowned, group, plan);
            rebuild(&mut overlay, number, start, free, &mut header).ok()?;
            header.tree_blocks += group.chunk_tree_blocks;
        }
        (_, Some(found)) if group.is_readable => {
            header.set_aside.clone_from(&found.set_aside);
            if header == *found {
                return None;
            }
        }
        _ => return None,
    }
    let block = overlay.put(start + HEADER_AT, &GroupHeader::expected(number));
    header.encode(block);
    Some(overlay)
}

/// Returns the free runs of a group after its tree of free space and the blocks set aside are
/// freed.
fn free_runs(unowned: &[Range<u64>], group: &GroupState, plan: &Plan) -> Vec<Range<u64>> {
    let mut runs = unowned.to_vec();
    let set_aside = group.header.iter().flat_map(|header| &header.set_aside);
    let own = set_aside.chain(&group.free_tree).filter(|block| !plan.is_shared(**block));
    runs.extend(own.map(|block| *block..*block + 1));
    runs.sort_unstable_by_key(|run| run.start);
    runs.dedup_by(|next, before| {
        let touches = next.start <= before.end;
        if touches {
            before.end = before.end.max(next.end);
        }
        touches
    });
    runs
}

/// Rebuilds the tree of free space at the same root, with blocks from the free space itself.
fn rebuild(
    overlay: &mut Overlay<'_, '_>,
    group: u32,
    start: u64,
    mut free: Vec<Range<u64>>,
    header: &mut GroupHeader,
) -> Result<(), Error<NoChange>> {
    let below_root = |runs: usize| Tree::<FreeSpace>::blocks_to_build(runs, FILL) - 1;
    // Taking these blocks leaves no more runs than before, so the tree needs no more blocks.
    let most = below_root(free.len()) + SET_ASIDE;
    let mut taken = take(&mut free, most);
    let needed = below_root(free.len());
    header.set_aside = taken.split_off(needed.min(taken.len()));
    header.set_aside.truncate(crate::format::group::SET_ASIDE_MAX);
    // The root is allocated last.
    overlay.pool = vec![start + FREE_ROOT_AT];
    overlay.pool.extend(taken);
    let record = |run: &Range<u64>| -> Record<FreeSpace> {
        Entry { key: run.start.into(), value: (run.end - run.start).into() }
    };
    let records: Vec<_> = free.iter().map(record).collect();
    Tree::<FreeSpace>::build(overlay, group.into(), start, &records, FILL)?;
    header.free = free.iter().map(|run| run.end - run.start).sum();
    header.tree_blocks = needed as u64;
    Ok(())
}

/// Takes the first `count` blocks of the runs.
fn take(runs: &mut Vec<Range<u64>>, count: usize) -> Vec<u64> {
    let taken: Vec<_> = runs.iter().flat_map(Clone::clone).take(count).collect();
    let behind = taken.last().map_or(0, |last| last + 1);
    runs.iter_mut().for_each(|run| run.start = run.start.max(behind));
    runs.retain(|run| !run.is_empty());
    taken
}

/// Returns the bytes that a transaction of a number of blocks reserves.
fn bytes_of(blocks: usize) -> u64 {
    Reservation::item_bytes(BLOCK_BYTES as u64) * blocks as u64
}

/// Returns whether one transaction of the log can hold a number of blocks.
fn fits(journal: &Journal, blocks: usize) -> vfscale_journal::Result<bool> {
    match journal.begin(Reservation::new(bytes_of(blocks))) {
        Err(vfscale_journal::Error::ReservationTooLarge { .. }) => Ok(false),
        begun => begun.map(|_| true),
    }
}

/// Writes new blocks of an overlay to their addresses, and removes them from it. They are durable
/// when it returns.
fn write_home(
    device: &Arc<dyn Device>,
    overlay: &mut Overlay<'_, '_>,
    is_new: impl Fn(u64) -> bool,
) -> vfscale_journal::Result<()> {
    let (new, rest) =
        std::mem::take(&mut overlay.blocks).into_iter().partition(|(address, _)| is_new(*address));
    overlay.blocks = rest;
    let mut new: BTreeMap<u64, Box<Block>> = new;
    for (address, block) in &mut new {
        seal(block, *address, Lsn::NONE);
    }
    for (address, block) in &new {
        device.write_at(byte_of_block(*address), block.bytes())?;
    }
    Ok(device.flush()?)
}

/// Seals a block with the identity in its header.
fn seal(block: &mut Block, address: u64, lsn: Lsn) {
    let header = block.header();
    let (magic, owner, volume) = (header.magic, header.owner.get(), header.volume);
    block.seal(&Identity { magic, address, owner, volume }, lsn.to_bits());
}

/// Puts all blocks of an overlay into one transaction. Does nothing if there are none, or more than
/// one transaction of the log can hold.
pub(crate) fn commit(
    journal: &Journal,
    device: &Arc<dyn Device>,
    overlay: Overlay<'_, '_>,
) -> Written {
    if overlay.blocks.is_empty() {
        return Ok(false);
    }
    let bytes = bytes_of(overlay.blocks.len());
    let mut transaction = match journal.begin(Reservation::new(bytes)) {
        Err(vfscale_journal::Error::ReservationTooLarge { .. }) => return Ok(false),
        begun => begun?,
    };
    for (address, block) in overlay.blocks {
        let image = Image { state: ItemState::new(), address, block, device: device.clone() };
        transaction.add(Arc::new(image));
    }
    transaction.commit().map(|_| true)
}

/// The new contents of a block: logged as a whole, never changed again.
struct Image {
    state: ItemState,
    address: u64,
    block: Box<Block>,
    device: Arc<dyn Device>,
}

impl LogItem for Image {
    fn state(&self) -> &ItemState {
        &self.state
    }

    fn key(&self) -> LogKey {
        LogKey { kind: KIND_BLOCK, id: self.address }
    }

    fn format(&self, vector: &mut LogVector) {
        vector.push(self.block.bytes());
    }

    fn push(&self, lsn: Lsn) -> vfscale_journal::Result<Pushed> {
        if self.state.is_pinned() {
            return Ok(Pushed::Pinned);
        }
        let mut block = self.block.clone();
        seal(&mut block, self.address, lsn);
        self.device.write_at(byte_of_block(self.address), block.bytes())?;
        Ok(Pushed::Written)
    }
}
