//! Requests of other programs to the mount; see [`control`].

use std::time::Duration;

use rustix::ioctl;
use vfscale::pool::PoolMaker;
use vfscale::posix::{At, OFlags};
use vfscale::{Capabilities, Errno, Pool, Task};

use super::{RequestCtx, Server, VolumeRights, freezing};
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
            control::TRIM => {
                let range = control::trim_range(data)?;
                let root = self.nodes.get(wire::ROOT)?.file;
                let trim = |task: &Task| task.posix().trim_fs(At::File(&root), "", range);
                let trimmed = self.act_as_owner(ctx, trim)?;
                ctx.reply.ioctl(range.start);
                ctx.reply.u64(trimmed);
                ctx.reply.u64(range.minlen);
            }
            control::GROW if ctx.node == wire::ROOT => {
                let bytes = control::bytes_of(data)?;
                let root = self.nodes.get(ctx.node)?.file;
                let grow = |task: &Task| task.posix().grow_fs(At::File(&root), "", bytes);
                let grown = self.act_as_owner(ctx, grow)?;
                ctx.reply.ioctl(grown);
            }
            control::BRANCH => {
                self.check_owner(ctx)?;
                control::serve(|| self.pool(), self.volume.maker.as_ref(), data)?;
                ctx.reply.ioctl_done();
            }
            control::BRANCHES => {
                let listed = control::list(&self.pool_for(ctx)?, data)?;
                ctx.reply.ioctl_done();
                ctx.reply.put(&listed);
            }
            control::SOCKET => {
                self.check_owner(ctx)?;
                // A volume that may get branches has nothing to be asked for before.
                if self.volume.maker.is_some() {
                    self.pool().ok_or(Errno::OPNOTSUPP)?;
                }
                let name = self.volume.socket.as_deref().ok_or(Errno::OPNOTSUPP)?;
                let name = control::named(name)?;
                ctx.reply.ioctl_done();
                ctx.reply.put(&name);
            }
            control::FREEZE => {
                self.freeze(ctx, control::bytes_of(data)?)?;
                ctx.reply.ioctl_done();
            }
            other => return self.inode_flags(ctx, other, data, room),
        }
        Ok(())
    }

    /// Makes a call on the whole file system, for the owner of the mount or root.
    fn act_as_owner<T>(
        &self,
        ctx: &RequestCtx<'_>,
        call: impl Fn(&Task) -> vfscale::Result<T>,
    ) -> Result<T, Errno> {
        self.check_owner(ctx)?;
        Ok(call(&self.base)?)
    }

    /// Returns the pool of branches, for the owner of the mount or root.
    fn pool_for(&self, ctx: &RequestCtx<'_>) -> Result<Pool, Errno> {
        self.check_owner(ctx)?;
        self.pool().ok_or(Errno::OPNOTSUPP)
    }

    /// Returns the pool of branches, if there is one by now.
    fn pool(&self) -> Option<Pool> {
        let VolumeRights { pool, maker, .. } = &self.volume;
        pool.clone().or_else(|| maker.as_ref().and_then(PoolMaker::pool))
    }

    /// Freezes the volume for the owner of the mount or root, until the process that asks for it
    /// ends, or for some milliseconds.
    fn freeze(&self, ctx: &RequestCtx<'_>, milliseconds: u64) -> Result<(), Errno> {
        self.check_owner(ctx)?;
        let freezer = self.volume.freezer.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let process = ctx.caller.process().ok_or(Errno::SRCH)?;
        freezing::freeze(freezer, process, Duration::from_millis(milliseconds))
    }

    /// Refuses others than the owner of the mount and root, who have `CAP_SYS_ADMIN`. User 0 may
    /// be that of a container that has lost it, and that sees only a part of the mount. The server
    /// of another user can't examine a process of root, and takes user 0 for that.
    fn check_owner(&self, ctx: &RequestCtx<'_>) -> Result<(), Errno> {
        let is_permitted = match self.owner {
            0 => ctx.caller.certainly_has(Capabilities::SYS_ADMIN),
            owner => ctx.caller.is_user(owner) || ctx.caller.has(Capabilities::SYS_ADMIN),
        };
        if is_permitted { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Replies the statistics of the mount to its owner or root.
    fn report(&self, ctx: &mut RequestCtx<'_>) -> Result<(), Errno> {
        self.check_owner(ctx)?;
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
