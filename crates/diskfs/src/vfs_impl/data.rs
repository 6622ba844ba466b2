//! Data of files: what the VFS is to see after each call.

use std::sync::Arc;

use rustix::io::Errno;
use vfscale_vfs::inode::Inode;
use vfscale_vfs::types::FallocateFlags;

use super::DiskFs;
use super::inodes::node_of;
use crate::inode::incore::Node;

impl DiskFs {
    pub(super) fn write_data(
        &self,
        inode: &Inode,
        offset: u64,
        buf: &[u8],
    ) -> Result<usize, Errno> {
        let node = node_of(inode)?;
        let written = self.files.file(node).write(offset, buf);
        self.show_data(inode, node);
        written.map_err(|fault| self.failed(fault))
    }

    pub(super) fn change_size(&self, inode: &Inode, size: u64) -> Result<(), Errno> {
        let node = node_of(inode)?;
        let changed = self.files.file(node).set_size(size);
        self.show_data(inode, node);
        changed.map_err(|fault| self.failed(fault))
    }

    pub(super) fn allocate(
        &self,
        inode: &Inode,
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        const KEEP_SIZE: FallocateFlags = FallocateFlags::KEEP_SIZE;
        let node = node_of(inode)?;
        let file = self.files.file(node);
        let keeps_size = mode.contains(KEEP_SIZE);
        let done = match mode - KEEP_SIZE {
            FallocateFlags::PUNCH_HOLE if keeps_size => file.punch(offset, len),
            FallocateFlags::ZERO_RANGE => file.zero_range(offset, len, keeps_size),
            rest if rest.is_empty() => file.allocate(offset, len, keeps_size),
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.show_data(inode, node);
        done.map_err(|fault| self.failed(fault))
    }

    /// Lets the VFS see size and occupied space, whether or not the call went well. Its inode is
    /// locked.
    fn show_data(&self, inode: &Inode, node: &Arc<Node>) {
        inode.set_size(self.files.size(node));
        self.show_blocks(inode, node);
    }

    /// Lets the VFS see how much space an inode takes, with what waits for write-back.
    pub(super) fn show_blocks(&self, inode: &Inode, node: &Arc<Node>) {
        inode.set_blocks(self.files.blocks_512(node));
    }
}
