//! Errors of volumes.

use std::path::PathBuf;

use vfscale_block as block;
use vfscale_diskfs::mkfs::MkfsError;
use vfscale_diskfs::{Fault, OpenError};
use vfscale_vfs::{Errno, Escaped};

use crate::error::pool::PoolError;
use crate::error::pool::remedy_of_device;

/// The reason why a volume can't be opened, created or closed. The text names the remedy.
///
/// ```
/// use vfscale::VolumeError;
///
/// match vfscale::volume("/no/such.vfs").open() {
///     Err(VolumeError::Missing(path)) => println!("no image at {}", path.display()),
///     Err(error) => return Err(error.into()),
///     Ok(volume) => volume.close()?,
/// }
/// # Ok::<(), vfscale::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The image does not exist.
    #[error(
        "{}: the image does not exist; make one with `vfscale mkfs`, or give a size to create it",
        Escaped::new(.0)
    )]
    Missing(PathBuf),
    /// The device can't be opened or created: it is locked, or the system refuses.
    #[error("{}{}", .0, remedy_of_device(.0))]
    Device(vfscale_block::Error),
    /// The volume can't be opened.
    #[error("{}{}", named(.name, .fault), remedy(.fault))]
    Open {
        /// The volume.
        name: String,
        /// The cause.
        fault: Box<Fault>,
    },
    /// The image was created, but not a volume in it.
    #[error("{name}: cannot make a volume: {error}")]
    Make {
        /// The image.
        name: String,
        /// The cause.
        error: Box<MkfsError>,
    },
    /// The volume was opened, but can't be mounted.
    #[error("{name}: cannot mount it: {errno}; `vfscale fsck` shows details")]
    Mount {
        /// The volume.
        name: String,
        /// The cause.
        errno: Errno,
    },
    /// The pool that the volume is a branch of has failed.
    #[error(transparent)]
    Pool(Box<PoolError>),
    /// Not all changes became durable.
    #[error("{name}: not everything could be written: {errno}; unsynced changes may be lost")]
    Sync {
        /// The volume.
        name: String,
        /// The cause.
        errno: Errno,
    },
    /// The tree still has tasks, open files or mounts.
    #[error(
        "{name}: not closed: {} and {} still use it; end them, and close it again",
        counted(*.tasks, "task"), counted(*.open_files, "open file")
    )]
    InUse {
        /// The volume.
        name: String,
        /// Number of tasks and clones of its [`Vfs`](crate::Vfs); another tree counts as one.
        tasks: usize,
        /// Number of open files.
        open_files: usize,
    },
    /// This process is the child of a fork of a process that used the library, and has not executed
    /// another program since. Only the parent can use the volume.
    #[error(
        "{name}: a child of fork can't use it; open it in the child of a process that has not used vfscale"
    )]
    Forked {
        /// The volume.
        name: String,
    },
    /// The volume was not closed properly; all synced changes are recovered when it is opened
    /// again.
    #[error("{name}: not closed: {fault}; it will be recovered when it is opened again")]
    Close {
        /// The volume.
        name: String,
        /// The cause.
        fault: Box<Fault>,
    },
}

impl From<PoolError> for VolumeError {
    fn from(error: PoolError) -> Self {
        Self::Pool(Box::new(error))
    }
}

impl VolumeError {
    /// Returns Linux's number for the error.
    pub fn errno(&self) -> Errno {
        match self {
            VolumeError::Missing(_) => Errno::NOENT,
            VolumeError::Device(error) => of_device(error),
            VolumeError::Open { fault, .. } | VolumeError::Close { fault, .. } => fault.errno(),
            VolumeError::Make { error, .. } => match &**error {
                MkfsError::Device(error) if error.is_no_space() => Errno::NOSPC,
                MkfsError::Log(error) if error.is_no_space() => Errno::NOSPC,
                _ => Errno::INVAL,
            },
            VolumeError::Pool(error) => error.errno(),
            VolumeError::Mount { errno, .. } | VolumeError::Sync { errno, .. } => *errno,
            VolumeError::InUse { .. } => Errno::BUSY,
            VolumeError::Forked { .. } => Errno::NOTRECOVERABLE,
        }
    }
}

/// Returns the error number of a device that could not be opened.
fn of_device(error: &block::Error) -> Errno {
    match error {
        block::Error::Unsupported { .. } => Errno::OPNOTSUPP,
        block::Error::Unreachable { .. } => Errno::TIMEDOUT,
        block::Error::Io { source, .. } if source.code() == Errno::TIMEDOUT.raw_os_error() => {
            Errno::TIMEDOUT
        }
        error => Fault::from(error.clone()).errno(),
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns the text of a fault with the volume's name; most faults of a device already include it.
fn named(name: &str, fault: &Fault) -> String {
    let text = fault.to_string();
    if text.starts_with(name) { text } else { format!("{name}: {text}") }
}

/// The remedy when storage is short below a volume. Nothing of it is damaged.
const NO_SPACE: &str = "; free space there and open it again, or open it read-only (`-o ro`)";

fn remedy(fault: &Fault) -> &'static str {
    match fault {
        Fault::Open(OpenError::NoVolume { .. }) => "; `vfscale mkfs` makes a volume",
        Fault::Damage(_) | Fault::Open(OpenError::Superblock { .. }) => {
            "; `vfscale fsck` shows details, and `--repair` repairs it"
        }
        Fault::ReadOnly => "; it can be opened read-only",
        Fault::LogDevice(_) => "; name the device of its log",
        Fault::Device(_) | Fault::Journal(_) if fault.is_no_space() => NO_SPACE,
        Fault::Journal(error) if error.unwritten().is_some() => {
            "; its log is as before: open it again when its device can be written, or read-only (`-o ro`)"
        }
        Fault::Journal(vfscale_journal::Error::Features { .. }) => "",
        Fault::Journal(vfscale_journal::Error::EndUnread { .. }) => {
            "; nothing was changed: try again when the device can read it; it can be opened read-only; if it \
             stays so, `vfscale fsck --repair` ends the log there, without what can't be read"
        }
        Fault::Journal(vfscale_journal::Error::Device(_)) => {
            "; try again when the device works; it can be opened read-only, and `vfscale fsck` shows details"
        }
        Fault::Journal(_) => {
            "; `vfscale fsck` shows details, and the volume can be read without its log (`-o ro,norecovery`); \
             if `vfscale fsck --repair` of a copy can't replay it either, `--discard-log` makes a new log, \
             without the changes in this one"
        }
        _ => "",
    }
}
