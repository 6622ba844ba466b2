//! Files that appear as a whole: named temporary files, and replacing a file at once.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::base::types::RenameFlags;
use crate::file::open_file::File;
use crate::std_like::options::OpenOptions;
use crate::std_like::read_dir::with_path;
use crate::task::task_struct::{At, Task};

/// The number of names that are tried for a temporary file.
const TRIES: u32 = 64;

/// The contents that survive a crash right after [`Task::replace_file`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Either the old or the new contents. They are on disk before the name changes.
    Ordered,
    /// The new contents: the change of the name is on disk, too, when the call returns.
    Durable,
}

impl Task {
    /// Replaces the contents of a file at once: any reader, and the volume after a crash, has all
    /// of the old or all of the new contents. Writes a temporary file in the same directory, and
    /// renames it. The new file has the permission bits and, if the task may set it, the owner of
    /// the old one; other names of the old one keep the old contents. Follows no symbolic link at
    /// the last component, but replaces it.
    ///
    /// ```
    /// # use vfscale_vfs::{Durability, Result, Task};
    /// fn save(task: &Task, state: &[u8]) -> Result<()> {
    ///     task.replace_file("/etc/state", state, Durability::Durable)
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of creating, writing, syncing and renaming. The old file stays as it was, unless
    /// only the sync of the directory failed.
    pub fn replace_file(
        &self,
        path: impl AsRef<Path>,
        bytes: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        let path = path.as_ref();
        let fail = |error: Error| with_path(&error, path);
        let temp = self.temp_file_in(parent(path)).map_err(fail)?;
        match self.symlink_metadata(path) {
            Ok(old) if old.is_file() => {
                let new = temp.file().metadata()?;
                if (old.uid, old.gid) != (new.uid, new.gid) {
                    // As for who edits a file of another: it becomes the editor's.
                    let _ = self.chown(temp.path(), Some(old.uid), Some(old.gid));
                }
                self.set_permissions(temp.path(), old.permissions()).map_err(fail)?;
            }
            Ok(old) if old.is_dir() => return Err(Error::at("replace_file", Errno::ISDIR, path)),
            Ok(_) => self.set_permissions(temp.path(), self.new_file_mode()).map_err(fail)?,
            Err(error) if error.errno() == Errno::NOENT => {
                self.set_permissions(temp.path(), self.new_file_mode()).map_err(fail)?;
            }
            Err(error) => return Err(error),
        }
        temp.file().write_all(bytes.as_ref()).map_err(fail)?;
        // Otherwise a crash could leave the new name without the contents.
        temp.file().sync_all().map_err(fail)?;
        temp.persist(path).map_err(fail)?;
        match durability {
            Durability::Ordered => Ok(()),
            Durability::Durable => {
                self.open(parent(path)).and_then(|dir| dir.sync_all()).map_err(fail)
            }
        }
    }

    fn new_file_mode(&self) -> u32 {
        0o666 & !self.mask()
    }

    /// Makes an empty file with a name of its own in the directory `dir`, readable and writable by
    /// its owner only. Dropping it removes it, unless it was [persisted](TempFile::persist).
    ///
    /// # Errors
    /// The errors of creating a file.
    pub fn temp_file_in(&self, dir: impl AsRef<Path>) -> Result<TempFile<'_>> {
        let dir = dir.as_ref();
        let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600);
        let random = RandomState::new();
        for n in 0..TRIES {
            let path = dir.join(format!(".tmp{:016x}", random.hash_one((self.id(), n))));
            match self.open_with(&path, &options) {
                Ok(file) => return Ok(TempFile { task: self, file, path: Some(path) }),
                Err(error) if error.errno() == Errno::EXIST => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::at("temp_file_in", Errno::EXIST, dir))
    }
}

/// Returns the directory that contains the name of a path.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ if path.has_root() => Path::new("/"),
        _ => Path::new("."),
    }
}

/// A file with a temporary name; from [`Task::temp_file_in`]. Dropping it removes the name.
///
/// ```
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let temp = task.temp_file_in("/etc")?;
/// temp.file().write_all(b"contents")?;
/// temp.persist("/etc/config")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TempFile<'t> {
    task: &'t Task,
    file: File,
    /// Absent once the file has its lasting name.
    path: Option<PathBuf>,
}

impl TempFile<'_> {
    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the temporary path.
    pub fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(""))
    }

    /// Gives the file a lasting name, and replaces the file that has it. Returns the open file.
    ///
    /// # Errors
    /// As `rename(2)`; then the temporary file is removed.
    pub fn persist(self, path: impl AsRef<Path>) -> Result<File> {
        self.persist_with(path.as_ref(), RenameFlags::empty())
    }

    /// Gives the file a lasting name that does not exist. Returns the open file.
    ///
    /// # Errors
    /// `EEXIST` if the name exists; as `rename(2)`. Then the temporary file is removed.
    pub fn persist_new(self, path: impl AsRef<Path>) -> Result<File> {
        self.persist_with(path.as_ref(), RenameFlags::NOREPLACE)
    }

    fn persist_with(mut self, path: &Path, flags: RenameFlags) -> Result<File> {
        self.task.posix().renameat2(At::Cwd, self.path(), At::Cwd, path, flags)?;
        self.path = None;
        Ok(self.file.clone())
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // The directory may be gone or moved, and then so is the name.
            let _ = self.task.remove_file(path);
        }
    }
}
