//! Calls on names below a directory, none of which leads out of it.
//!
//! A path that is followed to its end is opened by `openat2` with `RESOLVE_BENEATH`. A call that
//! makes, moves or removes a name opens the directory of the name so, and makes the change there by
//! the last name alone, which such calls do not follow. A path that would lead out is `EPERM`, as
//! it is in other hosts, and not Linux's `EXDEV`.

use vfscale::posix::{At, AtFlags, OFlags, OpenHow, RenameFlags, ResolveFlags, SetTime, Stat};
use vfscale::{Errno, File, Mode};

use crate::errors::Outcome;
use crate::node::Node;

/// The place of a name: the directory that has it, unless that is where the path begins.
struct Place<'p> {
    dir: Option<File>,
    name: &'p str,
}

impl Place<'_> {
    fn at<'a>(&'a self, start: &'a Node) -> At<'a> {
        At::File(self.dir.as_ref().unwrap_or(start.file()))
    }
}

/// Returns the flag by which an open follows a link at the end of a path or does not.
fn nofollow(follow: bool) -> OFlags {
    if follow { OFlags::empty() } else { OFlags::NOFOLLOW }
}

/// Returns whether `path` is one plain name.
fn is_name(path: &str) -> bool {
    !path.is_empty() && path != "." && path != ".." && !path.contains('/')
}

impl Node {
    fn open_beneath(&self, path: &str, flags: OFlags, mode: u32) -> Outcome<File> {
        if !self.is_dir() {
            return Err(Errno::NOTDIR);
        }
        if path.contains('\0') {
            return Err(Errno::INVAL);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let how = OpenHow { flags, mode: Mode::from_bits_retain(mode), resolve };
        let opened = self.task().posix().openat2(At::File(self.file()), path, &how);
        opened.map_err(|error| match error.errno() {
            Errno::XDEV => Errno::PERM,
            errno => errno,
        })
    }

    /// Finds the directory of the last name of `path`. Slashes at its end stay in the name.
    fn place<'p>(&self, path: &'p str) -> Outcome<Place<'p>> {
        if !self.is_dir() {
            return Err(Errno::NOTDIR);
        }
        if path.contains('\0') {
            return Err(Errno::INVAL);
        }
        let end = path.trim_end_matches('/').len();
        let start = path[..end].rfind('/').map_or(0, |slash| slash + 1);
        if &path[start..end] == ".." || path.starts_with('/') {
            // Calls on names refuse `..` with several errors, but not because it leads out.
            self.open_beneath(path, OFlags::PATH, 0)?;
        }
        let (parent, name) = path.split_at(start);
        let dir = match parent {
            "" => None,
            _ => Some(self.open_beneath(parent, OFlags::PATH | OFlags::DIRECTORY, 0)?),
        };
        Ok(Place { dir, name })
    }

    /// Opens `path`: `flags` as for `openat2`, without `O_NOFOLLOW`.
    pub(crate) fn open_at(&self, path: &str, follow: bool, flags: OFlags) -> Outcome<Node> {
        let mut flags = flags | nofollow(follow) | OFlags::CLOEXEC;
        let makes = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC;
        if flags.contains(OFlags::DIRECTORY) && flags.intersects(makes) {
            return Err(Errno::INVAL);
        }
        let creates = flags.contains(OFlags::CREATE);
        if !creates {
            flags.remove(OFlags::EXCL);
        }
        if flags.intersects(makes) || flags & OFlags::ACCMODE != OFlags::RDONLY {
            self.check_change()?;
        }
        // A fifo of the host's tree does not make the guest wait for its other end.
        flags |= OFlags::NONBLOCK;
        let file = self.open_beneath(path, flags, if creates { 0o666 } else { 0 })?;
        Ok(self.beside(file))
    }

    pub(crate) fn stat_at(&self, path: &str, follow: bool) -> Outcome<Stat> {
        if is_name(path) && !path.contains('\0') && self.is_dir() {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let stat = self.task().posix().fstatat(At::File(self.file()), path, flags);
            let stat = stat.map_err(|error| error.errno())?;
            if !follow || !stat.file_type().is_symlink() {
                return Ok(stat);
            }
        }
        let file = self.open_beneath(path, OFlags::PATH | nofollow(follow), 0)?;
        file.stat().map_err(|error| error.errno())
    }

    pub(crate) fn set_times_at(
        &self,
        path: &str,
        follow: bool,
        times: [SetTime; 2],
    ) -> Outcome<()> {
        self.check_change()?;
        let file = self.open_beneath(path, OFlags::PATH | nofollow(follow), 0)?;
        self.beside(file).set_times(times)
    }

    pub(crate) fn make_dir(&self, path: &str) -> Outcome<()> {
        let place = self.place_to_change(path)?;
        let made = self.task().posix().mkdirat(place.at(self), place.name, 0o777);
        made.map_err(|error| error.errno())
    }

    pub(crate) fn remove_dir(&self, path: &str) -> Outcome<()> {
        self.remove(path, AtFlags::REMOVEDIR)
    }

    pub(crate) fn remove_file(&self, path: &str) -> Outcome<()> {
        self.remove(path, AtFlags::empty())
    }

    fn remove(&self, path: &str, flags: AtFlags) -> Outcome<()> {
        let place = self.place_to_change(path)?;
        let removed = self.task().posix().unlinkat(place.at(self), place.name, flags);
        removed.map_err(|error| error.errno())
    }

    fn place_to_change<'p>(&self, path: &'p str) -> Outcome<Place<'p>> {
        self.check_change()?;
        self.place(path)
    }

    /// Fails if a name can't move or be linked from here to `other`.
    fn check_pair(&self, other: &Node) -> Outcome<()> {
        self.check_change()?;
        other.check_change()?;
        if self.has_task_of(other) { Ok(()) } else { Err(Errno::XDEV) }
    }

    pub(crate) fn rename_to(&self, old: &str, other: &Node, new: &str) -> Outcome<()> {
        self.check_pair(other)?;
        let (old, new) = (self.place(old)?, other.place(new)?);
        let calls = self.task().posix();
        let renamed =
            calls.renameat2(old.at(self), old.name, new.at(other), new.name, RenameFlags::empty());
        renamed.map_err(|error| error.errno())
    }

    /// Adds the name `new` below `other` to the file `old`, which is not followed.
    pub(crate) fn link_to(&self, old: &str, other: &Node, new: &str) -> Outcome<()> {
        self.check_pair(other)?;
        if old.ends_with('/') {
            // Linux follows a link that a slash follows; so a directory, if anything.
            self.open_beneath(old, OFlags::PATH | OFlags::DIRECTORY, 0)?;
            return Err(Errno::PERM);
        }
        let (old, new) = (self.place(old)?, other.place(new)?);
        let calls = self.task().posix();
        let linked =
            calls.linkat(old.at(self), old.name, new.at(other), new.name, AtFlags::empty());
        linked.map_err(|error| error.errno())
    }

    /// Makes a symbolic link. One to an absolute path would lead out of every preopened directory.
    pub(crate) fn make_symlink(&self, target: &str, path: &str) -> Outcome<()> {
        let place = self.place_to_change(path)?;
        if target.starts_with('/') {
            return Err(Errno::PERM);
        }
        let made = self.task().posix().symlinkat(place.at(self), place.name, target);
        made.map_err(|error| error.errno())
    }

    /// Returns the target of a symbolic link, unless it is absolute.
    pub(crate) fn read_link(&self, path: &str) -> Outcome<String> {
        if path.ends_with('/') {
            // Linux follows a link that a slash follows; so no link, if anything.
            self.open_beneath(path, OFlags::PATH | OFlags::DIRECTORY, 0)?;
            return Err(Errno::INVAL);
        }
        let place = self.place(path)?;
        if place.name.is_empty() {
            return Err(Errno::NOENT);
        }
        let target = self.task().posix().readlinkat(place.at(self), place.name);
        let target = target.map_err(|error| error.errno())?;
        if target.is_absolute() {
            return Err(Errno::PERM);
        }
        target.into_os_string().into_string().map_err(|_| Errno::ILSEQ)
    }
}
