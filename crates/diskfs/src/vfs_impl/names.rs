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
use crate::data::FileBlocks;
use crate::dir::Directory;
use crate::file_io::Change;
use crate::format::Damage;
use crate::format::damage::{InodeDamage, InodeFault};
use crate::format::inode::{DATA_BYTES_MAX, LINKS_MAX};
use crate::inode::attr;
use crate::inode::blob::{self, LinkTree};
use crate::inode::core::{DataFork, FileKind, InodeCore, TYPE_MASK};
use crate::inode::delayed_names::NameStep;
use crate::inode::incore::{DirLock, Node};
use crate::volume::tx::steps::{DirLinks, DirStep};
use crate::volume::tx::{Tx, TxReservation};

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
        let node = match name {
            None => self.make_unnamed(dir, parent, new)?,
            Some(name) => self.change_names(kind == FileKind::Directory, &[parent], |lock| {
                let mut tx = self.volume.begin(self.need_of_new(new))?;
                // Before the directory is locked, which other threads may want.
                let node = self.new_node(&mut tx, parent, new, true, dir.change_time())?;
                let created = node.lock_new();
                let locked = lock.lock_one(parent);
                let time = dir.change_time();
                let step = DirStep { dir: parent, name, step: NameStep::Add(node.ino(), kind) };
                let links = tx.commit_names(lock, self.hash, &[step], time.0)?;
                let Some([links, _]) = links else { return Ok(None) };
                // The VFS inode shows the change before the directory is unlocked, so before
                // another thread can change it. All changes below do this, too.
                show_change(dir, links, time);
                drop((locked, created));
                Ok(Some(node))
            })?,
        };
        self.hold(dir.sb(), node)
    }

    /// Creates an inode without a name, beside a directory.
    fn make_unnamed(
        &self,
        dir: &Inode,
        parent: &Node,
        new: &NewInode<'_>,
    ) -> Result<Arc<Node>, Fault> {
        let mut tx = self.volume.begin(self.need_of_new(new))?;
        let node = self.new_node(&mut tx, parent, new, false, dir.change_time())?;
        let created = node.lock_new();
        tx.set_orphan(&node, true);
        tx.commit()?;
        node.note_unnamed();
        drop(created);
        Ok(node)
    }

    fn need_of_new(&self, new: &NewInode<'_>) -> TxReservation {
        if new.xattrs.is_empty() { self.needs.create } else { self.needs.create_xattrs }
    }

    /// Returns whether names of a directory may be changed
    /// [side by side](crate::inode::delayed_names) now.
    pub(super) fn is_side_by_side(&self, dir: &Node) -> bool {
        self.volume.metadata().dirs().is_for(dir)
    }

    /// Calls `change` to change names of `dirs`: side by side with other threads if all of these
    /// are hot and no name leads to a directory (`has_dir`). If that returns `None`, it has changed
    /// nothing, and is called again with the directories to be locked alone.
    fn change_names<T>(
        &self,
        has_dir: bool,
        dirs: &[&Arc<Node>],
        change: impl Fn(DirLock) -> Result<Option<T>, Fault>,
    ) -> Result<T, Fault> {
        let may_share = !has_dir && dirs.iter().all(|dir| self.is_side_by_side(dir));
        let mut lock = if may_share { DirLock::Shared } else { DirLock::Alone };
        loop {
            if let Some(done) = change(lock)? {
                return Ok(done);
            }
            lock = DirLock::Alone;
        }
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

    pub(super) fn add_name(&self, inode: &Inode, dir: &Inode, name: &[u8]) -> Result<(), Fault> {
        let (node, parent) = (node_of(inode)?, node_of(dir)?);
        let kind = FileKind::of_mode(inode.mode()).ok_or(Errno::INVAL)?;
        self.change_names(inode.is_dir(), &[parent], |lock| {
            let mut tx = self.volume.begin(self.needs.link)?;
            let locked = lock.lock(&[node], &[parent]);
            let (time, own_time) = (dir.change_time(), inode.change_time());
            let links = gain_name(&mut tx, inode, node, own_time)?;
            let step = DirStep { dir: parent, name, step: NameStep::Add(node.ino(), kind) };
            let dir_links = tx.commit_names(lock, self.hash, &[step], time.0)?;
            let Some([dir_links, _]) = dir_links else { return Ok(None) };
            inode.set_nlink(links);
            inode.inode_changed_at(own_time);
            show_change(dir, dir_links, time);
            drop(locked);
            Ok(Some(()))
        })
    }

    /// Removes a name of a file or of an empty directory.
    pub(super) fn take_name(&self, dir: &Inode, name: &[u8], inode: &Inode) -> Result<(), Fault> {
        let (node, parent) = (node_of(inode)?, node_of(dir)?);
        self.inactivator.throttle();
        self.change_names(inode.is_dir(), &[parent], |lock| {
            let mut tx = self.volume.begin(self.needs.unlink)?;
            let locked = lock.lock(&[node], &[parent]);
            let (time, own_time) = (dir.change_time(), inode.change_time());
            let links = self.lose_name(&mut tx, node, own_time)?;
            if lock == DirLock::Alone {
                parent.note_removal(node);
            }
            let step = DirStep { dir: parent, name, step: NameStep::Remove(node.ino()) };
            let dir_links = tx.commit_names(lock, self.hash, &[step], time.0)?;
            let Some([dir_links, _]) = dir_links else { return Ok(None) };
            inode.set_nlink(links);
            inode.inode_changed_at(own_time);
            show_change(dir, dir_links, time);
            drop(locked);
            Ok(Some(()))
        })
    }

    /// Removes a name of an inode; of a directory its only one, if it is empty. Returns the
    /// remaining links.
    fn lose_name(&self, tx: &mut Tx<'_>, node: &Arc<Node>, time: Timestamp) -> Result<u32, Fault> {
        tx.fold_names(node)?;
        tx.edit(node, |tx, core| {
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
        })
    }

    pub(super) fn move_name(&self, rename: &Rename<'_>) -> Result<(), Fault> {
        let Rename { old_dir, source, new_dir, target, exchange, .. } = *rename;
        let moved = Move {
            from: node_of(old_dir)?,
            to: node_of(new_dir)?,
            source: node_of(source)?,
            target: target.map(node_of).transpose()?,
        };
        if exchange && target.is_none() {
            return Err(Errno::NOENT.into());
        }
        self.inactivator.throttle();
        let has_dir = source.is_dir() || target.is_some_and(Inode::is_dir);
        let whiteout = self.change_names(has_dir, &[moved.from, moved.to], |lock| {
            self.move_with_data(lock, rename, &moved)
        })?;
        whiteout.map_or(Ok(()), |node| self.hold(old_dir.sb(), node).map(drop))
    }

    /// Changes the two names of a rename, after the data of what replaces another file: if that is
    /// small and new, in the same transaction. Returns the result of
    /// [`move_locked`](Self::move_locked).
    fn move_with_data(
        &self,
        lock: DirLock,
        rename: &Rename<'_>,
        moved: &Move<'_>,
    ) -> Result<Option<Option<Arc<Node>>>, Fault> {
        if let Some(target) = moved.target {
            if !rename.exchange
                && let Some((file, blocks)) = self.files.written_with_rename(moved.source)
            {
                let within = file.write_back_within(|change| {
                    self.move_locked(lock, rename, moved, Some((&blocks, change)))
                });
                // If it failed for the data, these are written in another way.
                if let Some(done @ (Ok(_) | Err(Fault::Refused(_)))) = within {
                    return done;
                }
            }
            self.files.write_before_rename(moved.source)?;
            if rename.exchange {
                self.files.write_before_rename(target)?;
            }
        }
        self.move_locked(lock, rename, moved, None)
    }

    /// Changes the two names of a rename, and the data of the file that moves, if they are given.
    /// Returns the whiteout that it has made; `None`, and no change, if the directories have to be
    /// locked alone.
    fn move_locked(
        &self,
        lock: DirLock,
        rename: &Rename<'_>,
        moved: &Move<'_>,
        data: Option<(&FileBlocks<'_>, Change<'_>)>,
    ) -> Result<Option<Option<Arc<Node>>>, Fault> {
        let Move { from, to, source, target } = *moved;
        let has_whiteout = rename.whiteout.is_some();
        let needs = &self.needs;
        let need = if has_whiteout { needs.rename_whiteout } else { needs.rename };
        let mut tx = match &data {
            Some((blocks, change)) => blocks.begin_with(need, change)?,
            None => self.volume.begin(need)?,
        };
        let locked = lock.lock(&[source, target.unwrap_or(source)], &[from, to]);
        let time = time_of(rename);
        let new_whiteout = |new| self.new_node(&mut tx, from, new, true, time);
        let whiteout = rename.whiteout.as_ref().map(new_whiteout).transpose()?;
        let created = whiteout.as_ref().map(|node| node.lock_new());
        // The inode that the new name leads to, the one that the old name leads to, and the links
        // of one that loses its name.
        let new = change_parent(&mut tx, source, to, time)?;
        if let Some((blocks, change)) = data {
            blocks.enter(&mut tx, change)?;
        }
        let (old, gone) = match (target, &whiteout) {
            (Some(target), _) if rename.exchange => {
                (Some(change_parent(&mut tx, target, from, time)?), None)
            }
            (target, whiteout) => {
                let lose = |target| self.lose_name(&mut tx, target, time);
                let gone = target.map(lose).transpose()?;
                (whiteout.as_ref().map(|node| entry_to(node, &tx.core(node))).transpose()?, gone)
            }
        };
        let added = match target {
            Some(target) => NameStep::Replace(target.ino(), new),
            None => NameStep::Add(new.0, new.1),
        };
        let left = match old {
            Some(old) => NameStep::Replace(source.ino(), old),
            None => NameStep::Remove(source.ino()),
        };
        let steps = [
            DirStep { dir: to, name: rename.new_name, step: added },
            DirStep { dir: from, name: rename.old_name, step: left },
        ];
        let links = tx.commit_names(lock, self.hash, &steps, time.0)?;
        let Some(links) = links else { return Ok(None) };
        if let (Some(target), Some(links)) = (rename.target, gone) {
            target.set_nlink(links);
        }
        show_move(rename, links, time);
        drop((locked, created));
        Ok(Some(whiteout))
    }
}

/// Returns one time for all inodes of a rename, which is later than any time that they show.
fn time_of(rename: &Rename<'_>) -> Timestamp {
    let Rename { old_dir, new_dir, source, target, .. } = *rename;
    let inodes = [Some(old_dir), Some(new_dir), Some(source), target].into_iter().flatten();
    inodes.map(|inode| inode.change_time()).max().unwrap_or_default()
}

/// Shows a change of a directory's names, whose node is still locked; `links` if that has changed
/// their number.
fn show_change(dir: &Inode, links: Option<u32>, time: Timestamp) {
    if let Some(links) = links {
        dir.set_nlink(links);
    }
    dir.changed_at(time);
}

/// Shows a rename in its inodes, whose nodes are still locked, with the links of the new directory
/// and the old one.
fn show_move(rename: &Rename<'_>, links: DirLinks, time: Timestamp) {
    let Rename { old_dir, new_dir, source, target, .. } = *rename;
    [Some(source), target].into_iter().flatten().for_each(|inode| inode.inode_changed_at(time));
    // Once for each directory: if an inode has this time already, and a reader has read it, another
    // call would set a later time than the stored one.
    if !std::ptr::eq(old_dir, new_dir) {
        show_change(new_dir, links[0], time);
    }
    show_change(old_dir, links[1], time);
}

/// Sets the parent of a directory whose name moves, and the time of the move. Returns the inode and
/// its type.
fn change_parent(
    tx: &mut Tx<'_>,
    node: &Arc<Node>,
    parent: &Node,
    time: Timestamp,
) -> Result<(u64, FileKind), Fault> {
    tx.edit(node, |_, core| {
        if core.is_directory() {
            core.parent = parent.ino();
        }
        core.ctime = time.0;
        entry_to(node, core)
    })
}

/// Returns an inode and its type, for an entry that leads to it.
fn entry_to(node: &Node, core: &InodeCore) -> Result<(u64, FileKind), Fault> {
    let fault = InodeFault::Type { mode: (core.mode & TYPE_MASK) as u16 };
    let damage = || Damage::from(InodeDamage { ino: node.ino(), fault });
    Ok((node.ino(), FileKind::of_mode(core.mode).ok_or_else(damage)?))
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
        if core.nlink >= LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        core.nlink += 1;
        core.ctime = time.0;
        Ok(core.nlink)
    })
}

/// The nodes of a rename.
#[derive(Clone, Copy)]
struct Move<'n> {
    from: &'n Arc<Node>,
    to: &'n Arc<Node>,
    source: &'n Arc<Node>,
    target: Option<&'n Arc<Node>>,
}

fn links_damage(node: &Node, links: u32) -> Damage {
    InodeDamage { ino: node.ino(), fault: InodeFault::Links { links } }.into()
}
