//! Taking over what programs have changed in an overlay of Linux whose lower layer is a view.
//!
//! # Purpose
//!
//! A view lets Linux read a branch in place, and an overlay above it takes the writes of programs
//! in a directory of the host, its *upper layer*. [`Pool::ingest`] makes these changes in the
//! branch, all of them by one commit.
//!
//! # How
//!
//! The upper layer is read once into a plan ([`plan`]), and with it the *index* in the directory
//! for the work: the overlay keeps each changed file of the base there that had several names, and
//! a change by a name that was then removed nowhere else. What both say of the base, the reader of
//! the view finds ([`base`]).
//!
//! The plan is then carried out in a temporary branch, forked from the base. What the overlay has
//! moved is put aside first, while all paths are those of the base; the files that only the index
//! has are changed there, so that all names left have it. Then the plan is followed from the root
//! down, and directories get their attributes last. A file that the overlay has copied stays the
//! inode that it was, and only blocks that differ are written. The branch adopts the temporary one
//! in the end; until then an error or a crash changes nothing.
//!
//! # Invariants
//!
//! * No symbolic link of the upper layer is followed, not even one that takes the place of a
//!   directory meanwhile.
//! * Nothing is believed: what the upper layer says of the base has to be there, each thing once.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File as HostFile;
use std::path::{Path, PathBuf};

use vfscale_vfs::{At, AtFlags, Errno, Error, File, FileType, OFlags, Result, Stat, Task};

use crate::error::pool::PoolError;
use crate::pool::{ForkOptions, Pool};
use crate::transfer::host::{Host, Node};
use crate::transfer::side::Side;
use crate::transfer::tree::InTree;
use ahead::Ahead;
use base::Base;
use fault::failed;
use marks::Marking;
use plan::{Entry, Kind, Part, Plan};

mod ahead;
mod base;
mod fault;
mod marks;
mod plan;

/// The most bytes that are compared at a time.
const STEP: usize = 1 << 20;
/// The most bytes of a name that a number is put behind.
const STEM_MAX: usize = 100;

/// An overlay of Linux whose lower layer is a [view](Pool::view).
#[derive(Clone, Copy, Debug)]
pub struct Overlay<'o> {
    /// The branch of the view, which can only be read.
    pub base: &'o str,
    /// The file of the view.
    pub view: &'o Path,
    /// The directory of the upper layer.
    pub upper: &'o Path,
    /// The directory for its work (`workdir`), where an overlay keeps some changes.
    pub work: &'o Path,
    /// Whether it is one with the option `userxattr`, as users may mount it who are not root.
    pub userxattr: bool,
}

/// The result of taking over an overlay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ingested {
    /// The files and directories that the upper layer had.
    pub files: u64,
    /// The names that were removed.
    pub removed: u64,
    /// The bytes of contents that were written.
    pub bytes: u64,
    /// The branch that has the changes, if the branch could not take them: it has changed since the
    /// view was made, or is open.
    pub kept: Option<String>,
}

impl Pool {
    /// Takes over into a branch what programs have changed in an overlay of Linux whose lower layer
    /// is a [view](Self::view) of a read-only fork of the branch: names, attributes, links and
    /// contents, by one commit. MOUNTS.md describes such an overlay. A file that the overlay has
    /// copied stays the inode that it was, and only blocks that differ are written.
    ///
    /// If the branch has changed since that fork, or is open, it stays as it is, and the changes
    /// are in another branch, which the result names. The overlay is only read. Nothing should
    /// change it meanwhile: a file that does is taken in parts.
    ///
    /// The overlay needs the options `index=on` and `xino=on`; `redirect_dir=on` and `metacopy=on`
    /// make it faster. This process needs the right to read attributes of the overlay
    /// (`CAP_SYS_ADMIN`). One with `userxattr` has none of these options but `xino=on`, and says
    /// less: there a file is the inode of the base that has its path and one name, if both are
    /// regular files, and a new inode otherwise.
    ///
    /// Blocks for the I/O. Takes memory for the paths of the upper layer.
    ///
    /// # Errors
    /// [`PoolError::Overlay`] names the file that can't be taken over; [`PoolError::Branches`] if
    /// there is no such branch or the pool is full. The branch is as before then.
    pub fn ingest(
        &self,
        branch: &str,
        overlay: Overlay<'_>,
    ) -> std::result::Result<Ingested, PoolError> {
        let view = HostFile::open(overlay.view)
            .map_err(|error| PoolError::Output { path: overlay.view.to_owned(), error })?;
        let (upper, work) = (Part::open(overlay.upper)?, Part::open(overlay.work)?);
        let marking = if overlay.userxattr { Marking::User } else { Marking::Trusted };
        let plan = Plan::read(&Base::open(&view)?, &upper, &work, marking)?;
        let name = free_name(self, "ingest");
        self.fork_with(overlay.base, &name, ForkOptions::new().temporary(true))?;
        let filled = fill(self, &name, &plan, [&upper, &work]);
        let adopted = filled.and_then(|done| match self.adopt(branch, &name) {
            Err(PoolError::HasChanged { .. } | PoolError::Branches { .. }) => {
                let kept = free_name(self, &format!("{branch}@native"));
                self.rename(&name, &kept)?;
                Ok(Ingested { kept: Some(kept), ..done })
            }
            adopted => adopted.map(|()| done),
        });
        if adopted.is_err() {
            // An error of this says no more than the first one; the next opening deletes it.
            let _ = self.delete(&name);
        }
        adopted
    }
}

/// Returns a name that no branch has: `stem`, shortened if need be, and a number.
pub(crate) fn free_name(pool: &Pool, stem: &str) -> String {
    let branches = pool.branches();
    let stem = &stem[..stem.floor_char_boundary(STEM_MAX)];
    let names = (0_u64..).map(|number| format!("{stem} {number}"));
    let mut free = names.filter(|name| branches.iter().all(|info| info.name != *name));
    free.next().unwrap_or_default()
}

/// Carries out a plan in a branch.
fn fill(
    pool: &Pool,
    name: &str,
    plan: &Plan,
    parts: [&Part; 2],
) -> std::result::Result<Ingested, PoolError> {
    let whole = |error: Error| failed(Path::new(""), &error);
    let volume = pool.open(name).map_err(|error| whole(error.into()))?;
    let task = volume.task();
    let done = Filling::new(&task, parts, plan).and_then(Filling::run);
    drop(task);
    let closed = volume.close().map_err(|error| whole(Error::from(error)));
    let done = done?;
    closed.map(|()| done)
}

/// A plan that is carried out.
struct Filling<'f> {
    task: &'f Task,
    upper: &'f Part,
    work: &'f Part,
    plan: &'f Plan,
    /// The directory for what was put aside.
    aside: PathBuf,
    /// The paths of files of the upper layer with several names, by their numbers.
    linked: HashMap<u64, PathBuf>,
    /// The numbers of the files of the upper layer that have become inodes of the base.
    claimed: HashMap<u64, u64>,
    done: Ingested,
}

impl<'f> Filling<'f> {
    fn new(
        task: &'f Task,
        [upper, work]: [&'f Part; 2],
        plan: &'f Plan,
    ) -> std::result::Result<Self, PoolError> {
        let is_taken = |path: &Path| {
            let name = path.strip_prefix("/").unwrap_or(path);
            task.exists(path).unwrap_or(true) || plan.entries.iter().any(|it| it.path == name)
        };
        let mut aside = (0..).map(|n| PathBuf::from(format!("/.vfscale-ingest-{n}")));
        let aside = aside.find(|path| !is_taken(path)).unwrap_or_default();
        let (linked, claimed, done) = Default::default();
        Ok(Self { task, upper, work, plan, aside, linked, claimed, done })
    }

    fn tree(&self) -> InTree<'f> {
        InTree(self.task)
    }

    fn run(mut self) -> std::result::Result<Ingested, PoolError> {
        self.put_aside()?;
        let (task, entries) = (self.task, &self.plan.entries);
        std::thread::scope(|scope| {
            let mut ahead = Ahead::start(scope, task, entries);
            entries.iter().try_for_each(|entry| {
                ahead.go_on();
                self.apply(entry).map_err(|error| failed(&entry.path, &error))
            })
        })?;
        let gone = self.remove(&self.aside.clone());
        gone.map_err(|error| failed(Path::new(""), &error))?;
        // From the leaves up: what is done in a directory changes its times.
        for entry in self.plan.entries.iter().rev() {
            if let Kind::Directory { .. } = entry.kind {
                self.finish(entry).map_err(|error| failed(&entry.path, &error))?;
            }
        }
        Ok(self.done)
    }

    /// Puts aside what the overlay has moved, while it still has the paths of the base: links to
    /// files, then directories, the deepest ones first. Changes the files that only the index has.
    fn put_aside(&mut self) -> std::result::Result<(), PoolError> {
        let made = self.task.posix().mkdirat(At::Cwd, &self.aside, 0o700);
        made.map_err(|error| failed(Path::new(""), &error))?;
        for (nid, path) in &self.plan.files {
            let linked = self.task.hard_link(Path::new("/").join(path), self.file_aside(*nid));
            linked.map_err(|error| failed(path, &error))?;
        }
        for it in &self.plan.indexed {
            let (path, origin) = (self.file_aside(it.nid), Some((it.nid, true)));
            let changed = self.file((self.work, &it.path), &path, origin, it.has_contents);
            changed.map_err(|error| failed(&self.work.path.join(&it.path), &error))?;
        }
        let from = |entry: &'f Entry| match &entry.kind {
            Kind::Directory { from: Some(from), .. } => Some((from, entry)),
            _ => None,
        };
        let mut moved: Vec<_> = self.plan.entries.iter().filter_map(from).collect();
        moved.sort_by_key(|(from, _)| std::cmp::Reverse(from.components().count()));
        for (from, entry) in moved {
            let renamed = self.task.rename(Path::new("/").join(from), self.dir_aside(entry));
            renamed.map_err(|error| failed(&entry.path, &error))?;
        }
        Ok(())
    }

    fn file_aside(&self, nid: u64) -> PathBuf {
        self.aside.join(format!("f{nid}"))
    }

    fn dir_aside(&self, entry: &Entry) -> PathBuf {
        self.aside.join(format!("d{}", entry.number))
    }

    /// Removes whatever has a path. Returns whether something had.
    fn remove(&self, path: &Path) -> Result<bool> {
        let removed = match self.task.symlink_metadata(path) {
            Err(error) if error.errno() == Errno::NOENT => return Ok(false),
            Ok(found) if found.file_type() == FileType::Directory => self.task.remove_dir_all(path),
            found => found.and_then(|_| self.task.remove_file(path)),
        };
        removed.map(|()| true)
    }

    fn apply(&mut self, entry: &Entry) -> Result<()> {
        let path = Path::new("/").join(&entry.path);
        match &entry.kind {
            Kind::Whiteout => self.done.removed += u64::from(self.remove(&path)?),
            Kind::Directory { from, is_new } => {
                self.done.files += 1;
                if from.is_some() {
                    self.remove(&path)?;
                    self.task.rename(self.dir_aside(entry), &path)?;
                } else if *is_new {
                    self.remove(&path)?;
                    self.task.posix().mkdirat(At::Cwd, &path, 0o700)?;
                }
            }
            Kind::File { origin, is_in_place, has_contents } => {
                self.done.files += 1;
                let origin = origin.map(|nid| (nid, *is_in_place));
                self.file((self.upper, &entry.path), &path, origin, *has_contents)?;
            }
        }
        Ok(())
    }

    /// Makes a file of a part of the overlay, or the one of the base that it is a copy of with its
    /// number in the view, and whether that has the path already.
    fn file(
        &mut self,
        (part, from): (&Part, &Path),
        path: &Path,
        origin: Option<(u64, bool)>,
        has_contents: bool,
    ) -> Result<()> {
        let (dir, name) = part.parent(from)?;
        let stat = Host.stat(Some(&dir), name)?;
        if let Some(first) = self.linked.get(&stat.ino) {
            let ino = |path: &Path| self.task.symlink_metadata(path).map(|it| it.ino);
            if ino(path).ok() != Some(ino(first)?) {
                self.remove(path)?;
                self.task.hard_link(first, path)?;
            }
            return Ok(());
        }
        if let Some((nid, is_in_place)) = origin {
            if self.claimed.insert(nid, stat.ino).is_some() {
                return Err(Error::new("two files are copies of one of the base", Errno::UCLEAN));
            }
            if !is_in_place {
                self.remove(path)?;
                self.task.hard_link(self.file_aside(nid), path)?;
            }
        } else {
            self.remove(path)?;
        }
        if stat.nlink > 1 {
            self.linked.insert(stat.ino, path.to_owned());
        }
        let is_copy = origin.is_some();
        let (node, made) = self.open((&dir, name), path, &stat, is_copy)?;
        if is_copy && made.stat()?.file_type() != stat.file_type() {
            return Err(Error::new("it has another type than in the base", Errno::UCLEAN));
        }
        if stat.file_type() == FileType::RegularFile && has_contents {
            self.done.bytes += self.contents(&node, &made, stat.size, is_copy)?;
        }
        self.attributes(&node, &stat, &made)
    }

    /// Opens a file on both sides; makes the one in the branch unless it `is_there`.
    fn open(
        &self,
        (dir, name): (&Node, &OsStr),
        path: &Path,
        stat: &Stat,
        is_there: bool,
    ) -> Result<(Node, File)> {
        let (tree, at) = (self.tree(), Some(dir));
        if stat.file_type() == FileType::RegularFile {
            let node = Host.open_file(at, name)?;
            let create = if is_there { OFlags::empty() } else { OFlags::CREATE | OFlags::EXCL };
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | create;
            return Ok((node, self.task.posix().open(path, flags, 0o600)?));
        }
        let node = Host.open_node(at, name)?;
        match stat.file_type() {
            _ if is_there => {}
            FileType::Symlink => {
                tree.symlink(&Host.read_link(&node)?, None, path.as_os_str())?;
            }
            _ => tree.mknod(None, path.as_os_str(), stat)?,
        }
        Ok((node, tree.open_node(None, path.as_os_str())?))
    }

    /// Gives a file its contents. Returns the number of bytes that were written: of one that had
    /// contents, those that differ.
    fn contents(&self, from: &Node, to: &File, size: u64, is_copy: bool) -> Result<u64> {
        // Each change is a transaction.
        if to.stat()?.size != size {
            to.truncate(size)?;
        }
        let (mut new, mut old) = (vec![0; STEP.min(size as usize)], Vec::new());
        let (mut at, mut bytes) = (0, 0);
        while let Some((start, end)) = Host.data(from, at)?.filter(|(start, _)| *start < size) {
            self.tree().clear(to, at, start)?;
            at = start;
            let end = end.min(size);
            while at < end {
                let length = new.len().min((end - at) as usize);
                let read = Host.read_at(from, &mut new[..length], at)?;
                if read == 0 {
                    // Another process has cut it meanwhile.
                    return to.truncate(at).map(|()| bytes);
                }
                let new = &new[..read];
                old.resize(if is_copy { read } else { 0 }, 0);
                if is_copy {
                    to.read_at(&mut old, at)?;
                }
                bytes += self.tree().write_changed(to, at, new, &old)?;
                at += read as u64;
            }
        }
        self.tree().clear(to, at, size)?;
        Ok(bytes)
    }

    /// Gives a directory its attributes.
    fn finish(&self, entry: &Entry) -> Result<()> {
        let node = self.upper.dir(&entry.path)?;
        let path = Path::new("/").join(&entry.path);
        let made = self.tree().open_dir(None, path.as_os_str())?;
        self.attributes(&node, &Host.stat_of(&node)?, &made)
    }

    /// Sets the owner first, which ends set-id bits, and the times last, which all else changes.
    /// Leaves out what is so already, since each change is a transaction.
    fn attributes(&self, node: &Node, stat: &Stat, made: &File) -> Result<()> {
        let tree = self.tree();
        let old = made.stat()?;
        let is_owned = (old.uid, old.gid) == (stat.uid, stat.gid);
        if !is_owned {
            tree.chown(made, stat.uid, stat.gid)?;
        }
        let has_mode = is_owned && old.mode & 0o7777 == stat.mode & 0o7777;
        if stat.file_type() != FileType::Symlink && !has_mode {
            tree.chmod(made, stat.mode & 0o7777)?;
        }
        let (xattrs, old) = (self.plan.marking.visible(Host.xattrs(node)?), tree.xattrs(made)?);
        let is_left = |name: &OsString| xattrs.iter().any(|(other, _)| other == name);
        for (name, _) in old.iter().filter(|(name, _)| !is_left(name)) {
            let calls = self.task.posix();
            calls.removexattrat(At::File(made), "", name, AtFlags::EMPTY_PATH)?;
        }
        for (name, value) in xattrs.iter().filter(|it| !old.contains(it)) {
            tree.set_xattr(made, name, value)?;
        }
        tree.set_times(made, stat)
    }
}
