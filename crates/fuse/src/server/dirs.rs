//! Reading of directories.
//!
//! Positions are the file system's own. An entry that exists throughout is returned exactly once,
//! whatever is created and removed concurrently, and a position is valid as long as the directory
//! exists.
//!
//! With attributes (`READDIRPLUS`) each entry in the reply is a lookup, except `.` and `..` and
//! names that no longer existed when they were looked up. Lookups follow the reading and cover only
//! entries that fit, so no lookup is counted that the kernel does not receive.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use vfscale::posix::{At, OFlags};
use vfscale::{Errno, File, Mode};

use super::nodes::Level;
use super::{RequestCtx, Rights, Server};
use crate::wire::OpenReply;
use crate::wire::reply::{Dirent, Reply};
use crate::wire::request::Reading;

impl Server {
    pub(super) fn opendir(&self, ctx: &mut RequestCtx<'_>, flags: u32) -> Result<(), Errno> {
        if self.config.is_exclusive() {
            return Err(Errno::NOSYS);
        }
        let named = self.node(ctx.node)?.file;
        let flags = super::data::open_flags(flags) | OFlags::DIRECTORY;
        let file = self.act(ctx, Rights::Lazy, |task| task.posix().reopen(&named, flags))?;
        let fh = self.files.insert(file);
        ctx.worker.opened = Some(fh);
        ctx.reply.open(fh, OpenReply::empty());
        Ok(())
    }

    pub(super) fn readdir(&self, ctx: &mut RequestCtx<'_>, at: Reading) -> Result<(), Errno> {
        let dir = self.file_to_read(ctx.node, at)?;
        list(&dir, at, ctx.reply, |reply, size, dirent| reply.dirent(size, dirent))
    }

    pub(super) fn readdirplus(&self, ctx: &mut RequestCtx<'_>, at: Reading) -> Result<(), Errno> {
        let dir = self.file_to_read(ctx.node, at)?;
        let mut listing = std::mem::take(&mut ctx.worker.listing);
        listing.names.clear();
        listing.entries.clear();
        let listed = list(&dir, at, ctx.reply, |reply, size, dirent| {
            let Some(entry_at) = reply.direntplus(size, dirent) else { return false };
            if dirent.name != "." && dirent.name != ".." {
                listing.names.extend_from_slice(dirent.name.as_bytes());
                listing.entries.push((entry_at, listing.names.len()));
            }
            true
        });
        let mut start = 0;
        for &(entry_at, end) in &listing.entries {
            let name = OsStr::from_bytes(&listing.names[start..end]);
            start = end;
            // An entry that can't be looked up has no attributes; the kernel requests them when it
            // needs them.
            let _ = self.fill(ctx, &dir, name, entry_at);
        }
        ctx.worker.listing = listing;
        listed
    }

    fn fill(
        &self,
        ctx: &mut RequestCtx<'_>,
        dir: &File,
        name: &OsStr,
        entry_at: usize,
    ) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let file = self.tree().base.posix().openat(At::File(dir), name, flags, Mode::empty())?;
        let stat = file.stat()?;
        let node = self.grant(ctx.worker, file, Level::Path, &stat);
        ctx.reply.fill_entry(entry_at, &self.entry(node, &stat));
        Ok(())
    }
}

/// Reads entries until one does not fit.
fn list(
    dir: &File,
    at: Reading,
    reply: &mut Reply,
    mut put: impl FnMut(&mut Reply, usize, &Dirent<'_>) -> bool,
) -> Result<(), Errno> {
    let size = at.size as usize;
    dir.read_dir_at(at.offset, |entry| {
        let dirent =
            Dirent { ino: entry.ino, next: entry.next, kind: entry.file_type, name: entry.name };
        if put(reply, size, &dirent) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(())
}
