//! Errors of mounting, each with its remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use vfscale::Escaped;

use crate::base::uring_switches::UringObstacle;

/// The reason why mounting failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The FUSE device can't be used.
    Device {
        /// The error of opening it.
        source: io::Error,
    },
    /// The mount point can't be used.
    Target {
        /// The mount point.
        dir: PathBuf,
        /// The error of accessing it.
        source: io::Error,
    },
    /// The descriptor is not that of a mount.
    Descriptor {
        /// Its path, `/dev/fd/N`.
        dir: PathBuf,
        /// The error of taking it over.
        source: io::Error,
    },
    /// The mount point is not a directory.
    NotADirectory {
        /// Its path.
        dir: PathBuf,
    },
    /// The caller may not mount, and no helper could be used.
    Denied {
        /// The mount point.
        dir: PathBuf,
    },
    /// `fusermount3` refused.
    Helper {
        /// The helper's message.
        message: String,
    },
    /// The kernel refused.
    Mount {
        /// The mount point.
        dir: PathBuf,
        /// The error of `mount(2)`.
        source: io::Error,
    },
    /// The kernel's FUSE is too old or did not follow the protocol.
    Protocol(String),
    /// The file system that was to be mounted could not be opened.
    FileSystem(vfscale::Error),
    /// The tree has extended attributes, and the mount was to have none
    /// ([`Xattrs::Refused`](crate::Xattrs::Refused)).
    HasXattrs {
        /// A file that has some, as a path in the tree.
        path: PathBuf,
    },
    /// Threads could not be started.
    Threads(io::Error),
    /// FUSE over io_uring ([`Transport::Uring`](crate::Transport::Uring)) can't be had.
    Uring(UringObstacle),
    /// The mount can't be one that may be [id-mapped](crate::Builder::idmap), for this reason.
    IdMap(&'static str),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::Device { source } => device(f, source),
            MountError::Target { dir, source } => target(f, dir, source),
            MountError::Descriptor { dir, source } => write!(
                f,
                "{} is no descriptor of a mount: {source}; pass the open /dev/fuse whose number \
                 was given to mount(2)",
                dir.display()
            ),
            MountError::NotADirectory { dir } => {
                write!(f, "{} is not a directory: name a directory to mount at", dir.display())
            }
            MountError::Denied { dir } => write!(
                f,
                "not permitted to mount at {}: run as root, or install fusermount3 (package \
                 fuse3), which mounts for other users; in a container, give it the right (docker \
                 run --device {} --cap-add SYS_ADMIN)",
                dir.display(),
                crate::base::device::PATH
            ),
            MountError::Helper { message } => helper(f, message),
            MountError::Mount { dir, source } => {
                write!(f, "cannot mount at {}: {source}", dir.display())
            }
            MountError::Protocol(what) => write!(f, "FUSE: {what}"),
            MountError::FileSystem(e) => write!(f, "cannot open the file system to mount: {e}"),
            MountError::HasXattrs { path } => write!(
                f,
                "{} has extended attributes, capabilities or an access control list, which a mount \
                 with noxattr ignores: mount without noxattr, or with noxattr=force",
                Escaped::new(path)
            ),
            MountError::Threads(e) => write!(f, "cannot start worker threads: {e}"),
            MountError::Uring(obstacle) => obstacle.fmt(f),
            MountError::IdMap(why) => write!(f, "idmap: a mount can't be id-mapped: {why}"),
        }
    }
}

fn device(f: &mut fmt::Formatter<'_>, source: &io::Error) -> fmt::Result {
    let path = crate::base::device::PATH;
    match source.kind() {
        io::ErrorKind::NotFound => write!(
            f,
            "{path} is missing: load the kernel's FUSE module (modprobe fuse); in a container, \
             give it the device and the right (docker run --device {path} --cap-add SYS_ADMIN)"
        ),
        io::ErrorKind::PermissionDenied => write!(
            f,
            "not permitted to open {path}: run as root, or have its mode set to 0666 \
             (chmod 0666 {path})"
        ),
        _ => {
            write!(f, "cannot open {path}: {source}; load the kernel's FUSE module (modprobe fuse)")
        }
    }
}

fn target(f: &mut fmt::Formatter<'_>, dir: &std::path::Path, source: &io::Error) -> fmt::Result {
    let dir = dir.display();
    match source.kind() {
        io::ErrorKind::NotFound => {
            write!(f, "directory {dir} does not exist: create it first (mkdir {dir})")
        }
        io::ErrorKind::NotConnected => write!(
            f,
            "{dir} is the mount of a FUSE server that has ended: unmount it first (umount {dir})"
        ),
        _ => write!(f, "cannot use directory {dir}: {source}"),
    }
}

fn helper(f: &mut fmt::Formatter<'_>, message: &str) -> fmt::Result {
    f.write_str(message)?;
    if message.contains("user_allow_other") {
        f.write_str(
            " (either mount without --allow-other, or write the line user_allow_other into \
             /etc/fuse.conf)",
        )?;
    } else if message.contains("Permission denied") && message.contains("/dev/fuse") {
        f.write_str(" (run as root, or have it opened to all: chmod 0666 /dev/fuse)")?;
    } else if message.contains("mount failed: Operation not permitted") {
        f.write_str(" (a user namespace needs a namespace of mounts too: unshare -Urm)")?;
    } else if message.contains("fuse device not found") || message.contains("/dev/fuse") {
        f.write_str(" (load the kernel's FUSE module: modprobe fuse)")?;
    }
    Ok(())
}

impl std::error::Error for MountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MountError::Device { source }
            | MountError::Target { source, .. }
            | MountError::Mount { source, .. } => Some(source),
            MountError::Threads(e) => Some(e),
            MountError::Uring(obstacle) => Some(obstacle),
            MountError::FileSystem(e) => Some(e),
            _ => None,
        }
    }
}
