//! Attaches a connection to a directory and detaches it: with `mount(2)` where that is permitted,
//! with the setuid helper `fusermount3` otherwise. Neither needs a library.

use std::ffi::{CString, OsStr};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::syncfs;
use rustix::io::Errno;
use rustix::mount::{MountFlags as Flags, UnmountFlags, mount};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use vfscale::posix::MountFlags;

use self::place::{MountId, Place};
use crate::base::device::{self, Device};
use crate::base::error::MountError;
use crate::base::syncing::Syncing;

mod place;

/// The helper that mounts for unprivileged users, under its present and its former name.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];
/// Subtype of the file system: `/proc/mounts` shows the type `fuse.vfscale`.
const SUBTYPE: &str = "vfscale";

/// Options of a mount that the kernel has to know, whoever serves it.
#[derive(Clone, Debug)]
pub struct Attachment {
    pub(crate) source: String,
    pub(crate) flags: MountFlags,
    pub(crate) allow_other: bool,
    pub(crate) syncing: Syncing,
}

impl Default for Attachment {
    fn default() -> Self {
        Self {
            source: "vfscale".into(),
            flags: MountFlags::empty(),
            allow_other: false,
            syncing: Syncing::default(),
        }
    }
}

impl Attachment {
    /// Returns the default options: for the mounting user only, without flags.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name shown as the source in `/proc/mounts`; default `vfscale`.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Sets the flags of the mount: `RDONLY`, `NOSUID`, `NODEV`, `NOEXEC`, `NOATIME`, ...
    pub fn flags(mut self, flags: MountFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Adds flags to those of the mount.
    pub fn add_flags(mut self, flags: MountFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// Lets other users access the mount, subject to permissions.
    pub fn allow_other(mut self, allow: bool) -> Self {
        self.allow_other = allow;
        self
    }

    /// Sets which changes are durable when their calls return.
    pub fn syncing(mut self, syncing: Syncing) -> Self {
        self.syncing = syncing;
        self
    }
}

/// A connection that is attached to a directory.
#[derive(Debug)]
pub(crate) struct Attached {
    dir: PathBuf,
    /// The device number, if it is known.
    device: Option<(u32, u32)>,
    /// The mount, if this process can detach it.
    mount: Option<MountId>,
    /// Where it was mounted, held open to unmount it without another descriptor.
    place: Option<Place>,
}

/// Returns the number of the descriptor that a path `/dev/fd/N` names.
pub(crate) fn descriptor(dir: &Path) -> Option<RawFd> {
    dir.to_str()?.strip_prefix("/dev/fd/")?.parse().ok()
}

/// Takes over a connection that another process has attached, to a directory that this one need
/// not know; `dir` stands for it.
///
/// # Errors
/// [`MountError::Descriptor`] if the descriptor is not the FUSE device.
pub(crate) fn adopt(
    dir: &Path,
    device: io::Result<Device>,
) -> Result<(Device, Attached), MountError> {
    let dir = dir.to_owned();
    match device {
        Ok(device) => Ok((device, Attached { dir, device: None, mount: None, place: None })),
        Err(source) => Err(MountError::Descriptor { dir, source }),
    }
}

/// Attaches a new connection to `dir`.
pub(crate) fn attach(dir: &Path, how: &Attachment) -> Result<(Device, Attached), MountError> {
    let named = |source| MountError::Target { dir: dir.to_owned(), source };
    let dir = dir.canonicalize().map_err(named)?;
    let meta = dir.metadata().map_err(named)?;
    if !meta.is_dir() {
        return Err(MountError::NotADirectory { dir });
    }
    let place = Place::of(&dir).map_err(named)?;
    let mut refused = None;
    let device = match device::open(Path::new(device::PATH)) {
        Ok(file) => match direct(&file, &dir, meta.mode(), how) {
            Ok(()) => Some(Device::from_fd(OwnedFd::from(file))),
            Err(Errno::PERM | Errno::ACCESS) => None,
            Err(errno) => return Err(MountError::Mount { dir, source: errno.into() }),
        },
        // The helper may have the permission to open the device.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            refused = Some(e);
            None
        }
        Err(source) => return Err(MountError::Device { source }),
    };
    let device = match device {
        Some(device) => device,
        None => {
            let opened = through_helper(&dir, how);
            Device::from_fd(opened.map_err(|error| blame_device(error, refused))?)
        }
    };
    match place.mount() {
        Ok(mount) => {
            let (at, mount, place) = (Some(mount.device), Some(mount), Some(place));
            Ok((device, Attached { dir, device: at, mount, place }))
        }
        Err(source) => {
            let _ = place.unmount(&dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
            Err(MountError::Target { dir, source })
        }
    }
}

/// Reports a device without permission if that is why the helper failed: the helper opens the
/// device as the calling user.
fn blame_device(error: MountError, refused: Option<io::Error>) -> MountError {
    match (error, refused) {
        (MountError::Helper { message }, Some(source)) if message.contains(device::PATH) => {
            MountError::Device { source }
        }
        (error, _) => error,
    }
}

/// Attaches with `mount(2)`.
fn direct(device: &File, dir: &Path, mode: u32, how: &Attachment) -> Result<(), Errno> {
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        mode & 0o170_000,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if how.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let syncing = match how.syncing {
        Syncing::OnRequest => Flags::empty(),
        Syncing::Names => Flags::DIRSYNC,
        Syncing::All => Flags::SYNCHRONOUS,
    };
    let flags = Flags::from_bits_truncate(how.flags.bits().into()) | syncing;
    mount(how.source.as_str(), dir, format!("fuse.{SUBTYPE}"), flags, data.as_c_str())
}

/// Returns the options in the syntax of `fusermount3`.
fn helper_options(how: &Attachment) -> String {
    let mut options = String::from("default_permissions");
    let _ = write!(options, ",subtype={SUBTYPE},fsname={}", escape(&how.source));
    if how.allow_other {
        options.push_str(",allow_other");
    }
    for (flag, name) in [
        (MountFlags::RDONLY, ",ro"),
        (MountFlags::NOSUID, ",nosuid"),
        (MountFlags::NODEV, ",nodev"),
        (MountFlags::NOEXEC, ",noexec"),
        (MountFlags::NOATIME, ",noatime"),
    ] {
        if how.flags.contains(flag) {
            options.push_str(name);
        }
    }
    options.push_str(match how.syncing {
        Syncing::OnRequest => "",
        Syncing::Names => ",dirsync",
        Syncing::All => ",sync",
    });
    options
}

/// Escapes the characters with a meaning in options: a comma ends an option, a backslash escapes.
fn escape(source: &str) -> String {
    source.replace('\\', "\\\\").replace(',', "\\,")
}

/// Returns whether an error of starting a helper means that the helper does not exist. `PATH` may
/// name directories that the caller can't search; then `EACCES` is the error, unless another
/// directory has the helper.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// Mounts with the helper, which sends the device's descriptor through a socket, its standard
/// input.
fn through_helper(dir: &Path, how: &Attachment) -> Result<OwnedFd, MountError> {
    let denied = || MountError::Denied { dir: dir.to_owned() };
    let failed = |e: io::Error| MountError::Mount { dir: dir.to_owned(), source: e };
    let options = helper_options(how);
    for helper in HELPERS {
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(helper);
        command.args([OsStr::new("-o"), OsStr::new(&options), OsStr::new("--"), dir.as_os_str()]);
        command.env("_FUSE_COMMFD", "0").stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(e) if is_missing(&e) => continue,
            Err(e) => return Err(failed(e)),
        };
        // The command still holds the child's end of the socket; while it does, `receive_fd` would
        // not see end of file.
        drop(command);
        let received = receive_fd(&ours);
        drop(ours);
        let mut message = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _ = stderr.read_to_string(&mut message);
        }
        let status = child.wait().map_err(failed)?;
        return match received {
            Some(fd) if status.success() => Ok(fd),
            _ if message.trim().is_empty() => Err(denied()),
            _ => Err(MountError::Helper { message: message.trim().to_owned() }),
        };
    }
    Err(denied())
}

/// Receives one descriptor; `None` when the other side closes without sending one.
fn receive_fd(socket: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    loop {
        match recvmsg(socket, &mut data, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(_) => return None,
            Ok(_) => break,
        }
    }
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// The condition for detaching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detach {
    /// Only if the mount is not in use.
    Idle,
    /// In any case; users of the mount get errors from then on.
    Force,
}

impl Attached {
    /// Returns the state of a mount that another process has made, and that this one can detach if
    /// it sees it at the same path.
    pub(crate) fn elsewhere(dir: PathBuf, device: (u32, u32)) -> Attached {
        let found = Place::of(&dir).and_then(|place| place.mount()).ok();
        let mount = found.filter(|mount| mount.device == device);
        Attached { dir, device: Some(device), mount, place: None }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns whether this process can detach it.
    pub(crate) fn is_own(&self) -> bool {
        self.mount.is_some()
    }

    /// Returns the device number of the mount, major and minor.
    ///
    /// # Errors
    /// `ENOENT` if the directory is not known.
    pub(crate) fn device(&self) -> io::Result<(u32, u32)> {
        Ok(self.device.ok_or(Errno::NOENT)?)
    }

    /// Has the kernel send the data that it holds back, and waits until the mount has it. Does
    /// nothing to a connection that has ended, or that another process has attached. The workers
    /// must run.
    ///
    /// # Errors
    /// `EINVAL` if this process does not see the mount, or another one lies on it; any error of
    /// `open(2)` and `syncfs(2)`.
    pub(crate) fn flush(&self, device: &Device) -> io::Result<()> {
        let Some(mount) = self.mount.filter(|_| !is_ended(device)) else { return Ok(()) };
        let (place, _) = mount.find(&self.dir)?;
        Ok(syncfs(place.open()?)?)
    }

    /// Detaches, wherever the mount is, unless it is already detached. A connection that another
    /// process has attached ends with this process.
    ///
    /// # Errors
    /// Returns `EBUSY` for [`Detach::Idle`] if the mount is in use, or another process's; `EINVAL`
    /// if this process does not see it, or another mount lies on it.
    pub(crate) fn detach(&self, device: &Device, how: Detach) -> io::Result<()> {
        if is_ended(device) {
            return Ok(());
        }
        let Some(mount) = self.mount else {
            return if how == Detach::Idle { Err(Errno::BUSY.into()) } else { Ok(()) };
        };
        let flags = match how {
            Detach::Idle => UnmountFlags::empty(),
            Detach::Force => UnmountFlags::FORCE | UnmountFlags::DETACH,
        };
        let (place, dir) = match (mount.find(&self.dir), &self.place) {
            (Err(_), _) if is_ended(device) => return Ok(()),
            (Err(error), Some(place))
                if is_short_of_files(&error) && place.mount().is_ok_and(|at| at == mount) =>
            {
                return Ok(place.unmount(&self.dir, flags)?);
            }
            (found, _) => found?,
        };
        match place.unmount(&dir, flags) {
            Ok(()) => Ok(()),
            // No longer a mount point.
            Err(Errno::INVAL | Errno::NOENT) if is_ended(device) => Ok(()),
            Err(Errno::PERM) => unmount_by_helper(&dir, how == Detach::Force),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn is_short_of_files(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Unmounts with the helper, which lets users unmount what they have mounted. A `lazy` unmount only
/// detaches a mount that is in use.
pub(crate) fn unmount_by_helper(dir: &Path, lazy: bool) -> io::Result<()> {
    for helper in HELPERS {
        let mut command = Command::new(helper);
        command.args(["-u", "-q"]);
        if lazy {
            command.arg("-z");
        }
        command.arg("--").arg(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        return match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(Errno::BUSY.into()),
            Err(e) if is_missing(&e) => continue,
            Err(e) => Err(e),
        };
    }
    Err(Errno::PERM.into())
}

/// Returns whether the connection has ended, by unmounting or abort.
pub(crate) fn is_ended(device: &Device) -> bool {
    let fd = device.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&now)), Ok(1)) && fds[0].revents().contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests;
