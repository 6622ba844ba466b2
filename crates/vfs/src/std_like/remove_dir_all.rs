//! Removing a tree, beside threads that change it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::base::types::{AtFlags, FileType};
use crate::file::open_file::File;
use crate::file::readdir::DirEntryBuf;
use crate::std_like::read_dir::{TRIES, entries, is_no_directory, open_dir_nofollow, with_path};
use crate::task::task_struct::{At, Task};

impl Task {
    /// Removes the file at `path`, and if it is a directory everything below it. Symbolic links are
    /// removed, never followed. Concurrent removals of the same tree all succeed, if the path
    /// existed at first. Files that other threads create during the call are removed, too, unless
    /// they never stop.
    ///
    /// # Errors
    /// The errors of reading directories and removing, with the path that they concern; files
    /// removed before the error stay removed. `ENOTEMPTY` if other threads create files faster than
    /// this removes them, `EBUSY` if they change the file of a name again and again.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let is_dir = self.symlink_metadata(path)?.is_dir();
        Removal { task: self, stack: Vec::new() }.remove(path, is_dir)
    }
}

/// A directory that is being removed.
struct Level {
    dir: File,
    left: Vec<DirEntryBuf>,
    path: PathBuf,
    /// The name in the parent directory; the whole path for the first.
    name: OsString,
    /// The number of removals that failed because the directory was not empty.
    tries: u32,
}

/// The removal of a tree: the directories from the first down to the current one.
struct Removal<'a> {
    task: &'a Task,
    stack: Vec<Level>,
}

impl Removal<'_> {
    fn remove(mut self, path: &Path, is_dir: bool) -> Result<()> {
        self.take_on(path.as_os_str(), path.to_owned(), is_dir, 0)?;
        while let Some(level) = self.stack.last_mut() {
            match level.left.pop() {
                Some(entry) => {
                    let path = level.path.join(&entry.name);
                    self.take_on(&entry.name, path, entry.file_type == FileType::Directory, 0)?;
                }
                None => self.finish()?,
            }
        }
        Ok(())
    }

    /// Returns the current directory of the removal.
    fn at(&self) -> At<'_> {
        self.stack.last().map_or(At::Cwd, |level| At::File(&level.dir))
    }

    /// Removes a name, or descends into it if it is a directory. The type may have changed since
    /// the name was read.
    fn take_on(&mut self, name: &OsStr, path: PathBuf, mut is_dir: bool, tries: u32) -> Result<()> {
        for _ in 0..TRIES {
            let failed = if is_dir {
                let opened = open_dir_nofollow(self.task, self.at(), Path::new(name));
                match opened.and_then(|dir| entries(&dir).map(|left| (dir, left))) {
                    Ok((dir, left)) => {
                        let name = name.to_owned();
                        self.stack.push(Level { dir, left, path, name, tries });
                        return Ok(());
                    }
                    Err(error) => error,
                }
            } else {
                match self.task.posix().unlinkat(self.at(), name, AtFlags::empty()) {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                }
            };
            is_dir = match failed.errno() {
                Errno::NOENT => return Ok(()),
                Errno::ISDIR if !is_dir => true,
                _ if is_dir && is_no_directory(&failed) => false,
                _ => return Err(with_path(&failed, &path)),
            };
        }
        Err(Error::at("remove_dir_all", Errno::BUSY, &path))
    }

    /// Removes the current directory, whose entries are removed; descends into it again if other
    /// threads made files in it.
    fn finish(&mut self) -> Result<()> {
        let Some(Level { path, name, tries, .. }) = self.stack.pop() else { return Ok(()) };
        let Err(error) = self.task.posix().unlinkat(self.at(), &name, AtFlags::REMOVEDIR) else {
            return Ok(());
        };
        match error.errno() {
            Errno::NOENT => Ok(()),
            Errno::NOTEMPTY if tries < TRIES => self.take_on(&name, path, true, tries + 1),
            Errno::NOTDIR => self.take_on(&name, path, false, tries),
            _ => Err(with_path(&error, &path)),
        }
    }
}
