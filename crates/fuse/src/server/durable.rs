//! Changes that are durable before the reply to them, as the option [`Syncing`] requests.
//!
//! The kernel looks after the data of a mount with `sync`: it sends `FSYNC` behind each `WRITE`. It
//! leaves names, attributes, allocation and copies to the server.

use vfscale::posix::OFlags;
use vfscale::{Errno, FileType};

use super::nodes::Level;
use super::{RequestCtx, Server, flags};
use crate::base::syncing::Syncing;
use crate::wire::request::Operation;

/// Returns the node whose change the operation makes, and the weakest setting that makes it
/// durable.
pub(super) fn change_of(operation: &Operation<'_>, node: u64) -> Option<(u64, Syncing)> {
    use Operation as Op;
    match operation {
        // One transaction changes a directory, the inode, and in a rename the other directory.
        Op::Symlink { .. }
        | Op::MkNod { .. }
        | Op::MkDir { .. }
        | Op::Unlink { .. }
        | Op::RmDir { .. }
        | Op::Rename { .. }
        | Op::Link { .. }
        | Op::Create(_) => Some((node, Syncing::Names)),
        Op::Open { flags, .. } if OFlags::from_bits_retain(*flags).contains(OFlags::TRUNC) => {
            Some((node, Syncing::All))
        }
        Op::SetAttr(_) | Op::SetXattr { .. } | Op::RemoveXattr { .. } | Op::FAllocate { .. } => {
            Some((node, Syncing::All))
        }
        Op::Ioctl { command, .. } if flags::changes(*command) => Some((node, Syncing::All)),
        Op::CopyFileRange { to, .. } => Some((to.node, Syncing::All)),
        _ => None,
    }
}

impl Server {
    /// Makes the change durable that `operation` has made, if the mount promises that. Blocks for
    /// the I/O.
    pub(super) fn keep_promise(
        &self,
        ctx: &RequestCtx<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), Errno> {
        let promised = self.config.syncing;
        if promised == Syncing::OnRequest || self.config.volatile {
            return Ok(());
        }
        match change_of(operation, ctx.node) {
            Some((node, Syncing::Names)) => self.sync_node(node),
            Some((node, Syncing::All)) => self.keep_promise_of_all(node),
            None | Some((_, Syncing::OnRequest)) => Ok(()),
        }
    }

    /// Makes a change of an inode durable that is no change of names, if the mount promises that.
    /// Blocks for the I/O.
    pub(super) fn keep_promise_of_all(&self, node: u64) -> Result<(), Errno> {
        let is_promised = self.config.syncing == Syncing::All && !self.config.volatile;
        if is_promised { self.sync_node(node) } else { Ok(()) }
    }

    /// Makes the changes of one inode durable, or all if the inode can't be opened.
    fn sync_node(&self, node: u64) -> Result<(), Errno> {
        let mode = self.node(node)?.file.stat()?.mode;
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile | FileType::Directory => {
                Ok(self.at_level(node, Level::Read)?.sync_all()?)
            }
            _ => self.make_durable(),
        }
    }
}
