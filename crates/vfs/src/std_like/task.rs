//! The methods of a task that concern one file or name, with the names of `std::fs`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::base::types::{AtFlags, Mode, OFlags, RenameFlags, StatFs, XattrFlags};
use crate::mount::namespace::Vfs;
use crate::security::cred::Credentials;
use crate::std_like::metadata::Metadata;
use crate::std_like::read_dir::with_path;
use crate::task::task_struct::{At, Task};

/// The least number of bytes of one read of a whole file.
const READ_STEP: usize = 64 * 1024;

impl Task {
    /// Reads a whole file.
    ///
    /// # Errors
    /// The errors of opening and reading; `ENOMEM` if there is no memory for the file, which may
    /// consist of holes.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let file = self.open(path)?;
        let fail = |error: Error| with_path(&error, path);
        let mut bytes = Vec::new();
        loop {
            let len = bytes.len();
            let size = file.stat().map_err(fail)?.size;
            let left = usize::try_from(size).unwrap_or(0).saturating_sub(len);
            let more = left.max(READ_STEP);
            bytes.try_reserve(more).map_err(|_| Error::at("read", Errno::NOMEM, path))?;
            bytes.resize(len + more, 0);
            let n = file.read(&mut bytes[len..]).map_err(fail)?;
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
        String::from_utf8(self.read(path)?)
            .map_err(|_| Error::at("read_to_string", Errno::ILSEQ, path))
    }

    /// Writes `bytes` to a file, which is made or truncated first. Use
    /// [`replace_file`](Self::replace_file) if a reader, or a volume after a crash, must not see a
    /// part of them.
    ///
    /// # Errors
    /// The errors of opening and writing.
    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        self.create(path)?.write_all(bytes.as_ref()).map_err(|error| with_path(&error, path))
    }

    /// Returns the attributes of `path`, following symbolic links.
    ///
    /// # Errors
    /// As `stat(2)`.
    #[inline]
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.posix().fstatat(At::Cwd, path, AtFlags::empty()).map(Metadata::from)
    }

    /// Returns the attributes of `path`, which may be a symbolic link itself.
    ///
    /// # Errors
    /// As `lstat(2)`.
    #[inline]
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.posix().fstatat(At::Cwd, path, AtFlags::SYMLINK_NOFOLLOW).map(Metadata::from)
    }

    /// Returns whether `path` exists.
    ///
    /// # Errors
    /// Any error of [`metadata`](Self::metadata) except `ENOENT`.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == Errno::NOENT => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Renames a file or directory, and replaces the file that has the new name.
    ///
    /// # Errors
    /// As `rename(2)`; the error names both paths.
    #[inline]
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.posix().renameat2(At::Cwd, from, At::Cwd, to, RenameFlags::empty())
    }

    /// Adds the name `link` to the file `original`.
    ///
    /// # Errors
    /// As `link(2)`; the error names both paths.
    #[inline]
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.posix().linkat(At::Cwd, original, At::Cwd, link, AtFlags::empty())
    }

    /// Makes the symbolic link `link`, which holds the path `original`.
    ///
    /// # Errors
    /// As `symlink(2)`.
    #[inline]
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.posix().symlinkat(At::Cwd, link, original)
    }

    /// Returns the path that a symbolic link holds.
    ///
    /// # Errors
    /// As `readlink(2)`.
    #[inline]
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.posix().readlinkat(At::Cwd, path)
    }

    /// Returns the absolute path of a file, without symbolic links, `.` and `..`, as seen from the
    /// root of the task.
    ///
    /// # Errors
    /// The errors of a walk.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let place = self.posix().open(path, OFlags::PATH, Mode::empty())?;
        let found = self.posix().path_of(&place);
        found.map_err(|error| Error::at("canonicalize", error.errno(), path))
    }

    /// Removes a name that is no directory. Open files remain usable.
    ///
    /// # Errors
    /// As `unlink(2)`.
    #[inline]
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.posix().unlinkat(At::Cwd, path, AtFlags::empty())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    #[inline]
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.posix().unlinkat(At::Cwd, path, AtFlags::REMOVEDIR)
    }

    /// Sets the permission bits of a file: `task.set_permissions("/f", 0o640)`.
    ///
    /// # Errors
    /// As `chmod(2)`.
    #[inline]
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: impl Into<Mode>) -> Result<()> {
        self.posix().fchmodat(At::Cwd, path, mode, AtFlags::empty())
    }

    /// Sets the owner, the group, or both, as `std::os::unix::fs::chown`. Follows symbolic links.
    ///
    /// # Errors
    /// As `chown(2)`.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.posix().fchownat(At::Cwd, path, uid, gid, AtFlags::empty())
    }

    /// Returns the value of an extended attribute; `None` if the file has none of that name.
    ///
    /// # Errors
    /// As `getxattr(2)`, except `ENODATA`.
    pub fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        match self.posix().getxattrat(At::Cwd, path, name, AtFlags::empty()) {
            Err(error) if error.errno() == Errno::NODATA => Ok(None),
            found => found.map(Some),
        }
    }

    /// Sets an extended attribute, whether the file has it or not.
    ///
    /// # Errors
    /// As `setxattr(2)`.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (value, how) = (value.as_ref(), XattrFlags::empty());
        self.posix().setxattrat(At::Cwd, path, name, value, how, AtFlags::empty())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As `removexattr(2)`.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.posix().removexattrat(At::Cwd, path, name, AtFlags::empty())
    }

    /// Returns the names of the extended attributes that the task may see.
    ///
    /// # Errors
    /// As `listxattr(2)`.
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.posix().listxattrat(At::Cwd, path, AtFlags::empty())
    }

    /// Returns how much of the file system at `path` is taken and free.
    ///
    /// # Errors
    /// The errors of a walk.
    pub fn space(&self, path: impl AsRef<Path>) -> Result<Space> {
        self.posix().statfs(At::Cwd, path).map(Space::from)
    }

    /// Returns the path of the working directory, as [`std::env::current_dir`].
    ///
    /// # Errors
    /// As `getcwd(2)`.
    pub fn current_dir(&self) -> Result<PathBuf> {
        self.posix().getcwd()
    }

    /// Makes `path` the working directory of the task, as [`std::env::set_current_dir`].
    ///
    /// # Errors
    /// As `chdir(2)`.
    pub fn set_current_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.posix().chdir(path)
    }
}

/// How much of a file system is taken and free, in bytes; from [`Task::space`].
///
/// ```
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let space = task.space("/")?;
/// println!("{} of {} bytes are used", space.used, space.total);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The size of the file system, its own structures included.
    pub total: u64,
    /// The part that is taken.
    pub used: u64,
    /// The part that a task without privileges may still take; it can be less than what is free.
    pub available: u64,
}

impl From<StatFs> for Space {
    fn from(stat: StatFs) -> Space {
        let bytes = |blocks: u64| blocks * u64::from(stat.block_size);
        Space {
            total: bytes(stat.blocks),
            used: bytes(stat.blocks - stat.blocks_free),
            available: bytes(stat.blocks_available),
        }
    }
}

impl Vfs {
    /// Makes a task whose root and working directory are the directory at `path`, with these
    /// credentials: a guest. The path is resolved with all privileges.
    ///
    /// A guest can't name a file outside of its root, nor get privileges that its credentials lack.
    /// But a `&Task` is no capability in the sense of object security: who has one can ask for its
    /// [`vfs`](Task::vfs), which makes tasks with all privileges. So keep the task, and let the
    /// guest ask you.
    ///
    /// ```
    /// # use vfscale_vfs::{Credentials, Result, Vfs};
    /// fn guest(vfs: &Vfs) -> Result<()> {
    ///     let task = vfs.task_in("/jail", Credentials::user(1000, 1000))?;
    ///     assert_eq!(task.current_dir()?, std::path::Path::new("/"));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of a walk; `ENOTDIR`.
    pub fn task_in(&self, path: impl AsRef<Path>, credentials: Credentials) -> Result<Task> {
        let task = self.task();
        task.posix().chroot(path)?;
        task.posix().chdir("/")?;
        task.set_credentials(credentials);
        Ok(task)
    }
}
