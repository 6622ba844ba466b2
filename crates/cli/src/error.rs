//! Failures of the command, with their messages and exit statuses.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use vfscale::options::OptionError;
use vfscale::{Errno, Escaped, PoolError, VolumeError};
use vfscale_diskfs::mkfs::MkfsError;
use vfscale_fuse::{MountError, control};

/// The meaning of `ENOTTY` as the reply of a mount.
pub(crate) const NOT_MOUNTED: &str = "no file system of vfscale is mounted there";

/// A failure of the command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The file system could not be made.
    Source(vfscale::Error),
    /// The volume could not be opened, made or closed.
    Open(VolumeError),
    /// The mount failed.
    Mount(MountError),
    /// `-o` or another argument is invalid.
    Usage(String),
    /// The temporary directory could not be made.
    TempDir(PathBuf, io::Error),
    /// The command to run was not found.
    CommandNotFound(OsString),
    /// The command to run exists and can't be run.
    CommandNotRunnable(OsString, io::Error),
    /// A mount's options could not be changed.
    Remount(PathBuf, io::Error),
    /// A directory could not be unmounted.
    Unmount(PathBuf, io::Error),
    /// The server of an unmounted volume has not closed it within a time.
    NotClosed(PathBuf, Option<Box<vfscale::block::Holder>>, std::time::Duration),
    /// The server of an unmounted volume could not close it properly, and has said why.
    Unclosed(String),
    /// A mount could not be made durable.
    Sync(PathBuf, control::Error),
    /// The server of a mount has not done what it was asked for, or a volume does not allow it.
    Refused(PathBuf, String),
    /// A branch can't be the lower layer of an overlay: why.
    Unfit(String),
    /// The server of a mount ends, or has ended, before it has done what it was asked for.
    Ended(PathBuf, String),
    /// Another process has the image open, for so long that a command has given up; why.
    Busy(String),
    /// The program of a command is not installed, or could not be started, or another process has
    /// failed: why, and the exit status.
    Program(String, u8),
    /// A call on the files of an image failed.
    Files(PathBuf, vfscale::Error),
    /// A file of the host can't be read.
    Read(PathBuf, io::Error),
    /// A file could not be written.
    Write(PathBuf, io::Error),
    /// An image file or a block device can't be opened.
    Device(vfscale::block::Error),
    /// The device holds no volume, or an unusable one.
    Volume(vfscale_diskfs::OpenError),
    /// No volume could be made.
    Mkfs(PathBuf, MkfsError),
    /// A check could not be made.
    Check(vfscale_diskfs::check::CheckError),
    /// A structure can't be shown.
    Dump(vfscale_diskfs::dump::DumpError),
    /// The id of a volume could not be changed.
    Id(Box<vfscale_diskfs::identity::IdError>),
    /// The volume is locked by another process, and no mount of it was found to send a request to
    /// by this command.
    InUse(vfscale::block::Error, &'static str),
    /// A call on the branches of an image failed.
    Pool(PoolError),
    /// Branches could not be compared.
    Diff(Box<Failure>),
    /// Another machine has taken the volume over while it was mounted.
    Fenced(vfscale::block::Error),
    /// FUSE over io_uring could not be switched on.
    EnableUring(io::Error),
    /// A system call that should not fail did.
    System(&'static str, io::Error),
}

impl Failure {
    /// Returns the exit status that shells use: 127 for a command that was not found, 126 for one
    /// that can't be run, 3 for a volume that another machine has taken over, 2 for a misuse,
    /// otherwise 1.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status())
    }

    /// Returns the exit status as a number.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::CommandNotFound(_) => 127,
            Failure::CommandNotRunnable(..) => 126,
            Failure::Program(_, status) => *status,
            Failure::Usage(_) | Failure::Diff(_) => 2,
            Failure::Fenced(_) => 3,
            _ => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Source(e) => write!(f, "cannot make the file system: {e}"),
            Failure::Open(e) => e.fmt(f),
            Failure::Mount(e) => e.fmt(f),
            Failure::Usage(what) | Failure::Unclosed(what) | Failure::Busy(what) => {
                f.write_str(what)
            }
            Failure::TempDir(path, e) => write!(
                f,
                "cannot make a temporary directory in {}: {e}; set TMPDIR to a directory that can \
                 be written",
                Escaped::new(path)
            ),
            Failure::CommandNotFound(command) => {
                write!(f, "{}: command not found", Escaped::new(command))
            }
            Failure::CommandNotRunnable(command, e) => {
                write!(f, "{}: cannot run: {e}", Escaped::new(command))
            }
            Failure::Remount(dir, e) => write!(f, "cannot remount {}: {e}", Escaped::new(dir)),
            Failure::Unmount(dir, e) if e.raw_os_error() == Some(libc::ENOTTY) => {
                write!(f, "{}: {NOT_MOUNTED}", Escaped::new(dir))
            }
            Failure::Sync(dir, e) if e.errno() == Errno::NOTTY => {
                write!(f, "{}: {NOT_MOUNTED}", Escaped::new(dir))
            }
            Failure::Unmount(dir, e) => write!(f, "cannot unmount {}: {e}", Escaped::new(dir)),
            Failure::NotClosed(image, holder, limit) => {
                let seconds = limit.as_secs_f64();
                write!(f, "{}: unmounted, but not closed after {seconds} s", Escaped::new(image))?;
                holder.as_ref().map_or(Ok(()), |holder| write!(f, " by {holder}"))
            }
            Failure::Sync(dir, e) => {
                write!(f, "{}: not everything could be written: {e}", Escaped::new(dir))
            }
            Failure::Program(why, _) | Failure::Unfit(why) => f.write_str(why),
            Failure::Files(image, e) => write!(f, "{}: {e}", Escaped::new(image)),
            Failure::Read(path, e) => write!(f, "{}: {e}", Escaped::new(path)),
            Failure::Write(path, e) => write!(f, "cannot write {}: {e}", Escaped::new(path)),
            Failure::Device(e) | Failure::Fenced(e) => e.fmt(f),
            Failure::Volume(e) => e.fmt(f),
            Failure::Mkfs(image, e) => mkfs(f, image, e),
            Failure::Check(e) => e.fmt(f),
            Failure::Dump(e) => e.fmt(f),
            Failure::Id(e) => e.fmt(f),
            Failure::Pool(e) => e.fmt(f),
            Failure::Diff(e) => e.fmt(f),
            Failure::Refused(place, why) | Failure::Ended(place, why) => {
                write!(f, "{}: {why}", Escaped::new(place))
            }
            Failure::InUse(e, command) => {
                write!(f, "{e}; if it is mounted, say where: `vfscale {command}`")
            }
            Failure::EnableUring(e) => enable_uring(f, e),
            Failure::System(call, e) => write!(f, "{call}: {e}"),
        }
    }
}

fn mkfs(f: &mut fmt::Formatter<'_>, image: &Path, e: &MkfsError) -> fmt::Result {
    match e {
        MkfsError::Recognised { .. } => write!(f, "{e}; --force makes a volume nevertheless"),
        MkfsError::Size(_) => write!(f, "{}: {e}", Escaped::new(image)),
        _ => write!(f, "{e}"),
    }
}

fn enable_uring(f: &mut fmt::Formatter<'_>, e: &io::Error) -> fmt::Result {
    write!(f, "cannot switch on FUSE over io_uring: ")?;
    match e.kind() {
        io::ErrorKind::NotFound => {
            write!(f, "this kernel lacks it, or its FUSE module (modprobe fuse)")
        }
        io::ErrorKind::PermissionDenied => write!(f, "only root may"),
        _ => write!(f, "{e}"),
    }
}

impl std::error::Error for Failure {}

impl From<VolumeError> for Failure {
    fn from(e: VolumeError) -> Failure {
        Failure::Open(e)
    }
}

impl From<OptionError> for Failure {
    fn from(e: OptionError) -> Failure {
        Failure::Usage(e.to_string())
    }
}

impl From<PoolError> for Failure {
    fn from(e: PoolError) -> Failure {
        Failure::Pool(e)
    }
}

impl From<MountError> for Failure {
    fn from(e: MountError) -> Failure {
        Failure::Mount(e)
    }
}

impl From<vfscale::Error> for Failure {
    fn from(e: vfscale::Error) -> Failure {
        Failure::Source(e)
    }
}

impl From<vfscale::block::Error> for Failure {
    fn from(e: vfscale::block::Error) -> Failure {
        Failure::Device(e)
    }
}

impl From<vfscale_diskfs::OpenError> for Failure {
    fn from(e: vfscale_diskfs::OpenError) -> Failure {
        Failure::Volume(e)
    }
}

impl From<vfscale_diskfs::check::CheckError> for Failure {
    fn from(e: vfscale_diskfs::check::CheckError) -> Failure {
        Failure::Check(e)
    }
}

impl From<vfscale_diskfs::dump::DumpError> for Failure {
    fn from(e: vfscale_diskfs::dump::DumpError) -> Failure {
        Failure::Dump(e)
    }
}

impl From<vfscale_diskfs::identity::IdError> for Failure {
    fn from(e: vfscale_diskfs::identity::IdError) -> Failure {
        Failure::Id(Box::new(e))
    }
}
