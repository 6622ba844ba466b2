//! Copies within the file system, `copy_file_range(2)`.
//!
//! The kernel can't interrupt a request, which occupies a worker. So each copies a part, and its
//! reply tells how much that was; the caller asks for the rest.

use vfscale::posix::{FallocateFlags, Whence};
use vfscale::{Errno, File};

use super::nodes::Level;
use super::{RequestCtx, Server};
use crate::wire::request::CopyEnd;

/// Bytes of data that one request copies.
const DATA_MAX: u64 = 8 << 20;
/// Bytes of holes that one request copies, where the target may have data.
const HOLES_MAX: u64 = 64 << 20;
/// Pieces of data and holes that one request copies.
const PIECES_MAX: usize = 64;

impl Server {
    pub(super) fn copy_file_range(
        &self,
        ctx: &mut RequestCtx<'_>,
        from: CopyEnd,
        to: CopyEnd,
        len: u64,
        wide: bool,
    ) -> Result<(), Errno> {
        let source = self.open_file(from.node, from.fh, Level::Read)?;
        let target = self.open_file(to.node, to.fh, Level::Write)?;
        self.may_copy_to(&target, to.offset)?;
        let mut copy = Copy { source: &source, target: &target, from: from.offset, to: to.offset };
        let copied = copy.run(len.min(DATA_MAX + HOLES_MAX))?;
        self.kill_priv_unasked(ctx, &target)?;
        if wide {
            ctx.reply.u64(copied);
        } else {
            ctx.reply.count(copied as u32);
        }
        Ok(())
    }
}

/// A copy that is in progress.
struct Copy<'a> {
    source: &'a File,
    target: &'a File,
    from: u64,
    to: u64,
}

impl Copy<'_> {
    /// Copies up to `len` bytes, and returns how many that were; 0 at the end of the source.
    fn run(&mut self, len: u64) -> Result<u64, Errno> {
        // Makes all checks, and copies nothing.
        self.data(0)?;
        let (mut data, mut holes, mut done) = (DATA_MAX, HOLES_MAX, 0);
        for _ in 0..PIECES_MAX {
            let copied = match self.hole_length()? {
                0 => self.data(self.data_length(data.min(len - done))).inspect(|n| data -= n),
                hole => self.hole(hole.min(holes).min(len - done)).inspect(|n| holes -= n),
            };
            match copied {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Returns the length of the hole that comes next; 0 for data, at the end, and in generated
    /// text, which has no holes.
    fn hole_length(&self) -> Result<u64, Errno> {
        match self.source.seek(Whence::Data(self.from)).map_err(Errno::from) {
            Ok(data) => Ok(data - self.from),
            Err(Errno::NXIO) => Ok(self.source.stat()?.size.saturating_sub(self.from)),
            Err(_) => Ok(0),
        }
    }

    /// Returns the length of the data that come next, at most `max`.
    fn data_length(&self, max: u64) -> u64 {
        self.source.seek(Whence::Hole(self.from)).map_or(max, |hole| (hole - self.from).min(max))
    }

    fn advance(&mut self, len: u64) -> u64 {
        self.from += len;
        self.to += len;
        len
    }

    fn data(&mut self, len: u64) -> Result<u64, Errno> {
        let (mut from, mut to) = (self.from, self.to);
        let copied = self.source.copy_range(Some(&mut from), self.target, Some(&mut to), len)?;
        Ok(self.advance(copied))
    }

    /// Makes a hole in the target, or zeros where it can't have one.
    fn hole(&mut self, len: u64) -> Result<u64, Errno> {
        if len == 0 {
            return Ok(0);
        }
        let end = self.to.checked_add(len).ok_or(Errno::OVERFLOW)?;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if self.target.fallocate(punch, self.to, len).is_err() {
            return self.data(len.min(DATA_MAX));
        }
        if self.target.stat()?.size < end {
            self.target.truncate(end)?;
        }
        Ok(self.advance(len))
    }
}
