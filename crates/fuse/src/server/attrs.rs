//! Attributes of nodes and of the file system.

use std::os::unix::ffi::OsStrExt;

use vfscale::posix::{Access, At, AtFlags, SetTime, Stat};
use vfscale::{Capabilities, Errno, File, FileType, Mode};

use super::files::Target;
use super::names::rights_for_mode;
use super::nodes::Level;
use super::unsent::Settle;
use super::{RequestCtx, Rights, Server};
use crate::session::{DeferredReply, Served};
use crate::wire::request::SetAttr;

const ITSELF: AtFlags = AtFlags::EMPTY_PATH;

impl Server {
    fn stat(&self, ctx: &RequestCtx<'_>, fh: Option<u64>) -> Result<Stat, Errno> {
        let file = match fh {
            Some(fh) if fh != 0 => Target::Handle(self.files.get(fh)?),
            _ => Target::Node(self.node(ctx.node)?.file),
        };
        Ok(file.stat()?)
    }

    fn put_attr(&self, ctx: &mut RequestCtx<'_>, stat: &Stat) {
        let ino = self.nodes.shown_ino(ctx.node, stat);
        ctx.reply.attr(ino, stat, self.valid.attr);
    }

    pub(super) fn getattr(&self, ctx: &mut RequestCtx<'_>, fh: Option<u64>) -> Result<(), Errno> {
        let stat = self.stat(ctx, fh)?;
        self.put_attr(ctx, &stat);
        Ok(())
    }

    pub(super) fn statx(&self, ctx: &mut RequestCtx<'_>, fh: Option<u64>) -> Result<(), Errno> {
        let stat = self.stat(ctx, fh)?;
        let ino = self.nodes.shown_ino(ctx.node, &stat);
        ctx.reply.statx(ino, &stat, self.valid.attr);
        Ok(())
    }

    /// Changes the selected attributes: size first, since that may fail for lack of space, then
    /// owner, mode and times. Later changes take precedence over side effects of earlier ones.
    pub(super) fn setattr(
        &self,
        ctx: &mut RequestCtx<'_>,
        set: &SetAttr,
        later: &dyn Fn() -> DeferredReply,
    ) -> Result<Served, Errno> {
        let file = self.node(ctx.node)?.file;
        if let Some(size) = set.size {
            self.truncate(ctx, set, size)?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            // The caller's groups decide whether a set-group-id bit is cleared.
            self.act(ctx, Rights::Exact, |task| {
                task.posix().fchownat(At::File(&file), "", set.uid, set.gid, ITSELF)
            })?;
        }
        if set.is_empty() {
            self.change_nothing(ctx, &file)?;
        }
        if let Some(mode) = set.mode {
            // A kernel that maps ids has cleared a set-group-id bit that the caller may not set.
            let rights = match ctx.caller.is_checked() {
                true => Rights::Lazy,
                false => rights_for_mode(mode),
            };
            self.act(ctx, rights, |task| {
                task.posix().fchmodat(At::File(&file), "", Mode::from_bits_truncate(mode), ITSELF)
            })?;
        }
        if let Some(ctime) = set.ctime {
            // The kernel gathers writes. It has checked the caller's rights, or sends the times of
            // a file on behalf of whoever closes or truncates it.
            self.tree().base.posix().set_kept_times(&file, set.times, ctime)?;
        } else if set.times != [SetTime::Omit; 2] {
            self.act(ctx, Rights::Lazy, |task| {
                task.posix().utimensat(At::File(&file), "", set.times, ITSELF)
            })?;
        }
        let stat = file.stat()?;
        if set.sets_time() && !self.config.gathers() && self.nodes.take_cached(ctx.node) {
            self.keep_promise_of_all(ctx.node)?;
            let shown = (self.nodes.shown_ino(ctx.node, &stat), self.valid.attr);
            self.unsent.settle(Settle { node: ctx.node, file, shown, later: later() });
            return Ok(Served::Deferred);
        }
        self.put_attr(ctx, &stat);
        Ok(Served::Reply)
    }

    /// Sets the change time, and clears set-id bits. If there are any, the caller has to own the
    /// file or be permitted to write it, else nothing changes: the message for a `chown` of neither
    /// owner nor group, which only an owner may make then, is the one that is sent before a write.
    /// A write through a file that was opened with other rights has a flag for the bits itself.
    fn change_nothing(&self, ctx: &mut RequestCtx<'_>, file: &File) -> Result<(), Errno> {
        let Stat { mode, uid, .. } = file.stat()?;
        if mode & 0o6000 != 0 && FileType::from_raw_mode(mode) != FileType::Directory {
            let may_write = self.act(ctx, Rights::Unchecked, |task| {
                let flags = AtFlags::EACCESS | ITSELF;
                task.posix().faccessat(At::File(file), "", Access::WRITE, flags)
            });
            if may_write.is_err() && !ctx.caller.is_user(uid) {
                return Ok(());
            }
            self.kill_priv(ctx, file)?;
        }
        Ok(self.tree().base.posix().fchownat(At::File(file), "", None, None, ITSELF)?)
    }

    fn truncate(&self, ctx: &mut RequestCtx<'_>, set: &SetAttr, size: u64) -> Result<(), Errno> {
        let mut is_same = false;
        let file = match set.fh {
            // Permission was checked when the file was opened.
            Some(fh) => {
                let file = self.open_file(ctx.node, fh, Level::Write)?;
                self.may_truncate(&file)?;
                file
            }
            None => {
                let file = self.node(ctx.node)?.file;
                self.act(ctx, Rights::Lazy, |task| {
                    let flags = AtFlags::EACCESS | ITSELF;
                    task.posix().faccessat(At::File(&file), "", Access::WRITE, flags)
                })?;
                // A truncation by path changes no time if it changes nothing else. In exclusive use
                // the kernel sends the same request for `O_TRUNC`, which always changes the times.
                let stat = file.stat()?;
                is_same = !self.config.is_exclusive() && stat.size == size && stat.blocks == 0;
                Target::Node(self.at_level(ctx.node, Level::Write)?)
            }
        };
        let former = file.stat()?.size;
        if !is_same {
            file.truncate(size)?;
        }
        if self.config.is_exclusive() && !self.config.gathers() {
            // Only then is the size known to the kernel: it drops its pages, and sends them before.
            self.nodes.note_size(ctx.node, former, size);
        }
        if set.kill_priv {
            self.kill_priv(ctx, &file)
        } else {
            // overlayfs truncates with the rights of its mounter, as it writes.
            self.kill_priv_unasked(ctx, &file)
        }
    }

    /// Clears the set-id bits as a change of the data does. The kernel decides when, because it
    /// knows the capabilities of the writer, and excludes concurrent changes. A set-group-id bit
    /// without group execute permission is retained if the writer is in the group, or may keep the
    /// bits anyway.
    pub(super) fn kill_priv(&self, ctx: &RequestCtx<'_>, file: &File) -> Result<(), Errno> {
        let Stat { mode, gid, .. } = file.stat()?;
        let may_keep = || ctx.caller.is_in_group(gid) || ctx.caller.has(Capabilities::FSETID);
        let mut retained = mode & 0o7777 & !0o4000;
        if retained & 0o2000 != 0 && (mode & 0o0010 != 0 || !may_keep()) {
            retained &= !0o2000;
        }
        if retained != mode & 0o7777 {
            self.tree().base.posix().fchmodat(
                At::File(file),
                "",
                Mode::from_bits_truncate(retained),
                ITSELF,
            )?;
        }
        Ok(())
    }

    /// Clears the set-id bits like [`kill_priv`](Self::kill_priv) after requests that leave the
    /// decision to the server. The kernel does so as for writes, but these messages have no flag
    /// for it.
    pub(super) fn kill_priv_unasked(&self, ctx: &RequestCtx<'_>, file: &File) -> Result<(), Errno> {
        if file.stat()?.mode & 0o6000 == 0 || ctx.caller.has(Capabilities::FSETID) {
            return Ok(());
        }
        self.kill_priv(ctx, file)
    }

    pub(super) fn readlink(&self, ctx: &mut RequestCtx<'_>) -> Result<(), Errno> {
        let file = self.node(ctx.node)?.file;
        let target = self.tree().base.posix().readlinkat(At::File(&file), "")?;
        ctx.reply.put(target.as_os_str().as_bytes());
        Ok(())
    }

    /// Checks access. The kernel does not send this request while it checks permissions itself.
    pub(super) fn access(&self, ctx: &mut RequestCtx<'_>, mask: u32) -> Result<(), Errno> {
        let file = self.node(ctx.node)?.file;
        let mask = Access::from_bits_truncate(mask as u8);
        self.act(ctx, Rights::Lazy, |task| {
            task.posix().faccessat(At::File(&file), "", mask, AtFlags::EACCESS | ITSELF)
        })
    }

    pub(super) fn statfs(&self, ctx: &mut RequestCtx<'_>) -> Result<(), Errno> {
        self.reclaim.finish();
        let file = self.node(ctx.node)?.file;
        let statfs = self.tree().base.posix().statfs(At::File(&file), "")?;
        ctx.reply.statfs(&statfs);
        Ok(())
    }
}
