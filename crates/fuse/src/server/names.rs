//! Names: lookup, creation, removal, renaming.

use std::ffi::OsStr;

use vfscale::posix::{At, AtFlags, OFlags, RenameFlags};
use vfscale::{Errno, File, FileType, Mode, Task};

use super::nodes::Level;
use super::{RequestCtx, Rights, Server};
use crate::wire::request::Create;
use crate::wire::{OpenReply, decode_dev};

/// Opens the inode of a name itself, whatever its type.
const NAME_ONLY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

/// Returns the rights for a call that sets `mode`: the caller's groups and capabilities decide
/// whether a set-group-id bit is retained.
pub(super) fn rights_for_mode(mode: u32) -> Rights {
    if mode & 0o2000 != 0 { Rights::Exact } else { Rights::Lazy }
}

fn mode_of(bits: u32) -> Mode {
    Mode::from_bits_truncate(bits & 0o7777)
}

impl Server {
    fn name_only(task: &Task, dir: &File, name: &OsStr) -> vfscale::Result<File> {
        task.posix().openat(At::File(dir), name, NAME_ONLY, Mode::empty())
    }

    pub(super) fn lookup(&self, ctx: &mut RequestCtx<'_>, name: &OsStr) -> Result<(), Errno> {
        let dir = self.node(ctx.node)?.file;
        match self.act(ctx, Rights::Lazy, |task| Self::name_only(task, &dir, name)) {
            Ok(file) => self.put_entry(ctx, file, Level::Path),
            Err(Errno::NOENT) if !self.valid.entry.is_zero() => {
                ctx.reply.no_entry(self.valid.entry);
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    /// Replies with the node of a name that was just created.
    fn put_created(&self, ctx: &mut RequestCtx<'_>, dir: &File, name: &OsStr) -> Result<(), Errno> {
        let file = Self::name_only(&self.tree().base, dir, name)?;
        self.put_entry(ctx, file, Level::Path)
    }

    pub(super) fn symlink(
        &self,
        ctx: &mut RequestCtx<'_>,
        name: &OsStr,
        target: &OsStr,
    ) -> Result<(), Errno> {
        let dir = self.node(ctx.node)?.file;
        self.act(ctx, Rights::Lazy, |task| task.posix().symlinkat(At::File(&dir), name, target))?;
        self.put_created(ctx, &dir, name)
    }

    pub(super) fn mknod(
        &self,
        ctx: &mut RequestCtx<'_>,
        name: &OsStr,
        mode: u32,
        rdev: u32,
        umask: u32,
    ) -> Result<(), Errno> {
        let dir = self.node(ctx.node)?.file;
        let kind = FileType::from_raw_mode(mode);
        let rights = rights_for_mode(mode);
        if kind == FileType::RegularFile {
            // A new file is most likely written next, so its node gets a writable handle here.
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
            let file = self.act(ctx, rights, |task| {
                task.umask(mode_of(umask));
                task.posix().openat(At::File(&dir), name, flags, mode_of(mode))
            })?;
            return self.put_writable(ctx, file);
        }
        self.act(ctx, rights, |task| {
            task.umask(mode_of(umask));
            task.posix().mknodat(At::File(&dir), name, kind, mode_of(mode), decode_dev(rdev))
        })?;
        self.put_created(ctx, &dir, name)
    }

    pub(super) fn mkdir(
        &self,
        ctx: &mut RequestCtx<'_>,
        name: &OsStr,
        mode: u32,
        umask: u32,
    ) -> Result<(), Errno> {
        let dir = self.node(ctx.node)?.file;
        self.act(ctx, rights_for_mode(mode), |task| {
            task.umask(mode_of(umask));
            task.posix().mkdirat(At::File(&dir), name, mode_of(mode))
        })?;
        self.put_created(ctx, &dir, name)
    }

    /// Creates and opens a file. In exclusive use the kernel does not send this request; it uses
    /// `MKNOD`, one message less.
    pub(super) fn create(
        &self,
        ctx: &mut RequestCtx<'_>,
        create: &Create<'_>,
    ) -> Result<(), Errno> {
        if self.config.is_exclusive() {
            return Err(Errno::NOSYS);
        }
        let dir = self.node(ctx.node)?.file;
        let flags = super::data::open_flags(create.flags) | OFlags::CREATE | OFlags::NOFOLLOW;
        let excl = OFlags::from_bits_retain(create.flags) & OFlags::EXCL;
        let file = self.act(ctx, rights_for_mode(create.mode), |task| {
            task.umask(mode_of(create.umask));
            task.posix().openat(At::File(&dir), create.name, flags | excl, mode_of(create.mode))
        })?;
        self.put_opened(ctx, file)
    }

    /// Creates a file without a name (`O_TMPFILE`); the name in the request is ignored.
    pub(super) fn tmpfile(
        &self,
        ctx: &mut RequestCtx<'_>,
        create: &Create<'_>,
    ) -> Result<(), Errno> {
        let dir = self.node(ctx.node)?.file;
        let excl = OFlags::from_bits_retain(create.flags) & OFlags::EXCL;
        let flags = OFlags::TMPFILE | OFlags::RDWR | excl;
        let file = self.act(ctx, rights_for_mode(create.mode), |task| {
            task.umask(mode_of(create.umask));
            task.posix().openat(At::File(&dir), ".", flags, mode_of(create.mode))
        })?;
        self.put_opened(ctx, file)
    }

    /// Replies with a new node. All writers that the kernel permits will write through the node's
    /// handle. The kernel decides whether their writes clear set-id bits, so the handle must be one
    /// that retains them.
    fn put_writable(&self, ctx: &mut RequestCtx<'_>, file: File) -> Result<(), Errno> {
        let file = if ctx.caller.retains_set_id() {
            file
        } else {
            self.tree().base.posix().reopen(&file, OFlags::RDWR | OFlags::NONBLOCK)?
        };
        self.put_entry(ctx, file, Level::Write)
    }

    /// Replies with a new node and an open file of it.
    fn put_opened(&self, ctx: &mut RequestCtx<'_>, file: File) -> Result<(), Errno> {
        if self.config.is_exclusive() {
            self.put_writable(ctx, file)?;
            ctx.reply.open(0, OpenReply::KEEP_CACHE);
            return Ok(());
        }
        let named = self.tree().base.posix().reopen(&file, OFlags::PATH)?;
        self.put_entry(ctx, named, Level::Path)?;
        let fh = self.files.insert(file);
        ctx.worker.opened = Some(fh);
        ctx.reply.open(fh, OpenReply::empty());
        Ok(())
    }

    pub(super) fn unlink(
        &self,
        ctx: &mut RequestCtx<'_>,
        name: &OsStr,
        flags: AtFlags,
    ) -> Result<(), Errno> {
        let dir = self.node(ctx.node)?.file;
        self.act(ctx, Rights::Lazy, |task| task.posix().unlinkat(At::File(&dir), name, flags))?;
        self.reclaim.removed();
        Ok(())
    }

    pub(super) fn rename(
        &self,
        ctx: &mut RequestCtx<'_>,
        name: &OsStr,
        to: u64,
        to_name: &OsStr,
        flags: u32,
    ) -> Result<(), Errno> {
        let (from_dir, to_dir) = (self.node(ctx.node)?.file, self.node(to)?.file);
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        self.act(ctx, Rights::Lazy, |task| {
            task.posix().renameat2(At::File(&from_dir), name, At::File(&to_dir), to_name, flags)
        })?;
        self.reclaim.removed();
        Ok(())
    }

    pub(super) fn link(
        &self,
        ctx: &mut RequestCtx<'_>,
        node: u64,
        name: &OsStr,
    ) -> Result<(), Errno> {
        let (file, dir) = (self.node(node)?.file, self.node(ctx.node)?.file);
        self.act(ctx, Rights::Lazy, |task| {
            task.posix().linkat(At::File(&file), "", At::File(&dir), name, AtFlags::EMPTY_PATH)
        })?;
        self.put_created(ctx, &dir, name)
    }
}
