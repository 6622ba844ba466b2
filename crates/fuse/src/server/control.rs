//! Requests of other programs to the mount; see [`control`].

use rustix::ioctl;
use rustix::net::UCred;
use vfscale::pool::{MAIN, PoolMaker};
use vfscale::posix::{At, FstrimRange, OFlags};
use vfscale::volume::Freezer;
use vfscale::{Capabilities, Errno, ForkOptions, MergeOptions, Pool, PoolError, Task};

use super::caller::Caller;
use super::{RequestCtx, Server, VolumeRights};
use crate::control::listening::Controlled;
use crate::control::{self, Error, Growth, Reply, Request};
use crate::wire;

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
            }
            control::TRIM => {
                let range = control::trim_range(data)?;
                self.check_owner(ctx.caller)?;
                let trimmed = self.trim(range)?;
                ctx.reply.ioctl_done();
                [range.start, trimmed, range.minlen].iter().for_each(|it| ctx.reply.u64(*it));
            }
            control::SOCKET => {
                self.check_owner(ctx.caller)?;
                let address = self.control.address()?;
                ctx.reply.ioctl_done();
                ctx.reply.put(&address);
            }
            other => return self.inode_flags(ctx, other, data, room),
        }
        Ok(())
    }

    /// Refuses others than the owner of the mount and root, who have `CAP_SYS_ADMIN`. User 0 may
    /// be that of a container that has lost it, and that sees only a part of the mount. The server
    /// of another user can't examine a process of root, and takes user 0 for that.
    fn check_owner(&self, caller: Caller) -> Result<(), Errno> {
        let is_permitted = match self.owner {
            0 => caller.certainly_has(Capabilities::SYS_ADMIN),
            owner => caller.is_user(owner) || caller.has(Capabilities::SYS_ADMIN),
        };
        if is_permitted { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Discards free blocks: those of the volume, and of an image with branches those that no
    /// branch has, which are all that its file system gets back.
    fn trim(&self, range: FstrimRange) -> Result<u64, Errno> {
        let root = self.node(wire::ROOT)?.file;
        let bytes = self.tree().base.posix().trim_fs(At::File(&root), "", range)?;
        let Some(pool) = self.present_pool() else { return Ok(bytes) };
        pool.trim().map_err(|error| {
            tracing::warn!("{error}");
            error.errno()
        })
    }

    /// Grows the volume in a branch, or the one that is mounted: that of an image without branches
    /// is `main`. Returns its size.
    fn grow(&self, request: &Request, branch: Option<&str>, growth: Growth) -> Result<u64, Error> {
        if let (Some(name), Some(pool)) = (branch, self.present_pool()) {
            let size =
                pool.branches().into_iter().find(|it| it.name == name).map_or(0, |it| it.size);
            return pool.grow_branch(name, growth.of(size)).map_err(|error| refused_by(&error));
        }
        if branch.is_some_and(|name| name != MAIN) {
            return Err(no_branches());
        }
        let size = self.volume.freezer.as_ref().and_then(Freezer::volume_size).unwrap_or_default();
        let grow = |task: &Task| -> Result<u64, Errno> {
            let root = self.node(wire::ROOT)?.file;
            Ok(task.posix().grow_fs(At::File(&root), "", growth.of(size))?)
        };
        grow(&self.tree().base).map_err(|errno| Error::new(errno, words(request, errno)))
    }

    /// Changes the branches of the image, in the pool that there is, or makes the first one.
    fn change_branches(&self, request: &Request) -> Result<Vec<Reply>, Error> {
        let refused = |error: PoolError| refused_by(&error);
        let pool = match (self.present_pool(), self.volume.maker.as_ref(), request) {
            (Some(pool), ..) => pool,
            (None, Some(maker), Request::Fork { parent, .. } | Request::Checkpoint(parent, _))
                if parent == MAIN =>
            {
                maker.make_pool().map_err(refused)?
            }
            (None, Some(_), Request::Fork { parent, .. } | Request::Checkpoint(parent, _)) => {
                return Err(Error::new(
                    Errno::NOENT,
                    format!("there is no such branch: {parent:?}"),
                ));
            }
            (None, ..) => return Err(no_branches()),
        };
        let mut replies = Vec::new();
        match request {
            Request::Fork { parent, name, read_only, as_synced, temporary } => {
                let options = ForkOptions::new().as_synced(*as_synced);
                let options = match (*temporary, *read_only) {
                    (true, true) => {
                        let why = "a branch that is read-only is not temporary";
                        return Err(Error::new(Errno::INVAL, why));
                    }
                    (true, false) => options.temporary(true),
                    (false, read_only) => options.read_only(read_only),
                };
                pool.fork_with(parent, name, options)
            }
            Request::Delete(name) => pool.delete(name),
            Request::Rename(name, to) => pool.rename(name, to),
            Request::Limit(name, limit) => pool.set_limit(name, *limit),
            Request::Adopt(parent, child) => pool.adopt(parent, child),
            Request::Merge { from, into, strategy, dry_run, is_rebase } => {
                let options = MergeOptions::new().strategy(*strategy).dry_run(*dry_run);
                let act = if *is_rebase { Pool::rebase } else { Pool::merge };
                act(&pool, from, into, options).map(|mut merged| {
                    let conflicts = std::mem::take(&mut merged.conflicts);
                    replies.extend(conflicts.into_iter().map(Reply::Conflict));
                    replies.push(Reply::Merged(merged));
                })
            }
            Request::Rollback(name, to) => {
                let kept = match to {
                    Some(to) => pool.rollback_to(name, to),
                    None => pool.rollback(name),
                };
                kept.map(|kept| replies.extend(kept.map(Reply::Kept)))
            }
            Request::Checkpoint(branch, text) => {
                pool.checkpoint(branch, text).map(|name| replies.push(Reply::Kept(name)))
            }
            Request::Log(branch) => {
                pool.log(branch).map(|log| replies.extend(log.into_iter().map(Reply::Entry)))
            }
            _ => return Err(Errno::PROTO.into()),
        }
        .map_err(refused)?;
        Ok(replies)
    }

    /// Returns the pool of branches, if there is one by now.
    pub(super) fn present_pool(&self) -> Option<Pool> {
        let VolumeRights { pool, maker, .. } = &self.volume;
        pool.clone().or_else(|| maker.as_ref().and_then(PoolMaker::pool))
    }

    /// Makes all changes durable, made through the mount or otherwise. Blocks for the I/O.
    pub(crate) fn make_durable(&self) -> Result<(), Errno> {
        if self.config.volatile {
            return Ok(());
        }
        let root = self.node(wire::ROOT)?.file;
        Ok(self.tree().base.posix().reopen(&root, OFlags::RDONLY | OFlags::NOATIME)?.sync_fs()?)
    }
}

impl Controlled for Server {
    fn check_peer(&self, peer: &UCred) -> Result<(), Errno> {
        self.check_owner(Caller::peer(peer))
    }

    fn serve_request(&self, request: &Request) -> Result<Vec<Reply>, Error> {
        let refused = |errno| Error::new(errno, words(request, errno));
        match request {
            Request::Grow(branch, growth) => {
                self.grow(request, branch.as_deref(), *growth).map(|it| vec![Reply::Number(it)])
            }
            Request::GrowSpace(growth) => {
                let pool = Controlled::pool(self)?;
                let size = growth.map(|growth| growth.of(pool.usage().size));
                let grown = pool.grow(size).map_err(|error| refused_by(&error));
                grown.map(|bytes| vec![Reply::Number(bytes)])
            }
            Request::Trim(range) => Ok(vec![Reply::Number(self.trim(*range).map_err(refused)?)]),
            Request::Statistics => Ok(vec![Reply::Statistics(Box::new(self.statistics()))]),
            Request::Branches => {
                Ok(Controlled::pool(self)?.branches().into_iter().map(Reply::Branch).collect())
            }
            _ => self.change_branches(request).map_err(|error| {
                tracing::info!("a request about branches was refused: {error}");
                error
            }),
        }
    }

    fn pool(&self) -> Result<Pool, Error> {
        self.present_pool().ok_or_else(no_branches)
    }

    fn freezer(&self) -> Option<Freezer> {
        self.volume.freezer.clone()
    }
}

fn refused_by(error: &PoolError) -> Error {
    Error::new(error.errno(), error.to_string())
}

fn no_branches() -> Error {
    let why = "its image has no branches yet: `vfscale branch create` makes the first one";
    Error::new(Errno::OPNOTSUPP, why)
}

/// Returns the meaning of an error of a request.
fn words(request: &Request, errno: Errno) -> String {
    let words = match (request, errno) {
        (Request::Grow(..), Errno::OPNOTSUPP) => {
            "the file system that is mounted there is no volume"
        }
        (Request::Grow(..), Errno::INVAL) => "it is larger already: a volume does not shrink",
        (Request::Grow(..), Errno::FBIG) => "a volume has 16 TiB at most",
        (Request::Grow(..), Errno::NOSPC) => {
            "its device is smaller, or there is no room for a larger image"
        }
        (Request::Grow(..), Errno::BUSY) => {
            "it has grown too often since it was mounted: unmount it first"
        }
        (Request::Trim(_), Errno::OPNOTSUPP) => "its device or file system can't discard",
        (Request::Grow(..) | Request::Trim(_), Errno::ROFS) => "it is mounted for reading only",
        _ => return errno.to_string(),
    };
    words.into()
}
