//! The mounts of a native run, in a namespace of its own: a view, and an overlay above it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::mount::{
    FsOpenFlags, MountFlags, MountPropagationFlags, UnmountFlags, fsconfig_create, fsopen, mount,
    mount_change, unmount,
};
use rustix::process::{chroot, fchdir, getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};
use vfscale_command::views::{self, copy_attributes, for_options};

use super::follower::Follower;
use crate::elsewhere::within;
use crate::error::Failure;

/// Time for Linux to say whether a user may mount.
const PATIENCE: Duration = Duration::from_secs(10);
/// Options that keep a file of the base the same file when it is changed or moved.
const NEEDED: [&str; 2] = ["index=on", "xino=on"];
/// Options that spare copies.
const WANTED: [&str; 2] = ["redirect_dir=on", "metacopy=on"];
/// All options of an overlay of a user that Linux allows: the others need rights outside of the
/// namespace of users.
const OF_USERS: [&str; 2] = ["userxattr", "xino=on"];

/// How this process can have Linux do the work of a run.
pub(crate) enum Means {
    /// A view below, an overlay above.
    View,
    /// A mount of FUSE below, an overlay above, in a namespace of users.
    Mount,
    /// Not at all, and why.
    None(String),
}

/// Finds out what this process may mount.
pub(crate) fn means() -> Means {
    for name in ["erofs", "overlay"] {
        match may_mount(name) {
            // An overlay that keeps links opens files by their handles: root of most containers may
            // not.
            Ok(()) if may_open_handles() => {}
            Ok(()) | Err(rustix::io::Errno::PERM) => {
                return match within(PATIENCE, try_as_user) {
                    Ok(_) => Means::Mount,
                    Err(error) => Means::None(format!(
                        "only root may mount, and Linux refuses an overlay in a namespace of \
                         users: {error}"
                    )),
                };
            }
            Err(error) => return Means::None(format!("this kernel has no {name}: {error}")),
        }
    }
    Means::View
}

fn may_open_handles() -> bool {
    capabilities(None).is_ok_and(|it| it.effective.contains(CapabilitySet::DAC_READ_SEARCH))
}

/// Fails if this process may not mount file systems of a type. In a namespace of users, it may open
/// their settings nevertheless.
fn may_mount(name: &str) -> Result<(), rustix::io::Errno> {
    match fsconfig_create(fsopen(name, FsOpenFlags::empty())?) {
        Err(rustix::io::Errno::PERM) => Err(rustix::io::Errno::PERM),
        // A device or layers are missing.
        _ => Ok(()),
    }
}

/// Mounts an overlay as a user, in a process that ends then.
fn try_as_user() -> io::Result<Vec<u8>> {
    unshare_as_user()?;
    let dir = std::env::temp_dir();
    mount("vfscale", &dir, "tmpfs", MountFlags::empty(), None)?;
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| dir.join(name));
    [&lower, &upper, &work].into_iter().try_for_each(fs::create_dir)?;
    let layers = Layers::open([&lower, &upper, &work])?;
    layers.mount(&lower, &OF_USERS).map(|()| Vec::new()).map_err(Into::into)
}

/// Gives this process a namespace of mounts in which it may mount, and a namespace of users for
/// that, unless it may do so already. It keeps its user and group, and has one thread.
pub(crate) fn unshare_as_user() -> io::Result<()> {
    // SAFETY: this process has one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        unshare_users(libc::CLONE_NEWNS)?;
    }
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", flags)?)
}

/// Gives this process a namespace of users, in which it has all rights to its own files, and
/// `others`. It keeps its user and group, and has one thread.
pub(crate) fn unshare_users(others: i32) -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: this process has one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER | others) } != 0 {
        return Err(io::Error::last_os_error());
    }
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
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
    mount_change("/", flags).map_err(|error| {
        let why = "its mounts can't be kept apart; the root of a chroot has to be a mount point \
                   (mount --bind ROOT ROOT, before chroot)";
        self::failed(why, Path::new("/"), error)
    })?;
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

fn failed(what: &str, at: &Path, error: rustix::io::Errno) -> Failure {
    let (space, hint) = match error {
        rustix::io::Errno::NOTBLK => (" ", views::SUPPORTED),
        _ => ("", ""),
    };
    Failure::Refused(at.to_owned(), format!("{what}: {error}{space}{hint}"))
}

/// Mounts a view.
pub(crate) fn view(view: &Path, image: &Path, dir: &Path) -> Result<(), Failure> {
    views::mount(view, image, dir)
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
/// `above`; one of a user if it is to have `userxattr`. Returns the options that Linux has refused
/// and that it works without.
pub(crate) fn overlay(
    lower: &Path,
    above: &Path,
    dir: &Path,
    userxattr: bool,
) -> Result<Vec<&'static str>, Failure> {
    let (upper, work) = (above.join("upper"), above.join("work"));
    let make = |dir: &Path| fs::create_dir(dir).map_err(|e| Failure::Write(dir.to_owned(), e));
    // As soon as there is an upper layer, what is left of a run that was killed can be committed.
    let new = work.join("upper");
    make(&work)?;
    make(&new)?;
    let made = copy_attributes(lower, &new).and_then(|()| fs::rename(&new, &upper));
    made.map_err(|e| Failure::Write(upper.clone(), e))?;
    let layers = Layers::open([lower, &upper, &work]);
    let layers = layers.map_err(|error| Failure::System("open", error))?;
    let (needed, wanted) = if userxattr { (&OF_USERS, &[][..]) } else { (&NEEDED, &WANTED[..]) };
    let refused = layers.mount_with(dir, needed, wanted)?;
    let checked = if userxattr { check_attributes(&upper) } else { check(dir, above) };
    checked.inspect_err(|_| _ = unmount(dir, UnmountFlags::DETACH))?;
    Ok(refused)
}

/// The directories of an overlay.
struct Layers {
    /// Their paths as an option names them.
    text: String,
    /// Some of the paths name these.
    _files: [File; 3],
}

impl Layers {
    /// Opens the lower layer, the upper one, and the directory for the work.
    fn open(dirs: [&Path; 3]) -> io::Result<Self> {
        let files = [File::open(dirs[0])?, File::open(dirs[1])?, File::open(dirs[2])?];
        let [lower, upper, work] = [0, 1, 2].map(|at| for_options(dirs[at], &files[at]));
        let text = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        Ok(Self { text, _files: files })
    }

    fn mount(&self, dir: &Path, options: &[&str]) -> Result<(), rustix::io::Errno> {
        let options = format!("{},{}", self.text, options.join(","));
        let options = CString::new(options).map_err(|_| rustix::io::Errno::INVAL)?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        mount("vfscale", dir, "overlay", flags, &*options)
    }

    /// Mounts with options of which Linux may refuse those that are only `wanted`. Returns them.
    fn mount_with<'o>(
        &self,
        dir: &Path,
        needed: &[&'o str],
        wanted: &[&'o str],
    ) -> Result<Vec<&'o str>, Failure> {
        let all = [needed, wanted].concat();
        let Err(error) = self.mount(dir, &all) else { return Ok(Vec::new()) };
        // Linux does not say which one it was, but to its log.
        let is_refused = |option: &&str| {
            let mounted = self.mount(dir, &[option]);
            mounted.and_then(|()| unmount(dir, UnmountFlags::empty())).is_err()
        };
        let (refused, rest): (Vec<&str>, Vec<&str>) = all.into_iter().partition(is_refused);
        let what = match refused.iter().find(|option| needed.contains(option)) {
            // Without any, it would be refused as well.
            Some(option) if !rest.is_empty() => {
                format!("no overlay can be mounted with {option}, which Linux refuses")
            }
            _ => "no overlay can be mounted".into(),
        };
        if !needed.iter().all(|option| rest.contains(option)) || refused.is_empty() {
            return Err(failed(&what, dir, error));
        }
        self.mount(dir, &rest).map_err(|error| failed(&what, dir, error))?;
        Ok(refused)
    }
}

/// Fails if a directory can't have attributes of users, in which an overlay of one notes what has
/// become of the base.
fn check_attributes(upper: &Path) -> Result<(), Failure> {
    let name = "user.vfscale";
    let set = rustix::fs::setxattr(upper, name, b"", XattrFlags::empty());
    set.and_then(|()| rustix::fs::removexattr(upper, name)).map_err(|error| {
        let why = format!(
            "its file system has no attributes of users ({error}); name a directory of another \
             one: --upper"
        );
        Failure::Refused(upper.to_owned(), why)
    })
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
