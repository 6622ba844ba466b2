//! Calls on attributes.

use vfscale::posix::{StatMask, XattrFlags};
use vfscale::{Errno, Mode};

use super::state::{Body, CallResult, InodeId, PAGE, State};
use crate::case::{Attributes, Outcome};

/// Unit of `stat`'s block count in bytes.
const SECTOR: u64 = 512;

impl State {
    pub(super) fn size(&self, inode: InodeId) -> u64 {
        match &self.inodes[inode].body {
            Body::File(pages) => pages.len() as u64 * PAGE,
            Body::Symlink(target) => target.len() as u64,
            Body::Directory(_) | Body::Pipe(_) => 0,
        }
    }

    pub(super) fn attributes(&self, id: InodeId) -> Outcome {
        Outcome::Attributes(self.all_attributes(id))
    }

    fn all_attributes(&self, id: InodeId) -> Attributes {
        let inode = &self.inodes[id];
        let blocks = match &inode.body {
            Body::File(pages) => pages.iter().flatten().count() as u64 * (PAGE / SECTOR),
            _ => 0,
        };
        Attributes {
            file_type: inode.body.file_type(),
            mode: inode.mode,
            nlink: inode.nlink,
            size: self.size(id),
            blocks,
            mtime_changed: inode.mtime_changed,
            ctime_changed: inode.ctime_changed,
            device: inode.device.into(),
            ino: id as u64,
        }
    }

    pub(super) fn stat(&self, process: usize, path: &str, follow: bool) -> CallResult {
        let dentry = self.lookup(process, path, follow)?;
        Ok(self.attributes(self.dentries[dentry].inode))
    }

    pub(super) fn statx(&self, process: usize, path: &str, mask: StatMask) -> CallResult {
        let dentry = self.lookup(process, path, true)?;
        let all = self.all_attributes(self.dentries[dentry].inode);
        Ok(Outcome::Attributes(all.masked(mask)))
    }

    pub(super) fn lookup_mount(&self, process: usize, path: &str) -> CallResult {
        let dentry = self.lookup(process, path, true)?;
        Ok(Outcome::Mount {
            device: u64::from(self.inode_of(dentry).device),
            is_root: self.dentries[dentry].parent == dentry,
        })
    }

    pub(super) fn chmod(&mut self, process: usize, path: &str, mode: Mode) -> CallResult {
        let dentry = self.lookup(process, path, true)?;
        let inode = self.dentries[dentry].inode;
        self.inodes[inode].mode = mode.bits();
        self.inode_changed(inode);
        Ok(Outcome::Done)
    }

    pub(super) fn setxattr(
        &mut self,
        process: usize,
        path: &str,
        name: &str,
        value: (usize, u8),
        how: XattrFlags,
    ) -> CallResult {
        let dentry = self.lookup(process, path, true)?;
        let inode = self.dentries[dentry].inode;
        let xattrs = &mut self.inodes[inode].xattrs;
        let is_there = xattrs.contains_key(name);
        if is_there && how.contains(XattrFlags::CREATE) {
            return Err(Errno::EXIST);
        }
        if !is_there && how.contains(XattrFlags::REPLACE) {
            return Err(Errno::NODATA);
        }
        xattrs.insert(name.into(), value);
        self.inode_changed(inode);
        Ok(Outcome::Done)
    }

    pub(super) fn getxattr(&self, process: usize, path: &str, name: &str) -> CallResult {
        let dentry = self.lookup(process, path, true)?;
        let &(len, byte) = self.inode_of(dentry).xattrs.get(name).ok_or(Errno::NODATA)?;
        Ok(Outcome::Bytes(vec![byte; len]))
    }
}
