//! Copies of files and trees.

use std::path::Path;

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::base::types::{FileType, Mode};
use crate::std_like::options::{DirBuilder, OpenOptions};
use crate::std_like::walk_dir::WalkEntry;
use crate::task::task_struct::{At, Task};

/// The most bytes of one call that copies.
const COPY_STEP: u64 = 1 << 30;

impl Task {
    /// Copies the contents and the permission bits of a file, as [`std::fs::copy`]; returns the
    /// number of bytes. `to` is made, or truncated.
    ///
    /// # Errors
    /// The errors of opening, reading and writing; `EINVAL` if `from` is no regular file or both
    /// are the same.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.open(from)?;
        let metadata = source.metadata()?;
        if !metadata.is_file() {
            return Err(Error::between("copy", Errno::INVAL, from, to));
        }
        let options = OpenOptions::new().write(true).create(true);
        let target = self.open_with(to, &options.mode(metadata.permissions()))?;
        let found = target.metadata()?;
        if (found.dev, found.ino) == (metadata.dev, metadata.ino) {
            return Err(Error::between("copy", Errno::INVAL, from, to));
        }
        let fail = |error: Error| Error::between(error.call(), error.errno(), from, to);
        target.set_len(0).map_err(fail)?;
        let (mut at, mut into) = (0, 0);
        while source.copy_range(Some(&mut at), &target, Some(&mut into), COPY_STEP).map_err(fail)?
            > 0
        {}
        self.set_permissions(to, metadata.permissions())?;
        Ok(into)
    }

    /// Copies the tree at `from` to the new directory `to`: contents, permission bits, symbolic
    /// links as they are, several names of a file as several names of its copy. Owners, times and
    /// extended attributes are those of new files. Returns the number of files and directories.
    ///
    /// # Errors
    /// `ENOTDIR` if `from` is no directory, `EEXIST` if `to` exists, `EINVAL` if it is in `from`;
    /// the errors of reading and writing, with the path that they concern. What was copied before
    /// an error stays. Sockets, fifos and devices are made anew, the latter with the rights that
    /// this takes.
    pub fn copy_dir_all(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        if !self.metadata(from)?.is_dir() {
            return Err(Error::at("copy_dir_all", Errno::NOTDIR, from));
        }
        let source = self.canonicalize(from)?;
        self.create_dir_with(to, &DirBuilder::new().mode(0o700))?;
        if self.canonicalize(to)?.starts_with(&source) {
            self.remove_dir(to)?;
            return Err(Error::between("copy_dir_all", Errno::INVAL, from, to));
        }
        let mut copy = TreeCopy { task: self, links: Default::default(), dirs: Vec::new() };
        let mut files = 0;
        for entry in self.walk_dir(&source) {
            let entry = entry?;
            let below = entry.path.strip_prefix(&source).unwrap_or(&entry.path);
            let target = if below.as_os_str().is_empty() { to.to_owned() } else { to.join(below) };
            copy.entry(&entry, &target)?;
            files += 1;
        }
        copy.finish()?;
        Ok(files)
    }
}

/// A copy of a tree that is being made.
struct TreeCopy<'t> {
    task: &'t Task,
    /// The first copy of each file that has several names, by device and inode number.
    links: std::collections::HashMap<(u64, u64), std::path::PathBuf>,
    /// The permissions of directories, which they get once they are full.
    dirs: Vec<(std::path::PathBuf, Mode)>,
}

impl TreeCopy<'_> {
    fn entry(&mut self, entry: &WalkEntry, to: &Path) -> Result<()> {
        let (task, metadata) = (self.task, &entry.metadata);
        if metadata.is_dir() {
            if entry.depth > 0 {
                task.create_dir_with(to, &DirBuilder::new().mode(0o700))?;
            }
            self.dirs.push((to.to_owned(), metadata.permissions()));
            return Ok(());
        }
        if metadata.nlink > 1 {
            match self.links.entry((metadata.dev, metadata.ino)) {
                std::collections::hash_map::Entry::Occupied(first) => {
                    return task.hard_link(first.get(), to);
                }
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(to.to_owned());
                }
            }
        }
        match metadata.file_type() {
            FileType::RegularFile => task.copy(&entry.path, to).map(drop),
            FileType::Symlink => task.symlink(task.read_link(&entry.path)?, to),
            kind => {
                let mode = metadata.permissions();
                task.posix().mknodat(At::Cwd, to, kind, mode, metadata.rdev)?;
                task.set_permissions(to, mode)
            }
        }
    }

    fn finish(&self) -> Result<()> {
        self.dirs.iter().rev().try_for_each(|(dir, mode)| self.task.set_permissions(dir, *mode))
    }
}
