//! The contents of an upper layer, and of the index in the directory for an overlay's work.
//!
//! Linux describes it in `Documentation/filesystems/overlayfs.rst`.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use vfscale_vfs::{Errno, Error, FileType, Result, Stat};

use super::base::{Base, Lower, Names};
use super::fault::{failed, lie};
use super::marks::{Marking, Marks};
use crate::error::pool::PoolError;
use crate::transfer::host::{Host, Node};
use crate::transfer::side::Side;

/// The name of the index in the directory for the work.
const INDEX: &str = "index";

/// The upper layer of an overlay, or the directory for its work.
pub(super) struct Part {
    root: OwnedFd,
    /// Its path on the host.
    pub(super) path: PathBuf,
    /// The last parent of a path: files of one directory follow each other.
    last: RefCell<Option<(PathBuf, Rc<Node>)>>,
}

impl Part {
    /// Opens the directory.
    pub(super) fn open(path: &Path) -> std::result::Result<Self, PoolError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, &path, flags, Mode::empty());
        let root = opened.map_err(|errno| failed(&path, &Error::new("openat", errno)))?;
        Ok(Self { root, path, last: RefCell::default() })
    }

    /// Opens a directory by its path from the root. No symbolic link is followed.
    pub(super) fn dir(&self, path: &Path) -> Result<Node> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let opened = openat2(&self.root, path, flags, Mode::empty(), how);
        opened.map(|fd| Node::Open(fd.into())).map_err(|errno| Error::new("openat2", errno))
    }

    /// Opens the directory of a path, and returns the name in it.
    pub(super) fn parent<'p>(&self, path: &'p Path) -> Result<(Rc<Node>, &'p OsStr)> {
        let name = path.file_name().unwrap_or_default();
        let parent = path.parent().unwrap_or(Path::new(""));
        let mut last = self.last.borrow_mut();
        if let Some((known, dir)) = &*last
            && known == parent
        {
            return Ok((dir.clone(), name));
        }
        let dir = Rc::new(self.dir(parent)?);
        *last = Some((parent.to_owned(), dir.clone()));
        Ok((dir, name))
    }
}

/// The meaning of a path of an upper layer.
#[derive(Debug)]
pub(super) enum Kind {
    /// The name of the base is gone.
    Whiteout,
    Directory {
        /// The path in the base of a directory that was moved.
        from: Option<PathBuf>,
        /// Nothing of the base is in it.
        is_new: bool,
    },
    /// All that is no directory.
    File {
        /// The number in the view of the file of the base that it is a copy of.
        origin: Option<u64>,
        /// The base has that file at this path.
        is_in_place: bool,
        /// Its contents are here, not in the base.
        has_contents: bool,
    },
}

#[derive(Debug)]
pub(super) struct Entry {
    /// From the root of the tree.
    pub(super) path: PathBuf,
    /// Its place in the plan.
    pub(super) number: usize,
    pub(super) kind: Kind,
}

/// All of an upper layer.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) marking: Marking,
    /// Each directory before what is in it; the first one is the root.
    pub(super) entries: Vec<Entry>,
    /// The files of the base that have come to other paths, or that the index has: their numbers in
    /// the view, and paths in the base.
    pub(super) files: BTreeMap<u64, PathBuf>,
    pub(super) indexed: Vec<Indexed>,
}

/// A file of the base that was changed by a name which is gone: only the index has it.
#[derive(Debug)]
pub(super) struct Indexed {
    /// Its path in the directory for the work.
    pub(super) path: PathBuf,
    /// The number in the view.
    pub(super) nid: u64,
    pub(super) has_contents: bool,
}

/// A directory whose names are still to be read.
struct Frame {
    path: PathBuf,
    lower: Option<Lower>,
    /// Empty files may be whiteouts.
    has_marked: bool,
}

impl Plan {
    /// Reads an upper layer and the index.
    ///
    /// # Errors
    /// [`PoolError::Overlay`].
    pub(super) fn read(
        base: &Base<'_>,
        upper: &Part,
        work: &Part,
        marking: Marking,
    ) -> std::result::Result<Self, PoolError> {
        let mut plan = Self { marking, entries: vec![], files: BTreeMap::new(), indexed: vec![] };
        let (mut moved, mut met) = (BTreeMap::new(), HashSet::new());
        let path = PathBuf::new();
        plan.push(path.clone(), Kind::Directory { from: None, is_new: false });
        let mut stack = vec![Frame { path, lower: Some(base.root()), has_marked: false }];
        while let Some(mut frame) = stack.pop() {
            let at = |error| failed(&frame.path, &error);
            let dir = upper.dir(&frame.path).map_err(at)?;
            let marks = marking.read(Host.xattrs(&dir).map_err(at)?);
            if frame.path.as_os_str().is_empty() {
                check_marks(&marks, work)?;
            }
            frame.has_marked = marks.opaque.as_deref() == Some(b"x");
            let names = Host.names(&dir).map_err(at)?;
            let lower = frame.lower.as_ref();
            let below = lower.map(|lower| base.names(lower)).transpose()?;
            let below = lower.zip(below.as_ref());
            for name in names {
                let path = frame.path.join(&name);
                let looked = look(&dir, &name, marking);
                let (stat, marks) = looked.map_err(|error| failed(&path, &error))?;
                if marks.is_whiteout(&stat, frame.has_marked) {
                    plan.push(path, Kind::Whiteout);
                } else if stat.file_type() == FileType::Directory {
                    let (kind, lower) = directory(base, below, (&name, &path), &marks)?;
                    plan.push(path.clone(), kind);
                    stack.push(Frame { path, lower, has_marked: false });
                } else {
                    let kind = file(base, below, (&name, &path), &stat, &marks)?;
                    if let Kind::File { origin: Some(nid), is_in_place: false, .. } = kind {
                        moved.insert(nid, path.clone());
                    }
                    if stat.nlink > 1 {
                        met.insert((stat.dev, stat.ino));
                    }
                    plan.push(path, kind);
                }
            }
        }
        plan.indexed = indexed(base, work, marking, &met)?;
        moved.extend(plan.indexed.iter().map(|it| (it.nid, work.path.join(&it.path))));
        if !moved.is_empty() {
            plan.files = base.paths(&moved)?;
        }
        Ok(plan)
    }

    fn push(&mut self, path: PathBuf, kind: Kind) {
        self.entries.push(Entry { path, number: self.entries.len(), kind });
    }
}

/// Fails unless the attributes of the overlay can be read: without them all would seem to be new.
/// With an index the root has one. An overlay of a user has no index.
fn check_marks(root: &Marks, work: &Part) -> std::result::Result<(), PoolError> {
    let (what, errno) = match (root.marking, work.dir(Path::new(INDEX)).is_ok()) {
        (Marking::Trusted, true) if root.origin.is_none() => (
            "its attributes can't be read: that needs CAP_SYS_ADMIN outside of containers",
            Errno::PERM,
        ),
        (Marking::User, true) => ("it has an index, and is none with userxattr", Errno::INVAL),
        _ => return Ok(()),
    };
    Err(lie(Path::new(""), what, errno))
}

fn look(dir: &Node, name: &OsStr, marking: Marking) -> Result<(Stat, Marks)> {
    let node = Host.open_node(Some(dir), name)?;
    Ok((Host.stat_of(&node)?, marking.read(Host.xattrs(&node)?)))
}

/// Returns what a directory is, and the one of the base that is merged with it.
fn directory(
    base: &Base<'_>,
    below: Option<(&Lower, &Names)>,
    (name, path): (&OsStr, &Path),
    marks: &Marks,
) -> std::result::Result<(Kind, Option<Lower>), PoolError> {
    if marks.opaque.as_deref() == Some(b"y") {
        return Ok((Kind::Directory { from: None, is_new: true }, None));
    }
    let same = below.map(|below| base.directory(below, name)).transpose()?.flatten();
    if marks.marking == Marking::User && marks.redirect.is_some() {
        return Err(lie(path, "Linux follows no overlay.redirect of a user", Errno::UCLEAN));
    }
    let lower = match &marks.redirect {
        None => same.clone(),
        Some(to) => {
            let found = base.resolve(below.map(|(lower, _)| lower), to)?;
            let what = "its overlay.redirect leads to no directory of the base";
            Some(found.ok_or_else(|| lie(path, what, Errno::UCLEAN))?)
        }
    };
    let is_same = lower.as_ref().map(|it| &it.path) == same.as_ref().map(|it| &it.path);
    let from = lower.as_ref().filter(|_| !is_same).map(|lower| lower.path.clone());
    Ok((Kind::Directory { from, is_new: lower.is_none() }, lower))
}

/// Returns what a file is.
fn file(
    base: &Base<'_>,
    below: Option<(&Lower, &Names)>,
    (name, path): (&OsStr, &Path),
    stat: &Stat,
    marks: &Marks,
) -> std::result::Result<Kind, PoolError> {
    let (same, has_contents) =
        (below.and_then(|(_, names)| names.get(name)), !marks.is_without_contents);
    if marks.marking == Marking::User {
        if marks.is_without_contents {
            return Err(lie(path, "Linux follows no overlay.metacopy of a user", Errno::UCLEAN));
        }
        // A copy says nothing of its origin. What has the same path is as good, unless it has other
        // names, which do not change with a copy.
        let origin = match same.filter(|_| stat.file_type() == FileType::RegularFile) {
            Some(nid) => base.is_lone_file(nid, path)?.then_some(nid),
            None => None,
        };
        return Ok(Kind::File { origin, is_in_place: origin.is_some(), has_contents });
    }
    let origin = marks.origin.as_deref().map(|handle| base.number(handle, path)).transpose()?;
    let origin = origin.flatten();
    if marks.is_without_contents && origin.is_none() {
        let what = "its contents are those of a file of the base, and nothing says of which";
        return Err(lie(path, what, Errno::UCLEAN));
    }
    Ok(Kind::File { origin, is_in_place: origin.is_some() && same == origin, has_contents })
}

/// Reads the index, where the overlay keeps each changed file of the base that had several names.
/// Leaves out those of which the upper layer has a name: they were `met` there.
fn indexed(
    base: &Base<'_>,
    work: &Part,
    marking: Marking,
    met: &HashSet<(u64, u64)>,
) -> std::result::Result<Vec<Indexed>, PoolError> {
    let (mut files, index) = (Vec::new(), work.path.join(INDEX));
    let dir = match work.dir(Path::new(INDEX)) {
        // Nothing was mounted yet.
        Err(error) if error.errno() == Errno::NOENT => return Ok(files),
        dir => dir.map_err(|error| failed(&index, &error))?,
    };
    for name in Host.names(&dir).map_err(|error| failed(&index, &error))? {
        // A copy that a crash has ended: the overlay drops it, too.
        if name.as_bytes().starts_with(b"#") {
            continue;
        }
        let shown = index.join(&name);
        let looked = look(&dir, &name, marking);
        let (stat, marks) = looked.map_err(|error| failed(&shown, &error))?;
        let is_directory = stat.file_type() == FileType::Directory;
        if is_directory || marks.is_whiteout(&stat, false) || met.contains(&(stat.dev, stat.ino)) {
            continue;
        }
        let handle = bytes_of(&name).map(|handle| base.number(&handle, &shown)).transpose()?;
        let Some(nid) = handle.flatten() else {
            return Err(lie(&shown, "its name is no handle of a file", Errno::UCLEAN));
        };
        let (path, has_contents) = (Path::new(INDEX).join(name), !marks.is_without_contents);
        files.push(Indexed { path, nid, has_contents });
    }
    Ok(files)
}

/// Returns the bytes of hexadecimal digits.
fn bytes_of(name: &OsStr) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = name.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8));
    bytes.collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty())
}
