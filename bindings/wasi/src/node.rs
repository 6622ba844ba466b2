//! An open file or directory of a guest.

use std::ops::ControlFlow;
use std::sync::Arc;

use vfscale::posix::{At, AtFlags, DirEntryBuf, OFlags, SetTime, Stat};
use vfscale::{Errno, File, FileType, Task};

use crate::errors::Outcome;
use crate::filesystem::Access;

/// The most entries of a directory that are read at once.
const ENTRIES: usize = 64;

/// An open file or directory, and the task that makes the calls on it.
#[derive(Clone)]
pub(crate) struct Node {
    task: Arc<Task>,
    file: File,
    access: Access,
}

impl Node {
    pub(crate) fn new(task: Arc<Task>, file: File, access: Access) -> Node {
        Node { task, file, access }
    }

    /// Returns one that the same task has opened, with the same access.
    pub(crate) fn beside(&self, file: File) -> Node {
        Node { task: Arc::clone(&self.task), file, access: self.access }
    }

    pub(crate) fn task(&self) -> &Task {
        &self.task
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn file_type(&self) -> FileType {
        self.file.file_type()
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    pub(crate) fn has_task_of(&self, other: &Node) -> bool {
        Arc::ptr_eq(&self.task, &other.task)
    }

    pub(crate) fn may_change(&self) -> bool {
        self.access == Access::ReadWrite
    }

    /// Fails if the guest may change nothing.
    pub(crate) fn check_change(&self) -> Outcome<()> {
        if self.may_change() { Ok(()) } else { Err(Errno::ROFS) }
    }

    pub(crate) fn may_read(&self) -> bool {
        self.file.flags() & OFlags::ACCMODE != OFlags::WRONLY
    }

    pub(crate) fn may_write(&self) -> bool {
        self.file.flags() & OFlags::ACCMODE != OFlags::RDONLY
    }

    pub(crate) fn stat(&self) -> Outcome<Stat> {
        self.file.stat().map_err(|error| error.errno())
    }

    /// Returns whether both are the same file.
    pub(crate) fn is_same(&self, other: &Node) -> Outcome<bool> {
        let [a, b] = [self.stat()?, other.stat()?];
        Ok((a.dev, a.ino, a.generation) == (b.dev, b.ino, b.generation))
    }

    pub(crate) fn set_times(&self, times: [SetTime; 2]) -> Outcome<()> {
        self.check_change()?;
        let calls = self.task.posix();
        calls
            .utimensat(At::File(&self.file), "", times, AtFlags::EMPTY_PATH)
            .map_err(|error| error.errno())
    }

    pub(crate) fn sync(&self, data_only: bool) -> Outcome<()> {
        let synced = if data_only { self.file.sync_data() } else { self.file.sync_all() };
        synced.map_err(|error| error.errno())
    }

    pub(crate) fn set_size(&self, size: u64) -> Outcome<()> {
        self.check_change()?;
        self.file.truncate(size).map_err(|error| error.errno())
    }

    pub(crate) fn pread(&self, buf: &mut [u8], offset: u64) -> Outcome<usize> {
        self.file.pread(buf, offset).map_err(|error| error.errno())
    }

    pub(crate) fn pwrite(&self, buf: &[u8], offset: u64) -> Outcome<usize> {
        self.file.pwrite(buf, offset).map_err(|error| error.errno())
    }

    /// Opens the file again, for writes at its end.
    pub(crate) fn reopen_to_append(&self) -> Outcome<Node> {
        if !self.may_write() {
            return Err(Errno::BADF);
        }
        let sync = self.file.flags() & OFlags::SYNC;
        let flags = OFlags::WRONLY | OFlags::APPEND | sync;
        let file = self.task.posix().reopen(&self.file, flags);
        Ok(self.beside(file.map_err(|error| error.errno())?))
    }

    /// Returns up to 64 entries of a directory from position `from` on, `.` and `..` first; none at
    /// the end.
    pub(crate) fn entries(&self, from: u64) -> Outcome<Vec<DirEntryBuf>> {
        let mut entries = Vec::new();
        let read = self.file.read_dir_at(from, |entry| {
            entries.push(DirEntryBuf::from(entry));
            if entries.len() < ENTRIES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        read.map_err(|error| error.errno())?;
        Ok(entries)
    }
}
