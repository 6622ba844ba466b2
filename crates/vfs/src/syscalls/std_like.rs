//! Methods like those of `std::fs`: whole files, whole trees, an options builder.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::base::types::{AtFlags, FileType, Mode, OFlags, Stat};
use crate::file::open_file::File;
use crate::file::readdir::DirEntryBuf;
use crate::task::task_struct::{At, Task};

/// The least number of bytes of one read of a whole file.
const READ_STEP: usize = 64 * 1024;

/// Options for opening a file, as [`std::fs::OpenOptions`].
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions<'a> {
    task: &'a Task,
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: Mode,
    custom: OFlags,
}

impl OpenOptions<'_> {
    /// Opens for reading.
    pub fn read(mut self, on: bool) -> Self {
        self.read = on;
        self
    }

    /// Opens for writing.
    pub fn write(mut self, on: bool) -> Self {
        self.write = on;
        self
    }

    /// Opens for writing at the end.
    pub fn append(mut self, on: bool) -> Self {
        self.append = on;
        self
    }

    /// Truncates the file to zero.
    pub fn truncate(mut self, on: bool) -> Self {
        self.truncate = on;
        self
    }

    /// Makes the file if it does not exist.
    pub fn create(mut self, on: bool) -> Self {
        self.create = on;
        self
    }

    /// Makes the file, which must not exist.
    pub fn create_new(mut self, on: bool) -> Self {
        self.create_new = on;
        self
    }

    /// Sets the permissions of a new file, before the umask; 0666 by default.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Adds further `O_*` flags.
    pub fn custom_flags(mut self, flags: OFlags) -> Self {
        self.custom = flags;
        self
    }

    /// Opens `path`.
    ///
    /// # Errors
    /// `EINVAL` for contradictory options; the errors of [`Task::open`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let writes = self.write || self.append;
        let makes = self.create || self.create_new || self.truncate;
        let useless = if writes { false } else { makes || !self.read };
        let invalid = useless || (self.truncate && self.append && !self.create_new);
        if invalid {
            return Err(Error::at("open", Errno::INVAL, path));
        }
        let mut flags = match (self.read, writes) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        flags.set(OFlags::APPEND, self.append);
        flags.set(OFlags::TRUNC, self.truncate);
        flags.set(OFlags::CREATE, self.create || self.create_new);
        flags.set(OFlags::EXCL, self.create_new);
        self.task.open(path, flags | self.custom, self.mode)
    }
}

impl Task {
    /// Returns options to open a file, with mode 0666 and nothing else set.
    pub fn options(&self) -> OpenOptions<'_> {
        OpenOptions {
            task: self,
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: Mode::from_bits_retain(0o666),
            custom: OFlags::empty(),
        }
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// The errors of opening and reading.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.options().read(true).open(path)?;
        let mut bytes = Vec::new();
        loop {
            let len = bytes.len();
            let left = usize::try_from(file.stat()?.size).unwrap_or(0).saturating_sub(len);
            bytes.resize(len + left.max(READ_STEP), 0);
            let n = file.read(&mut bytes[len..])?;
            bytes.truncate(len + n);
            if n == 0 {
                return Ok(bytes);
            }
        }
    }

    /// Reads a whole file as text.
    ///
    /// # Errors
    /// The errors of opening and reading; `EILSEQ` if it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read_file(path)?)
            .map_err(|_| Error::at("read_to_string", Errno::ILSEQ, path))
    }

    /// Writes `bytes` to a file, which is made or truncated first.
    ///
    /// # Errors
    /// The errors of opening and writing.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let file = self.options().write(true).create(true).truncate(true).open(path)?;
        file.write_all(bytes.as_ref())
    }

    /// Returns the attributes of `path`, following symbolic links.
    ///
    /// # Errors
    /// The errors of [`stat`](Self::stat).
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.stat(At::Cwd, path, AtFlags::empty())
    }

    /// Returns the attributes of `path`, which may be a symbolic link itself.
    ///
    /// # Errors
    /// The errors of [`stat`](Self::stat).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.stat(At::Cwd, path, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Returns whether `path` exists.
    ///
    /// # Errors
    /// Any error of [`stat`](Self::stat) except `ENOENT`.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == Errno::NOENT => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a directory and its missing ancestors, with `mode` before the umask. An existing
    /// directory is no error.
    ///
    /// # Errors
    /// The errors of [`mkdir`](Self::mkdir); `ENOTDIR` if a component exists and is no directory.
    pub fn create_dir_all(&self, path: impl AsRef<Path>, mode: Mode) -> Result<()> {
        let path = path.as_ref();
        let mut prefix = PathBuf::new();
        for component in path.components() {
            prefix.push(component);
            if !matches!(component, Component::Normal(_)) {
                continue;
            }
            match self.mkdir(At::Cwd, &prefix, mode) {
                Err(error) if error.errno() == Errno::EXIST => {
                    if !self.metadata(&prefix)?.is_dir() {
                        return Err(Error::at("create_dir_all", Errno::NOTDIR, &prefix));
                    }
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Returns the entries of a directory except `.` and `..`.
    ///
    /// # Errors
    /// The errors of opening and reading.
    pub fn list_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntryBuf>> {
        let dir = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        entries(&dir)
    }

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

    fn open_dir_nofollow(&self, at: At<'_>, path: &Path) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        self.openat(at, path, flags, Mode::empty())
    }

    /// Walks the tree at `path`, directories before their contents, without following symbolic
    /// links below it. A directory is read, as a whole, when the walk reaches it; names that are
    /// removed before the walk reaches them are skipped. The walk holds the directories above its
    /// position open, and continues in them if they are moved; the paths that it returns are those
    /// by which it reached each entry.
    pub fn walk_dir(&self, path: impl AsRef<Path>) -> WalkDir<'_> {
        WalkDir { task: self, start: Some(path.as_ref().to_owned()), stack: Vec::new() }
    }
}

/// The number of attempts at a name that other threads change repeatedly.
const TRIES: u32 = 64;

fn is_gone(error: &Error) -> bool {
    error.errno() == Errno::NOENT
}

/// Returns whether opening a directory failed because the file is none.
fn is_no_directory(error: &Error) -> bool {
    matches!(error.errno(), Errno::NOTDIR | Errno::LOOP)
}

/// Replaces the path of an error, which is the last name or none, by the whole path.
fn with_path(error: &Error, path: &Path) -> Error {
    Error::at(error.call(), error.errno(), path)
}

fn entries(dir: &File) -> Result<Vec<DirEntryBuf>> {
    dir.read_dir().filter(|entry| !entry.as_ref().is_ok_and(is_dots)).collect()
}

fn is_dots(entry: &DirEntryBuf) -> bool {
    entry.name == "." || entry.name == ".."
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
                let opened = self.task.open_dir_nofollow(self.at(), Path::new(name));
                match opened.and_then(|dir| entries(&dir).map(|left| (dir, left))) {
                    Ok((dir, left)) => {
                        let name = name.to_owned();
                        self.stack.push(Level { dir, left, path, name, tries });
                        return Ok(());
                    }
                    Err(error) => error,
                }
            } else {
                match self.task.unlink(self.at(), name, AtFlags::empty()) {
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
        let Err(error) = self.task.rmdir(self.at(), &name) else { return Ok(()) };
        match error.errno() {
            Errno::NOENT => Ok(()),
            Errno::NOTEMPTY if tries < TRIES => self.take_on(&name, path, true, tries + 1),
            Errno::NOTDIR => self.take_on(&name, path, false, tries),
            _ => Err(with_path(&error, &path)),
        }
    }
}

/// An entry that [`Task::walk_dir`] returns.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    /// The path, beginning with that of the walk.
    pub path: PathBuf,
    /// The attributes; of a symbolic link, its own.
    pub stat: Stat,
    /// The depth below the start; 0 for the start itself.
    pub depth: usize,
}

/// The iterator of [`Task::walk_dir`].
#[derive(Debug)]
pub struct WalkDir<'a> {
    task: &'a Task,
    start: Option<PathBuf>,
    stack: Vec<Walked>,
}

/// An open directory and its entries.
type Listed = (File, Vec<DirEntryBuf>);

/// A directory on the path of the walk.
#[derive(Debug)]
struct Walked {
    dir: File,
    path: PathBuf,
    left: std::vec::IntoIter<DirEntryBuf>,
}

impl WalkDir<'_> {
    /// Visits a name in the current directory; `None` if it was removed.
    fn visit(&mut self, name: &OsStr, path: PathBuf) -> Option<Result<WalkEntry>> {
        let found = self.look(name);
        match found {
            Ok((stat, dir)) => {
                let depth = self.stack.len();
                if let Some((dir, left)) = dir {
                    let (path, left) = (path.clone(), left.into_iter());
                    self.stack.push(Walked { dir, path, left });
                }
                Some(Ok(WalkEntry { path, stat, depth }))
            }
            Err(error) if is_gone(&error) && !self.stack.is_empty() => None,
            Err(error) => Some(Err(with_path(&error, &path))),
        }
    }

    /// Returns the attributes of a name, and for a directory the open directory and its entries.
    fn look(&self, name: &OsStr) -> Result<(Stat, Option<Listed>)> {
        let at = self.stack.last().map_or(At::Cwd, |walked| At::File(&walked.dir));
        for _ in 0..TRIES {
            let stat = self.task.stat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if !stat.is_dir() {
                return Ok((stat, None));
            }
            match self.task.open_dir_nofollow(at, Path::new(name)) {
                Ok(dir) => {
                    let left = entries(&dir)?;
                    return Ok((dir.stat()?, Some((dir, left))));
                }
                // Another thread gave the name to another file after the `stat`.
                Err(error) if is_no_directory(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new("walk_dir", Errno::BUSY))
    }
}

impl Iterator for WalkDir<'_> {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take() {
            return self.visit(start.clone().as_os_str(), start);
        }
        loop {
            let walked = self.stack.last_mut()?;
            let Some(entry) = walked.left.next() else {
                self.stack.pop();
                continue;
            };
            let path = walked.path.join(&entry.name);
            if let Some(found) = self.visit(&entry.name, path) {
                return Some(found);
            }
        }
    }
}

impl File {
    /// Writes all of `bytes` at the file's position.
    ///
    /// # Errors
    /// The errors of [`write`](Self::write); `ENOSPC` if only a prefix fits, which stays written.
    pub fn write_all(&self, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write(rest)? {
                0 => return Err(Error::new("write", Errno::NOSPC)),
                n => rest = &rest[n..],
            }
        }
        Ok(())
    }
}
