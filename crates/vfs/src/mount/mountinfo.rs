//! The mounts that a task sees: typed entries, and their lines in the format of
//! `/proc/<pid>/mountinfo` and `/proc/<pid>/mounts`; see `proc_pid_mountinfo(5)`.
//!
//! The entries are consistent: `namespace_sem` prevents changes of the tree, `rename_lock` moves of
//! directories. Reading them counts no use of a mount, so it makes none busy.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path as StdPath, PathBuf};

use vfscale_sync::rcu::Guard;

use crate::base::types::MountFlags;
use crate::mount::propagation::{GroupId, MountId, MountSharing, PeerGroups};
use crate::objects::vfsmount::Mount;

/// Bytes of a path that are written as `\ooo`, so a reader can split a line at spaces.
const ESCAPED_IN_PATHS: &[u8] = b" \t\n\\";

/// The escaped bytes of a source, which must not look like a comment either.
const ESCAPED_IN_SOURCES: &[u8] = b" \t\n\\#";

/// The words for the flags of a mount, in the kernel's order.
const WORDS: &[(MountFlags, &str)] = &[
    (MountFlags::NOSUID, ",nosuid"),
    (MountFlags::NODEV, ",nodev"),
    (MountFlags::NOEXEC, ",noexec"),
    (MountFlags::NOATIME, ",noatime"),
    (MountFlags::NODIRATIME, ",nodiratime"),
    (MountFlags::RELATIME, ",relatime"),
    (MountFlags::NOSYMFOLLOW, ",nosymfollow"),
];

/// A snapshot of one mount.
///
/// ```
/// # use vfscale_vfs::MountInfo;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let mounts: Vec<MountInfo> = task.posix().mounts();
/// println!("{mounts:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountInfo {
    /// The number of the mount; never reused.
    pub id: u64,
    /// The number of the mount that this one is mounted on; its own for the root of a tree.
    pub parent: u64,
    /// The device number of the file system, as `stat` shows it.
    pub dev: u64,
    /// The part of the file system that the mount shows, seen from its root; the path of a removed
    /// directory ends in `//deleted`.
    pub root: PathBuf,
    /// The mountpoint, as seen from the task's root.
    pub mount_point: PathBuf,
    /// The mount's own flags.
    pub flags: MountFlags,
    /// The flags of the file system.
    pub super_flags: MountFlags,
    /// The peer group that the mount is in, if it is shared.
    pub peer_group: Option<u64>,
    /// The peer group whose slave it is.
    pub master: Option<u64>,
    /// The nearest group above `master` that has a member below the task's root, if `master` has
    /// none.
    pub propagate_from: Option<u64>,
    /// Whether it can't be bound.
    pub unbindable: bool,
    /// The name of the file system's type.
    pub fs_type: String,
    /// The mounted source.
    pub source: String,
    /// Options of the file system, with commas between them.
    pub super_options: String,
}

impl MountInfo {
    /// Creates the entry of a mount; the caller prevents changes of the mount tree and moves of
    /// directories.
    pub(crate) fn of(mount: &Mount, parent: u64, mount_point: Vec<u8>, guard: &Guard) -> MountInfo {
        let sb = mount.sb();
        // Read first, because a driver may detect in this call that it became read-only.
        let super_options = sb.fs().options();
        MountInfo {
            id: mount.id(),
            parent,
            dev: sb.dev(),
            root: path_buf(crate::mount::d_path::dentry_path(mount.root(), guard)),
            mount_point: path_buf(mount_point),
            flags: mount.flags(),
            super_flags: sb.flags(),
            peer_group: None,
            master: None,
            propagate_from: None,
            unbindable: false,
            fs_type: sb.fs().name().to_owned(),
            source: sb.fs().source(),
            super_options,
        }
    }

    /// Fills in the peer groups. `is_seen` returns whether a mount is below the task's root.
    pub(crate) fn set_sharing(&mut self, groups: &PeerGroups, is_seen: impl Fn(MountId) -> bool) {
        let MountSharing { group, unbindable, .. } = groups.sharing(self.id);
        (self.peer_group, self.unbindable) = (group, unbindable);
        self.master = groups.master(self.id);
        let masters = std::iter::successors(self.master, |group| groups.master_of(*group));
        let is_seen = |group: &GroupId| groups.peers(*group).any(&is_seen);
        self.propagate_from = masters.into_iter().find(is_seen).filter(|g| Some(*g) != self.master);
    }

    /// Returns the line of `/proc/<pid>/mountinfo`, without a newline:
    ///
    /// ```text
    /// 36 35 98:0 /mnt1 /mnt2 rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue
    /// ```
    pub fn mountinfo(&self) -> impl fmt::Display + '_ {
        Line(self, Self::write_mountinfo)
    }

    /// Returns the line of `/proc/<pid>/mounts`, without a newline:
    ///
    /// ```text
    /// /dev/root /mnt2 ext3 rw,noatime,errors=continue 0 0
    /// ```
    pub fn mounts(&self) -> impl fmt::Display + '_ {
        Line(self, Self::write_mounts)
    }

    fn write_mountinfo(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = (rustix::fs::major(self.dev), rustix::fs::minor(self.dev));
        write!(f, "{} {} {major}:{minor} ", self.id, self.parent)?;
        write!(f, "{} {} ", escaped_path(&self.root), escaped_path(&self.mount_point))?;
        f.write_str(access(self.flags))?;
        self.write_words(f)?;
        self.write_sharing(f)?;
        write!(f, " - {} {} ", escaped_source(&self.fs_type), escaped_source(&self.source))?;
        f.write_str(access(self.super_flags))?;
        self.write_super_options(f)
    }

    fn write_mounts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, fs_type) = (escaped_source(&self.source), escaped_source(&self.fs_type));
        write!(f, "{source} {} {fs_type} ", escaped_path(&self.mount_point))?;
        f.write_str(access(self.flags | self.super_flags))?;
        self.write_words(f)?;
        self.write_super_options(f)?;
        f.write_str(" 0 0")
    }

    fn write_words(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = WORDS.iter().filter(|(flag, _)| self.flags.contains(*flag));
        set.into_iter().try_for_each(|(_, word)| f.write_str(word))
    }

    fn write_sharing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = [
            ("shared", self.peer_group),
            ("master", self.master),
            ("propagate_from", self.propagate_from),
        ];
        for (word, group) in groups.iter().filter_map(|(word, group)| Some((word, (*group)?))) {
            write!(f, " {word}:{group}")?;
        }
        if self.unbindable { f.write_str(" unbindable") } else { Ok(()) }
    }

    fn write_super_options(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = if self.super_options.is_empty() { "" } else { "," };
        write!(f, "{comma}{}", self.super_options)
    }
}

fn access(flags: MountFlags) -> &'static str {
    if flags.contains(MountFlags::RDONLY) { "ro" } else { "rw" }
}

struct Line<'a>(&'a MountInfo, fn(&MountInfo, &mut fmt::Formatter<'_>) -> fmt::Result);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.1)(self.0, f)
    }
}

/// Text in which some bytes are written as a backslash and three octal digits. Bytes that are not
/// UTF-8 are escaped too, although the kernel writes them unescaped, so a reader that undoes the
/// escapes gets the exact path.
struct Escaped<'a> {
    bytes: &'a [u8],
    escape: &'static [u8],
}

fn escaped_path(path: &StdPath) -> Escaped<'_> {
    Escaped { bytes: path.as_os_str().as_bytes(), escape: ESCAPED_IN_PATHS }
}

fn escaped_source(text: &str) -> Escaped<'_> {
    Escaped { bytes: text.as_bytes(), escape: ESCAPED_IN_SOURCES }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let octal = |f: &mut fmt::Formatter<'_>, byte: u8| write!(f, "\\{byte:03o}");
        for chunk in self.bytes.utf8_chunks() {
            for plain in chunk.valid().split_inclusive(|c: char| self.is_escaped(c)) {
                match plain.chars().next_back().filter(|last| self.is_escaped(*last)) {
                    Some(last) => {
                        f.write_str(&plain[..plain.len() - last.len_utf8()])?;
                        octal(f, last as u8)?;
                    }
                    None => f.write_str(plain)?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| octal(f, *byte))?;
        }
        Ok(())
    }
}

impl Escaped<'_> {
    fn is_escaped(&self, c: char) -> bool {
        u8::try_from(c).is_ok_and(|byte| byte.is_ascii() && self.escape.contains(&byte))
    }
}

/// Converts bytes to a path.
fn path_buf(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
