//! Calls that write to open files, and their behaviour without space.
//!
//! # Freed space that is not yet available
//!
//! A driver writes as much as fits, with the inode locked and perhaps in an RCU section. There it
//! cannot wait for space that was freed and may not be used yet. So the calls here wait for such
//! space, with nothing held: before they repeat a write that wrote nothing
//! ([`SuperBlock::with_space`]), and in the middle of a write of which a part fitted. A write is
//! short only if no freed space was about to become available, or if another writer came in
//! between: one that moved the position, or appended.
//!
//! [`SuperBlock::with_space`]: crate::objects::super_block::SuperBlock::with_space

use std::io::IoSlice;

use rustix::io::Errno;
use smallvec::SmallVec;

use crate::base::error::{Outcome, Result};
use crate::base::types::OFlags;
use crate::file::failed::OnFile;
use crate::file::open_file::{File, check_offset, check_range, drop_privileges};
use crate::objects::inode::Inode;
use crate::objects::memfd_seals;

/// The part of a call's data to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All of the data.
    Whole,
    /// The rest of a write that ran out of space: it continues at the end of the first part, or is
    /// not written.
    Rest,
}

impl File {
    /// Runs `call` by
    /// [`SuperBlock::with_space`](crate::objects::super_block::SuperBlock::with_space).
    #[inline]
    pub(crate) fn with_space<T>(&self, call: impl Fn() -> Outcome<T>) -> Outcome<T> {
        self.inode().sb().with_space(call)
    }

    /// Writes at `offset`, or at the end if the file was opened with `APPEND`. Writes fewer bytes
    /// than requested only if space runs out.
    ///
    /// # Errors
    /// `EBADF` if not open for writing, `EFBIG`, `ENOSPC`, `EINVAL` for an offset above `i64::MAX`.
    pub fn pwrite(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.write_whole(offset, &[IoSlice::new(buf)]).map(|(_, n)| n).of("pwrite", &self.0)
    }

    /// Writes several buffers at `offset`; see [`pwrite`](Self::pwrite).
    ///
    /// # Errors
    /// As [`pwrite`](Self::pwrite).
    pub fn pwritev(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        self.write_whole(offset, bufs).map(|(_, n)| n).of("pwritev", &self.0)
    }

    /// Writes at the file's position, or the end, and moves the position after the data. A pipe or
    /// socket has no position: the write blocks until there is room for all data, unless opened
    /// with `NONBLOCK`.
    ///
    /// # Errors
    /// As [`pwrite`](Self::pwrite); `EPIPE`, without a signal, if no reader is left; `EAGAIN`
    /// instead of blocking.
    pub fn write(&self, buf: &[u8]) -> Result<usize> {
        if self.is_stream() {
            return self.write_stream(&[IoSlice::new(buf)], None).of("write", &self.0);
        }
        self.write_whole_at_pos(&[IoSlice::new(buf)]).of("write", &self.0)
    }

    /// Writes several buffers at the file's position, or the end, and moves the position after the
    /// data; no other write intervenes. Blocks as [`write`](Self::write) does.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn writev(&self, bufs: &[IoSlice<'_>]) -> Result<usize> {
        if self.is_stream() {
            return self.writev_stream(bufs).of("writev", &self.0);
        }
        self.write_whole_at_pos(bufs).of("writev", &self.0)
    }

    /// Writes `bufs` one after the other at `offset`, or at the end if the file appends. Returns
    /// the offset of the first byte and the number of bytes written: 0 for a [`Part::Rest`] before
    /// which another writer has written.
    fn write_inner(&self, offset: u64, bufs: &[IoSlice<'_>], part: Part) -> Outcome<(u64, usize)> {
        check_offset(offset)?;
        let inode = self.check_write()?;
        // Compiled twice, so plain files do not pay for the checks of other files.
        let written = if inode.is_plain() {
            self.write_to::<true, true>(inode, offset, bufs, part)
        } else if inode.is_shared()
            && let Some(n) = self.overwrite(inode, offset, bufs)
        {
            let flags = self.flags() | inode.sync_flags();
            self.sync_written(inode, flags).map(|()| (offset, n))
        } else {
            self.write_to::<false, true>(inode, offset, bufs, part)
        };
        self.report_written(written)
    }

    /// Writes `buf` at `offset`, never at the end of the file instead, and leaves the times of the
    /// last change alone. Returns less than `buf.len()` if space runs out.
    pub(crate) fn write_unstamped(&self, offset: u64, buf: &[u8]) -> Outcome<usize> {
        check_offset(offset)?;
        let inode = self.check_write()?;
        let bufs = [IoSlice::new(buf)];
        let written =
            self.with_space(|| self.write_to::<false, false>(inode, offset, &bufs, Part::Whole));
        self.report_written(written).map(|(_, n)| n)
    }

    /// Reports a write to watchers, if it has written anything, and returns its outcome.
    #[inline(always)]
    fn report_written(&self, written: Outcome<(u64, usize)>) -> Outcome<(u64, usize)> {
        if matches!(written, Ok((_, 1..))) {
            self.0.changed();
        }
        written
    }

    #[inline(always)]
    fn write_to<const PLAIN: bool, const STAMP: bool>(
        &self,
        inode: &Inode,
        offset: u64,
        bufs: &[IoSlice<'_>],
        part: Part,
    ) -> Outcome<(u64, usize)> {
        // A single buffer, nearly always the case, needs no loop.
        let len = match bufs {
            [buf] => buf.len(),
            _ => bufs.iter().map(|buf| buf.len()).sum(),
        };
        if len == 0 {
            return Ok((offset, 0));
        }
        check_range(offset, len)?;
        let flags = self.flags();
        let fs = inode.sb().fs();
        let locked = inode.lock();
        let appends = STAMP && flags.contains(OFlags::APPEND);
        let start = if appends { inode.size() } else { offset };
        if part == Part::Rest && start != offset {
            return Ok((offset, 0));
        }
        if start >= fs.size_max() {
            return Err(Errno::FBIG);
        }
        let mut room = usize::try_from(fs.size_max() - start).unwrap_or(usize::MAX);
        if !PLAIN {
            room = memfd_seals::check_write(inode, start, room.min(len))?;
        }
        drop_privileges(inode, self.0.mode())?;
        if !STAMP {
            // The caller has the times.
        } else if PLAIN {
            inode.touch();
        } else {
            inode.touch_in_passing();
        }
        let mut done = 0;
        for buf in bufs {
            let part = &buf[..buf.len().min(room)];
            if part.is_empty() {
                continue;
            }
            match fs.write_at(inode, start + done as u64, part) {
                Ok(n) => {
                    done += n;
                    room -= n;
                    if n < buf.len() {
                        break;
                    }
                }
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        if locked.waited() && start + (done as u64) < inode.size() && self.sharable(bufs).is_some()
        {
            inode.unlock_sharable(locked);
        } else {
            drop(locked);
        }
        self.sync_written(inode, if PLAIN { flags } else { flags | inode.sync_flags() })?;
        Ok((start, done))
    }

    /// Writes `bufs` at `offset`, or at the end if the file appends: as much as there is, or
    /// becomes, space for. Returns the offset of the first byte and the number of bytes written.
    /// The caller holds nothing.
    #[inline]
    pub(crate) fn write_whole(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Outcome<(u64, usize)> {
        let (start, done) = self.with_space(|| self.write_inner(offset, bufs, Part::Whole))?;
        if done == 0 || done == len_of(bufs) {
            return Ok((start, done));
        }
        let write = |done: usize, rest: &[IoSlice<'_>]| {
            self.write_inner(start + done as u64, rest, Part::Rest).map(|(_, n)| n)
        };
        Ok((start, self.write_rest(done, bufs, write)))
    }

    #[inline]
    fn write_whole_at_pos(&self, bufs: &[IoSlice<'_>]) -> Outcome<usize> {
        let (end, done) = self.with_space(|| self.write_at_pos(bufs, None))?;
        if done == 0 || done == len_of(bufs) {
            return Ok(done);
        }
        let start = end - done as u64;
        let write = |done: usize, rest: &[IoSlice<'_>]| {
            self.write_at_pos(rest, Some(start + done as u64)).map(|(_, n)| n)
        };
        Ok(self.write_rest(done, bufs, write))
    }

    /// Writes the data after the first `done` bytes of `bufs`, while space is, or becomes,
    /// available. Returns the total number of bytes written.
    #[cold]
    fn write_rest(
        &self,
        mut done: usize,
        bufs: &[IoSlice<'_>],
        write: impl Fn(usize, &[IoSlice<'_>]) -> Outcome<usize>,
    ) -> usize {
        loop {
            let rest = behind(bufs, done);
            if rest.is_empty() {
                return done;
            }
            match self.with_space(|| write(done, &rest)) {
                Ok(n) if n > 0 => done += n,
                _ => return done,
            }
        }
    }

    /// Writes at the position; writes nothing if `expected` is given and differs from the position.
    /// Returns the position after the data, and the number of bytes.
    fn write_at_pos(&self, bufs: &[IoSlice<'_>], expected: Option<u64>) -> Outcome<(u64, usize)> {
        self.check_write()?;
        let mut pos = self.0.pos.lock();
        if expected.is_some_and(|expected| expected != pos.get()) {
            return Ok((pos.get(), 0));
        }
        let part = if expected.is_some() { Part::Rest } else { Part::Whole };
        let (start, n) = self.write_inner(pos.get(), bufs, part)?;
        let end = start + n as u64;
        if n > 0 {
            pos.set(end);
        }
        Ok((end, n))
    }
}

/// Returns the number of bytes in all of `bufs`.
#[inline]
fn len_of(bufs: &[IoSlice<'_>]) -> usize {
    // A single buffer, nearly always the case, needs no loop.
    match bufs {
        [buf] => buf.len(),
        _ => bufs.iter().map(|buf| buf.len()).sum(),
    }
}

/// Returns the rest of `bufs` after the first `done` bytes.
fn behind<'b>(bufs: &'b [IoSlice<'_>], mut done: usize) -> SmallVec<[IoSlice<'b>; 4]> {
    let mut rest = SmallVec::new();
    for buf in bufs {
        let skipped = done.min(buf.len());
        done -= skipped;
        if skipped < buf.len() {
            rest.push(IoSlice::new(&buf[skipped..]));
        }
    }
    rest
}
