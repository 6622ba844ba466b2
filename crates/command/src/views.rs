//! Views of branches that Linux has mounted, and the upper layers of overlays above them.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, utimensat};
use rustix::io::Errno;
use rustix::mount::MountFlags;

/// The hint for a view that is refused with [`Errno::NOTBLK`].
pub const SUPPORTED: &str =
    "(Linux reads views of images on ext4, XFS, btrfs and others since 6.12, none on tmpfs)";
/// The most bytes of all names of attributes, and of a value, that Linux has.
const XATTR_MAX: usize = 1 << 16;

/// Mounts a view at a directory. Its contents are in `image`.
///
/// Blocks for the I/O.
///
/// # Errors
/// Errors of `open` and `mount`; [`Errno::INVAL`] for a path with a zero byte.
pub fn mount(view: &Path, image: &Path, dir: &Path) -> Result<(), Errno> {
    let open = File::open(image).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let options = CString::new(format!("device={}", for_options(image, &open)));
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
    rustix::mount::mount(view, dir, "erofs", flags, &*options.map_err(|_| Errno::INVAL)?)
}

/// Returns a path of an open file for the options of a mount, in which a comma separates.
#[must_use]
pub fn for_options(path: &Path, file: &File) -> String {
    match path.to_str().filter(|path| !path.contains([',', '\\', ':'])) {
        Some(path) => path.to_owned(),
        None => format!("/proc/self/fd/{}", file.as_raw_fd()),
    }
}

/// Returns whether a process or the kernel has a file open; true if that can't be found out. An
/// overlay keeps the view below it open, also in other namespaces, and after an unmount of that.
#[must_use]
pub fn is_open(path: &Path) -> bool {
    let file = match File::open(path) {
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
        Ok(file) => file,
    };
    let lease = |kind: i32| {
        // SAFETY: a call on an open descriptor with a number.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) }
    };
    let is_open = lease(libc::F_WRLCK) != 0;
    lease(libc::F_UNLCK);
    is_open
}

/// Gives the root of an upper layer, which is that of the overlay, the attributes of the lower one.
///
/// # Errors
/// Errors of the calls on both.
pub fn copy_attributes(lower: &Path, upper: &Path) -> io::Result<()> {
    let stat = fs::metadata(lower)?;
    chown(upper, Some(stat.uid()), Some(stat.gid()))?;
    fs::set_permissions(upper, PermissionsExt::from_mode(stat.mode() & 0o7777))?;
    let (mut names, mut value) = (vec![0; XATTR_MAX], vec![0; XATTR_MAX]);
    let length = rustix::fs::listxattr(lower, &mut names[..])?;
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = rustix::fs::getxattr(lower, name, &mut value[..])?;
        rustix::fs::setxattr(upper, name, &value[..length], XattrFlags::empty())?;
    }
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(stat.atime(), stat.atime_nsec()),
        last_modification: time(stat.mtime(), stat.mtime_nsec()),
    };
    Ok(utimensat(CWD, upper, &times, AtFlags::empty())?)
}
