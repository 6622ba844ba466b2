//! Files and directories that are created outside of the volume.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use vfscale::Escaped;
use vfscale_diskfs::rescue::Rescue;
use vfscale_diskfs::{FileKind, InodeCore};

use crate::error::Failure;

/// Mode of a directory until its contents are copied.
const PRIVATE_DIR: Mode = Mode::RWXU;
const NANOS: i64 = 1_000_000_000;
/// The set-user-ID and set-group-ID bits.
const SET_IDS: u32 = 0o6000;
/// The attribute that gives a program capabilities.
const CAPABILITIES: &[u8] = b"security.capability";

/// A new file that is to get attributes.
pub(super) enum Made<'f> {
    /// An open file or directory.
    Open(BorrowedFd<'f>),
    /// Any other kind of file, by its name.
    Named(BorrowedFd<'f>, &'f OsStr),
}

/// Opens the directory to copy to: creates it, or checks that it is empty.
pub(super) fn root(path: &Path) -> Result<OwnedFd, Failure> {
    let failed = |error: io::Error| Failure::Write(path.to_owned(), error);
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    if fs::read_dir(path).map_err(failed)?.next().is_some() {
        let why = format!("{}: not empty: name a directory to be made", Escaped::new(path));
        return Err(Failure::Usage(why));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))
}

/// Creates a directory, and opens it.
pub(super) fn directory(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(dir, name, PRIVATE_DIR)?;
    open_directory(dir, name)
}

/// Opens a directory, and creates it if missing.
pub(super) fn directory_there(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(dir, name, PRIVATE_DIR) {
        Ok(()) | Err(Errno::EXIST) => open_directory(dir, name),
        Err(errno) => Err(errno),
    }
}

fn open_directory(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

pub(super) fn is_there(dir: BorrowedFd<'_>, name: &str) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Links the file at the path `first`, relative to `root`, under another name.
pub(super) fn link(
    root: BorrowedFd<'_>,
    first: &Path,
    dir: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<(), Errno> {
    rustix::fs::linkat(root, first, dir, name, AtFlags::empty())
}

/// A file that could not be created.
pub(super) struct Unmade {
    /// The reason in words.
    pub(super) why: String,
    /// Whether only its name can't be used: it is taken, too long, or not allowed here.
    pub(super) is_of_name: bool,
}

impl From<Errno> for Unmade {
    fn from(errno: Errno) -> Unmade {
        let is_of_name = matches!(errno, Errno::EXIST | Errno::NAMETOOLONG | Errno::INVAL);
        Unmade { why: errno.to_string(), is_of_name }
    }
}

impl From<String> for Unmade {
    fn from(why: String) -> Unmade {
        Unmade { why, is_of_name: false }
    }
}

/// Creates a file that is not a directory, with all its readable data and attributes. Problems with
/// the rest are added to `wrong`.
///
/// # Errors
/// Returns the reason if the file could not be created, or is a device and `devices` is false.
pub(super) fn file(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    (rescue, ino, core): (&Rescue, u64, &InodeCore),
    devices: bool,
    wrong: &mut Vec<String>,
) -> Result<(), Unmade> {
    let node = |kind| {
        let mode = Mode::from_raw_mode(core.mode & 0o600);
        rustix::fs::mknodat(dir, name, kind, mode, core.rdev)
    };
    match core.kind() {
        Some(FileKind::Regular) => {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR;
            let made = rustix::fs::openat(dir, name, flags, mode)?;
            data(&made, rescue, ino, core, wrong);
            Made::Open(made.as_fd()).take_attributes(rescue, ino, core, wrong);
            return Ok(());
        }
        Some(FileKind::Link) => {
            let target = rescue.target(ino, core).map_err(|loss| loss.to_string())?;
            rustix::fs::symlinkat(&target[..], dir, name)?;
        }
        Some(FileKind::Fifo) => node(FileType::Fifo)?,
        Some(FileKind::Socket) => node(FileType::Socket)?,
        Some(FileKind::Character | FileKind::Block) if !devices => {
            return Err("a device, which only --devices makes".to_owned().into());
        }
        Some(FileKind::Character) => node(FileType::CharacterDevice)?,
        Some(FileKind::Block) => node(FileType::BlockDevice)?,
        Some(FileKind::Directory) | None => return Err("not a kind of file".to_owned().into()),
    }
    Made::Named(dir, name).take_attributes(rescue, ino, core, wrong);
    Ok(())
}

/// Copies the data of a file; holes stay holes.
fn data(made: &OwnedFd, rescue: &Rescue, ino: u64, core: &InodeCore, wrong: &mut Vec<String>) {
    let mut write = |mut offset: u64, mut bytes: &[u8]| {
        while !bytes.is_empty() {
            match rustix::io::pwrite(made, bytes, offset) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => (offset, bytes) = (offset + count as u64, &bytes[count..]),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    };
    match rescue.data(ino, core, &mut write) {
        Ok(losses) => wrong.extend(losses.iter().map(ToString::to_string)),
        Err(errno) => wrong.push(format!("cannot write its data: {errno}")),
    }
    if let Err(errno) = rustix::fs::ftruncate(made, core.size) {
        wrong.push(format!("cannot give it {} bytes: {errno}", core.size));
    }
}

impl Made<'_> {
    /// Sets the owner (as root), extended attributes, permissions, and finally the times. A file
    /// that has not got its owner gets neither set-id bits nor capabilities: its programs would run
    /// with the rights of whoever copies it.
    pub(super) fn take_attributes(
        &self,
        rescue: &Rescue,
        ino: u64,
        core: &InodeCore,
        wrong: &mut Vec<String>,
    ) {
        let mut note = |what: &str, done: Result<(), Errno>| {
            wrong.extend(done.err().map(|errno| format!("{what}: {errno}")));
        };
        let mut is_owned = rustix::process::geteuid().is_root();
        if is_owned {
            let owned = self.chown(core);
            is_owned = owned.is_ok();
            note("its owner", owned);
        }
        let (attributes, loss) = rescue.attributes(ino, core);
        for (name, value) in &attributes {
            if **name == *CAPABILITIES && !is_owned {
                continue;
            }
            let shown = format!("attribute {}", name.escape_ascii());
            note(&shown, self.set_attribute(name, value));
        }
        let lost = if is_owned { 0 } else { SET_IDS };
        note("its permissions", self.chmod(core, core.mode & 0o7777 & !lost));
        note("its times", self.set_times(core));
        wrong.extend(loss.map(|loss| loss.to_string()));
    }

    fn chown(&self, core: &InodeCore) -> Result<(), Errno> {
        let (uid, gid) = (Some(Uid::from_raw(core.uid)), Some(Gid::from_raw(core.gid)));
        match self {
            Made::Open(file) => rustix::fs::fchown(file, uid, gid),
            Made::Named(dir, name) => {
                rustix::fs::chownat(dir, *name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            Made::Open(file) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
            Made::Named(dir, file) => {
                let path: PathBuf = format!("/proc/self/fd/{}", dir.as_raw_fd()).into();
                rustix::fs::lsetxattr(path.join(file), name, value, XattrFlags::empty())
            }
        }
    }

    fn chmod(&self, core: &InodeCore, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Made::Open(file) => rustix::fs::fchmod(file, mode),
            // A symbolic link has no permissions.
            Made::Named(..) if core.is_link() => Ok(()),
            Made::Named(dir, name) => rustix::fs::chmodat(dir, *name, mode, AtFlags::empty()),
        }
    }

    fn set_times(&self, core: &InodeCore) -> Result<(), Errno> {
        let time = |nanos: i64| rustix::fs::Timespec {
            tv_sec: nanos.div_euclid(NANOS),
            tv_nsec: nanos.rem_euclid(NANOS),
        };
        let times =
            Timestamps { last_access: time(core.atime), last_modification: time(core.mtime) };
        match self {
            Made::Open(file) => rustix::fs::futimens(file, &times),
            Made::Named(dir, name) => {
                rustix::fs::utimensat(dir, *name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }
}
