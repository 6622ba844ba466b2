//! The calls of the VFS on one file. After each, the VFS inode shows the new size and blocks.

use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::errseq::ErrorSeq;
use vfscale_sync::rcu::Guard;
use vfscale_vfs::driver::{AttrChange, FileOps};
use vfscale_vfs::inode::Inode;
use vfscale_vfs::types::{FallocateFlags, InodeFlags};

use super::disk_fs::DiskFs;
use super::flags::of_record;
use super::inodes::{held, held_of, node_of};
use crate::format::inode::FLAGS_KNOWN;
use crate::inode::incore::Node;

impl FileOps for DiskFs {
    fn inode_flags(&self) -> InodeFlags {
        of_record(FLAGS_KNOWN)
    }

    fn set_attr(&self, inode: &Inode, change: &AttrChange<'_>) -> Result<(), Errno> {
        self.change_attributes(inode, change).map_err(|fault| self.failed(fault))
    }

    fn read_at(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        held_of(inode)?.file(&self.files).read(offset, buf).map_err(|fault| self.failed(fault))
    }

    fn write_at(&self, inode: &Inode, offset: u64, buf: &[u8]) -> Result<usize, Errno> {
        let held = held_of(inode)?;
        let _inside = self.files.enter();
        let file = held.file(&self.files);
        let written = file.write(offset, buf);
        self.show_data(inode, &held.node, file.size());
        written.map_err(|fault| self.failed(fault))
    }

    fn set_size(&self, inode: &Inode, size: u64) -> Result<(), Errno> {
        let held = held_of(inode)?;
        let _inside = self.files.enter();
        let file = held.file(&self.files);
        let changed = file.set_size(size);
        self.show_data(inode, &held.node, file.size());
        changed.map_err(|fault| self.failed(fault))
    }

    fn fallocate(
        &self,
        inode: &Inode,
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        const KEEP_SIZE: FallocateFlags = FallocateFlags::KEEP_SIZE;
        let held = held_of(inode)?;
        let _inside = self.files.enter();
        let file = held.file(&self.files);
        let keeps_size = mode.contains(KEEP_SIZE);
        let done = match mode - KEEP_SIZE {
            FallocateFlags::PUNCH_HOLE if keeps_size => file.punch(offset, len),
            FallocateFlags::ZERO_RANGE => file.zero_range(offset, len, keeps_size),
            rest if rest.is_empty() => file.allocate(offset, len, keeps_size),
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.show_data(inode, &held.node, file.size());
        done.map_err(|fault| self.failed(fault))
    }

    fn seek_data(&self, inode: &Inode, offset: u64) -> Result<u64, Errno> {
        let file = held_of(inode)?.file(&self.files);
        let found = file.seek_data(offset).map_err(|fault| self.failed(fault))?;
        found.ok_or(Errno::NXIO)
    }

    fn seek_hole(&self, inode: &Inode, offset: u64) -> Result<u64, Errno> {
        let file = held_of(inode)?.file(&self.files);
        let found = file.seek_hole(offset).map_err(|fault| self.failed(fault))?;
        found.ok_or(Errno::NXIO)
    }

    fn write_errors<'a>(&'a self, inode: &'a Inode) -> Option<&'a ErrorSeq> {
        held(inode).map(|held| held.node.write_errors())
    }

    fn sync(&self, inode: &Inode, data_only: bool) -> Result<(), Errno> {
        self.files.sync(node_of(inode)?, data_only).map_err(|fault| self.sync_failed(fault))
    }

    fn get_link<'g>(&self, inode: &'g Inode, _: &'g Guard) -> Result<&'g [u8], Errno> {
        held(inode).and_then(|held| held.target.as_deref()).ok_or(Errno::INVAL)
    }
}

impl DiskFs {
    /// Sets in the VFS inode the size of a file and its space, whether or not the call has
    /// succeeded. The caller holds the lock of the VFS inode.
    fn show_data(&self, inode: &Inode, node: &Arc<Node>, size: u64) {
        inode.set_size(size);
        self.show_blocks(inode, node);
    }

    /// Sets in the VFS inode the space of an inode, including pages that have no block yet.
    pub(super) fn show_blocks(&self, inode: &Inode, node: &Arc<Node>) {
        inode.set_blocks(self.files.blocks_512(node));
    }
}
