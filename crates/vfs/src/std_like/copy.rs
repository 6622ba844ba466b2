//! Copies of files and trees.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::base::types::{AtFlags, FileType, Mode, OFlags};
use crate::file::open_file::File;
use crate::std_like::descent::Descent;
use crate::std_like::options::{DirBuilder, OpenOptions};
use crate::std_like::read_dir::{open_dir_nofollow, with_path};
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
        let bytes = contents(&source, &target).map_err(fail)?;
        self.set_permissions(to, metadata.permissions())?;
        Ok(bytes)
    }

    /// Copies the tree at `from` to the new directory `to`: contents, permission bits, symbolic
    /// links as they are, several names of a file as several names of its copy. Owners, times and
    /// extended attributes are those of new files. Returns the number of files and directories.
    ///
    /// # Errors
    /// `ENOTDIR` if `from` is no directory, `EEXIST` if `to` exists, `EINVAL` if it is in `from`;
    /// the errors of reading and writing, with the path that they concern. What was copied before
    /// an error stays. Sockets, fifos and devices are made anew, the latter with the rights that
    /// this takes. `ESTALE` if a directory of a deep tree is moved during the copy; `EACCES` for
    /// another name of a file that was copied into a directory which the copier may not search.
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
        let mut copy = TreeCopy {
            task: self,
            top: to,
            links: HashMap::new(),
            way: Descent::new(),
            path: PathBuf::new(),
        };
        let mut files = 0;
        for entry in self.walk_dir(&source) {
            copy.entry(&entry?)?;
            files += 1;
        }
        copy.leave_to(0)?;
        Ok(files)
    }
}

/// Copies what is in a file to an empty one; returns the number of bytes.
fn contents(source: &File, target: &File) -> Result<u64> {
    let (mut at, mut into) = (0, 0);
    while source.copy_range(Some(&mut at), target, Some(&mut into), COPY_STEP)? > 0 {}
    Ok(into)
}

/// A copy of a tree that is being made.
struct TreeCopy<'t> {
    task: &'t Task,
    top: &'t Path,
    /// The first copy of each file that has several names, by device and inode number: its path
    /// from the top.
    links: HashMap<(u64, u64), PathBuf>,
    /// The directories of the copy, with the permissions that each gets once it is full.
    way: Descent<Mode>,
    /// The path of the current directory of the copy.
    path: PathBuf,
}

impl TreeCopy<'_> {
    fn entry(&mut self, entry: &WalkEntry) -> Result<()> {
        self.leave_to(entry.depth)?;
        let name = if entry.depth == 0 { self.top.as_os_str() } else { entry.file_name() };
        let copied = match entry.metadata.is_dir() {
            true => self.dir(entry, name),
            false => self.file(entry, name),
        };
        copied.map_err(|error| {
            let to = self.path.join(name);
            Error::between(error.call(), error.errno(), &entry.path, &to)
        })
    }

    /// Makes the copy of a directory, which becomes the current one. The first is there.
    fn dir(&mut self, entry: &WalkEntry, name: &OsStr) -> Result<()> {
        if entry.depth > 0 {
            self.task.posix().mkdirat(self.way.at(), name, 0o700)?;
        }
        let dir = open_dir_nofollow(self.task, self.way.at(), Path::new(name))?;
        self.way.enter(dir, entry.metadata.permissions())?;
        self.path.push(name);
        Ok(())
    }

    /// Goes back up until there are `depth` directories.
    fn leave_to(&mut self, depth: usize) -> Result<()> {
        while self.way.depth() > depth {
            let left = self.way.leave(self.task).and_then(|left| match left {
                Some((dir, mode)) => self.set_permissions(&dir, mode),
                None => Ok(()),
            });
            left.map_err(|error| with_path(&error, &self.path))?;
            self.path.pop();
        }
        Ok(())
    }

    fn set_permissions(&self, file: &File, mode: Mode) -> Result<()> {
        self.task.posix().fchmodat(At::File(file), "", mode, AtFlags::EMPTY_PATH)
    }

    /// Copies a file that is no directory.
    fn file(&mut self, entry: &WalkEntry, name: &OsStr) -> Result<()> {
        let (calls, metadata) = (self.task.posix(), &entry.metadata);
        if metadata.nlink > 1 {
            let id = (metadata.dev, metadata.ino);
            if let Some(first) = self.links.get(&id) {
                return self.link(first, name);
            }
            let above = self.path.strip_prefix(self.top).unwrap_or(&self.path);
            self.links.insert(id, above.join(name));
        }
        let (from, mode, at) = (entry.at(), metadata.permissions(), self.way.at());
        match metadata.file_type() {
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                let source = calls.openat(from.0, from.1, flags, Mode::empty())?;
                if !source.metadata()?.is_file() {
                    return Err(Error::new("copy", Errno::INVAL));
                }
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                let target = calls.openat(at, name, flags, mode)?;
                contents(&source, &target)?;
                self.set_permissions(&target, mode)
            }
            FileType::Symlink => calls.symlinkat(at, name, calls.readlinkat(from.0, from.1)?),
            kind => {
                calls.mknodat(at, name, kind, mode, metadata.rdev)?;
                calls.fchmodat(at, name, mode, AtFlags::empty())
            }
        }
    }

    /// Makes a name in the current directory another one of an earlier copy.
    fn link(&self, first: &Path, name: &OsStr) -> Result<()> {
        let calls = self.task.posix();
        let mut dir = self.way.first().cloned();
        for part in first.parent().into_iter().flatten() {
            let at = dir.as_ref().map_or(At::Cwd, At::File);
            // The directory may have permissions already that forbid the copier to read it.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            dir = Some(calls.openat(at, part, flags, Mode::empty())?);
        }
        let at = dir.as_ref().map_or(At::Cwd, At::File);
        let original = first.file_name().unwrap_or_default();
        calls.linkat(at, original, self.way.at(), name, AtFlags::empty())
    }
}
