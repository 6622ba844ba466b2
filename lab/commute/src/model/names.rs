//! Calls on names. They check for errors in Linux's order.

use std::collections::BTreeMap;

use vfscale::posix::RenameFlags;
use vfscale::{Errno, Mode};

use super::state::{Body, CallResult, Dentry, DentryId, InodeId, State};
use super::walk::LastComponent;
use crate::case::Outcome;

impl State {
    /// Checks that a directory was not removed, so names can still be made in it.
    fn check_not_removed(&self, dir: DentryId) -> Result<(), Errno> {
        if self.dentries[dir].removed { Err(Errno::NOENT) } else { Ok(()) }
    }

    /// Adds a name for an inode to a directory that lacks it.
    fn add(&mut self, dir: DentryId, name: &str, inode: InodeId) -> DentryId {
        let id = self.dentries.len();
        self.dentries.push(Dentry { parent: dir, name: name.into(), inode, removed: false });
        self.enter(dir, name, id);
        self.inodes[inode].nlink += 1;
        self.inode_changed(inode);
        id
    }

    fn enter(&mut self, dir: DentryId, name: &str, dentry: DentryId) {
        if let Some(entries) = self.entries_mut(dir) {
            entries.insert(name.into(), dentry);
        }
        self.changed(self.dentries[dir].inode);
    }

    fn leave(&mut self, dentry: DentryId) {
        let Dentry { parent, name, .. } = self.dentries[dentry].clone();
        if let Some(entries) = self.entries_mut(parent) {
            entries.remove(&name);
        }
        self.changed(self.dentries[parent].inode);
    }

    /// Creates an inode with its first name.
    pub(super) fn make(
        &mut self,
        last: &LastComponent<'_>,
        body: Body,
        mode: u32,
    ) -> Result<DentryId, Errno> {
        self.check_not_removed(last.dir)?;
        let is_dir = matches!(body, Body::Directory(_));
        let inode = self.new_inode(self.inode_of(last.dir).device, body, mode);
        let dentry = self.add(last.dir, last.name, inode);
        if is_dir {
            self.inodes[inode].nlink += 1;
            self.count_subdir(last.dir, 1);
        }
        Ok(dentry)
    }

    /// Creates an inode without a name. Its dentry records the directory, which the path of an open
    /// file shows.
    pub(super) fn make_nameless(&mut self, dir: DentryId, mode: u32) -> Result<DentryId, Errno> {
        self.check_not_removed(dir)?;
        let inode = self.new_inode(self.inode_of(dir).device, Body::File(Vec::new()), mode);
        let id = self.dentries.len();
        self.dentries.push(Dentry { parent: dir, name: "#".into(), inode, removed: true });
        Ok(id)
    }

    fn count_subdir(&mut self, dir: DentryId, change: i32) {
        let inode = self.dentries[dir].inode;
        self.inodes[inode].nlink = self.inodes[inode].nlink.saturating_add_signed(change);
    }

    /// Removes a name, and with it one link of its inode.
    fn remove(&mut self, dentry: DentryId) {
        self.leave(dentry);
        let Dentry { parent, inode, .. } = self.dentries[dentry];
        self.dentries[dentry].removed = true;
        self.inode_changed(inode);
        if self.is_dir(dentry) {
            self.inodes[inode].nlink = 0;
            self.count_subdir(parent, -1);
        } else {
            self.inodes[inode].nlink -= 1;
        }
    }

    fn is_empty(&self, dir: DentryId) -> bool {
        self.entries(dir).is_some_and(BTreeMap::is_empty)
    }

    pub(super) fn mkdir(&mut self, process: usize, path: &str, mode: Mode) -> CallResult {
        let last = self.walk_parent(process, path)?;
        self.check_not_removed(last.dir)?;
        last.vacant()?;
        self.make(&last, Body::Directory(BTreeMap::new()), mode.bits())?;
        Ok(Outcome::Done)
    }

    pub(super) fn symlink(&mut self, process: usize, target: &str, path: &str) -> CallResult {
        let last = self.walk_parent(process, path)?;
        self.check_not_removed(last.dir)?;
        last.vacant()?;
        self.make(&last, Body::Symlink(target.into()), 0o777)?;
        Ok(Outcome::Done)
    }

    pub(super) fn link(&mut self, process: usize, old: &str, new: &str) -> CallResult {
        let old = self.lookup(process, old, false)?;
        let last = self.walk_parent(process, new)?;
        self.check_not_removed(last.dir)?;
        last.vacant()?;
        let inode = self.dentries[old].inode;
        if self.inodes[inode].device != self.inode_of(last.dir).device {
            return Err(Errno::XDEV);
        }
        if self.is_dir(old) {
            return Err(Errno::PERM);
        }
        self.add(last.dir, last.name, inode);
        Ok(Outcome::Done)
    }

    pub(super) fn unlink(&mut self, process: usize, path: &str) -> CallResult {
        let found = self.walk_parent(process, path)?.existing()?;
        if self.is_dir(found) {
            return Err(Errno::ISDIR);
        }
        self.remove(found);
        Ok(Outcome::Done)
    }

    pub(super) fn rmdir(&mut self, process: usize, path: &str) -> CallResult {
        let last = self.walk_parent(process, path)?;
        let found = last.existing()?;
        if !self.is_dir(found) {
            return Err(Errno::NOTDIR);
        }
        if last.name.is_empty() || self.is_mount_point(found) {
            return Err(Errno::BUSY);
        }
        if !self.is_empty(found) {
            return Err(Errno::NOTEMPTY);
        }
        self.remove(found);
        Ok(Outcome::Done)
    }

    pub(super) fn rename(
        &mut self,
        process: usize,
        old: &str,
        new: &str,
        flags: RenameFlags,
    ) -> CallResult {
        let from = self.walk_parent(process, old)?;
        let to = self.walk_parent(process, new)?;
        if self.inode_of(from.dir).device != self.inode_of(to.dir).device {
            return Err(Errno::XDEV);
        }
        if from.name.is_empty() || to.name.is_empty() {
            return Err(Errno::BUSY);
        }
        let moved = from.existing()?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        self.check_not_removed(to.dir)?;
        if flags.contains(RenameFlags::NOREPLACE) && to.found.is_some() {
            return Err(Errno::EXIST);
        }
        if exchange {
            to.existing()?;
        }
        if self.is_within(to.dir, moved) {
            return Err(Errno::INVAL);
        }
        if let Some(target) = to.found {
            if self.is_within(from.dir, target) {
                return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY });
            }
            if self.dentries[moved].inode == self.dentries[target].inode {
                return Ok(Outcome::Done);
            }
            self.may_replace(moved, target, exchange)?;
        } else if self.is_mount_point(moved) {
            return Err(Errno::BUSY);
        }
        match to.found {
            Some(target) if exchange => self.exchange(moved, target),
            found => {
                if let Some(target) = found {
                    self.remove(target);
                }
                self.shift(moved, to.dir, to.name);
            }
        }
        Ok(Outcome::Done)
    }

    fn may_replace(&self, moved: DentryId, target: DentryId, exchange: bool) -> Result<(), Errno> {
        if !exchange {
            match (self.is_dir(moved), self.is_dir(target)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                _ => {}
            }
        }
        if self.is_mount_point(moved) || self.is_mount_point(target) {
            return Err(Errno::BUSY);
        }
        if !exchange && self.is_dir(target) && !self.is_empty(target) {
            return Err(Errno::NOTEMPTY);
        }
        Ok(())
    }

    /// Returns whether a directory is `above`, or a descendant of it in the same file system.
    fn is_within(&self, dir: DentryId, above: DentryId) -> bool {
        let parent = self.dentries[dir].parent;
        dir == above || (parent != dir && self.is_within(parent, above))
    }

    /// Moves a dentry to a free name.
    fn shift(&mut self, dentry: DentryId, dir: DentryId, name: &str) {
        self.leave(dentry);
        self.inode_changed(self.dentries[dentry].inode);
        if self.is_dir(dentry) {
            self.count_subdir(self.dentries[dentry].parent, -1);
            self.count_subdir(dir, 1);
        }
        self.dentries[dentry].parent = dir;
        self.dentries[dentry].name = name.into();
        self.enter(dir, name, dentry);
    }

    fn exchange(&mut self, a: DentryId, b: DentryId) {
        let (at_a, at_b) = (self.dentries[a].clone(), self.dentries[b].clone());
        self.leave(b);
        self.shift(a, at_b.parent, &at_b.name);
        self.inode_changed(at_b.inode);
        // `a`'s old entry is free now, while `b`'s was filled by `shift`: `b` must not be removed
        // from it again.
        if self.is_dir(b) {
            self.count_subdir(at_b.parent, -1);
            self.count_subdir(at_a.parent, 1);
        }
        self.dentries[b].parent = at_a.parent;
        self.dentries[b].name.clone_from(&at_a.name);
        self.enter(at_a.parent, &at_a.name, b);
    }

    pub(super) fn readlink(&self, process: usize, path: &str) -> CallResult {
        match self.body(self.lookup(process, path, false)?) {
            Body::Symlink(target) => Ok(Outcome::Text(target.clone())),
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn chdir(&mut self, process: usize, path: &str) -> CallResult {
        let dir = self.lookup(process, path, true)?;
        if !self.is_dir(dir) {
            return Err(Errno::NOTDIR);
        }
        let processes = self.cwd.len();
        self.cwd[process % processes] = dir;
        Ok(Outcome::Done)
    }

    pub(super) fn getcwd(&self, process: usize) -> CallResult {
        let cwd = self.cwd[process % self.cwd.len()];
        self.check_not_removed(cwd)?;
        Ok(Outcome::Text(self.d_path(cwd)))
    }

    pub(super) fn mount(&mut self, process: usize, path: &str) -> CallResult {
        let covered = self.lookup(process, path, true)?;
        if !self.is_dir(covered) {
            return Err(Errno::NOTDIR);
        }
        let root = self.new_root(self.mounts.len() as u32 + 1);
        self.mounts.push((covered, root));
        Ok(Outcome::Done)
    }
}
