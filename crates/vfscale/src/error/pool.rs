//! Errors of pools.

use std::path::PathBuf;

use vfscale_block::Operation;
use vfscale_diskfs::{Fault, OpenError};
use vfscale_vfs::{Errno, Escaped};

/// The reason why a call on a pool failed. The text names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The image does not exist.
    #[error("{}: the image does not exist; make one with `vfscale mkfs`", Escaped::new(.0))]
    Missing(PathBuf),
    /// The image or device can't be opened.
    #[error("{}{}", .0, remedy_of_device(.0))]
    Device(vfscale_block::Error),
    /// The device has a volume that is no pool.
    #[error("{name}: a volume without branches; `vfscale branch create` makes the first one")]
    NoPool {
        /// The image.
        name: String,
    },
    /// The superblock of the device can't be read.
    #[error(transparent)]
    Superblock(OpenError),
    /// The volume can't become a pool.
    #[error("{name}: can't have branches: {why}")]
    Convert {
        /// The image.
        name: String,
        /// The reason.
        why: String,
        /// Linux's number for it.
        errno: Errno,
    },
    /// The volume in a branch can't grow.
    #[error("{name}: {why}")]
    Grow {
        /// The branch.
        name: String,
        /// The reason.
        why: String,
        /// Linux's number for it.
        errno: Errno,
    },
    /// The call on the branches failed.
    #[error("{name}: {error}{}", remedy(.error))]
    Branches {
        /// The image.
        name: String,
        /// The cause.
        error: vfscale_pool::Error,
    },
    /// The volume in a branch is damaged, so it can't be compared.
    #[error("{name}: {}: {what}; `vfscale fsck` shows details", Escaped::new(.path))]
    Damage {
        /// The image and the branch.
        name: String,
        /// The path in the volume.
        path: PathBuf,
        /// The damage.
        what: String,
    },
    /// The branch can't take the place of its parent: that has changed since the fork.
    #[error("{name}: it has changed since it was forked, first {}; compare them", Escaped::new(.path))]
    HasChanged {
        /// The image and the parent.
        name: String,
        /// A path that differs.
        path: PathBuf,
    },
    /// A file of the branch can't be shown in a view: a damaged volume, or more than EROFS can
    /// store.
    #[error("{name}: {}: can't be in a view: {error}", Escaped::new(.path))]
    View {
        /// The image and the branch.
        name: String,
        /// The path in the volume.
        path: PathBuf,
        /// The cause.
        error: vfscale_erofs::Error,
    },
    /// A file can't be in a layer.
    #[error("{}: can't be in a layer: {what}; rename or remove it, or use a patch", Escaped::new(.path))]
    Layer {
        /// The path in the volume.
        path: PathBuf,
        /// The reason.
        what: &'static str,
    },
    /// A layer or a patch can't be applied.
    #[error("{place}: can't be applied: {what}; nothing was changed")]
    Apply {
        /// The file in the layer, or the file and the line in the patch.
        place: String,
        /// The reason.
        what: String,
        /// Linux's number for it.
        errno: Errno,
    },
    /// The file of a view could not be written.
    #[error("{}: {error}", Escaped::new(.path))]
    Output {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// A file of an overlay could not be taken over.
    #[error("{}: can't be taken over from the overlay: {what}; nothing was changed", Escaped::new(.path))]
    Overlay {
        /// The path from the root of the tree; that of the host for a file that the overlay keeps
        /// elsewhere.
        path: PathBuf,
        /// The reason.
        what: String,
        /// Linux's number for it.
        errno: Errno,
    },
    /// A branch is open that is to get other contents, by a merge or the like.
    #[error(
        "{name}: it is in use, and would get other contents: close it, or unmount it; or fork it, \
         and use the fork"
    )]
    MergeInUse {
        /// The image and the branch.
        name: String,
    },
    /// The branch is in use, and its user can't go on with other contents.
    #[error("{name}: {why}; nothing was changed")]
    Follow {
        /// The image and the branch.
        name: String,
        /// The reason, and the remedy.
        why: String,
        /// Linux's number for it.
        errno: Errno,
    },
    /// The branch has other contents now, but can't be opened with them.
    #[error("{name}: it has the contents asked for, but can't go on with them: {why}; unmount it")]
    Switch {
        /// The image and the branch.
        name: String,
        /// The reason.
        why: String,
        /// Linux's number for it.
        errno: Errno,
    },
    /// A change of a merge could not be made.
    #[error("can't be merged: {what}; nothing was changed")]
    Merge {
        /// The call that failed.
        what: String,
        /// Linux's number for it.
        errno: Errno,
    },
    /// Not all changes of an open branch became durable.
    #[error("{name}: not everything could be written: {errno}; there is no new branch")]
    Sync {
        /// The image and the branch.
        name: String,
        /// The cause.
        errno: Errno,
    },
}

impl PoolError {
    /// Returns Linux's number for the error.
    pub fn errno(&self) -> Errno {
        use vfscale_pool::Error;
        match self {
            Self::Missing(_) => Errno::NOENT,
            Self::Device(error) => Fault::from(error.clone()).errno(),
            Self::NoPool { .. } => Errno::INVAL,
            Self::Convert { errno, .. }
            | Self::Grow { errno, .. }
            | Self::Follow { errno, .. }
            | Self::Switch { errno, .. } => *errno,
            Self::Superblock(_) | Self::Damage { .. } => Errno::UCLEAN,
            Self::HasChanged { .. } | Self::MergeInUse { .. } => Errno::BUSY,
            Self::Sync { errno, .. }
            | Self::Overlay { errno, .. }
            | Self::Merge { errno, .. }
            | Self::Apply { errno, .. } => *errno,
            Self::View { .. } | Self::Layer { .. } => Errno::OVERFLOW,
            Self::Output { error, .. } => Errno::from_io_error(error).unwrap_or(Errno::IO),
            Self::Branches { error, .. } => match error {
                Error::Exists(_) | Error::Received(_) => Errno::EXIST,
                Error::NoBranch(_) | Error::NoBase(_) => Errno::NOENT,
                Error::Stream { .. } => Errno::BADMSG,
                Error::StreamFailed { source, .. } => Errno::from_raw_os_error(source.code()),
                Error::InUse(_) | Error::Changed(_) => Errno::BUSY,
                Error::Full | Error::Nodes(_) => Errno::NOSPC,
                Error::Limit => Errno::DQUOT,
                Error::Damage { .. } => Errno::UCLEAN,
                Error::Device(_) | Error::Unreadable { .. } | Error::Failed => Errno::IO,
                _ => Errno::INVAL,
            },
        }
    }
}

/// Returns what to do about the error of a pool, to be put behind its text.
fn remedy(error: &vfscale_pool::Error) -> &'static str {
    match error {
        vfscale_pool::Error::Damage { .. } => "; `vfscale fsck` shows what is damaged",
        _ => "",
    }
}

/// Returns what to do about the error of a device, to be put behind its text.
pub(crate) fn remedy_of_device(error: &vfscale_block::Error) -> &'static str {
    match error {
        vfscale_block::Error::Locked { client: Some(_), .. } => {
            "; unmount or close it there first; or mount it with --take-over, and the cluster \
             refuses that client from then on; if it has died, that is not needed once its watch has \
             ended (30 seconds by default)"
        }
        vfscale_block::Error::Locked { .. } => "; unmount or close it there first",
        vfscale_block::Error::Io { operation: Operation::Open, source, .. }
            if source.kind() == std::io::ErrorKind::ReadOnlyFilesystem =>
        {
            "; it can only be opened read-only, as `-o ro` does"
        }
        _ => "",
    }
}

impl From<PoolError> for vfscale_vfs::Error {
    /// Retains the whole error as the [cause](vfscale_vfs::Error::cause).
    fn from(error: PoolError) -> vfscale_vfs::Error {
        vfscale_vfs::Error::caused("pool", error.errno(), error)
    }
}
