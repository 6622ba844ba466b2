//! The entries of a directory, as `std::fs::read_dir` returns them.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::base::types::{AtFlags, FileType, Mode, OFlags};
use crate::file::open_file::File;
use crate::file::readdir::{DirEntryBuf, Dirents};
use crate::std_like::metadata::Metadata;
use crate::task::task_struct::{At, Task};

/// The number of attempts at a name that other threads change repeatedly.
pub(crate) const TRIES: u32 = 64;

impl Task {
    /// Returns an iterator over the entries of a directory, without `.` and `..`, in no particular
    /// order. An entry that exists during the whole iteration is returned exactly once, whatever
    /// other threads create, remove and rename.
    ///
    /// # Errors
    /// The errors of opening; `ENOTDIR`. The iterator returns errors of reading.
    ///
    /// ```
    /// # use vfscale_vfs::{Result, Task};
    /// fn names(task: &Task) -> Result<Vec<String>> {
    ///     let entries = task.read_dir("/etc")?;
    ///     entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    /// }
    /// ```
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir<'_>> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = self.posix().open(path, flags, Mode::empty())?;
        let entries = Dirents::new(dir.clone());
        let dir = Arc::new(OpenDir { dir, path: path.to_owned() });
        Ok(ReadDir { task: self, dir, entries })
    }
}

/// An open directory and the path that it was opened by.
struct OpenDir {
    dir: File,
    path: PathBuf,
}

/// The iterator of [`Task::read_dir`].
pub struct ReadDir<'t> {
    task: &'t Task,
    dir: Arc<OpenDir>,
    entries: Dirents<File>,
}

impl<'t> Iterator for ReadDir<'t> {
    type Item = Result<DirEntry<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.entries.next()? {
                Ok(entry) if is_dots(&entry) => {}
                Ok(entry) => {
                    let (task, dir) = (self.task, self.dir.clone());
                    return Some(Ok(DirEntry { task, dir, entry }));
                }
                Err(error) => return Some(Err(with_path(&error, &self.dir.path))),
            }
        }
    }
}

impl fmt::Debug for ReadDir<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.dir.path).finish()
    }
}

/// An entry of a directory; from [`Task::read_dir`].
///
/// ```
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// for entry in task.read_dir("/etc")? {
///     let entry = entry?;
///     println!("{} {}", entry.path().display(), entry.metadata()?.len());
/// }
/// # Ok(())
/// # }
/// ```
pub struct DirEntry<'t> {
    task: &'t Task,
    dir: Arc<OpenDir>,
    entry: DirEntryBuf,
}

impl DirEntry<'_> {
    /// Returns the path: that of the directory, as it was passed to [`Task::read_dir`], and the
    /// name.
    pub fn path(&self) -> PathBuf {
        self.dir.path.join(&self.entry.name)
    }

    /// Returns the name.
    pub fn file_name(&self) -> OsString {
        self.entry.name.clone()
    }

    /// Returns the type of the file when the entry was read.
    pub fn file_type(&self) -> FileType {
        self.entry.file_type
    }

    /// Returns the inode number.
    pub fn ino(&self) -> u64 {
        self.entry.ino
    }

    /// Returns the attributes of the file that the name has now; of a symbolic link, its own. Finds
    /// it in the directory that was read, even if that was moved.
    ///
    /// # Errors
    /// `ENOENT` if the name was removed.
    pub fn metadata(&self) -> Result<Metadata> {
        let (at, name) = (At::File(&self.dir.dir), &self.entry.name);
        let found = self.task.posix().fstatat(at, name, AtFlags::SYMLINK_NOFOLLOW);
        found.map(Metadata::from).map_err(|error| with_path(&error, &self.path()))
    }
}

impl fmt::Debug for DirEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}

/// Opens a directory, but not through a symbolic link.
pub(crate) fn open_dir_nofollow(task: &Task, at: At<'_>, path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    task.posix().openat(at, path, flags, Mode::empty())
}

/// Returns all entries of a directory except `.` and `..`.
pub(crate) fn entries(dir: &File) -> Result<Vec<DirEntryBuf>> {
    dir.read_dir().filter(|entry| !entry.as_ref().is_ok_and(is_dots)).collect()
}

fn is_dots(entry: &DirEntryBuf) -> bool {
    entry.name == "." || entry.name == ".."
}

/// Returns whether opening a directory failed because the file is none.
pub(crate) fn is_no_directory(error: &Error) -> bool {
    matches!(error.errno(), Errno::NOTDIR | Errno::LOOP)
}

/// Replaces the path of an error, which is the last name or none, by the whole path.
pub(crate) fn with_path(error: &Error, path: &Path) -> Error {
    Error::at(error.call(), error.errno(), path)
}
