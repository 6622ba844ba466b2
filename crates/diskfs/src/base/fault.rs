//! The error of calls on a volume.

use rustix::io::Errno;

use super::open_error::OpenError;
use crate::format::Damage;

/// Error of a call on a volume. Unless documented otherwise, nothing was changed then.
///
/// `Clone`: each of several waiting threads gets the error of their common wait.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] vfscale_block::Error),
    /// Damage on disk.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// Damage of one inode, block of inodes or group: it fails the calls that need this part, and
    /// the volume goes on.
    #[error(transparent)]
    Local(Damage),
    /// The log failed, or was shut down by an earlier error.
    #[error(transparent)]
    Journal(#[from] vfscale_journal::Error),
    /// The device has no volume that can be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Too few free blocks, or no free inode.
    #[error("no space is left on the volume")]
    NoSpace,
    /// The branch of the volume has as much for itself as it may have.
    #[error("the branch of the volume is at its limit")]
    Limit,
    /// The volume is open for reading only.
    #[error("the volume is open for reading only")]
    ReadOnly,
    /// The file would be larger than files can be, or have more extents than a file can have.
    #[error("the file would be too large")]
    TooLarge,
    /// A repair has changed the volume and was not completed: blocks in use may count as free.
    #[error("a repair of this volume was interrupted: run `vfscale fsck --repair`")]
    NeedsRepair,
    /// The volume's log is on a device of its own, which was not given; or a log device was given
    /// that the volume does not know.
    #[error("{0}")]
    LogDevice(&'static str),
    /// The state of the file system does not permit the call: a name exists, a directory is not
    /// empty.
    #[error("{0}")]
    Refused(Errno),
}

impl Fault {
    /// Returns whether the volume has no space, or storage is short below its device. The latter
    /// is told when data or metadata can't be written.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::NoSpace | Self::Limit => true,
            Self::Device(error) => error.is_no_space(),
            Self::Journal(error) => error.is_no_space(),
            _ => false,
        }
    }

    /// Returns whether a call was refused for want of space, with nothing lost: on the volume, or
    /// for the reservation that it needs on the device.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::NoSpace | Self::Limit)
    }

    /// Returns the fault of a call that needs one part of the volume, which has failed with this
    /// error. A log that is older than the volume is no damage of a part.
    pub(crate) fn local(error: impl Into<Self>) -> Self {
        match error.into() {
            Self::Damage(damage) if !matches!(damage, Damage::Newer { .. }) => Self::Local(damage),
            fault => fault,
        }
    }

    /// Returns the error number of a system call.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Device(vfscale_block::Error::ReadOnly { .. }) | Self::ReadOnly => Errno::ROFS,
            Self::Device(vfscale_block::Error::Locked { .. }) => Errno::BUSY,
            Self::Device(_) | Self::Journal(_) if self.is_no_space() => Errno::NOSPC,
            Self::Device(_) | Self::Journal(_) => Errno::IO,
            Self::Damage(_) | Self::Local(_) | Self::NeedsRepair => Errno::UCLEAN,
            Self::Open(error) => of_open(error),
            Self::NoSpace => Errno::NOSPC,
            Self::Limit => Errno::DQUOT,
            Self::TooLarge => Errno::FBIG,
            Self::LogDevice(_) => Errno::INVAL,
            Self::Refused(errno) => *errno,
        }
    }
}

fn of_open(error: &OpenError) -> Errno {
    match error {
        OpenError::Device(_) => Errno::IO,
        OpenError::Superblock { .. } | OpenError::CutOff { .. } | OpenError::Several { .. } => {
            Errno::UCLEAN
        }
        OpenError::NoVolume { .. } | OpenError::Features { .. } | OpenError::Pool { .. } => {
            Errno::INVAL
        }
    }
}

impl From<Fault> for vfscale_journal::Error {
    /// Converts a fault of hooks, items and recoveries, which ends the journal.
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Journal(error) => error,
            Fault::Device(error) => Self::Device(error),
            fault => Self::client(fault),
        }
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno)
    }
}

#[cfg(test)]
mod tests;
