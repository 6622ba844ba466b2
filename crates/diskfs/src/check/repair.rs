//! Repairing what follows from what could be read.
//!
//! # Why it never makes things worse
//!
//! * The log is replayed first, into the volume, as a mount does it; if that can't be done, the volume is
//!   left alone.
//! * A group's free space is made anew only if everything in the volume that can be in use could be read,
//!   and nothing has two owners: then what nobody has is free.
//! * The number of an inode's links is written only if all names could be read; never zero, which would
//!   remove the inode.
//! * What belongs together is written in one transaction of the volume's log: after a crash the next
//!   mount, or the next repair, finds all of it or nothing.
//!
//! Afterwards the volume is checked once more, and what that finds is what is left.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_journal::{
    Hooks, ItemState, Journal, LogItem, LogKey, LogVector, Lsn, Pushed, Reservation,
};

use super::draft::Draft;
use super::groups::Group;
use super::log::Logged;
use super::media::NoChange;
use super::{Check, CheckError, Findings, LogState, Options, Phase, Report, Watch};
use crate::btree::{Entry, Error, Record, Tree};
use crate::cache::KIND_BLOCK;
use crate::copies::{self, Found};
use crate::format::group::{FREE_ROOT_AT, FreeSpace, GroupHeader, HEADER_AT};
use crate::format::inode::{INODE_MAGIC, block_of, chunk_of, records_mut, slot_of};
use crate::format::superblock::Timestamp;
use crate::format::{BLOCK_BYTES, Block, Identity, byte_of_block};
use crate::inode_core::InodeCore;

/// How full the leaves of a new tree are, in percent.
const FILL: u8 = 80;
/// How many blocks a group gets set aside for its trees.
const SET_ASIDE: usize = 8;
/// How many blocks of inodes one transaction repairs.
const INODE_BLOCKS: usize = 16;

/// What is to be changed of an inode.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InodeFix {
    pub(crate) nlink: Option<u32>,
    pub(crate) blocks: Option<u64>,
}

/// Replays the log, checks the volume, repairs it, and checks it again.
pub(crate) fn repair(
    device: Arc<dyn Device>,
    found: &Found,
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Report, CheckError> {
    if found.is_read_only() {
        return Err(CheckError::ReadOnly);
    }
    let logged = Logged::new(device.clone(), options.log.as_ref(), &found.superblock)?;
    let mut tell = Findings::new(watch, options.findings);
    tell.progress(Phase::Log, 0, 1);
    let replayed = logged.is_clean().and_then(|_| logged.replay(&found.superblock));
    let (journal, log) = match replayed {
        Ok((journal, state)) => (Some(journal), state),
        Err(error) => {
            tell.add(error);
            (None, LogState::Unusable)
        }
    };
    let check = Check::run(&*device, found, tell, true);
    if let Some(journal) = journal {
        let written = write_repairs(&check, &journal, &device);
        let closed = journal.close();
        written.and(closed)?;
    }
    let mut report = check.into_report(log);
    let mut superblock = found.superblock.clone();
    superblock.checked = Timestamp::now();
    copies::write(&*device, &mut superblock)?;
    report.left = match report.count {
        0 => 0,
        _ => left(&device, options)?,
    };
    watch.progress(Phase::Repair, 1, 1);
    Ok(report)
}

/// What a check finds now.
fn left(device: &Arc<dyn Device>, options: &Options) -> Result<u64, CheckError> {
    let again = Options { repair: false, findings: 0, ..options.clone() };
    Ok(super::check(device.clone(), &again, &mut ())?.count)
}

fn write_repairs(
    check: &Check<'_, '_>,
    journal: &Journal,
    device: &Arc<dyn Device>,
) -> vfscale_journal::Result<()> {
    let fixes: Vec<_> = check.fixes.iter().map(|(ino, fix)| (*ino, *fix)).collect();
    let by_block = fixes.chunk_by(|(a, _), (b, _)| block_of(*a) == block_of(*b));
    for part in by_block.collect::<Vec<_>>().chunks(INODE_BLOCKS) {
        let mut draft = Draft::new(&check.media);
        part.iter().for_each(|fixes| fix_block(&mut draft, check, fixes));
        commit(journal, device, draft)?;
    }
    for (number, group) in (0..).zip(&check.groups) {
        // What can't be done is found again by the second check.
        if let Some(draft) = fix_group(check, number, group) {
            commit(journal, device, draft)?;
        }
    }
    journal.force_all()
}

/// Repairs inodes of one block.
fn fix_block(draft: &mut Draft<'_, '_>, check: &Check<'_, '_>, fixes: &[(u64, InodeFix)]) {
    let Some((first, _)) = fixes.first() else { return };
    let address = block_of(*first);
    let Ok(mut block) = check.media.block(INODE_MAGIC, address, chunk_of(address)) else { return };
    for (ino, fix) in fixes {
        let record = &mut records_mut(&mut block)[slot_of(*ino)];
        let decoded = InodeCore::decode(*ino, record, |block| check.media.is_one(block));
        let Ok(mut core) = decoded else { continue };
        core.nlink = fix.nlink.unwrap_or(core.nlink);
        core.blocks = fix.blocks.unwrap_or(core.blocks);
        *record = core.encode();
    }
    draft.blocks.insert(address, block);
}

/// Repairs a group, if something is wrong with it that can be.
fn fix_group<'m, 'd>(
    check: &'m Check<'d, '_>,
    number: u32,
    group: &Group,
) -> Option<Draft<'m, 'd>> {
    let start = check.media.geometry().blocks_of(number)?.start;
    let mut draft = Draft::new(&check.media);
    let mut header = group.counted.clone();
    match (&group.unowned, &group.header) {
        (Some(unowned), _) if check.is_complete => {
            let free = free_runs(unowned, group);
            rebuild(&mut draft, number, start, free, &mut header).ok()?;
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
    let block = draft.put(start + HEADER_AT, &GroupHeader::expected(number));
    header.encode(block);
    Some(draft)
}

/// What is free of a group when its tree of free space and the blocks set aside are given up.
fn free_runs(unowned: &[Range<u64>], group: &Group) -> Vec<Range<u64>> {
    let mut runs = unowned.to_vec();
    let set_aside = group.header.iter().flat_map(|header| &header.set_aside);
    runs.extend(set_aside.chain(&group.free_tree).map(|block| *block..*block + 1));
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

/// Makes the tree of free space anew, at the same root, with blocks out of the free space itself.
fn rebuild(
    draft: &mut Draft<'_, '_>,
    group: u32,
    start: u64,
    mut free: Vec<Range<u64>>,
    header: &mut GroupHeader,
) -> Result<(), Error<NoChange>> {
    let below_root = |runs: usize| Tree::<FreeSpace>::blocks_to_build(runs, FILL) - 1;
    // Fewer runs are left when these blocks are taken, and not more blocks needed.
    let most = below_root(free.len()) + SET_ASIDE;
    let mut taken = take(&mut free, most);
    let needed = below_root(free.len());
    header.set_aside = taken.split_off(needed.min(taken.len()));
    header.set_aside.truncate(crate::format::group::SET_ASIDE_MAX);
    // The root is made last.
    draft.pool = vec![start + FREE_ROOT_AT];
    draft.pool.extend(taken);
    let record = |run: &Range<u64>| -> Record<FreeSpace> {
        Entry { key: run.start.into(), value: (run.end - run.start).into() }
    };
    let records: Vec<_> = free.iter().map(record).collect();
    Tree::<FreeSpace>::build(draft, group.into(), start, &records, FILL)?;
    header.free = free.iter().map(|run| run.end - run.start).sum();
    header.tree_blocks = needed as u64;
    Ok(())
}

/// Takes blocks from the runs at the beginning.
fn take(runs: &mut Vec<Range<u64>>, count: usize) -> Vec<u64> {
    let taken: Vec<_> = runs.iter().flat_map(Clone::clone).take(count).collect();
    let behind = taken.last().map_or(0, |last| last + 1);
    runs.iter_mut().for_each(|run| run.start = run.start.max(behind));
    runs.retain(|run| !run.is_empty());
    taken
}

/// Puts all blocks of a draft into one transaction. If it has more than the log takes at once, nothing is
/// done.
pub(crate) fn commit(
    journal: &Journal,
    device: &Arc<dyn Device>,
    draft: Draft<'_, '_>,
) -> vfscale_journal::Result<()> {
    let count = draft.blocks.len() as u64;
    if count == 0 {
        return Ok(());
    }
    let bytes = Reservation::item_bytes(BLOCK_BYTES as u64) * count;
    let mut transaction = match journal.begin(Reservation::new(bytes)) {
        Err(vfscale_journal::Error::ReservationTooLarge { .. }) => return Ok(()),
        begun => begun?,
    };
    for (address, block) in draft.blocks {
        let image = Image { state: ItemState::new(), address, block, device: device.clone() };
        transaction.add(Arc::new(image));
    }
    transaction.commit().map(|_| ())
}

/// A block as it is to be: logged as a whole, never changed again.
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
        let header = self.block.header();
        let (magic, owner, volume) = (header.magic, header.owner.get(), header.volume);
        let mut block = self.block.clone();
        block.seal(&Identity { magic, address: self.address, owner, volume }, lsn.to_bits());
        self.device.write_at(byte_of_block(self.address), block.bytes())?;
        Ok(Pushed::Written)
    }
}

/// Flushes what was written home.
pub(crate) struct Home(pub(crate) Arc<dyn Device>);

impl Hooks for Home {
    fn flush_home(&self) -> vfscale_journal::Result<()> {
        Ok(self.0.flush()?)
    }
}

/// Changes of inodes, by number.
pub(crate) type Fixes = BTreeMap<u64, InodeFix>;
