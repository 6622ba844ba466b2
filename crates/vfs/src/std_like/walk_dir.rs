//! Walking a tree, beside threads that change it.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::base::types::AtFlags;
use crate::file::open_file::File;
use crate::file::readdir::DirEntryBuf;
use crate::std_like::descent::Descent;
use crate::std_like::metadata::Metadata;
use crate::std_like::read_dir::{TRIES, entries, is_no_directory, open_dir_nofollow, with_path};
use crate::task::task_struct::{At, Task};

impl Task {
    /// Walks the tree at `path`, directories before their contents, without following symbolic
    /// links below it. A directory is read, as a whole, when the walk reaches it; names that are
    /// removed before the walk reaches them are skipped. The walk holds the nearest directories
    /// above its position open, and continues in them if they are moved; the paths that it returns
    /// are those by which it reached each entry. They may be longer than the path of a call:
    /// [`WalkEntry::at`] has a place for any call.
    ///
    /// # Errors
    /// The iterator returns errors of opening and reading, with the path that they concern. It
    /// ends with `ESTALE` if more than 64 directories were entered below one that has a new parent
    /// meanwhile.
    ///
    /// ```
    /// # use vfscale_vfs::{Result, Task};
    /// fn sources(task: &Task) -> Result<Vec<std::path::PathBuf>> {
    ///     let walk = task.walk_dir("/src").filter_entry(|entry| entry.file_name() != ".git");
    ///     let files = walk.filter(|entry| entry.as_ref().is_ok_and(|e| e.metadata.is_file()));
    ///     files.map(|entry| Ok(entry?.path)).collect()
    /// }
    /// ```
    pub fn walk_dir(&self, path: impl AsRef<Path>) -> WalkDir<'_> {
        WalkDir {
            task: self,
            start: Some(path.as_ref().to_owned()),
            path: PathBuf::new(),
            way: Descent::new(),
            failed: None,
            depths: (0, usize::MAX),
            filter: None,
        }
    }
}

/// An entry that [`Task::walk_dir`] returns.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    /// The path, beginning with that of the walk.
    pub path: PathBuf,
    /// The attributes; of a symbolic link, its own.
    pub metadata: Metadata,
    /// The depth below the start; 0 for the start itself.
    pub depth: usize,
    /// The directory that has it; none for the start itself.
    dir: Option<File>,
}

impl WalkEntry {
    /// Returns the last component of the path; the whole path if that has no name, as `/`.
    pub fn file_name(&self) -> &OsStr {
        self.path.file_name().unwrap_or(self.path.as_os_str())
    }

    /// Returns the open directory in which the walk found the entry, and its name there: the place
    /// for calls that take an [`At`]. They reach the entry in a tree of any depth, even if a
    /// directory above was moved or exchanged for a symbolic link.
    ///
    /// ```
    /// # use vfscale_vfs::{AtFlags, Result, Task};
    /// # fn example(task: &Task) -> Result<()> {
    /// for entry in task.walk_dir("/src") {
    ///     let entry = entry?;
    ///     let (at, name) = entry.at();
    ///     let xattrs = task.posix().listxattrat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    ///     println!("{} has {}", entry.path.display(), xattrs.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn at(&self) -> (At<'_>, &OsStr) {
        match &self.dir {
            Some(dir) => (At::File(dir), self.file_name()),
            None => (At::Cwd, self.path.as_os_str()),
        }
    }
}

/// Decides whether a walk returns an entry and descends into it.
type Filter<'a> = Box<dyn FnMut(&WalkEntry) -> bool + Send + 'a>;

/// The iterator of [`Task::walk_dir`].
pub struct WalkDir<'a> {
    task: &'a Task,
    start: Option<PathBuf>,
    /// The path of the current directory.
    path: PathBuf,
    /// The directories, each with the entries to be visited.
    way: Descent<std::vec::IntoIter<DirEntryBuf>>,
    /// The error of going back to the directory above, with which the walk ends.
    failed: Option<Error>,
    /// The least and the greatest depth of entries that the walk returns.
    depths: (usize, usize),
    filter: Option<Filter<'a>>,
}

impl<'a> WalkDir<'a> {
    /// Returns no entry above this depth; the start has depth 0.
    #[must_use]
    pub fn min_depth(mut self, depth: usize) -> Self {
        self.depths.0 = depth;
        self
    }

    /// Returns no entry below this depth, and reads no directory at it; 1 are the entries of the
    /// start.
    #[must_use]
    pub fn max_depth(mut self, depth: usize) -> Self {
        self.depths.1 = depth;
        self
    }

    /// Returns only entries for which `keep` returns true, and reads only directories for which it
    /// does.
    pub fn filter_entry(mut self, keep: impl FnMut(&WalkEntry) -> bool + Send + 'a) -> Self {
        self.filter = Some(Box::new(keep));
        self
    }

    /// Skips what is left of the current directory: that is the one that the walk returned last and
    /// descends into, otherwise the one that contains what it returned last.
    pub fn skip_current_dir(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for WalkDir<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.start.as_ref().unwrap_or(&self.path);
        f.debug_struct("WalkDir").field("at", &at).finish_non_exhaustive()
    }
}

/// Returns whether the name of an entry was removed.
fn is_gone(error: &Error) -> bool {
    error.errno() == Errno::NOENT
}

/// An open directory and its entries.
type Listed = (File, Vec<DirEntryBuf>);

impl WalkDir<'_> {
    /// Visits a name in the current directory; `None` if it was removed or is not to be returned.
    fn visit(&mut self, name: &OsStr) -> Option<Result<WalkEntry>> {
        let found = self.look(name).and_then(|found| {
            let Some((entry, listed)) = found else { return Ok(None) };
            if let Some((dir, left)) = listed {
                self.way.enter(dir, left.into_iter())?;
                self.path.push(name);
            }
            Ok(Some(entry))
        });
        match found {
            Ok(entry) => entry.filter(|entry| entry.depth >= self.depths.0).map(Ok),
            Err(error) if is_gone(&error) && self.way.depth() > 0 => None,
            Err(error) => Some(Err(with_path(&error, &self.path.join(name)))),
        }
    }

    /// Returns the entry of a name, and for a directory that the walk descends into the open
    /// directory and its entries. `None` if the filter leaves it out.
    fn look(&mut self, name: &OsStr) -> Result<Option<(WalkEntry, Option<Listed>)>> {
        let (at, depth) = (self.way.at(), self.way.depth());
        for _ in 0..TRIES {
            let metadata = self.task.posix().fstatat(at, name, AtFlags::SYMLINK_NOFOLLOW)?.into();
            let (path, dir) = (self.path.join(name), self.way.dir().cloned());
            let mut entry = WalkEntry { path, metadata, depth, dir };
            if self.filter.as_mut().is_some_and(|keep| !keep(&entry)) {
                return Ok(None);
            }
            if !entry.metadata.is_dir() || depth >= self.depths.1 {
                return Ok(Some((entry, None)));
            }
            match open_dir_nofollow(self.task, at, Path::new(name)) {
                Ok(dir) => {
                    let left = entries(&dir)?;
                    let opened = dir.metadata()?;
                    if (opened.dev, opened.ino) == (entry.metadata.dev, entry.metadata.ino) {
                        entry.metadata = opened;
                        return Ok(Some((entry, Some((dir, left)))));
                    }
                }
                Err(error) if is_no_directory(&error) => {}
                Err(error) => return Err(error),
            }
            // Another thread gave the name to another file after the look at it.
        }
        Err(Error::new("walk_dir", Errno::BUSY))
    }

    /// Leaves the current directory for the one above it.
    fn leave(&mut self) {
        let left = self.way.leave(self.task);
        if self.way.depth() > 0 {
            self.path.pop();
        }
        if let Err(error) = left {
            self.failed = Some(with_path(&error, &self.path));
            self.way.end();
        }
    }
}

impl Iterator for WalkDir<'_> {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take()
            && let Some(found) = self.visit(start.as_os_str())
        {
            return Some(found);
        }
        loop {
            let Some(left) = self.way.state() else {
                return self.failed.take().map(Err);
            };
            let Some(entry) = left.next() else {
                self.leave();
                continue;
            };
            if let Some(found) = self.visit(&entry.name) {
                return Some(found);
            }
        }
    }
}
