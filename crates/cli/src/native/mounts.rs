//! The mounts of a native run, in a namespace of its own: a view, and an overlay above it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::mount::{
    FsOpenFlags, MountFlags, MountPropagationFlags, UnmountFlags, fsopen, mount, mount_change,
    unmount,
};
use rustix::process::{chroot, fchdir};

use super::follower::Follower;
use crate::error::Failure;

/// Options that keep a file of the base the same file when it is changed or moved.
const NEEDED: &str = "index=on,xino=on";
/// Options that spare copies.
const WANTED: &str = "redirect_dir=on,metacopy=on";

/// Returns why this process can make no such mounts, if it can't.
pub(crate) fn missing() -> Option<String> {
    ["erofs", "overlay"].iter().find_map(|name| match fsopen(*name, FsOpenFlags::empty()) {
        Ok(_) => None,
        Err(rustix::io::Errno::PERM) => Some("only root may mount".to_owned()),
        Err(error) => Some(format!("this kernel has no {name}: {error}")),
    })
}

/// The namespace of mounts that this thread had before.
pub(crate) struct Before {
    namespace: File,
    root: OwnedFd,
    directory: OwnedFd,
    _follower: Follower,
}

/// Gives this thread a namespace of mounts of its own, which its children have as well.
pub(crate) fn unshare() -> Result<Before, Failure> {
    let open = |path| File::open(path).map_err(|error| Failure::System("open", error));
    let namespace = open("/proc/thread-self/ns/mnt")?;
    let table = open("/proc/thread-self/mountinfo")?;
    let [root, directory] = ["/", "."].map(|path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
    });
    let failed = |error: rustix::io::Errno| Failure::System("open", error.into());
    let (root, directory) = (root.map_err(failed)?, directory.map_err(failed)?);
    // SAFETY: no other thread of this process depends on the namespace that it shares with this
    // one.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(Failure::System("unshare", io::Error::last_os_error()));
    }
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(|error| Failure::System("mount", error.into()))?;
    let follower = Follower::start(table, unshare_directories)
        .map_err(|error| Failure::System("thread", error))?;
    Ok(Before { namespace, root, directory, _follower: follower })
}

/// Gives this thread a root and a working directory of its own: the end of a thread is seen before
/// it has given up what it shares, and nobody who shares these can enter a namespace of mounts.
fn unshare_directories() {
    // SAFETY: the caller, a new thread, uses absolute paths only.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        tracing::warn!("unshare: {}", io::Error::last_os_error());
    }
}

impl Before {
    /// Returns to the namespace, and to the directories that the process had there: mounts that
    /// were made there meanwhile may be seen nowhere else.
    pub(crate) fn enter(self) -> Result<(), Failure> {
        let Self { namespace, root, directory, _follower: follower } = self;
        drop(follower);
        // SAFETY: a call on an open descriptor; no other thread shares the root and the working
        // directory of this one, which the call changes.
        if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS) } != 0 {
            return Err(Failure::System("setns", io::Error::last_os_error()));
        }
        let entered = fchdir(root).and_then(|()| chroot(".")).and_then(|()| fchdir(directory));
        entered.map_err(|error| Failure::System("chdir", error.into()))
    }
}

fn failed(what: &'static str, at: &Path, error: rustix::io::Errno) -> Failure {
    let hint = match error {
        rustix::io::Errno::NOTBLK => {
            " (Linux reads views of images on ext4, XFS, btrfs and others since 6.12, none on tmpfs)"
        }
        _ => "",
    };
    Failure::Refused(at.to_owned(), format!("{what}: {error}{hint}"))
}

/// Returns a path for the options of a mount, in which a comma separates.
fn for_options(path: &Path, file: &File) -> String {
    match path.to_str().filter(|path| !path.contains([',', '\\', ':'])) {
        Some(path) => path.to_owned(),
        None => format!("/proc/self/fd/{}", file.as_raw_fd()),
    }
}

/// Mounts a view.
pub(crate) fn view(view: &Path, image: &Path, dir: &Path) -> Result<(), Failure> {
    let open = File::open(image).map_err(|error| Failure::System("open", error))?;
    let options = options(format!("device={}", for_options(image, &open)))?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
    mount(view, dir, "erofs", flags, &*options)
        .map_err(|error| failed("the view can't be mounted", image, error))
}

/// Mounts a file system in memory.
pub(crate) fn memory(dir: &Path, size: Option<&str>) -> Result<(), Failure> {
    let size = size.map(|size| format!(",size={size}")).unwrap_or_default();
    let options = options(format!("mode=700{size}"))?;
    mount("vfscale", dir, "tmpfs", MountFlags::empty(), &*options)
        .map_err(|error| failed("no tmpfs can be mounted", dir, error))
}

fn options(text: String) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure::Usage("a path has a zero byte".into()))
}

/// Mounts an overlay at a directory, with its upper layer and the directory for its work in
/// `above`.
pub(crate) fn overlay(lower: &Path, above: &Path, dir: &Path) -> Result<(), Failure> {
    let (upper, work) = (above.join("upper"), above.join("work"));
    let make = |dir: &Path| fs::create_dir(dir).map_err(|e| Failure::Write(dir.to_owned(), e));
    // As soon as there is an upper layer, what is left of a run that was killed can be committed.
    let new = work.join("upper");
    make(&work)?;
    make(&new)?;
    let made = like(lower, &new).and_then(|()| fs::rename(&new, &upper));
    made.map_err(|e| Failure::Write(upper.clone(), e))?;
    let open = |dir: &Path| File::open(dir).map_err(|e| Failure::System("open", e));
    let files = [open(lower)?, open(&upper)?, open(&work)?];
    let [lower, upper, work] = [(0, lower), (1, &*upper), (2, &*work)]
        .map(|(number, path)| for_options(path, &files[number]));
    let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    let mounted = [&*format!("{NEEDED},{WANTED}"), NEEDED].iter().try_fold((), |(), more| {
        let options = CString::new(format!("{layers},{more}")).unwrap_or_default();
        match mount("vfscale", dir, "overlay", flags, &*options) {
            Ok(()) => Err(Ok(())),
            Err(rustix::io::Errno::INVAL) if **more != *NEEDED => {
                tracing::info!("overlays of this kernel refuse {WANTED}: changes copy whole files");
                Ok(())
            }
            Err(error) => Err(Err(error)),
        }
    });
    let mounted = mounted.err().unwrap_or(Err(rustix::io::Errno::INVAL));
    mounted.map_err(|error| failed("no overlay can be mounted", above, error))?;
    check(dir, above).inspect_err(|_| _ = unmount(dir, UnmountFlags::DETACH))
}

/// Gives the root of an upper layer, which is that of the overlay, the attributes of the base.
fn like(lower: &Path, upper: &Path) -> io::Result<()> {
    let stat = fs::metadata(lower)?;
    std::os::unix::fs::chown(upper, Some(stat.uid()), Some(stat.gid()))?;
    fs::set_permissions(upper, PermissionsExt::from_mode(stat.mode() & 0o7777))?;
    let (mut names, mut value) = (vec![0; 1 << 16], vec![0; 1 << 16]);
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
    Ok(rustix::fs::utimensat(rustix::fs::CWD, upper, &times, AtFlags::empty())?)
}

/// Fails if an overlay has given up what keeps the links of the base: it mounts nevertheless if the
/// file system of its upper layer lacks something.
fn check(dir: &Path, above: &Path) -> Result<(), Failure> {
    let table = crate::mounts::table()?;
    let table = String::from_utf8_lossy(&table);
    let end = format!(" {} ", dir.display());
    let line = table.lines().rfind(|line| line.contains(&end)).unwrap_or_default();
    let option = line.rsplit([' ', ',']).find_map(|it| it.strip_prefix("index="));
    let usual = || fs::read_to_string("/sys/module/overlay/parameters/index").unwrap_or_default();
    if option == Some("on") || (option.is_none() && usual().starts_with('Y')) {
        return Ok(());
    }
    let why = "its file system can't hold the changes of an overlay (index=on); name a directory \
               of another one: --upper";
    Err(Failure::Refused(above.to_owned(), why.into()))
}

/// Unmounts; after `patience` even though processes use it. Returns whether they did.
pub(crate) fn end(dir: &Path, patience: Duration) -> io::Result<bool> {
    const STEP: Duration = Duration::from_millis(10);
    let end = Instant::now() + patience;
    loop {
        match unmount(dir, UnmountFlags::empty()) {
            Err(rustix::io::Errno::BUSY) if Instant::now() < end => std::thread::sleep(STEP),
            Err(rustix::io::Errno::BUSY) => {
                return Ok(unmount(dir, UnmountFlags::DETACH).map(|()| true)?);
            }
            ended => return Ok(ended.map(|()| false)?),
        }
    }
}

#[cfg(test)]
mod tests;
