//! The copy of a tree.
//!
//! Directories are held open on both sides, the nearest ones of a deep tree, and files are reached
//! by their names in them. So neither the length of a path nor another program that exchanges
//! directories for symbolic links meanwhile matters.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::hash::BuildHasher;
use std::path::{Component, Path, PathBuf};

use vfscale_vfs::{Errno, Error, FileType, Result, Stat};

use super::options::{Links, Options, Owners, Transferred};
use super::side::Side;

/// The most bytes of one read.
const STEP_BYTES: usize = 1 << 20;
/// Number of directories above the current one that are open on each side, beside the first.
const OPEN_MAX: usize = 64;
/// Number of looks at a name whose file is exchanged again and again.
const TRIES: u32 = 64;
/// The set-user-ID and set-group-ID bits.
const SET_IDS: u32 = 0o6000;
/// The attribute that gives a program capabilities.
const CAPABILITIES: &str = "security.capability";

/// Device and inode number.
type Id = (u64, u64);

fn id(stat: &Stat) -> Id {
    (stat.dev, stat.ino)
}

/// A directory that is being copied.
struct Level<S, T> {
    /// The directory on either side; `None` if it is far above the current one.
    open: Option<(S, T)>,
    stat: Stat,
    copy: Id,
    /// Whether the copy was made, and gets the attributes.
    is_new: bool,
    /// Names that are still to be copied.
    left: std::vec::IntoIter<OsString>,
}

/// The first copy of a file that has several names.
struct First {
    /// Its path from the copied directory.
    path: PathBuf,
    copy: Id,
}

/// A copy in progress.
pub(super) struct Copy<'s, 'a, S: Side, T: Side> {
    source: &'s S,
    target: &'s T,
    options: Options<'a>,
    pub(super) done: Transferred,
    /// The directories from the first to the current one.
    levels: Vec<Level<S::Node, T::Node>>,
    /// The paths of the current file on both sides, for errors.
    from: PathBuf,
    to: PathBuf,
    links: HashMap<Id, First>,
}

/// Returns whether opening a file failed because the name has another one since it was looked at.
fn is_other(error: &Error) -> bool {
    matches!(error.errno(), Errno::NOTDIR | Errno::LOOP | Errno::NXIO)
}

/// Returns whether a symbolic link may lead out of the tree that is copied, in which it is `depth`
/// directories below the first. A `..` behind a name counts, since that name may be a link itself.
fn leads_out(target: &Path, depth: usize) -> bool {
    let (mut up, mut has_name) = (0, false);
    target.components().any(|part| match part {
        Component::ParentDir => {
            up += 1;
            has_name || up > depth
        }
        Component::Normal(_) => {
            has_name = true;
            false
        }
        Component::CurDir => false,
        Component::RootDir | Component::Prefix(_) => true,
    })
}

impl<'s, 'a, S: Side, T: Side> Copy<'s, 'a, S, T> {
    pub(super) fn new(source: &'s S, target: &'s T, options: Options<'a>) -> Self {
        Copy {
            source,
            target,
            options,
            done: Transferred::default(),
            levels: Vec::new(),
            from: PathBuf::new(),
            to: PathBuf::new(),
            links: HashMap::new(),
        }
    }

    /// Copies a tree, without recursion, which a deep tree would exhaust.
    pub(super) fn tree(&mut self, from: &Path, to: &Path) -> Result<()> {
        (self.from, self.to) = (from.to_owned(), to.to_owned());
        self.entry(from.as_os_str(), to.as_os_str())?;
        while let Some(level) = self.levels.last_mut() {
            let Some(name) = level.left.next() else {
                self.leave()?;
                continue;
            };
            let depth = self.levels.len();
            self.from.push(&name);
            self.to.push(&name);
            self.entry(&name, &name)?;
            if self.levels.len() == depth {
                self.up();
            }
        }
        Ok(())
    }

    /// Returns an error with the path of the source.
    fn at_source(&self, error: &Error) -> Error {
        Error::at(error.call(), error.errno(), &self.from)
    }

    /// Returns an error with the path of the target.
    fn at_target(&self, error: &Error) -> Error {
        Error::at(error.call(), error.errno(), &self.to)
    }

    /// Leaves the current file in the paths.
    fn up(&mut self) {
        self.from.pop();
        self.to.pop();
    }

    fn source_dir(&self) -> Option<&S::Node> {
        self.levels.last().and_then(|level| level.open.as_ref()).map(|(source, _)| source)
    }

    fn target_dir(&self) -> Option<&T::Node> {
        self.levels.last().and_then(|level| level.open.as_ref()).map(|(_, target)| target)
    }

    /// Copies the file of a name. A directory becomes the current one.
    fn entry(&mut self, from: &OsStr, to: &OsStr) -> Result<()> {
        if let Some(on_file) = &mut self.options.on_file {
            on_file(&self.done, &self.from);
        }
        for _ in 0..TRIES {
            let found = self.source.stat(self.source_dir(), from);
            let found = found.map_err(|error| self.at_source(&error))?;
            let kind = found.file_type();
            if self.is_skipped(kind) || self.options.except.contains(&id(&found)) {
                self.done.skipped += 1;
                return Ok(());
            }
            let dir = self.source_dir();
            let opened = match kind {
                FileType::Directory => self.source.open_dir(dir, from),
                FileType::RegularFile => self.source.open_file(dir, from),
                _ => self.source.open_node(dir, from),
            };
            let node = match opened {
                Err(error) if is_other(&error) => continue,
                node => node.map_err(|error| self.at_source(&error))?,
            };
            let stat = self.source.stat_of(&node).map_err(|error| self.at_source(&error))?;
            if stat.file_type() != kind {
                continue;
            }
            return match kind {
                FileType::Directory => self.enter(node, stat, to),
                _ => self.file(&node, &stat, to),
            };
        }
        Err(self.at_source(&Error::new("openat", Errno::BUSY)))
    }

    fn is_skipped(&self, kind: FileType) -> bool {
        match kind {
            FileType::Socket => true,
            FileType::CharacterDevice | FileType::BlockDevice => !self.options.devices,
            _ => false,
        }
    }

    /// Makes the copy of a directory, which becomes the current one.
    fn enter(&mut self, node: S::Node, stat: Stat, to: &OsStr) -> Result<()> {
        let names = self.source.names(&node).map_err(|error| self.at_source(&error))?;
        let make = || {
            let is_new = match self.target.create_dir(self.target_dir(), to) {
                Err(error) if error.errno() == Errno::EXIST && self.options.replace => false,
                made => made.map(|()| true)?,
            };
            let made = self.target.open_dir(self.target_dir(), to)?;
            self.target.stat_of(&made).map(|stat| (made, id(&stat), is_new))
        };
        let (made, copy, is_new) = make().map_err(|error| self.at_target(&error))?;
        self.done.files += 1;
        let left = names.into_iter();
        self.levels.push(Level { open: Some((node, made)), stat, copy, is_new, left });
        if let Some(far) = (self.levels.len() - 1).checked_sub(OPEN_MAX).filter(|far| *far > 0) {
            self.levels[far].open = None;
        }
        Ok(())
    }

    /// Gives the current directory its attributes, and goes back to the one above it.
    fn leave(&mut self) -> Result<()> {
        let Some(Level { open: Some((source, target)), stat, is_new, .. }) = self.levels.pop()
        else {
            return Ok(());
        };
        // The directory above is opened first, while the copier may still enter this one.
        if let Some(Level { open: None, stat: above, copy, .. }) = self.levels.last() {
            let from = parent(self.source, &source, id(above));
            let to = parent(self.target, &target, *copy);
            let from = from.map_err(|error| self.at_source(&error))?;
            let to = to.map_err(|error| self.at_target(&error))?;
            if let Some(level) = self.levels.last_mut() {
                level.open = Some((from, to));
            }
        }
        if is_new {
            self.attributes(&source, &target, &stat)?;
        }
        self.up();
        Ok(())
    }

    /// Copies a file that is no directory. One that may replace another has a name of its own until
    /// it is whole.
    fn file(&mut self, node: &S::Node, stat: &Stat, to: &OsStr) -> Result<()> {
        if !self.options.replace {
            return self.make(node, stat, to).map(drop);
        }
        let random = RandomState::new().hash_one(&self.to);
        let own = Path::new(to).with_file_name(format!(".tmp{random:016x}"));
        let own = own.as_os_str();
        let made = self.make(node, stat, own).and_then(|is_made| {
            let rename = || self.target.rename(self.target_dir(), own, to);
            if is_made { rename().map_err(|error| self.at_target(&error)) } else { Ok(()) }
        });
        if made.is_err() {
            // The error of the copy is the one to tell.
            let _ = self.target.unlink(self.target_dir(), own);
        }
        made
    }

    /// Makes the copy of a file that is no directory; returns whether there is one.
    fn make(&mut self, node: &S::Node, stat: &Stat, to: &OsStr) -> Result<bool> {
        let has_names = stat.nlink > 1;
        if has_names && let Some(first) = self.links.get(&id(stat)) {
            let linked = self.link(first, to).map_err(|error| self.at_target(&error));
            return linked.map(|()| true);
        }
        let kind = stat.file_type();
        let made = match kind {
            FileType::RegularFile => {
                let made = self.target.create(self.target_dir(), to);
                let made = made.map_err(|error| self.at_target(&error))?;
                self.data(node, &made, stat)?;
                made
            }
            FileType::Symlink => {
                let link = self.source.read_link(node).map_err(|error| self.at_source(&error))?;
                if !self.takes(&link)? {
                    self.done.skipped += 1;
                    return Ok(false);
                }
                self.other(kind, to, |dir| self.target.symlink(&link, dir, to))?
            }
            _ => self.other(kind, to, |dir| self.target.mknod(dir, to, stat))?,
        };
        if has_names {
            let copy = self.target.stat_of(&made).map_err(|error| self.at_target(&error))?;
            self.links.insert(id(stat), First { path: self.below(), copy: id(&copy) });
        }
        self.done.files += 1;
        self.attributes(node, &made, stat).map(|()| true)
    }

    /// Makes a file that is not opened to write it, and opens it for its attributes.
    fn other(
        &self,
        kind: FileType,
        to: &OsStr,
        make: impl FnOnce(Option<&T::Node>) -> Result<()>,
    ) -> Result<T::Node> {
        let made = || {
            make(self.target_dir())?;
            let made = self.target.open_node(self.target_dir(), to)?;
            if self.target.stat_of(&made)?.file_type() != kind {
                return Err(Error::new("openat", Errno::STALE));
            }
            Ok(made)
        };
        made().map_err(|error| self.at_target(&error))
    }

    /// Returns whether a symbolic link is copied.
    fn takes(&self, target: &Path) -> Result<bool> {
        let is_out = || match self.levels.len().checked_sub(1) {
            Some(depth) => leads_out(target, depth),
            None => true,
        };
        match self.options.links {
            Links::Keep => Ok(true),
            Links::Skip => Ok(!is_out()),
            Links::Refuse if is_out() => {
                Err(self.at_source(&Error::new("readlinkat", Errno::XDEV)))
            }
            Links::Refuse => Ok(true),
        }
    }

    /// Returns the path of the current file from the copied directory.
    fn below(&self) -> PathBuf {
        let parts: Vec<_> = self.to.components().rev().take(self.levels.len()).collect();
        parts.into_iter().rev().collect()
    }

    /// Makes the current name another one of an earlier copy.
    fn link(&self, first: &First, to: &OsStr) -> Result<()> {
        let top = self.levels.first().and_then(|level| level.open.as_ref()).map(|(_, top)| top);
        let mut dir = None;
        for part in first.path.parent().into_iter().flatten() {
            // The directory may have bits already that forbid the copier to read it.
            dir = Some(self.target.open_node(dir.as_ref().or(top), part)?);
        }
        let (dir, name) = (dir.as_ref().or(top), first.path.file_name().unwrap_or_default());
        if id(&self.target.stat(dir, name)?) != first.copy {
            return Err(Error::new("linkat", Errno::STALE));
        }
        self.target.hard_link((dir, name), self.target_dir(), to)
    }

    fn data(&mut self, node: &S::Node, made: &T::Node, stat: &Stat) -> Result<()> {
        let mut buf = vec![0; STEP_BYTES.min(stat.size.max(1) as usize)];
        let mut at = 0;
        let mut is_cut = false;
        while let Some((start, end)) =
            self.source.data(node, at).map_err(|error| self.at_source(&error))?
            && !is_cut
        {
            at = start;
            while at < end && !is_cut {
                let len = buf.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
                let n = self.source.read_at(node, &mut buf[..len], at);
                let n = n.map_err(|error| self.at_source(&error))?;
                let written = self.target.write_all_at(made, &buf[..n], at);
                written.map_err(|error| self.at_target(&error))?;
                at += n as u64;
                self.done.bytes += n as u64;
                // The file became shorter meanwhile.
                is_cut = n == 0;
            }
        }
        let size = if is_cut { at } else { stat.size.max(at) };
        self.target.set_len(made, size).map_err(|error| self.at_target(&error))
    }

    /// Sets the owner first, which ends set-id bits, and the times last, which all else changes.
    fn attributes(&self, node: &S::Node, made: &T::Node, stat: &Stat) -> Result<()> {
        let owned = match self.options.owners {
            Owners::Copier => Ok(()),
            Owners::Source => self.target.chown(made, stat.uid, stat.gid),
            Owners::Fixed(uid, gid) => self.target.chown(made, uid, gid),
        };
        owned.map_err(|error| self.at_target(&error))?;
        let is_kept = self.options.owners == Owners::Source;
        let xattrs = if self.options.xattrs {
            self.source.xattrs(node).map_err(|error| self.at_source(&error))?
        } else {
            Vec::new()
        };
        let set = || {
            if stat.file_type() != FileType::Symlink {
                let lost = if is_kept { 0 } else { SET_IDS };
                self.target.chmod(made, stat.mode & 0o7777 & !lost)?;
            }
            for (name, value) in &xattrs {
                if is_kept || name != CAPABILITIES {
                    self.target.set_xattr(made, name, value)?;
                }
            }
            if self.options.times { self.target.set_times(made, stat) } else { Ok(()) }
        };
        set().map_err(|error| self.at_target(&error))
    }
}

/// Opens the directory above an open one, if it still is the one that was left.
fn parent<S: Side>(side: &S, dir: &S::Node, left: Id) -> Result<S::Node> {
    let above = side.open_dir(Some(dir), OsStr::new(".."))?;
    if id(&side.stat_of(&above)?) != left {
        return Err(Error::new("openat", Errno::STALE));
    }
    Ok(above)
}

#[cfg(test)]
mod tests;
