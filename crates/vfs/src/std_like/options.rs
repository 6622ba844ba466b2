//! Options to open files and to create directories.

use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::base::types::{Mode, OFlags};
use crate::file::open_file::File;
use crate::task::task_struct::{At, Task};

/// Options to open a file with [`Task::open_with`], as [`std::fs::OpenOptions`].
///
/// ```
/// # use vfscale_vfs::{OpenOptions, Result, Task};
/// fn log(task: &Task, line: &str) -> Result<()> {
///     let options = OpenOptions::new().append(true).create(true).mode(0o600);
///     task.open_with("/log", &options)?.write_all(line.as_bytes())
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: Mode,
    custom: OFlags,
}

impl OpenOptions {
    /// Returns options with nothing set, and mode 0666.
    #[allow(clippy::new_without_default)]
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: Mode::from(0o666),
            custom: OFlags::empty(),
        }
    }

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
    pub fn mode(mut self, mode: impl Into<Mode>) -> Self {
        self.mode = mode.into();
        self
    }

    /// Adds further `O_*` flags.
    pub fn custom_flags(mut self, flags: OFlags) -> Self {
        self.custom = flags;
        self
    }

    /// Returns the `O_*` flags that the options stand for; `None` if they contradict each other.
    fn flags(&self) -> Option<OFlags> {
        let writes = self.write || self.append;
        let makes = self.create || self.create_new || self.truncate;
        let is_useless = if writes { false } else { makes || !self.read };
        if is_useless || (self.truncate && self.append && !self.create_new) {
            return None;
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
        Some(flags | self.custom)
    }
}

/// Options to create directories with [`Task::create_dir_with`], as [`std::fs::DirBuilder`].
///
/// ```
/// # use vfscale_vfs::DirBuilder;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// task.create_dir_with("/home/me/.ssh", &DirBuilder::new().recursive(true).mode(0o700))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct DirBuilder {
    recursive: bool,
    mode: Mode,
}

impl DirBuilder {
    /// Returns options with mode 0777, not recursive.
    #[allow(clippy::new_without_default)]
    pub fn new() -> DirBuilder {
        DirBuilder { recursive: false, mode: Mode::from(0o777) }
    }

    /// Creates missing ancestors as well, with the same permissions; then an existing directory is
    /// no error.
    pub fn recursive(mut self, on: bool) -> Self {
        self.recursive = on;
        self
    }

    /// Sets the permissions of new directories, before the umask; 0777 by default.
    pub fn mode(mut self, mode: impl Into<Mode>) -> Self {
        self.mode = mode.into();
        self
    }
}

impl Task {
    /// Opens a file for reading, as [`std::fs::File::open`].
    ///
    /// # Errors
    /// As `open(2)`. Opening a fifo waits for a writer.
    #[inline]
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.posix().open(path, OFlags::RDONLY, Mode::empty())
    }

    /// Makes or truncates a file and opens it for writing, as [`std::fs::File::create`].
    ///
    /// # Errors
    /// As `open(2)`.
    #[inline]
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        self.posix().open(path, flags, 0o666)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// `EINVAL` for options that contradict each other; as `open(2)`.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let path = path.as_ref();
        match options.flags() {
            Some(flags) => self.posix().open(path, flags, options.mode),
            None => Err(Error::at("open", Errno::INVAL, path)),
        }
    }

    /// Makes a directory, with permissions 0777 before the umask.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    #[inline]
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.posix().mkdirat(At::Cwd, path, 0o777)
    }

    /// Makes a directory and its missing ancestors, with permissions 0777 before the umask. An
    /// existing directory is no error.
    ///
    /// # Errors
    /// As `mkdir(2)`; `ENOTDIR` if a component exists and is no directory.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dirs(path.as_ref(), Mode::from(0o777))
    }

    /// Makes a directory, with the ancestors and permissions that `builder` says.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir) and [`create_dir_all`](Self::create_dir_all).
    pub fn create_dir_with(&self, path: impl AsRef<Path>, builder: &DirBuilder) -> Result<()> {
        if builder.recursive {
            self.create_dirs(path.as_ref(), builder.mode)
        } else {
            self.posix().mkdirat(At::Cwd, path, builder.mode)
        }
    }

    fn create_dirs(&self, path: &Path, mode: Mode) -> Result<()> {
        let mut prefix = PathBuf::new();
        for component in path.components() {
            prefix.push(component);
            if !matches!(component, Component::Normal(_)) {
                continue;
            }
            match self.posix().mkdirat(At::Cwd, &prefix, mode) {
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
}
