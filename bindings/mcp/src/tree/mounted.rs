//! The tree in a mount, which another process serves.
//!
//! The kernel decides what the user may do. The parent of each file is opened below the root by
//! `openat2(2)`, so that no symbolic link leads to a file of the host, also if one takes the place
//! of a directory meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno as Raw;
use vfscale::{Errno, Error, Result};

use super::{Kind, Stat, Tree, Writing};

/// Number of tries to follow a path while others rename what is on it.
const TRIES: u32 = 64;

/// The root directory of a mount.
pub(crate) struct Mounted(OwnedFd);

impl Mounted {
    /// Opens the root directory of a mount.
    pub(crate) fn new(dir: &Path) -> Result<Mounted> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(dir, flags, Mode::empty());
        opened.map(Mounted).map_err(|errno| failed("open", errno, dir))
    }

    /// Makes all of the file system durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let root = Path::new("/");
        let dir = self.open(root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        rustix::fs::syncfs(dir).map_err(|errno| failed("syncfs", errno, root))
    }

    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let mut left = TRIES;
        loop {
            match rustix::fs::openat2(&self.0, path, flags | OFlags::CLOEXEC, mode, how) {
                // Something was renamed meanwhile.
                Err(Raw::AGAIN) if left > 0 => left -= 1,
                opened => return opened.map_err(|errno| failed("open", errno, path)),
            }
        }
    }

    /// Returns the directory that a file is in, and its name there.
    fn way<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr)> {
        let (dir, name) = match (path.parent(), path.file_name()) {
            (Some(dir), Some(name)) => (dir, name),
            _ => (path, OsStr::new(".")),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Ok((self.open(dir, flags, Mode::empty())?, name))
    }
}

impl Tree for Mounted {
    fn stat(&self, path: &Path, follow: bool) -> Result<Stat> {
        let last = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let file = File::from(self.open(path, OFlags::PATH | last, Mode::empty())?);
        file.metadata().map(|found| stat_of(&found)).map_err(|e| error("stat", &e, path))
    }

    fn names(&self, dir: &Path) -> Result<Vec<OsString>> {
        let opened = self.open(dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let entries = fs::read_dir(of_fd(&opened)).map_err(|e| error("getdents64", &e, dir))?;
        let name = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name());
        entries.map(|entry| name(entry).map_err(|e| error("getdents64", &e, dir))).collect()
    }

    fn target(&self, path: &Path) -> Result<PathBuf> {
        let (dir, name) = self.way(path)?;
        fs::read_link(of_fd(&dir).join(name)).map_err(|e| error("readlink", &e, path))
    }

    fn read(&self, path: &Path, offset: u64, len: usize) -> Result<(Vec<u8>, u64)> {
        self.check_regular("read", path)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = File::from(self.open(path, flags, Mode::empty())?);
        let failed = |e: io::Error| error("read", &e, path);
        let size = file.metadata().map_err(failed)?.len();
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(len);
        let mut bytes = vec![0; len.min(left)];
        let mut had = 0;
        while had < bytes.len() {
            match file.read_at(&mut bytes[had..], offset + had as u64).map_err(failed)? {
                0 => break,
                n => had += n,
            }
        }
        bytes.truncate(had);
        Ok((bytes, size))
    }

    fn write(&self, path: &Path, bytes: &[u8], writing: Writing) -> Result<u64> {
        match self.check_regular("write", path) {
            Err(error) if error.errno() == Errno::NOENT => {}
            checked => checked?,
        }
        let flags = match writing {
            Writing::Create => OFlags::CREATE | OFlags::EXCL,
            Writing::Overwrite => OFlags::CREATE,
            Writing::Append => OFlags::CREATE | OFlags::APPEND,
        };
        let flags = flags | OFlags::WRONLY | OFlags::NONBLOCK;
        let mut file = File::from(self.open(path, flags, Mode::from_raw_mode(0o666))?);
        let failed = |e: io::Error| error("write", &e, path);
        file.write_all(bytes).map_err(failed)?;
        if writing == Writing::Overwrite {
            // Only now, since a full image leaves more of what was there then.
            file.set_len(bytes.len() as u64).map_err(failed)?;
        }
        file.metadata().map(|found| found.len()).map_err(failed)
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        let (dir, name) = self.way(path)?;
        let made = rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o777));
        made.map_err(|errno| failed("mkdir", errno, path))
    }

    fn remove(&self, path: &Path, recursive: bool) -> Result<()> {
        let is_dir = self.stat(path, false)?.kind == Kind::Directory;
        let (dir, name) = self.way(path)?;
        if is_dir && recursive {
            let removed = fs::remove_dir_all(of_fd(&dir).join(name));
            return removed.map_err(|e| error("unlink", &e, path));
        }
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(dir, name, flags).map_err(|errno| failed("unlink", errno, path))
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> Result<()> {
        let ((dir, name), (new_dir, new_name)) = (self.way(from)?, self.way(to)?);
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let renamed = rustix::fs::renameat_with(dir, name, new_dir, new_name, flags);
        renamed.map_err(|errno| Error::between("rename", errno_of(errno), from, to))
    }
}

fn of_fd(fd: &impl AsRawFd) -> PathBuf {
    Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string())
}

fn errno_of(errno: Raw) -> Errno {
    Errno::from_raw_os_error(errno.raw_os_error())
}

fn failed(call: &'static str, errno: Raw, path: &Path) -> Error {
    Error::at(call, errno_of(errno), path)
}

fn error(call: &'static str, error: &io::Error, path: &Path) -> Error {
    let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
    Error::at(call, errno, path)
}

fn stat_of(found: &fs::Metadata) -> Stat {
    Stat {
        kind: Kind::of(found.is_file(), found.is_dir(), found.is_symlink()),
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        size: found.len(),
        mtime: found.mtime(),
    }
}
