//! Reading directories.
//!
//! Entries are returned in the order of the hashes of their names. A hash is unique in its
//! directory, and does not change while the name exists. So a hash serves as a position, which
//! remains valid despite all changes of the directory. A name that exists throughout is returned
//! exactly once, even while a rename or exchange gives it another file: renames are announced, and
//! a reader reads a bucket again if one was announced during the read (`RcuTable::scan_settled`).
//! So name, hash and inode of an entry belong together, and no name is returned that the directory
//! did not contain. `.` and `..` have the positions 0 and 1.

use std::borrow::Borrow;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::io::Errno;
use vfscale_sync::rcu::{self, Guard};

use crate::base::error::{Error, Outcome, Result, check_fork};
use crate::base::types::{FileType, Whence};
use crate::file::failed::OnFile;
use crate::file::open_file::File;
use crate::objects::dcache::dentry::Dentry;
use crate::objects::driver::{DirEntry, DirOps};
use crate::objects::file_description::FileMode;
use crate::objects::inode::Inode;

/// The number of entries that a read collects before it passes them to the caller, outside of the
/// RCU section.
const BATCH: usize = 64;

/// A directory entry that owns its name.
///
/// ```
/// # use vfscale_vfs::OFlags;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let dir = task.posix().open("/", OFlags::DIRECTORY, 0)?;
/// for entry in dir.read_dir() {
///     let entry = entry?;
///     println!("{} {:?}, continue at {}", entry.ino, entry.name, entry.next);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntryBuf {
    /// The inode number.
    pub ino: u64,
    /// The position after this entry, from which reading can continue.
    pub next: u64,
    /// The type of the file.
    pub file_type: FileType,
    /// The name.
    pub name: OsString,
}

impl From<DirEntry<'_>> for DirEntryBuf {
    fn from(entry: DirEntry<'_>) -> DirEntryBuf {
        let DirEntry { ino, next, file_type, name } = entry;
        DirEntryBuf { ino, next, file_type, name: name.to_owned() }
    }
}

impl File {
    /// Calls `f` with the entries of a directory from position `pos` on, `.` and `..` first, until
    /// it breaks. Neither uses nor moves the file's own position. Holds no lock during `f`.
    ///
    /// # Errors
    /// `EBADF` if not open for reading, `ENOTDIR`, `ENOENT` if the directory was removed.
    pub fn read_dir_at(
        &self,
        pos: u64,
        mut f: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut pos = pos;
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            self.collect(pos, &mut batch).of("getdents64", &self.0)?;
            let Some(last) = batch.last() else { return Ok(()) };
            pos = last.next;
            for entry in batch.drain(..) {
                let DirEntryBuf { ino, next, file_type, ref name } = entry;
                if f(DirEntry { ino, next, file_type, name }).is_break() {
                    return Ok(());
                }
            }
        }
    }

    /// Iterates over the entries from the file's position on, `.` and `..` first; the position
    /// moves along, as with `getdents(2)`.
    pub fn read_dir(&self) -> Dirents<&File> {
        Dirents::new(self)
    }

    /// Fills `batch` with entries from `pos` on; leaves it empty at the end.
    fn collect(&self, pos: u64, batch: &mut Vec<DirEntryBuf>) -> Outcome<()> {
        check_fork()?;
        if self.mode().contains(FileMode::PATH) {
            return Err(Errno::BADF);
        }
        let dir = self.path().dentry();
        if !dir.inode().is_dir() {
            return Err(Errno::NOTDIR);
        }
        if dir.inode().is_dead() {
            return Err(Errno::NOENT);
        }
        if let Some(directories) = dir.inode().sb().dir_ops() {
            return self.collect_from(directories, pos, batch);
        }
        let guard = rcu::pin();
        if pos == 0 {
            batch.push(dot(dir, b".", 1));
        }
        if pos <= 1 {
            batch.push(dot(dir.parent(&guard), b"..", 2));
        }
        let read = |child| Entry::of(child, &guard);
        dir.children().scan_settled(pos, &guard, read, |hash, entry| {
            batch.push(entry.to_buf(hash));
            if batch.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.accessed(dir.inode());
        Ok(())
    }

    /// Collects entries as [`collect`](Self::collect), from a backed driver, which may block.
    fn collect_from(
        &self,
        directories: &dyn DirOps,
        pos: u64,
        batch: &mut Vec<DirEntryBuf>,
    ) -> Outcome<()> {
        let dir = self.path().dentry();
        if pos == 0 {
            batch.push(dot(dir, b".", 1));
        }
        if pos <= 1 {
            batch.push(dot(dir.parent(&rcu::pin()), b"..", 2));
        }
        directories.read_dir(dir.inode(), pos.max(2), &mut |entry| {
            batch.push(entry.into());
            if batch.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        self.accessed(dir.inode());
        Ok(())
    }
}

fn dot(dir: &Dentry, name: &[u8], next: u64) -> DirEntryBuf {
    DirEntryBuf {
        ino: dir.inode().ino(),
        next,
        file_type: FileType::Directory,
        name: OsString::from_vec(name.to_vec()),
    }
}

/// An entry as read, before the reader knows that it is settled.
struct Entry<'g> {
    inode: &'g Inode,
    name: &'g [u8],
}

impl<'g> Entry<'g> {
    fn of(child: &'g Dentry, guard: &'g Guard) -> Entry<'g> {
        Entry { inode: child.inode(), name: child.name(guard) }
    }

    /// Converts to an owned entry, with the hash under which it is stored.
    fn to_buf(&self, hash: u64) -> DirEntryBuf {
        DirEntryBuf {
            ino: self.inode.ino(),
            next: hash + 1,
            file_type: self.inode.file_type(),
            name: OsStr::from_bytes(self.name).to_owned(),
        }
    }
}

/// The iterator of [`File::read_dir`].
///
/// ```
/// # use vfscale_vfs::OFlags;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let dir = task.posix().open("/", OFlags::DIRECTORY, 0)?;
/// let two: Vec<_> = dir.read_dir().take(2).collect::<Result<_, _>>()?;
/// let rest = dir.read_dir().count();
/// # let _ = (two, rest);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Dirents<F> {
    file: F,
    batch: std::vec::IntoIter<DirEntryBuf>,
    failed: bool,
}

impl<F: Borrow<File>> Dirents<F> {
    /// Iterates over the entries of a file that the iterator owns or borrows.
    pub(crate) fn new(file: F) -> Dirents<F> {
        Dirents { file, batch: Vec::new().into_iter(), failed: false }
    }
}

impl<F: Borrow<File>> Iterator for Dirents<F> {
    type Item = Result<DirEntryBuf, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if self.batch.as_slice().is_empty() {
            let mut batch = Vec::new();
            let file = self.file.borrow();
            let result = file.collect(file.0.pos.get(), &mut batch);
            if let Err(error) = result.of("getdents64", &self.file.borrow().0) {
                self.failed = true;
                return Some(Err(error));
            }
            self.batch = batch.into_iter();
        }
        let entry = self.batch.next()?;
        if let Err(error) = self.file.borrow().seek(Whence::Set(entry.next)) {
            self.failed = true;
            return Some(Err(error));
        }
        Some(Ok(entry))
    }
}
