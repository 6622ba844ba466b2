//! The tree that a place is in: of an image that this process has open, or of one that another
//! process serves, through its mount.
//!
//! Through a mount, the kernel decides what the user may do. Symbolic links are followed as in the
//! image: none leads to a file of the host, also if it takes the place of a directory meanwhile.
//! Nothing is reached that is mounted on the image.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2, syncfs};
use vfscale::posix;
use vfscale::{Errno, Error, Metadata, Result, Task, Timestamp, Transfer, Transferred};
use vfscale_vfs::Stat;

use crate::error::Failure;

/// The directory that leads to open files.
const OPEN_FILES: &str = "/proc/self/fd";
/// Number of tries to follow a path while others rename what is on it.
const TRIES: u32 = 64;

/// The tree of a branch.
pub(super) enum Tree<'t> {
    /// This process has the image open.
    Opened(&'t Task),
    /// Another process serves the mount.
    Mounted(&'t Mounted),
}

/// The root directory of a mount.
pub(super) struct Mounted(OwnedFd);

/// A file that is open to be read.
pub(super) enum Reader {
    Opened(vfscale::File),
    Mounted(File),
}

/// A file that a walk has found.
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) metadata: Metadata,
    /// The target of a symbolic link.
    pub(super) target: Option<PathBuf>,
}

/// The outcome of a walk, which ends with the first failure.
pub(super) type Walked = std::result::Result<(), Failure>;

/// The receiver of the files of a walk.
pub(super) struct Walk<'a> {
    /// Number of directories that a walk goes down.
    pub(super) depth: usize,
    /// Called for each file.
    pub(super) each: &'a mut dyn FnMut(Found) -> Walked,
    /// Makes a failure of the error of a call.
    pub(super) failed: &'a dyn Fn(Error) -> Failure,
}

impl Walk<'_> {
    fn tell(&mut self, found: Result<Found>) -> Walked {
        (self.each)(found.map_err(self.failed)?)
    }
}

impl Tree<'_> {
    /// Returns the attributes of a file, and of what a symbolic link leads to.
    pub(super) fn metadata(&self, path: &Path) -> Result<Metadata> {
        match self {
            Tree::Opened(task) => task.metadata(path),
            Tree::Mounted(root) => root.metadata(path, OFlags::empty()),
        }
    }

    /// Returns the attributes of a file; of a symbolic link, its own.
    pub(super) fn symlink_metadata(&self, path: &Path) -> Result<Metadata> {
        match self {
            Tree::Opened(task) => task.symlink_metadata(path),
            Tree::Mounted(root) => root.metadata(path, OFlags::NOFOLLOW),
        }
    }

    /// Returns the path of a file without symbolic links.
    pub(super) fn canonicalize(&self, path: &Path) -> Result<PathBuf> {
        match self {
            Tree::Opened(task) => task.canonicalize(path),
            Tree::Mounted(root) => root.canonicalize(path),
        }
    }

    /// Opens a file, and does not wait for the other end of a fifo.
    pub(super) fn open(&self, path: &Path) -> Result<Reader> {
        match self {
            Tree::Opened(task) => {
                let file =
                    task.posix().open(path, posix::OFlags::RDONLY | posix::OFlags::NONBLOCK, 0);
                file.map(Reader::Opened)
            }
            Tree::Mounted(root) => {
                let file = root.open(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
                Ok(Reader::Mounted(file.into()))
            }
        }
    }

    /// Removes a file, and what is in it if it is a directory.
    pub(super) fn remove_all(&self, path: &Path) -> Result<()> {
        match self {
            Tree::Opened(task) => task.remove_dir_all(path),
            Tree::Mounted(root) => {
                let way = root.way(path)?;
                let host = way.path();
                let is_dir = self.symlink_metadata(path)?.is_dir();
                let done = if is_dir { fs::remove_dir_all(host) } else { fs::remove_file(host) };
                done.map_err(|e| error("unlinkat", &e, path))
            }
        }
    }

    /// Walks what is in the directory at `path`, or the file itself if it is none.
    pub(super) fn walk(&self, path: &Path, mut walk: Walk<'_>) -> Walked {
        let is_dir = self.metadata(path).map_err(walk.failed)?.is_dir();
        match self {
            Tree::Opened(task) => {
                let found = task.walk_dir(path).min_depth(usize::from(is_dir));
                found.max_depth(walk.depth).try_for_each(|entry| {
                    walk.tell(entry.and_then(|entry| {
                        let (at, name) = entry.at();
                        let is_link = entry.metadata.is_symlink();
                        let target = is_link.then(|| task.posix().readlinkat(at, name));
                        let target = target.transpose()?;
                        Ok(Found { path: entry.path, metadata: entry.metadata, target })
                    }))
                })
            }
            Tree::Mounted(root) if is_dir => {
                let dir = root.open(path, OFlags::RDONLY | OFlags::DIRECTORY);
                below(&dir.map_err(walk.failed)?, path, walk.depth, &mut walk)
            }
            Tree::Mounted(root) => {
                let way = root.way(path).map_err(walk.failed)?;
                let found = fs::symlink_metadata(way.path()).map_err(|e| error("statx", &e, path));
                walk.tell(found.and_then(|found| entry(path.into(), &way.path(), &found)))
            }
        }
    }

    /// Copies a file of the host into the tree.
    pub(super) fn import(
        &self,
        transfer: Transfer<'_>,
        from: &Path,
        to: &Path,
    ) -> Result<Transferred> {
        match self {
            Tree::Opened(task) => transfer.import(task, from, to),
            Tree::Mounted(root) => {
                let id = root.metadata(Path::new("/"), OFlags::empty())?;
                let transfer = transfer.except(id.dev, id.ino);
                root.copied(to, |to| transfer.copy(from, to))
            }
        }
    }

    /// Copies a file of the tree to the host.
    pub(super) fn export(
        &self,
        transfer: Transfer<'_>,
        from: &Path,
        to: &Path,
    ) -> Result<Transferred> {
        match self {
            Tree::Opened(task) => transfer.export(task, from, to),
            Tree::Mounted(root) => root.copied(from, |from| transfer.copy(from, to)),
        }
    }
}

impl Reader {
    pub(super) fn metadata(&self, path: &Path) -> Result<Metadata> {
        match self {
            Reader::Opened(file) => file.metadata(),
            Reader::Mounted(file) => attributes(file, path),
        }
    }

    pub(super) fn read_at(&self, buf: &mut [u8], at: u64, path: &Path) -> Result<usize> {
        match self {
            Reader::Opened(file) => {
                file.pread(buf, at).map_err(|e| Error::at("pread", e.errno(), path))
            }
            Reader::Mounted(file) => file.read_at(buf, at).map_err(|e| error("pread", &e, path)),
        }
    }
}

/// The place of a file on the host: an open directory, and the name there.
struct Way(OwnedFd, OsString);

impl Way {
    /// Returns a path that no symbolic link can lead elsewhere.
    fn path(&self) -> PathBuf {
        of_fd(&self.0).join(&self.1)
    }
}

fn of_fd(fd: &impl AsRawFd) -> PathBuf {
    Path::new(OPEN_FILES).join(fd.as_raw_fd().to_string())
}

/// Returns a path without the number of the open directory that it may begin with.
pub(super) fn shown(path: &Path) -> &Path {
    let Ok(rest) = path.strip_prefix(OPEN_FILES) else { return path };
    let mut parts = rest.components();
    parts.next();
    parts.as_path()
}

/// Returns the error of a call of the standard library.
fn error(call: &'static str, error: &io::Error, path: &Path) -> Error {
    Error::at(call, Errno::from_io_error(error).unwrap_or(Errno::IO), path)
}

fn attributes(file: &File, path: &Path) -> Result<Metadata> {
    file.metadata().map(|found| metadata_of(&found)).map_err(|e| error("statx", &e, path))
}

fn metadata_of(found: &fs::Metadata) -> Metadata {
    let stat = Stat {
        dev: found.dev(),
        ino: found.ino(),
        nlink: found.nlink() as u32,
        mode: found.mode(),
        uid: found.uid(),
        gid: found.gid(),
        rdev: found.rdev(),
        size: found.len(),
        mtime: Timestamp::new(found.mtime(), found.mtime_nsec() as u32),
        ..Stat::default()
    };
    stat.into()
}

impl Mounted {
    /// Opens the root directory of a mount.
    pub(super) fn new(dir: &Path) -> Result<Mounted> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(dir, flags, Mode::empty());
        opened.map(Mounted).map_err(|errno| Error::at("open", errno, dir))
    }

    /// Makes all of the file system durable.
    pub(super) fn sync(&self) -> Result<()> {
        let root = Path::new("/");
        let dir = self.open(root, OFlags::RDONLY)?;
        syncfs(dir).map_err(|errno| Error::at("syncfs", errno, root))
    }

    fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let flags = flags | OFlags::CLOEXEC;
        let mut left = TRIES;
        loop {
            match openat2(&self.0, path, flags, Mode::empty(), how) {
                // Something was renamed meanwhile.
                Err(Errno::AGAIN) if left > 0 => left -= 1,
                opened => return opened.map_err(|errno| Error::at("open", errno, path)),
            }
        }
    }

    /// Returns the way to a file, which need not exist.
    fn way(&self, path: &Path) -> Result<Way> {
        let (dir, name) = match (path.parent(), path.file_name()) {
            (Some(dir), Some(name)) => (dir, name.to_owned()),
            _ => (path, ".".into()),
        };
        self.open(dir, OFlags::PATH | OFlags::DIRECTORY).map(|dir| Way(dir, name))
    }

    fn metadata(&self, path: &Path, flags: OFlags) -> Result<Metadata> {
        attributes(&self.open(path, flags | OFlags::PATH)?.into(), path)
    }

    fn canonicalize(&self, path: &Path) -> Result<PathBuf> {
        let [root, found] = [Path::new("/"), path].map(|path| {
            let opened = self.open(path, OFlags::PATH)?;
            fs::read_link(of_fd(&opened)).map_err(|e| error("readlink", &e, path))
        });
        let (root, found) = (root?, found?);
        let below =
            found.strip_prefix(&root).map_err(|_| Error::at("readlink", Errno::STALE, path));
        Ok(Path::new("/").join(below?))
    }

    /// Calls `copy` with a path of the host for one of the tree, which its error has again.
    fn copied(
        &self,
        path: &Path,
        copy: impl FnOnce(&Path) -> Result<Transferred>,
    ) -> Result<Transferred> {
        let way = self.way(path)?;
        let host = way.path();
        copy(&host).map_err(|error| match error.path().map(|path| path.strip_prefix(&host)) {
            Some(Ok(rest)) if rest == Path::new("") => Error::at(error.call(), error.errno(), path),
            Some(Ok(rest)) => Error::at(error.call(), error.errno(), &path.join(rest)),
            _ => error,
        })
    }
}

/// Returns what a walk tells of a file, which is at `host`.
fn entry(path: PathBuf, host: &Path, found: &fs::Metadata) -> Result<Found> {
    let target = found.is_symlink().then(|| fs::read_link(host)).transpose();
    let target = target.map_err(|e| error("readlink", &e, &path))?;
    Ok(Found { path, metadata: metadata_of(found), target })
}

/// Walks the files in an open directory, whose path is `dir`.
fn below(opened: &OwnedFd, dir: &Path, depth: usize, walk: &mut Walk<'_>) -> Walked {
    let failed = |e: &io::Error| error("getdents64", e, dir);
    for file in fs::read_dir(of_fd(opened)).map_err(|e| (walk.failed)(failed(&e)))? {
        let file = file.map_err(|e| (walk.failed)(failed(&e)))?;
        let path = dir.join(file.file_name());
        let found = match file.metadata() {
            // Its name was removed meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            found => found.map_err(|e| (walk.failed)(error("statx", &e, &path)))?,
        };
        walk.tell(entry(path.clone(), &file.path(), &found))?;
        if !found.is_dir() || depth <= 1 {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
        match openat2(opened, file.file_name(), flags, Mode::empty(), how) {
            // Something else is mounted there, or the name has another file now.
            Err(Errno::XDEV | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err((walk.failed)(Error::at("open", errno, &path))),
            Ok(opened) => below(&opened, &path, depth - 1, walk)?,
        }
    }
    Ok(())
}
