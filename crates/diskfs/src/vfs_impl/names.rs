//! Changes of directories: each is one transaction.
//!
//! The VFS has locked the names and looked them up. The functions here check, with the nodes
//! locked, the conditions that only the volume knows: that a directory still has a name, that a
//! directory to be removed is empty, and that an inode has not too many links.

use std::sync::Arc;

use rustix::io::Errno;
use vfscale_vfs::driver::{NewInode, Rename};
use vfscale_vfs::inode::{Inode, InodeRef};
use vfscale_vfs::types::Timestamp;

use super::attributes::refused;
use super::disk_fs::DiskFs;
use super::flags::in_record;
use super::inodes::node_of;
use crate::base::fault::Fault;
use crate::btree::counted::Counted;
use crate::dir::{Directory, Insertion};
use crate::format::Damage;
use crate::format::damage::{InodeDamage, InodeFault};
use crate::format::inode::{DATA_BYTES_MAX, LINKS_MAX};
use crate::inode::attr;
use crate::inode::blob::{self, LinkTree};
use crate::inode::core::{DataFork, FileKind, InodeCore, TYPE_MASK};
use crate::inode::delayed_names::NameStep;
use crate::inode::incore::{Node, lock_all, lock_side_by_side};
use crate::volume::tx::steps::DirStep;
use crate::volume::tx::{Tx, TxReservation};

/// A change of a count of links by one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkStep {
    Up,
    Down,
}

impl DiskFs {
    pub(super) fn directory(&self, node: &Node) -> Directory {
        Directory::new(node.ino(), self.hash)
    }

    /// Creates an inode, with a name in a directory or without a name.
    pub(super) fn make(
        &self,
        dir: &Inode,
        name: Option<&[u8]>,
        new: &NewInode<'_>,
    ) -> Result<InodeRef, Fault> {
        let parent = node_of(dir)?;
        let kind = FileKind::of_mode(new.mode).ok_or(Errno::INVAL)?;
        if let Some(name) = name
            && self.is_side_by_side(parent)
            && let Some(node) = self.make_beside(dir, (name, kind), new)?
        {
            return self.hold(dir.sb(), node);
        }
        let mut tx = self.volume.begin(self.need_of_new(new))?;
        // Before the directory is locked, which other threads may want.
        let node = self.new_node(&mut tx, parent, new, name.is_some(), dir.change_time())?;
        let created = node.lock_new();
        let Some(name) = name else {
            tx.set_orphan(&node, true);
            tx.commit()?;
            node.note_unnamed();
            drop(created);
            return self.hold(dir.sb(), node);
        };
        let locked = parent.lock_nested();
        tx.fold_names(parent)?;
        let time = dir.change_time();
        tx.edit(parent, |tx, core| {
            self.insert(tx, parent, core, name, (node.ino(), kind))?;
            if kind == FileKind::Directory {
                step(core, LinkStep::Up)?;
            }
            (core.mtime, core.ctime) = (time.0, time.0);
            Ok(())
        })?;
        let links = tx.core(parent).nlink;
        tx.commit()?;
        // The VFS inode shows the change before the directory is unlocked, so before another thread
        // can change it. All changes below do this, too.
        dir.set_nlink(links);
        dir.changed_at(time);
        drop((locked, created));
        self.hold(dir.sb(), node)
    }

    /// Creates a file or a directory side by side with other threads. Returns `None`, and has
    /// changed nothing, if the parent has to be locked exclusively.
    fn make_beside(
        &self,
        dir: &Inode,
        (name, kind): (&[u8], FileKind),
        new: &NewInode<'_>,
    ) -> Result<Option<Arc<Node>>, Fault> {
        let parent = node_of(dir)?;
        let mut tx = self.volume.begin(self.need_of_new(new))?;
        let node = self.new_node(&mut tx, parent, new, true, dir.change_time())?;
        let created = node.lock_new();
        let locked = parent.share();
        let time = dir.change_time();
        let step = NameStep::Add(node.ino(), kind);
        let committed = tx.commit_names(self.hash, &[DirStep { dir: parent, name, step }])?;
        if !committed {
            return Ok(None);
        }
        if kind == FileKind::Directory {
            dir.add_subdirectories(1);
        }
        dir.changed_at(time);
        drop((locked, created));
        Ok(Some(node))
    }

    fn need_of_new(&self, new: &NewInode<'_>) -> TxReservation {
        if new.xattrs.is_empty() { self.needs.create } else { self.needs.create_xattrs }
    }

    /// Returns whether names of a directory may be changed
    /// [side by side](crate::inode::delayed_names) now.
    pub(super) fn is_side_by_side(&self, dir: &Node) -> bool {
        self.volume.metadata().dirs().is_for(dir)
    }

    /// Creates the node of a new inode, with its record, its attributes and its target. The caller
    /// [locks](Node::lock_new) it before the commit.
    fn new_node(
        &self,
        tx: &mut Tx<'_>,
        parent: &Node,
        new: &NewInode<'_>,
        is_named: bool,
        time: Timestamp,
    ) -> Result<Arc<Node>, Fault> {
        let kind = FileKind::of_mode(new.mode).ok_or(Errno::INVAL)?;
        let is_dir = kind == FileKind::Directory;
        let node_of = |ino| self.table.claim(ino, self.volume.cache());
        let (node, generation) = tx.new_node(parent.block(), is_dir, node_of)?;
        let ino = node.ino();
        let mut core = InodeCore::new(new.mode, generation, time.0);
        (core.uid, core.gid, core.rdev) = (new.uid, new.gid, new.rdev);
        core.flags = in_record(0, new.flags);
        core.nlink = u32::from(is_named) + u32::from(is_dir);
        if is_dir {
            core.parent = parent.ino();
        }
        if let Some(target) = new.target {
            core.size = target.len() as u64;
            core.data = if target.len() <= DATA_BYTES_MAX {
                DataFork::Inline(target.into())
            } else {
                let mut counted = Counted::new(tx);
                let tree = blob::create::<LinkTree, _>(&mut counted, ino, node.block(), target)?;
                core.blocks = core.blocks.saturating_add_signed(counted.grown());
                DataFork::Tree { root: tree.root() }
            };
        }
        if !new.xattrs.is_empty() {
            let mut list = new.xattrs.to_vec();
            list.sort_unstable();
            let blob = attr::encode(&list).map_err(refused)?;
            attr::store(tx, ino, node.block(), &mut core, &blob)?;
        }
        tx.set_core(&node, core);
        Ok(node)
    }

    /// Inserts a name into a directory that still has a name itself.
    fn insert(
        &self,
        tx: &mut Tx<'_>,
        dir: &Node,
        core: &mut InodeCore,
        name: &[u8],
        to: (u64, FileKind),
    ) -> Result<(), Fault> {
        if core.nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        match self.directory(dir).insert(tx, core, name, to)? {
            Insertion::At(_) => Ok(()),
            Insertion::Exists => Err(Errno::EXIST.into()),
            Insertion::Full => Err(Errno::NOSPC.into()),
            Insertion::BadName => Err(Errno::INVAL.into()),
        }
    }

    /// Checks that the entry that was removed or replaced led to `ino`: otherwise the name does not
    /// belong to the inode of the call, and the error is `ESTALE`.
    fn expect(found: Option<crate::dir::Found>, ino: u64) -> Result<(), Fault> {
        match found {
            Some(found) if found.ino == ino => Ok(()),
            _ => Err(Errno::STALE.into()),
        }
    }

    pub(super) fn add_name(&self, inode: &Inode, dir: &Inode, name: &[u8]) -> Result<(), Fault> {
        let (node, parent) = (node_of(inode)?, node_of(dir)?);
        let kind = FileKind::of_mode(inode.mode()).ok_or(Errno::INVAL)?;
        if self.is_side_by_side(parent) && self.add_beside(inode, dir, (name, kind))? {
            return Ok(());
        }
        let mut tx = self.volume.begin(self.needs.link)?;
        let locked = lock_all(&[node, parent]);
        tx.fold_names(parent)?;
        let (time, own_time) = (dir.change_time(), inode.change_time());
        let links = gain_name(&mut tx, inode, node, own_time)?;
        tx.edit(parent, |tx, core| {
            (core.mtime, core.ctime) = (time.0, time.0);
            self.insert(tx, parent, core, name, (node.ino(), kind))
        })?;
        tx.commit()?;
        inode.set_nlink(links);
        inode.inode_changed_at(own_time);
        dir.changed_at(time);
        drop(locked);
        Ok(())
    }

    /// Adds a name side by side with other threads. Returns false, and has changed nothing, if the
    /// directory has to be locked exclusively.
    fn add_beside(
        &self,
        inode: &Inode,
        dir: &Inode,
        (name, kind): (&[u8], FileKind),
    ) -> Result<bool, Fault> {
        let (node, parent) = (node_of(inode)?, node_of(dir)?);
        let mut tx = self.volume.begin(self.needs.link)?;
        let locked = lock_side_by_side(&[node], &[parent]);
        let (time, own_time) = (dir.change_time(), inode.change_time());
        let links = gain_name(&mut tx, inode, node, own_time)?;
        let step = NameStep::Add(node.ino(), kind);
        let committed = tx.commit_names(self.hash, &[DirStep { dir: parent, name, step }])?;
        if committed {
            inode.set_nlink(links);
            inode.inode_changed_at(own_time);
            dir.changed_at(time);
        }
        drop(locked);
        Ok(committed)
    }

    /// Removes a name of a file or of an empty directory.
    pub(super) fn take_name(&self, dir: &Inode, name: &[u8], inode: &Inode) -> Result<(), Fault> {
        let (node, parent) = (node_of(inode)?, node_of(dir)?);
        self.inactivator.throttle();
        if self.is_side_by_side(parent) && self.take_beside(dir, name, inode)? {
            return Ok(());
        }
        let mut tx = self.volume.begin(self.needs.unlink)?;
        let locked = lock_all(&[node, parent]);
        tx.fold_names(parent)?;
        tx.fold_names(node)?;
        let (time, own_time) = (dir.change_time(), inode.change_time());
        let links = tx.edit(node, |tx, core| self.lose_name(tx, node, core, own_time))?;
        let parent_links = tx.edit(parent, |tx, core| {
            Self::expect(self.directory(parent).remove(tx, core, name)?, node.ino())?;
            if !matches!(core.data, DataFork::Tree { .. }) {
                parent.note_removal(node);
            }
            if inode.is_dir() {
                step(core, LinkStep::Down)?;
            }
            (core.mtime, core.ctime) = (time.0, time.0);
            Ok(core.nlink)
        })?;
        tx.commit()?;
        inode.set_nlink(links);
        inode.inode_changed_at(own_time);
        dir.set_nlink(parent_links);
        dir.changed_at(time);
        drop(locked);
        Ok(())
    }

    /// Removes a name of a file or of an empty directory side by side with other threads. Returns
    /// false, and has changed nothing, if the parent has to be locked exclusively.
    fn take_beside(&self, dir: &Inode, name: &[u8], inode: &Inode) -> Result<bool, Fault> {
        let (node, parent) = (node_of(inode)?, node_of(dir)?);
        let mut tx = self.volume.begin(self.needs.unlink)?;
        let locked = lock_side_by_side(&[node], &[parent]);
        tx.fold_names(node)?;
        let (time, own_time) = (dir.change_time(), inode.change_time());
        let links = tx.edit(node, |tx, core| self.lose_name(tx, node, core, own_time))?;
        let step = NameStep::Remove(node.ino());
        let committed = tx.commit_names(self.hash, &[DirStep { dir: parent, name, step }])?;
        if committed {
            inode.set_nlink(links);
            inode.inode_changed_at(own_time);
            if inode.is_dir() {
                dir.add_subdirectories(-1);
            }
            dir.changed_at(time);
        }
        drop(locked);
        Ok(committed)
    }

    /// Removes a name of an inode; of a directory its only one, if it is empty. Returns the
    /// remaining links.
    fn lose_name(
        &self,
        tx: &mut Tx<'_>,
        node: &Arc<Node>,
        core: &mut InodeCore,
        time: Timestamp,
    ) -> Result<u32, Fault> {
        if core.is_directory() {
            if !self.directory(node).is_empty(tx, core)? {
                return Err(Errno::NOTEMPTY.into());
            }
            core.nlink = 0;
        } else if core.nlink == 0 {
            return Err(links_damage(node, 0).into());
        } else {
            core.nlink -= 1;
        }
        if core.nlink == 0 {
            tx.set_orphan(node, true);
        }
        core.ctime = time.0;
        Ok(core.nlink)
    }

    pub(super) fn move_name(&self, rename: &Rename<'_>) -> Result<(), Fault> {
        let Rename { old_dir, source, new_dir, target, exchange, .. } = *rename;
        let moved = Move {
            old_dir: node_of(old_dir)?,
            new_dir: node_of(new_dir)?,
            source: node_of(source)?,
            target: target.map(node_of).transpose()?,
        };
        let Move { old_dir: from, new_dir: to, source: node, .. } = moved;
        self.write_what_replaces(&moved, exchange)?;
        self.inactivator.throttle();
        if self.moves_side_by_side(rename, &moved) && self.move_beside(rename, &moved)? {
            return Ok(());
        }
        let has_whiteout = rename.whiteout.is_some();
        let needs = &self.needs;
        let need = if has_whiteout { needs.rename_whiteout } else { needs.rename };
        let mut tx = self.volume.begin(need)?;
        let locked = lock_all(&[from, to, node, moved.target.unwrap_or(node)]);
        // The VFS inodes of all four get the numbers of links of their cores.
        for dir in [Some(from), Some(to), Some(node), moved.target].into_iter().flatten() {
            tx.fold_names(dir)?;
        }
        let time = time_of(rename);
        if tx.core(to).nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        let new_whiteout = |new| self.new_node(&mut tx, from, new, true, time);
        let whiteout = rename.whiteout.as_ref().map(new_whiteout).transpose()?;
        let created = whiteout.as_ref().map(|node| node.lock_new());
        if exchange {
            self.exchange(&mut tx, rename, &moved)?
        } else {
            self.replace(&mut tx, rename, &moved, (time, whiteout.as_ref()))?
        }
        for dir in [from, to] {
            tx.edit(dir, |_, core| {
                (core.mtime, core.ctime) = (time.0, time.0);
                Ok(())
            })?;
        }
        for child in [Some(node), moved.target].into_iter().flatten() {
            tx.edit(child, |_, core| {
                core.ctime = time.0;
                Ok(())
            })?;
        }
        let links = [Some(from), Some(to), Some(node), moved.target]
            .map(|node| node.map_or(0, |node| tx.core(node).nlink));
        tx.commit()?;
        for (inode, links) in inodes_of(rename).into_iter().zip(links) {
            let Some(inode) = inode else { continue };
            inode.set_nlink(links);
        }
        show_time(rename, time);
        drop((locked, created));
        whiteout.map_or(Ok(()), |node| self.hold(old_dir.sb(), node).map(drop))
    }

    /// Returns whether both names of a rename may be changed side by side now: they are neither
    /// exchanged nor replaced by a whiteout, and neither is that of one of the two directories.
    fn moves_side_by_side(&self, rename: &Rename<'_>, moved: &Move<'_>) -> bool {
        let dirs = [moved.old_dir.ino(), moved.new_dir.ino()];
        let is_other = |node: &Arc<Node>| !dirs.contains(&node.ino());
        is_other(moved.source)
            && moved.target.is_none_or(is_other)
            && !rename.exchange
            && rename.whiteout.is_none()
            && self.is_side_by_side(moved.old_dir)
            && self.is_side_by_side(moved.new_dir)
    }

    /// Moves a file or a directory side by side with other threads. Returns false, and has changed
    /// nothing, if the directories have to be locked exclusively.
    fn move_beside(&self, rename: &Rename<'_>, moved: &Move<'_>) -> Result<bool, Fault> {
        let Move { old_dir: from, new_dir: to, source: node, target: gone } = *moved;
        let mut tx = self.volume.begin(self.needs.rename)?;
        let locked = lock_side_by_side(&[node, gone.unwrap_or(node)], &[from, to]);
        if let Some(gone) = gone {
            tx.fold_names(gone)?;
        }
        let time = time_of(rename);
        tx.edit(node, |_, core| {
            if core.is_directory() {
                core.parent = to.ino();
            }
            core.ctime = time.0;
            Ok(())
        })?;
        let lose = |gone| tx.edit(gone, |tx, core| self.lose_name(tx, gone, core, time));
        let links = gone.map(lose).transpose()?;
        let entry = (node.ino(), kind_of(&tx, node)?);
        let added = match gone {
            Some(gone) => NameStep::Replace(gone.ino(), entry),
            None => NameStep::Add(entry.0, entry.1),
        };
        let steps = [
            DirStep { dir: to, name: rename.new_name, step: added },
            DirStep { dir: from, name: rename.old_name, step: NameStep::Remove(node.ino()) },
        ];
        let committed = tx.commit_names(self.hash, &steps)?;
        if committed {
            if let (Some(target), Some(links)) = (rename.target, links) {
                target.set_nlink(links);
            }
            show_subdirectories(rename);
            show_time(rename, time);
        }
        drop(locked);
        Ok(committed)
    }

    /// Writes back the data of a file that takes the name of another; in an exchange, the data of
    /// both.
    fn write_what_replaces(&self, moved: &Move<'_>, exchange: bool) -> Result<(), Fault> {
        let Some(target) = moved.target else { return Ok(()) };
        self.files.write_before_rename(moved.source)?;
        if exchange { self.files.write_before_rename(target) } else { Ok(()) }
    }

    /// Exchanges the two names.
    fn exchange(
        &self,
        tx: &mut Tx<'_>,
        rename: &Rename<'_>,
        moved: &Move<'_>,
    ) -> Result<(), Fault> {
        let Move { old_dir, new_dir, source, target } = *moved;
        let Some(target) = target else { return Err(Errno::NOENT.into()) };
        let (source_kind, target_kind) = (kind_of(tx, source)?, kind_of(tx, target)?);
        tx.edit(old_dir, |tx, core| {
            let found = self.directory(old_dir).replace(
                tx,
                core,
                rename.old_name,
                (target.ino(), target_kind),
            )?;
            Self::expect(found, source.ino())
        })?;
        tx.edit(new_dir, |tx, core| {
            let found = self.directory(new_dir).replace(
                tx,
                core,
                rename.new_name,
                (source.ino(), source_kind),
            )?;
            Self::expect(found, target.ino())
        })?;
        self.change_parent(tx, source, old_dir, new_dir)?;
        self.change_parent(tx, target, new_dir, old_dir)
    }

    /// Gives the new name to the source; the target loses it, and the whiteout gets the old one.
    fn replace(
        &self,
        tx: &mut Tx<'_>,
        rename: &Rename<'_>,
        moved: &Move<'_>,
        (time, whiteout): (Timestamp, Option<&Arc<Node>>),
    ) -> Result<(), Fault> {
        let Move { old_dir, new_dir, source, target } = *moved;
        let to = (source.ino(), kind_of(tx, source)?);
        if let Some(target) = target {
            tx.edit(target, |tx, core| self.lose_name(tx, target, core, time))?;
            let is_dir = tx.core(target).is_directory();
            tx.edit(new_dir, |tx, core| {
                let found = self.directory(new_dir).replace(tx, core, rename.new_name, to)?;
                Self::expect(found, target.ino())?;
                if is_dir { step(core, LinkStep::Down) } else { Ok(()) }
            })?;
        } else {
            tx.edit(new_dir, |tx, core| self.insert(tx, new_dir, core, rename.new_name, to))?;
        }
        let left = whiteout.map(|node| Ok::<_, Fault>((node.ino(), kind_of(tx, node)?)));
        let left = left.transpose()?;
        tx.edit(old_dir, |tx, core| {
            let found = match left {
                Some(left) => self.directory(old_dir).replace(tx, core, rename.old_name, left)?,
                None => self.directory(old_dir).remove(tx, core, rename.old_name)?,
            };
            Self::expect(found, source.ino())
        })?;
        self.change_parent(tx, source, old_dir, new_dir)
    }

    /// Sets the new parent of a directory that moves, and adjusts the links of both parents, which
    /// count its `..`.
    fn change_parent(
        &self,
        tx: &mut Tx<'_>,
        child: &Arc<Node>,
        from: &Arc<Node>,
        to: &Arc<Node>,
    ) -> Result<(), Fault> {
        if from.ino() == to.ino() || !tx.core(child).is_directory() {
            return Ok(());
        }
        tx.edit(child, |_, core| {
            core.parent = to.ino();
            Ok(())
        })?;
        tx.edit(from, |_, core| step(core, LinkStep::Down))?;
        tx.edit(to, |_, core| step(core, LinkStep::Up))
    }
}

/// Returns the inodes of a rename.
fn inodes_of<'r>(rename: &Rename<'r>) -> [Option<&'r Inode>; 4] {
    [Some(rename.old_dir), Some(rename.new_dir), Some(rename.source), rename.target]
}

/// Returns one time for all inodes of a rename, which is later than any time that they show.
fn time_of(rename: &Rename<'_>) -> Timestamp {
    let times = inodes_of(rename).into_iter().flatten().map(|inode| inode.change_time());
    times.max().unwrap_or_default()
}

/// Shows in both directories of a rename that a directory has moved, and that another one is gone.
fn show_subdirectories(rename: &Rename<'_>) {
    let Rename { old_dir, new_dir, source, target, .. } = *rename;
    if source.is_dir() && !std::ptr::eq(old_dir, new_dir) {
        old_dir.add_subdirectories(-1);
        new_dir.add_subdirectories(1);
    }
    if target.is_some_and(Inode::is_dir) {
        new_dir.add_subdirectories(-1);
    }
}

/// Shows the time of a rename in its inodes, whose nodes are still locked.
fn show_time(rename: &Rename<'_>, time: Timestamp) {
    let Rename { old_dir, new_dir, source, target, .. } = *rename;
    [Some(source), target].into_iter().flatten().for_each(|inode| inode.inode_changed_at(time));
    // Once for each directory: if an inode has this time already, and a reader has read it, another
    // call would set a later time than the stored one.
    old_dir.changed_at(time);
    if !std::ptr::eq(old_dir, new_dir) {
        new_dir.changed_at(time);
    }
}

/// Adds a link to an inode, which is no orphan from then on. Returns the links.
fn gain_name(
    tx: &mut Tx<'_>,
    inode: &Inode,
    node: &Arc<Node>,
    time: Timestamp,
) -> Result<u32, Fault> {
    tx.edit(node, |tx, core| {
        if core.nlink == 0 {
            if !inode.is_linkable() {
                return Err(Errno::NOENT.into());
            }
            tx.set_orphan(node, false);
        }
        step(core, LinkStep::Up)?;
        core.ctime = time.0;
        Ok(core.nlink)
    })
}

/// The nodes of a rename.
#[derive(Clone, Copy)]
struct Move<'n> {
    old_dir: &'n Arc<Node>,
    new_dir: &'n Arc<Node>,
    source: &'n Arc<Node>,
    target: Option<&'n Arc<Node>>,
}

fn kind_of(tx: &Tx<'_>, node: &Arc<Node>) -> Result<FileKind, Fault> {
    let mode = tx.core(node).mode;
    let type_bits = (mode & TYPE_MASK) as u16;
    let fault = InodeFault::Type { mode: type_bits };
    FileKind::of_mode(mode)
        .ok_or_else(|| Damage::from(InodeDamage { ino: node.ino(), fault }).into())
}

fn links_damage(node: &Node, links: u32) -> Damage {
    InodeDamage { ino: node.ino(), fault: InodeFault::Links { links } }.into()
}

/// Adds or removes a link.
fn step(core: &mut InodeCore, step: LinkStep) -> Result<(), Fault> {
    match step {
        LinkStep::Up if core.nlink >= LINKS_MAX => return Err(Errno::MLINK.into()),
        LinkStep::Up => core.nlink += 1,
        // Repairing a count that would fall below two is the checker's task; here it stays at two.
        LinkStep::Down => core.nlink = core.nlink.saturating_sub(1).max(2),
    }
    Ok(())
}
