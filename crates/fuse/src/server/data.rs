//! Open files and their data.

use std::borrow::Cow;

use vfscale::driver::super_block::is_for_space;
use vfscale::posix::{Access, At, AtFlags, FallocateFlags, OFlags, Whence};
use vfscale::{Errno, File};

use super::nodes::Level;
use super::unsent::{Seek, has_zero_page};
use super::{RequestCtx, Rights, Server};
use crate::session::{DeferredReply, Served, TRANSFER_MAX};
use crate::wire::request::{Operation, Reading, Write};
use crate::wire::{OpenReply, WriteFlags};

/// Flag of opening to execute: the kernel checks execute permission instead of read permission.
const OPEN_EXEC: u32 = 0x20;

/// Returns the kernel's open flags that the server must handle; the kernel has handled the others.
pub(super) fn open_flags(flags: u32) -> OFlags {
    let retained = OFlags::RWMODE | OFlags::TRUNC | OFlags::APPEND | OFlags::NOATIME;
    // The kernel opens fifos itself; opening one that arrives here anyway must not block.
    OFlags::from_bits_retain(flags) & retained | OFlags::NONBLOCK
}

impl Server {
    /// Opens a file. In exclusive use the kernel checks permissions with cached attributes, and
    /// reads and writes by node number. It is told that opening needs no message, unless inode
    /// flags may forbid it.
    pub(super) fn open(
        &self,
        ctx: &mut RequestCtx<'_>,
        flags: u32,
        kill_priv: bool,
    ) -> Result<(), Errno> {
        let wanted = open_flags(flags);
        if self.config.is_exclusive() {
            if !self.config.sends_open() {
                return Err(Errno::NOSYS);
            }
            self.may_open(ctx.node, wanted)?;
            ctx.reply.open(0, OpenReply::KEEP_CACHE);
            return Ok(());
        }
        let named = self.node(ctx.node)?.file;
        let file = if flags & OPEN_EXEC != 0 {
            self.act(ctx, Rights::Lazy, |task| {
                let how = AtFlags::EACCESS | AtFlags::EMPTY_PATH;
                task.posix().faccessat(At::File(&named), "", Access::EXEC, how)
            })?;
            self.tree().base.posix().reopen(&named, wanted)?
        } else {
            self.act(ctx, Rights::Lazy, |task| task.posix().reopen(&named, wanted))?
        };
        if kill_priv && wanted.contains(OFlags::TRUNC) {
            self.kill_priv(ctx, &file)?;
        }
        // Generated text has no size that the kernel could use.
        let how = if file.is_text() { OpenReply::DIRECT_IO } else { OpenReply::empty() };
        let fh = self.files.insert(file);
        ctx.worker.opened = Some(fh);
        ctx.reply.open(fh, how);
        Ok(())
    }

    pub(super) fn read(&self, ctx: &mut RequestCtx<'_>, at: Reading) -> Result<(), Errno> {
        let file = self.file_to_read(ctx.node, at)?;
        let Reading { offset, size, .. } = at;
        let buf = ctx.reply.space((size as usize).min(TRANSFER_MAX));
        let mut done = 0;
        // The kernel takes a short reply as end of file.
        while done < buf.len() {
            match file.pread(&mut buf[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e.into()),
                Err(_) => break,
            }
        }
        if !self.config.gathers() && has_zero_page(&buf[..done]) {
            let end = offset.saturating_add(done as u64);
            let hole = file.seek(Whence::Hole(offset));
            if hole.is_ok_and(|hole| hole < end) {
                self.nodes.note_hole_sent(ctx.node);
            }
        }
        ctx.reply.shorten(done);
        if !self.config.gathers() {
            self.nodes.note_cached(ctx.node, offset..offset.saturating_add(u64::from(size)));
        }
        Ok(())
    }

    /// Writes data into a file at an offset.
    pub(super) fn write(&self, ctx: &mut RequestCtx<'_>, write: Write<'_>) -> Result<(), Errno> {
        let Write { fh, offset, flags, open, .. } = write;
        let is_cached = flags.contains(WriteFlags::CACHE);
        // Here the kernel turns a short reply into `EIO`, or drops the rest.
        let is_whole = is_cached || open.contains(OFlags::DIRECT);
        // A write from the page cache may carry the handle of any writer, even one that appends.
        let file = self.open_file(ctx.node, if is_cached { 0 } else { fh }, Level::Write)?;
        let mut data = self.permitted(&file, write)?;
        if !self.config.gathers() {
            self.cut_tail(ctx.node, write, &mut data);
        }
        let data = &*data;
        if flags.contains(WriteFlags::KILL_SUIDGID) {
            self.kill_priv(ctx, &file)?;
        }
        let is_late = is_cached && self.unsent.is_settling(ctx.node);
        let stamps = !(is_late || self.config.gathers());
        let mut done = match self.write_part(&file, data, offset, stamps).map_err(Errno::from) {
            Err(errno) if is_for_space(errno) => {
                return Err(self.full(ctx, errno, is_cached));
            }
            written => written?,
        };
        let mut errno = Errno::NOSPC;
        while done < data.len() {
            let mut rest = || {
                let written = self.write_part(&file, &data[done..], offset + done as u64, stamps);
                written.map_err(|error| errno = Errno::from(error)).ok()
            };
            match rest().or_else(|| self.reclaim.retry(rest)) {
                Some(written) if written > 0 => done += written,
                _ => break,
            }
        }
        if is_whole && done < data.len() {
            return Err(self.full(ctx, errno, is_cached));
        }
        ctx.reply.count(done as u32);
        Ok(())
    }

    /// Writes what there is space for. A kernel that gathers writes keeps the times of all of them,
    /// and sends the times itself; a page that is sent since a time is set leaves that alone.
    fn write_part(
        &self,
        file: &File,
        data: &[u8],
        offset: u64,
        stamps: bool,
    ) -> vfscale::Result<usize> {
        if stamps {
            file.pwrite(data, offset)
        } else {
            self.tree().base.posix().pwrite_unstamped(file, data, offset)
        }
    }

    /// Clears what a page of the kernel has between the former end of a file that has just grown
    /// and the end of that page: it was stored in a mapping when it was no part of the file.
    fn cut_tail(&self, node: u64, write: Write<'_>, data: &mut Cow<'_, [u8]>) {
        let range = write.offset..write.offset.saturating_add(data.len() as u64);
        if !write.flags.contains(WriteFlags::CACHE) {
            // A writer who may read can map the file, and store in the pages of this write.
            if write.open.intersection(OFlags::RWMODE) == OFlags::RDWR {
                self.nodes.note_cached(node, range);
            } else {
                self.nodes.take_tail(node, range);
            }
        } else if let Some(tail) = self.nodes.take_tail(node, range) {
            let place = |at: u64| at.saturating_sub(write.offset).min(data.len() as u64) as usize;
            let (from, to) = (place(tail.start), place(tail.end));
            data.to_mut()[from..to].fill(0);
        }
    }

    /// Returns the error of a write for which there is no space. The writer has been told of
    /// success if the kernel gathers, and may go on for ever: so its next write is refused. The
    /// kernel makes it ask for the attributes first.
    fn full(&self, ctx: &RequestCtx<'_>, errno: Errno, is_cached: bool) -> Errno {
        if is_cached && self.config.gathers() {
            self.nodes.note_full(ctx.node, Some(errno));
            self.unsent.drop_attributes_later(ctx.node);
        }
        errno
    }

    /// Returns the error of a request by a writer who has to be told that there is no space. Only
    /// reads, writes and seeks to the end name an open file when they ask for attributes.
    pub(super) fn refused_for_space(&self, node: u64, operation: &Operation<'_>) -> Option<Errno> {
        let is_by_writer = matches!(operation, Operation::GetAttr { fh: Some(_) });
        (is_by_writer && self.config.gathers()).then(|| self.nodes.note_full(node, None)).flatten()
    }

    pub(super) fn fsync(
        &self,
        ctx: &mut RequestCtx<'_>,
        fh: u64,
        data_only: bool,
    ) -> Result<(), Errno> {
        if self.config.gathers() {
            // The kernel does not know how many blocks it has filled.
            self.unsent.drop_attributes(ctx.node);
        } else if self.config.volatile {
            // The kernel remembers this reply and reports success from then on.
            return Err(Errno::NOSYS);
        }
        let file = self.open_file(ctx.node, fh, Level::Read)?;
        Ok(if data_only { file.sync_data() } else { file.sync_all() }?)
    }

    /// Makes all changes durable. Linux sends this request only to some kinds of servers.
    pub(super) fn syncfs(&self) -> Result<(), Errno> {
        if self.config.volatile {
            // The kernel remembers this reply, as with `fsync`.
            return Err(Errno::NOSYS);
        }
        self.make_durable()
    }

    pub(super) fn fallocate(
        &self,
        ctx: &mut RequestCtx<'_>,
        fh: u64,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Result<(), Errno> {
        let file = self.open_file(ctx.node, fh, Level::Write)?;
        let mode = FallocateFlags::from_bits_retain(mode);
        file.fallocate(mode, offset, len)?;
        self.kill_priv_unasked(ctx, &file)
    }

    pub(super) fn lseek(
        &self,
        ctx: &mut RequestCtx<'_>,
        fh: u64,
        offset: u64,
        whence: u32,
        later: &dyn Fn() -> DeferredReply,
    ) -> Result<Served, Errno> {
        /// `SEEK_DATA` and `SEEK_HOLE`; the kernel handles the others itself.
        const DATA: u32 = 3;
        const HOLE: u32 = 4;
        if self.config.gathers() {
            // Data that the kernel has gathered and not sent would be a hole. It remembers this
            // reply, and takes all of a file for data from then on.
            return Err(Errno::NOSYS);
        }
        let whence = match whence {
            DATA => Whence::Data(offset),
            HOLE => Whence::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        let file = self.open_file(ctx.node, fh, Level::Read)?;
        if !self.nodes.is_hole_sent(ctx.node) {
            ctx.reply.u64(file.seek(whence)?);
            return Ok(Served::Reply);
        }
        let seek = Seek { node: ctx.node, file, whence, later: later() };
        self.unsent.ask(seek);
        Ok(Served::Deferred)
    }
}
