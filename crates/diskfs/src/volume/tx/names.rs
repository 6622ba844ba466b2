//! Changes of names, in directories that a transaction holds alone or
//! [delayed](crate::inode::delayed_names), and the fold that writes the delayed ones.

use std::cell::RefCell;
use std::sync::Arc;

use rustix::io::Errno;
use smallvec::SmallVec;
use vfscale_journal::Reservation;
use vfscale_sync::lock::assert_held;

use super::Tx;
use super::steps::{DirLinks, DirStep, Fold, Noted};
use crate::base::fault::Fault;
use crate::base::ranks::NodeLock;
use crate::btree::Error;
use crate::dir::{DirEntry, Directory, Insertion, NameHash, is_name};
use crate::format::dir::HEAD_NAME_BYTES;
use crate::format::inode::{LINKS_MAX, RECORD_BYTES};
use crate::format::{BLOCK_BYTES, Expected};
use crate::inode::core::{FileKind, InodeCore};
use crate::inode::delayed_names::{
    DelayedNames, HeldBlocks, HeldSpace, NameChange, NameStep, NamedInode, Refused,
};
use crate::inode::incore::{DirLock, Node};

/// The blocks of a directory's tree that change when a name is added or removed: two on each of
/// five levels, and their neighbours.
pub(crate) const NAME_BLOCKS: u32 = 16;
/// The blocks by which a directory grows or shrinks: two splits of each level.
pub(crate) const NAME_RUNS: u32 = 8;

impl Tx<'_> {
    /// Changes one name or two, and commits. Returns `None` if the directories are held shared and
    /// too little is left to be set aside: then nothing has changed, and the caller has to lock
    /// them alone. Directories that are held alone get `time`, in nanoseconds.
    ///
    /// The caller holds the directories as `lock` says, and everything else that the transaction
    /// changes exclusively, until this returns. May read the directories. The transaction has ended
    /// then.
    ///
    /// # Errors
    /// `EINVAL`, `EEXIST`, `ESTALE` and `ENOSPC` as of a directory; `ENOENT` for a new name in a
    /// directory that is removed; `EMLINK` for too many subdirectories; those of
    /// [`commit`](Self::commit).
    pub(crate) fn commit_names(
        &mut self,
        lock: DirLock,
        hash: NameHash,
        steps: &[DirStep<'_>],
        time: i64,
    ) -> Result<Option<DirLinks>, Fault> {
        match lock {
            DirLock::Shared => Ok(self.commit_noted(hash, steps)?.then(DirLinks::default)),
            DirLock::Alone => {
                let links = self.write_steps(hash, steps, time)?;
                self.commit_in_place()?;
                Ok(Some(links))
            }
        }
    }

    /// Changes names in directories that are held alone.
    fn write_steps(
        &mut self,
        hash: NameHash,
        steps: &[DirStep<'_>],
        time: i64,
    ) -> Result<DirLinks, Fault> {
        let (mut grown, mut links) = ([0; 2], DirLinks::default());
        for (step, grown) in steps.iter().zip(&mut grown) {
            *grown = self.write_step(hash, step, time)?;
        }
        if let [one, other] = steps
            && Arc::ptr_eq(one.dir, other.dir)
        {
            grown = [0, grown[0] + grown[1]];
        }
        for ((step, grown), links) in steps.iter().zip(grown).zip(&mut links) {
            if grown != 0 {
                *links = Some(self.edit(step.dir, |_, core| count_subdirectories(core, grown))?);
            }
        }
        Ok(links)
    }

    /// Changes a name in a directory that is held alone. Returns the number of subdirectories that
    /// it has gained.
    fn write_step(&mut self, hash: NameHash, step: &DirStep<'_>, time: i64) -> Result<i32, Fault> {
        let DirStep { dir, name, step } = *step;
        self.fold_names(dir)?;
        let directory = Directory::new(dir.ino(), hash);
        self.edit(dir, |tx, core| {
            if core.nlink == 0 && !matches!(step, NameStep::Remove(_)) {
                return Err(Errno::NOENT.into());
            }
            (core.mtime, core.ctime) = (time, time);
            let (former, found, now) = match step {
                NameStep::Add(ino, kind) => {
                    return match directory.insert(tx, core, name, (ino, kind))? {
                        Insertion::At(_) => Ok(subdirectories(kind)),
                        Insertion::Exists => Err(Errno::EXIST.into()),
                        Insertion::Full => Err(Errno::NOSPC.into()),
                        Insertion::BadName => Err(Errno::INVAL.into()),
                    };
                }
                NameStep::Remove(former) => (former, directory.remove(tx, core, name)?, 0),
                NameStep::Replace(former, to) => {
                    (former, directory.replace(tx, core, name, to)?, subdirectories(to.1))
                }
            };
            match found {
                Some(found) if found.ino == former => Ok(now - subdirectories(found.kind)),
                // The name does not belong to the inode of the call.
                _ => Err(Errno::STALE.into()),
            }
        })
    }

    /// Notes changes of names in directories that are held shared, and commits. Returns false if
    /// too little is left to be set aside.
    fn commit_noted(&mut self, hash: NameHash, steps: &[DirStep<'_>]) -> Result<bool, Fault> {
        let mut noted = SmallVec::<[Noted<'_>; 2]>::new();
        for step in steps {
            match self.note(hash, step, &mut noted) {
                Ok(true) => {}
                refused => {
                    self.undo(noted);
                    return refused;
                }
            }
        }
        match self.commit_with(&noted) {
            Ok(sequence) => {
                for one in &noted {
                    one.dir.set_sequence(sequence);
                    if one.is_leaving {
                        one.names.range(one.position).left(one.position);
                    }
                }
                Ok(true)
            }
            Err(fault) => {
                // If the log has failed, the state in memory means nothing.
                if self.log.is_some() {
                    self.undo(noted);
                }
                Err(fault)
            }
        }
    }

    /// Notes one change behind those in `noted`. Returns false if that is not possible.
    fn note<'n>(
        &mut self,
        hash: NameHash,
        step: &DirStep<'n>,
        noted: &mut SmallVec<[Noted<'n>; 2]>,
    ) -> Result<bool, Fault> {
        let DirStep { dir, name, step } = *step;
        if !is_name(name) {
            return Err(Errno::INVAL.into());
        }
        let Some(names) = dir.delayed_names() else { return Ok(false) };
        let (metadata, directory) = (self.metadata, Directory::new(dir.ino(), hash));
        let (base, reader) = (hash.position(name), metadata.reader());
        let levels = names.levels(|core| directory.levels(&reader, core))?;
        let (found, taken) = names.with_stored(|core| {
            if core.nlink == 0 && !matches!(step, NameStep::Remove(_)) {
                return Err(Fault::from(Errno::NOENT));
            }
            Ok(directory.find_at(&reader, core, (base, name))?)
        })?;
        let found = found.map(|found| (found.position, found.ino, found.kind));
        let mut range = names.range(base);
        let mut blocks = range.blocks_at(base);
        if !names.has_home() || (levels > 0 && blocks.is_none()) {
            drop(range);
            let Ok(held) = self.hold_blocks(dir, names, (directory, base)) else {
                return Ok(false);
            };
            (range, blocks) = (names.range(base), held);
        }
        let (position, mut change) =
            range.plan((base, name), (found, taken), step).map_err(refusal)?;
        let held = range.held(position);
        let (mut taken, mut released) = (HeldSpace::default(), held);
        if let Some(change) = &mut change {
            let Some(more) = self.set_aside(self.need_of(change, levels), held) else {
                return Ok(false);
            };
            change.held += more;
            change.blocks = blocks;
            (taken, released) = (more, HeldSpace::default());
        }
        let former = range.put(position, change);
        let is_leaving = matches!(step, NameStep::Remove(_));
        if is_leaving {
            range.leave(position);
        }
        drop(range);
        metadata.dirs().add(dir, names);
        noted.push(Noted { dir, names, position, is_leaving, former, taken, released });
        Ok(true)
    }

    /// Reads the blocks that the fold of changes of names with the first position `base` may need,
    /// so that they stay in memory; `None` for a directory without a tree.
    ///
    /// # Errors
    /// The errors of the device, and damage: such a change must not be delayed.
    fn hold_blocks(
        &self,
        dir: &Node,
        names: &DelayedNames,
        (directory, base): (Directory, u64),
    ) -> Result<Option<Arc<HeldBlocks>>, Fault> {
        assert_held::<NodeLock>();
        let (cache, reader) = (self.metadata.cache(), self.metadata.reader());
        if !names.has_home() {
            dir.hold_home(cache.get_inodes(dir.block(), &Node::expected(dir.ino()))?);
            names.note_home(true);
        }
        let blocks = RefCell::new(Vec::new());
        let hold = |address, expected: &Expected| {
            let (buffer, block) = cache.get_with_block(address, expected)?;
            blocks.borrow_mut().push(buffer);
            Ok::<_, Error<Fault>>(block)
        };
        let positions = names.with_stored(|core| directory.around(&reader, core, base, hold))?;
        let blocks = blocks.into_inner();
        Ok(positions.map(|positions| Arc::new(HeldBlocks { positions, blocks })))
    }

    /// Undoes changes that were noted, and takes back what they had set aside.
    fn undo(&mut self, noted: SmallVec<[Noted<'_>; 2]>) {
        for Noted { names, position, is_leaving, former, taken, .. } in noted.into_iter().rev() {
            let mut range = names.range(position);
            // No other thread has changed it: the position of a removed name is still taken.
            range.put(position, former);
            if is_leaving {
                range.left(position);
            }
            drop(range);
            self.take_back(taken);
        }
    }

    /// Takes back the space that changes which no longer exist had set aside. The transaction is
    /// about to commit.
    pub(super) fn release_names(&mut self, noted: &[Noted<'_>]) {
        noted.iter().for_each(|one| self.take_back(one.released));
    }

    fn take_back(&mut self, taken: HeldSpace) {
        if let Some(log) = &mut self.log {
            log.changes().take_over(taken.log_bytes);
        }
        self.metadata.dirs().give_log(taken.item_bytes);
        self.log_bytes += taken.item_bytes;
        self.space_left += taken.blocks;
    }

    /// Sets aside what is needed beyond `held`, out of the reservation of the transaction. Returns
    /// `None` if that is too small, or the log.
    fn set_aside(&mut self, need: HeldSpace, held: HeldSpace) -> Option<HeldSpace> {
        let blocks = need.blocks.saturating_sub(held.blocks);
        let mut item_bytes = need.item_bytes.saturating_sub(held.item_bytes);
        if blocks > self.space_left {
            return None;
        }
        let mut log_bytes = 0;
        if item_bytes > 0 {
            // One byte for the rounding of `ChangeList::set_aside`.
            item_bytes += 1;
            if item_bytes > self.log_bytes || !self.metadata.dirs().take_log(item_bytes) {
                return None;
            }
            let set_aside = self.log.as_mut().and_then(|log| log.changes().set_aside(item_bytes));
            let Some(bytes) = set_aside else {
                self.metadata.dirs().give_log(item_bytes);
                return None;
            };
            (log_bytes, self.log_bytes) = (bytes, self.log_bytes - item_bytes);
        }
        self.space_left -= blocks;
        Some(HeldSpace { item_bytes, log_bytes, blocks })
    }

    /// Returns what the fold of a change may need, in a directory with a tree of so many levels.
    ///
    /// A record changes on each level a block, its neighbour, and the one behind a new or a freed
    /// one; it allocates or frees a block on each level, and one more for a new root. A long name
    /// has several records, which lie in two leaves at most. If the tree gets another level before
    /// the fold, its new root has room for all names that the log has space for; so has the root of
    /// a tree that is made from the entries in an inode, which is a leaf.
    fn need_of(&self, change: &NameChange, levels: u16) -> HeldSpace {
        let of = |entry: &NamedInode| {
            let paths = if entry.name.len() > HEAD_NAME_BYTES { 2 } else { 1 };
            let (levels, root) = (u32::from(levels).max(1), u32::from(levels > 0));
            let blocks = (paths * (3 * levels + 1)).min(NAME_BLOCKS);
            (blocks, (paths * (levels + root)).min(NAME_RUNS))
        };
        let NameChange { stored, now, .. } = change;
        let is_in_place = is_in_place(change);
        let removed = stored.as_ref().filter(|_| !is_in_place).map_or((0, 0), of);
        let added = now.as_ref().filter(|_| !is_in_place).map_or((0, 0), of);
        let in_place = u32::from(is_in_place);
        let runs = removed.1 + added.1;
        let groups = if runs > 0 { self.metadata.groups().log_blocks(runs, 0) } else { 0 };
        let log_blocks = u64::from(removed.0 + added.0 + in_place + groups);
        HeldSpace {
            item_bytes: log_blocks * Reservation::item_bytes(BLOCK_BYTES as u64)
                + Reservation::item_bytes(RECORD_BYTES as u64),
            log_bytes: 0,
            blocks: added.1.into(),
        }
    }

    /// Writes the delayed names of a directory into it, as part of this transaction, and with the
    /// space that they have set aside, before it changes the node otherwise. Does nothing if there
    /// are none.
    ///
    /// # Errors
    /// The errors of the device, and damage: the names are delayed as before if the transaction is
    /// dropped.
    pub(crate) fn fold_names(&mut self, dir: &Arc<Node>) -> Result<(), Fault> {
        assert_held::<NodeLock>();
        let Some(names) = dir.delayed_names() else { return Ok(()) };
        if self.folds.iter().any(|fold| Arc::ptr_eq(&fold.dir, dir)) {
            return Ok(());
        }
        let changes = names.all();
        if changes.is_empty() {
            return Ok(());
        }
        let mut held = HeldSpace::default();
        changes.iter().for_each(|(_, change)| held += change.held);
        (self.space_left, self.log_bytes) =
            (self.space_left + held.blocks, self.log_bytes + held.item_bytes);
        self.folds.push(Fold { dir: Arc::clone(dir), held });
        let directory = Directory::new(dir.ino(), NameHash::of(self.metadata.uuid()));
        let mut core = InodeCore::clone(&self.core(dir));
        for (position, change) in &changes {
            write(self, &directory, &mut core, *position, change)?;
        }
        self.set_core(dir, core);
        Ok(())
    }

    /// Drops the names that were folded, after the commit.
    pub(super) fn end_folds(&mut self) {
        for Fold { dir, held } in std::mem::take(&mut self.folds) {
            if let Some(names) = dir.delayed_names() {
                names.clear();
            }
            self.metadata.dirs().give_folded(held.item_bytes);
        }
    }

    /// Returns the blocks that folded names have set aside, which they own again if the transaction
    /// is dropped.
    pub(super) fn folded_blocks(&self) -> u64 {
        self.folds.iter().map(|fold| fold.held.blocks).sum()
    }

    /// Writes the delayed names of a directory into it, at the end of a context, and commits.
    ///
    /// # Errors
    /// The errors of the device and the log, and damage: the log has to be shut down.
    pub(in crate::volume) fn write_names(mut self, dir: &Arc<Node>) -> Result<(), Fault> {
        dir.cool();
        // A directory in which all names that came have gone is not locked, and keeps no thread
        // that reads it or makes names there.
        let has_changes = dir.delayed_names().is_some_and(DelayedNames::note_taken);
        if !has_changes {
            return Ok(());
        }
        let _locked = dir.lock();
        self.fold_names(dir)?;
        if !self.folds.is_empty() {
            self.commit()?;
        }
        Ok(())
    }
}

/// Returns whether a change only replaces the inode of a name.
fn is_in_place(change: &NameChange) -> bool {
    matches!((&change.stored, &change.now), (Some(stored), Some(now)) if stored.name == now.name)
}

/// Writes one change into a directory.
fn write(
    tx: &mut Tx<'_>,
    directory: &Directory,
    core: &mut InodeCore,
    position: u64,
    change: &NameChange,
) -> Result<(), Fault> {
    let NameChange { stored, now, .. } = change;
    let now = now.as_ref().map(|now| DirEntry {
        position,
        ino: now.ino,
        kind: now.kind,
        name: &now.name,
    });
    if let Some(now) = now.filter(|_| is_in_place(change)) {
        return Ok(directory.replace_at(tx, core, &now)?);
    }
    if let Some(stored) = stored {
        directory.remove_at(tx, core, position, &stored.name)?;
    }
    if let Some(now) = now {
        directory.insert_at(tx, core, &now)?;
    }
    Ok(())
}

fn subdirectories(kind: FileKind) -> i32 {
    i32::from(kind == FileKind::Directory)
}

/// Counts the subdirectories that a directory has gained or lost. Returns its links.
fn count_subdirectories(core: &mut InodeCore, gained: i32) -> Result<u32, Fault> {
    if gained > 0 && core.nlink >= LINKS_MAX {
        return Err(Errno::MLINK.into());
    }
    // Repairing a count that would fall below two is the checker's task; here it stays at two.
    core.nlink = core.nlink.saturating_add_signed(gained).max(2);
    Ok(core.nlink)
}

fn refusal(refused: Refused) -> Fault {
    match refused {
        Refused::Exists => Errno::EXIST,
        Refused::IsOther => Errno::STALE,
        Refused::Full => Errno::NOSPC,
    }
    .into()
}

#[cfg(test)]
mod tests;
