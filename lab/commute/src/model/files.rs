//! Calls that open files, and calls on open files.

use vfscale::posix::{OFlags, Whence};
use vfscale::{Errno, Mode};

use super::state::{Body, CallResult, DentryId, FileId, InodeId, OpenFile, PAGE, State};
use super::walk::LastComponent;
use crate::case::{Entry, Outcome};

/// Capacity of a pipe in pages.
const PIPE_PAGES: usize = 16;

/// Returns the page that begins at an offset.
fn page(offset: u64) -> Result<usize, Errno> {
    if offset.is_multiple_of(PAGE) { Ok((offset / PAGE) as usize) } else { Err(Errno::INVAL) }
}

/// Checks that a length is one page.
fn one_page(len: usize) -> Result<(), Errno> {
    if len as u64 == PAGE { Ok(()) } else { Err(Errno::INVAL) }
}

/// Returns the data of a page.
fn bytes(page: Option<u8>) -> Outcome {
    Outcome::Bytes(vec![page.unwrap_or(0); PAGE as usize])
}

impl State {
    pub(super) fn open(
        &mut self,
        process: usize,
        path: &str,
        flags: OFlags,
        mode: Mode,
        slot: u8,
    ) -> CallResult {
        if flags.contains(OFlags::TMPFILE) {
            let dir = self.lookup(process, path, true)?;
            if !self.is_dir(dir) {
                return Err(Errno::NOTDIR);
            }
            let dentry = self.make_nameless(dir, mode.bits())?;
            return self.install(process, slot, dentry, flags);
        }
        let dentry = if flags.contains(OFlags::CREATE) {
            self.open_or_create(process, path, flags, mode)?
        } else {
            self.lookup(process, path, !flags.contains(OFlags::NOFOLLOW))?
        };
        self.may_open(dentry, flags)?;
        if flags.contains(OFlags::TRUNC) {
            self.pages_mut(self.dentries[dentry].inode)?.clear();
            self.changed(self.dentries[dentry].inode);
        }
        self.install(process, slot, dentry, flags)
    }

    fn may_open(&self, dentry: DentryId, flags: OFlags) -> Result<(), Errno> {
        let writes = flags & OFlags::ACCMODE != OFlags::RDONLY || flags.contains(OFlags::CREATE);
        match self.body(dentry) {
            Body::Symlink(_) => Err(Errno::LOOP),
            Body::Directory(_) if writes => Err(Errno::ISDIR),
            Body::File(_) | Body::Pipe(_) if flags.contains(OFlags::DIRECTORY) => {
                Err(Errno::NOTDIR)
            }
            _ => Ok(()),
        }
    }

    fn open_or_create(
        &mut self,
        process: usize,
        path: &str,
        flags: OFlags,
        mode: Mode,
    ) -> Result<DentryId, Errno> {
        let mut links = 0;
        let mut start = self.cwd[process % self.cwd.len()];
        let mut path = path.to_owned();
        loop {
            let LastComponent { dir, name, found } =
                self.walk_parent_from(start, &path, &mut links)?;
            let Some(found) = found else {
                let last = LastComponent { dir, name, found };
                return self.make(&last, Body::File(Vec::new()), mode.bits());
            };
            if flags.contains(OFlags::EXCL) {
                return Err(Errno::EXIST);
            }
            let found = self.follow_mounts(found);
            if flags.contains(OFlags::NOFOLLOW) {
                return Ok(found);
            }
            match self.link_target(found, &mut links)? {
                Some(target) => (start, path) = (dir, target.to_owned()),
                None => return Ok(found),
            }
        }
    }

    pub(super) fn close(&mut self, process: usize, slot: u8) -> CallResult {
        self.take(process, slot);
        Ok(Outcome::Done)
    }

    pub(super) fn pipe(&mut self, process: usize, reader: u8, writer: u8) -> CallResult {
        let (dentry, _) = self.new_pipe();
        self.install(process, reader, dentry, OFlags::RDONLY | OFlags::NONBLOCK)?;
        self.install(process, writer, dentry, OFlags::WRONLY | OFlags::NONBLOCK)
    }

    /// Returns the page of a file at an offset, or `None` at its end.
    fn page_at(&self, inode: InodeId, offset: u64) -> Result<Option<Outcome>, Errno> {
        match &self.inodes[inode].body {
            Body::File(pages) => Ok(pages.get(page(offset)?).map(|page| bytes(*page))),
            Body::Directory(_) => Err(Errno::ISDIR),
            _ => Err(Errno::SPIPE),
        }
    }

    fn fill_page(&mut self, inode: InodeId, offset: u64, byte: u8) -> Result<(), Errno> {
        let at = page(offset)?;
        let pages = self.pages_mut(inode)?;
        if pages.len() <= at {
            pages.resize(at + 1, None);
        }
        pages[at] = Some(byte);
        self.changed(inode);
        Ok(())
    }

    pub(super) fn pread(&self, file: FileId, len: usize, offset: u64) -> CallResult {
        one_page(len)?;
        let file = self.file(file);
        if matches!(self.inodes[file.inode].body, Body::Pipe(_)) {
            return Err(Errno::SPIPE);
        }
        if !file.reads() {
            return Err(Errno::BADF);
        }
        let found = self.page_at(file.inode, offset)?;
        Ok(found.unwrap_or_else(|| Outcome::Bytes(Vec::new())))
    }

    pub(super) fn read(&mut self, file: FileId, len: usize) -> CallResult {
        let inode = self.file(file).inode;
        if matches!(self.inodes[inode].body, Body::Pipe(_)) {
            return self.read_pipe(file, len);
        }
        let outcome = self.pread(file, len, self.file(file).position)?;
        if let Outcome::Bytes(bytes) = &outcome {
            self.file_mut(file).position += bytes.len() as u64;
        }
        Ok(outcome)
    }

    fn read_pipe(&mut self, file: FileId, len: usize) -> CallResult {
        one_page(len)?;
        let inode = self.file(file).inode;
        if !self.file(file).reads() {
            return Err(Errno::BADF);
        }
        let has_writer = self.has_end(inode, true);
        let Body::Pipe(queue) = &mut self.inodes[inode].body else { return Err(Errno::INVAL) };
        match queue.pop_front() {
            Some(byte) => Ok(bytes(Some(byte))),
            None if has_writer => Err(Errno::AGAIN),
            None => Ok(Outcome::Bytes(Vec::new())),
        }
    }

    pub(super) fn pwrite(&mut self, file: FileId, len: usize, byte: u8, offset: u64) -> CallResult {
        one_page(len)?;
        let inode = self.file(file).inode;
        if matches!(self.inodes[inode].body, Body::Pipe(_)) {
            return Err(Errno::SPIPE);
        }
        if !self.file(file).writes() {
            return Err(Errno::BADF);
        }
        self.fill_page(inode, self.write_offset(file, offset), byte)?;
        Ok(Outcome::Number(PAGE))
    }

    /// Returns the offset of a write. `O_APPEND` replaces it by the end of the file, for `pwrite`
    /// too.
    fn write_offset(&self, file: FileId, offset: u64) -> u64 {
        let file = self.file(file);
        if file.flags.contains(OFlags::APPEND) { self.size(file.inode) } else { offset }
    }

    pub(super) fn write(&mut self, file: FileId, len: usize, byte: u8) -> CallResult {
        let inode = self.file(file).inode;
        if matches!(self.inodes[inode].body, Body::Pipe(_)) {
            return self.write_pipe(file, len, byte);
        }
        let offset = self.write_offset(file, self.file(file).position);
        let outcome = self.pwrite(file, len, byte, offset)?;
        self.file_mut(file).position = offset + PAGE;
        Ok(outcome)
    }

    fn write_pipe(&mut self, file: FileId, len: usize, byte: u8) -> CallResult {
        one_page(len)?;
        let inode = self.file(file).inode;
        if !self.file(file).writes() {
            return Err(Errno::BADF);
        }
        let has_reader = self.has_end(inode, false);
        let Body::Pipe(queue) = &mut self.inodes[inode].body else { return Err(Errno::INVAL) };
        if !has_reader {
            return Err(Errno::PIPE);
        }
        if queue.len() >= PIPE_PAGES {
            return Err(Errno::AGAIN);
        }
        // An anonymous pipe has no times, as in Linux since 6.15.
        queue.push_back(byte);
        Ok(Outcome::Number(PAGE))
    }

    pub(super) fn lseek(&mut self, file: FileId, to: Whence) -> CallResult {
        let OpenFile { inode, position, .. } = *self.file(file);
        let size = self.size(inode);
        let from = |base: u64, by: i64| base.checked_add_signed(by).ok_or(Errno::INVAL);
        let found = match (&self.inodes[inode].body, to) {
            (Body::Pipe(_), _) => return Err(Errno::SPIPE),
            (Body::File(_) | Body::Directory(_), Whence::Set(offset)) => offset,
            (Body::File(_) | Body::Directory(_), Whence::Current(by)) => from(position, by)?,
            (Body::File(_), Whence::End(by)) => from(size, by)?,
            (Body::File(pages), Whence::Data(at)) => find(pages, at, true)?.ok_or(Errno::NXIO)?,
            (Body::File(pages), Whence::Hole(at)) => find(pages, at, false)?.unwrap_or(size),
            // A directory has no defined end.
            _ => return Err(Errno::INVAL),
        };
        self.file_mut(file).position = found;
        Ok(Outcome::Number(found))
    }

    pub(super) fn truncate(&mut self, process: usize, path: &str, size: u64) -> CallResult {
        let dentry = self.lookup(process, path, true)?;
        let inode = self.dentries[dentry].inode;
        // As on tmpfs: truncation to the current size leaves the times, unless the file has an
        // allocated page.
        let before = self.size(inode);
        let has_pages = self.pages_mut(inode)?.iter().any(Option::is_some);
        self.set_size(inode, size)?;
        if size != before || has_pages {
            self.changed(inode);
        }
        Ok(Outcome::Done)
    }

    pub(super) fn ftruncate(&mut self, file: FileId, size: u64) -> CallResult {
        let file = self.file(file);
        if !file.writes() || !matches!(self.inodes[file.inode].body, Body::File(_)) {
            return Err(Errno::INVAL);
        }
        let inode = file.inode;
        self.set_size(inode, size)?;
        // The times change even if the size does not, unlike with `truncate`.
        self.changed(inode);
        Ok(Outcome::Done)
    }

    fn set_size(&mut self, inode: InodeId, size: u64) -> CallResult {
        let pages = page(size)?;
        self.pages_mut(inode)?.resize(pages, None);
        Ok(Outcome::Done)
    }

    /// Returns all entries of a directory but `.` and `..`.
    pub(super) fn readdir(&self, file: FileId) -> CallResult {
        let dir = self.file(file).dentry;
        let entries = self.entries(dir).ok_or(Errno::NOTDIR)?;
        if self.dentries[dir].removed {
            return Err(Errno::NOENT);
        }
        let entry = |(name, &dentry): (&String, &DentryId)| Entry {
            name: name.clone(),
            file_type: self.body(dentry).file_type(),
            ino: self.dentries[dentry].inode as u64,
        };
        Ok(Outcome::Entries(entries.iter().map(entry).collect()))
    }

    pub(super) fn fsync(&self, file: FileId) -> CallResult {
        match self.inodes[self.file(file).inode].body {
            Body::Pipe(_) => Err(Errno::INVAL),
            _ => Ok(Outcome::Done),
        }
    }
}

/// Returns the first data, or the first hole, at or after an offset within a file.
fn find(pages: &[Option<u8>], offset: u64, data: bool) -> Result<Option<u64>, Errno> {
    let from = page(offset)?;
    if from >= pages.len() {
        return Err(Errno::NXIO);
    }
    let found = pages[from..].iter().position(|page| page.is_some() == data);
    Ok(found.map(|at| (from + at) as u64 * PAGE))
}
