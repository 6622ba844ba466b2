//! What a Rust program expects beside the calls: whole files, whole trees, an options builder.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::file::File;
use crate::readdir::DirEntryBuf;
use crate::task::{At, Task};
use crate::types::{AtFlags, FileType, Mode, OFlags, Stat};

/// Bytes that one read of a whole file asks for at least.
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
    /// Open for reading.
    pub fn read(mut self, on: bool) -> Self {
        self.read = on;
        self
    }

    /// Open for writing.
    pub fn write(mut self, on: bool) -> Self {
        self.write = on;
        self
    }

    /// Open for writing at the end.
    pub fn append(mut self, on: bool) -> Self {
        self.append = on;
        self
    }

    /// Empty the file.
    pub fn truncate(mut self, on: bool) -> Self {
        self.truncate = on;
        self
    }

    /// Make the file if there is none.
    pub fn create(mut self, on: bool) -> Self {
        self.create = on;
        self
    }

    /// Make the file; there must be none.
    pub fn create_new(mut self, on: bool) -> Self {
        self.create_new = on;
        self
    }

    /// Permissions of a file that is made, before the umask; 0666 by default.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Further `O_*` flags.
    pub fn custom_flags(mut self, flags: OFlags) -> Self {
        self.custom = flags;
        self
    }

    /// Opens `path`.
    ///
    /// # Errors
    /// `EINVAL` for options that contradict each other; those of [`Task::open`].
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
    /// Options to open a file with; nothing is set but mode 0666.
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

    /// All bytes of a file.
    ///
    /// # Errors
    /// Those of opening and reading.
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

    /// All of a file as text.
    ///
    /// # Errors
    /// Those of opening and reading; `EILSEQ` if it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read_file(path)?)
            .map_err(|_| Error::at("read_to_string", Errno::ILSEQ, path))
    }

    /// Makes or replaces a file with these bytes.
    ///
    /// # Errors
    /// Those of opening and writing.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let file = self.options().write(true).create(true).truncate(true).open(path)?;
        file.write_all(bytes.as_ref())
    }

    /// The attributes of `path`, following symbolic links.
    ///
    /// # Errors
    /// Those of [`stat`](Self::stat).
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.stat(At::Cwd, path, AtFlags::empty())
    }

    /// The attributes of `path`, which may be a symbolic link itself.
    ///
    /// # Errors
    /// Those of [`stat`](Self::stat).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.stat(At::Cwd, path, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Whether there is something at `path`.
    ///
    /// # Errors
    /// Those of [`stat`](Self::stat) that do not say that there is nothing.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == Errno::NOENT => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a directory and those above it that are missing, with `mode` before the umask. One that is
    /// there is good.
    ///
    /// # Errors
    /// Those of [`mkdir`](Self::mkdir); `ENOTDIR` if something else is in the way.
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

    /// The entries of a directory but `.` and `..`.
    ///
    /// # Errors
    /// Those of opening and reading it.
    pub fn list_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntryBuf>> {
        let dir = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        entries(&dir)
    }

    /// Removes whatever is at `path`, and if that is a directory everything below it. Symbolic links are
    /// removed, never followed.
    ///
    /// # Errors
    /// Those of reading directories and removing; what was removed before stays removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if !self.symlink_metadata(path)?.is_dir() {
            return self.unlink(At::Cwd, path, AtFlags::empty());
        }
        let top = self.open_dir_nofollow(At::Cwd, path)?;
        let mut stack = vec![Level { left: entries(&top)?, name: OsString::new(), dir: top }];
        while let Some(level) = stack.last_mut() {
            let at = At::File(&level.dir);
            match level.left.pop() {
                Some(entry) if entry.file_type == FileType::Directory => {
                    let dir = self.open_dir_nofollow(at, Path::new(&entry.name))?;
                    let left = entries(&dir)?;
                    stack.push(Level { dir, left, name: entry.name });
                }
                Some(entry) => ignore_gone(self.unlink(at, &entry.name, AtFlags::empty()))?,
                None => {
                    let name = std::mem::take(&mut level.name);
                    stack.pop();
                    match stack.last() {
                        Some(above) => ignore_gone(self.rmdir(At::File(&above.dir), &name))?,
                        None => self.rmdir(At::Cwd, path)?,
                    }
                }
            }
        }
        Ok(())
    }

    fn open_dir_nofollow(&self, at: At<'_>, path: &Path) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        self.openat(at, path, flags, Mode::empty())
    }

    /// Walks the tree at `path`, directories before what is in them, without following symbolic
    /// links.
    pub fn walk_dir(&self, path: impl AsRef<Path>) -> WalkDir<'_> {
        WalkDir { task: self, start: Some(path.as_ref().to_owned()), stack: Vec::new() }
    }
}

/// A name that somebody else has removed meanwhile is removed.
fn ignore_gone(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.errno() == Errno::NOENT => Ok(()),
        other => other,
    }
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
    name: OsString,
}

/// What [`Task::walk_dir`] finds.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    /// The path, beginning with that of the walk.
    pub path: PathBuf,
    /// The attributes; of a symbolic link, its own.
    pub stat: Stat,
    /// How many directories below the start; 0 for the start itself.
    pub depth: usize,
}

/// The iterator of [`Task::walk_dir`].
#[derive(Debug)]
pub struct WalkDir<'a> {
    task: &'a Task,
    start: Option<PathBuf>,
    stack: Vec<(PathBuf, std::vec::IntoIter<DirEntryBuf>)>,
}

impl WalkDir<'_> {
    fn visit(&mut self, path: PathBuf, depth: usize) -> Result<WalkEntry> {
        let stat = self.task.symlink_metadata(&path)?;
        if stat.is_dir() {
            let left = self.task.list_dir(&path)?;
            self.stack.push((path.clone(), left.into_iter()));
        }
        Ok(WalkEntry { path, stat, depth })
    }
}

impl Iterator for WalkDir<'_> {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take() {
            return Some(self.visit(start, 0));
        }
        loop {
            let depth = self.stack.len();
            let (dir, left) = self.stack.last_mut()?;
            match left.next() {
                Some(entry) => {
                    let path = dir.join(&entry.name);
                    return Some(self.visit(path, depth));
                }
                None => {
                    self.stack.pop();
                }
            }
        }
    }
}

impl File {
    /// Writes all of `bytes` at the file's position.
    ///
    /// # Errors
    /// Those of [`write`](Self::write); `ENOSPC` when only a part fits, which stays written.
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
