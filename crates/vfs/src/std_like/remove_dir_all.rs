//! Removing a tree, beside threads that change it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::base::types::{AtFlags, FileType};
use crate::file::readdir::DirEntryBuf;
use crate::std_like::descent::Descent;
use crate::std_like::read_dir::{TRIES, entries, is_no_directory, open_dir_nofollow, with_path};
use crate::task::task_struct::Task;

impl Task {
    /// Removes the file at `path`, and if it is a directory everything below it. Symbolic links are
    /// removed, never followed. Concurrent removals of the same tree all succeed, if the path
    /// existed at first. Files that other threads create during the call are removed, too, unless
    /// they never stop.
    ///
    /// # Errors
    /// The errors of reading directories and removing, with the path that they concern; files
    /// removed before the error stay removed. `ENOTEMPTY` if other threads create files faster than
    /// this removes them, `EBUSY` if they change the file of a name again and again; `ESTALE` if
    /// they move a directory out of the way to one more than 64 levels below it.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let is_dir = self.symlink_metadata(path)?.is_dir();
        let removal = Removal { task: self, way: Descent::new(), path: PathBuf::new() };
        removal.remove(path, is_dir)
    }
}

/// A directory that is being removed.
struct Level {
    left: Vec<DirEntryBuf>,
    /// The name in the parent directory; the whole path for the first.
    name: OsString,
    /// The number of removals that failed because the directory was not empty.
    tries: u32,
}

/// The removal of a tree: the directories from the first down to the current one.
struct Removal<'a> {
    task: &'a Task,
    way: Descent<Level>,
    /// The path of the current directory.
    path: PathBuf,
}

impl Removal<'_> {
    fn remove(mut self, path: &Path, is_dir: bool) -> Result<()> {
        self.take_on(path.as_os_str(), is_dir, 0)?;
        while let Some(level) = self.way.state() {
            match level.left.pop() {
                Some(entry) => {
                    self.take_on(&entry.name, entry.file_type == FileType::Directory, 0)?;
                }
                None => self.finish()?,
            }
        }
        Ok(())
    }

    /// Removes a name, or descends into it if it is a directory. The type may have changed since
    /// the name was read.
    fn take_on(&mut self, name: &OsStr, mut is_dir: bool, tries: u32) -> Result<()> {
        for _ in 0..TRIES {
            let failed = if is_dir {
                let opened = open_dir_nofollow(self.task, self.way.at(), Path::new(name));
                match opened.and_then(|dir| entries(&dir).map(|left| (dir, left))) {
                    Ok((dir, left)) => {
                        self.path.push(name);
                        let entered = self.way.enter(dir, Level { left, name: name.into(), tries });
                        return entered.map_err(|error| with_path(&error, &self.path));
                    }
                    Err(error) => error,
                }
            } else {
                match self.task.posix().unlinkat(self.way.at(), name, AtFlags::empty()) {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                }
            };
            is_dir = match failed.errno() {
                Errno::NOENT => return Ok(()),
                Errno::ISDIR if !is_dir => true,
                _ if is_dir && is_no_directory(&failed) => false,
                _ => return Err(with_path(&failed, &self.path.join(name))),
            };
        }
        Err(Error::at("remove_dir_all", Errno::BUSY, &self.path.join(name)))
    }

    /// Removes the current directory, whose entries are removed; descends into it again if other
    /// threads made files in it.
    fn finish(&mut self) -> Result<()> {
        let left = self.way.leave(self.task).map_err(|error| with_path(&error, &self.path))?;
        let Some((_, Level { name, tries, .. })) = left else { return Ok(()) };
        if self.way.depth() > 0 {
            self.path.pop();
        } else {
            self.path.clear();
        }
        let Err(error) = self.task.posix().unlinkat(self.way.at(), &name, AtFlags::REMOVEDIR)
        else {
            return Ok(());
        };
        match error.errno() {
            Errno::NOENT => Ok(()),
            Errno::NOTEMPTY if tries < TRIES => self.take_on(&name, true, tries + 1),
            Errno::NOTDIR => self.take_on(&name, false, tries),
            _ => Err(with_path(&error, &self.path.join(&name))),
        }
    }
}
