//! Requests of other programs to the mount; see [`control`].

use rustix::ioctl;
use vfscale::posix::{At, OFlags};
use vfscale::{Capabilities, Errno};

use super::{RequestCtx, Rights, Server};
use crate::{control, statistics, wire};

impl Server {
    pub(super) fn ioctl(
        &self,
        ctx: &mut RequestCtx<'_>,
        command: u32,
        data: &[u8],
        room: u32,
    ) -> Result<(), Errno> {
        match ioctl::Opcode::from(command) {
            control::SYNC => {
                self.make_durable()?;
                ctx.reply.ioctl_done();
                return Ok(());
            }
            control::STATISTICS => return self.report(ctx),
            control::GROW if ctx.node == wire::ROOT => {}
            other => return self.inode_flags(ctx, other, data, room),
        }
        let bytes = control::bytes_of(data)?;
        let root = self.nodes.get(ctx.node)?.file;
        let grown = if ctx.caller.is_user(self.owner) {
            self.base.posix().grow_fs(At::File(&root), "", bytes)?
        } else if ctx.caller.is_checked() && !ctx.caller.has(Capabilities::SYS_ADMIN) {
            // The kernel has not checked this.
            return Err(Errno::PERM);
        } else {
            self.act(ctx, Rights::Exact, |task| task.posix().grow_fs(At::File(&root), "", bytes))?
        };
        ctx.reply.ioctl(grown);
        Ok(())
    }

    /// Replies the statistics of the mount to its owner or root.
    fn report(&self, ctx: &mut RequestCtx<'_>) -> Result<(), Errno> {
        if !ctx.caller.is_user(self.owner) && !ctx.caller.has(Capabilities::SYS_ADMIN) {
            return Err(Errno::PERM);
        }
        ctx.reply.ioctl_done();
        for number in statistics::encode(&self.statistics()) {
            ctx.reply.u64(number);
        }
        Ok(())
    }

    /// Makes all changes durable, made through the mount or otherwise. Blocks for the I/O.
    pub(crate) fn make_durable(&self) -> Result<(), Errno> {
        if self.config.volatile {
            return Ok(());
        }
        let root = self.nodes.get(wire::ROOT)?.file;
        Ok(self.base.posix().reopen(&root, OFlags::RDONLY | OFlags::NOATIME)?.sync_fs()?)
    }
}
