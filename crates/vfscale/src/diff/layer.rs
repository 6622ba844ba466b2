//! Differences as a layer of the OCI image specification ("Image Layer Filesystem Changeset"): an
//! archive that makes the second tree of the first one.
//!
//! A layer has paths and no inodes. So of a directory that was moved all is written, and of a file
//! with several names each of them, as soon as the file has changed or one name has come.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vfscale_diskfs::{InodeCore, ROOT_INO};
use vfscale_vfs::InodeFlags;

use super::compare::{Data, Part};
use super::difference::{DifferenceKind, Told};
use super::near::search;
use super::object::is_same;
use super::side::Side;
use super::tree::Tree;
use crate::error::pool::PoolError;
use crate::tar::writer::Writer;
use crate::tar::{self, Entry, Kind};

/// The most bytes that are read at a time.
const STEP: u64 = 1 << 20;

/// The state of a path, as a layer tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    /// The inode with this number is there.
    There(u64),
    /// A directory is there, and nothing that was below it before.
    Emptied(u64),
    /// Nothing is there any more.
    Gone,
}

/// Calls `each` with the parts of the layer that makes `b` of `a`, but for the end of the archive,
/// until that returns false. `times` has the directories whose times have changed. Returns the
/// number of files that it has.
///
/// # Errors
/// [`PoolError::Layer`], [`PoolError::Damage`] and errors of reading.
pub(super) fn layer(
    (a, b): (&Side, &Side),
    found: &[&Told],
    times: impl Iterator<Item = (PathBuf, u64)>,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<u64, PoolError> {
    let mut layer = Layer { b, items: BTreeMap::new(), firsts: HashMap::new(), count: 0 };
    layer.items.extend(times.map(|(path, ino)| (path, Item::There(ino))));
    layer.take(a, found)?;
    layer.take_links()?;
    layer.take_dirs()?;
    let mut writer = Writer::new(each);
    for (path, item) in std::mem::take(&mut layer.items) {
        if writer.is_over() {
            break;
        }
        layer.write(&mut writer, &path, item)?;
    }
    Ok(layer.count)
}

/// A layer that is being made.
struct Layer<'l> {
    b: &'l Side,
    items: BTreeMap<PathBuf, Item>,
    /// The first paths of files with several names.
    firsts: HashMap<u64, Vec<u8>>,
    count: u64,
}

impl Layer<'_> {
    /// Takes what differs. What is at and below a path that has another file now is told by the
    /// trees, and not by what was found there.
    fn take(&mut self, a: &Side, found: &[&Told]) -> Result<(), PoolError> {
        let mut paths: BTreeMap<&Path, (Option<u64>, Option<u64>)> = BTreeMap::new();
        let is_change = |told: &&Told| matches!(told.difference.kind, DifferenceKind::Changed(_));
        let (changes, names): (Vec<&Told>, Vec<&Told>) = found.iter().copied().partition(is_change);
        for Told { difference, old, new } in names {
            let from = match &difference.kind {
                DifferenceKind::Moved { from } => from,
                _ => &difference.path,
            };
            let before = paths.entry(from).or_default();
            before.0 = before.0.or(*old);
            let after = paths.entry(&difference.path).or_default();
            after.1 = after.1.or(*new);
        }
        for Told { difference, old, new } in changes {
            paths.entry(&difference.path).or_insert((*old, *new));
        }
        let mut done: Option<&Path> = None;
        for (path, both) in paths {
            if done.is_some_and(|done| path.starts_with(done)) {
                continue;
            }
            match both {
                (None, None) => {}
                (Some(_), None) => {
                    self.items.insert(path.into(), Item::Gone);
                    done = Some(path);
                }
                (None, Some(new)) => {
                    self.all(path, new)?;
                    done = Some(path);
                }
                (Some(old), Some(new)) => {
                    let (one, other) = (a.inode(old, path)?, self.b.inode(new, path)?);
                    if old == new && is_same(old, &one, &other) {
                        self.items.insert(path.into(), Item::There(new));
                        continue;
                    }
                    self.all(path, new)?;
                    done = Some(path);
                    if one.is_directory() && other.is_directory() {
                        self.items.insert(path.into(), Item::Emptied(new));
                    } else if Kind::of_mode(other.mode).is_none() {
                        self.items.insert(path.into(), Item::Gone);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes a file with all that is below it.
    fn all(&mut self, path: &Path, ino: u64) -> Result<(), PoolError> {
        let mut next = vec![(path.to_owned(), ino)];
        while let Some((path, ino)) = next.pop() {
            let core = self.b.inode(ino, &path)?;
            if core.is_directory() {
                for name in self.b.names(ino, &core, &path)? {
                    next.push((path.join(OsStr::from_bytes(&name.name)), name.ino));
                }
            }
            // No archive has a socket.
            if Kind::of_mode(core.mode).is_some() {
                self.items.insert(path, Item::There(ino));
            }
        }
        Ok(())
    }

    /// Takes the other names of files that have several.
    fn take_links(&mut self) -> Result<(), PoolError> {
        let mut known: BTreeMap<u64, usize> = BTreeMap::new();
        for item in self.items.values() {
            if let Item::There(ino) = item {
                *known.entry(*ino).or_default() += 1;
            }
        }
        let (root, mut wanted) = (Path::new("/"), HashMap::new());
        for (ino, count) in known {
            let core = self.b.inode(ino, root)?;
            if !core.is_directory() && core.nlink > 1 {
                self.firsts.insert(ino, Vec::new());
                if core.nlink as usize > count {
                    wanted.insert(ino, core.nlink as usize);
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let mut names = HashMap::new();
        let all = search(self.b, wanted, &BTreeSet::new(), &mut names);
        all.map_err(|_| self.b.damaged(root, "not all names of a file are found"))?;
        let mut tree = Tree::new(self.b);
        for (ino, edges) in names {
            for edge in edges {
                self.items.entry(tree.path_of(&edge)?).or_insert(Item::There(ino));
            }
        }
        Ok(())
    }

    /// Takes the directories of all that is told: who makes a name anew changes their times.
    fn take_dirs(&mut self) -> Result<(), PoolError> {
        let dirs = self.items.keys().filter_map(|path| path.parent());
        let missing = dirs.filter(|dir| !self.items.contains_key(*dir));
        let missing: BTreeSet<PathBuf> = missing.map(Path::to_owned).collect();
        let mut tree = Tree::new(self.b);
        let mut known = HashMap::from([(PathBuf::from("/"), ROOT_INO)]);
        for dir in missing {
            let mut line: Vec<&Path> = Vec::new();
            line.extend(dir.ancestors().take_while(|dir| !known.contains_key(*dir)));
            for dir in line.into_iter().rev() {
                let (above, name) =
                    dir.parent().zip(dir.file_name()).unwrap_or((Path::new("/"), OsStr::new("")));
                let above = known.get(above).copied().unwrap_or(ROOT_INO);
                let names = tree.names(above)?;
                let found = names.iter().find(|it| *it.name == *name.as_bytes());
                let lost = || self.b.damaged(dir, "it is not found");
                known.insert(dir.to_owned(), found.ok_or_else(lost)?.ino);
            }
            self.items.extend(known.get(&dir).map(|ino| (dir, Item::There(*ino))));
        }
        Ok(())
    }

    fn write(&mut self, to: &mut Writer<'_>, path: &Path, item: Item) -> Result<(), PoolError> {
        let bytes = path.as_os_str().as_bytes();
        let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
        let name = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if name.starts_with(tar::WHITEOUT) && item != Item::Gone {
            let what = "names that begin with .wh. say there that a file is gone";
            return Err(self.unfit(path, what));
        }
        self.count += 1;
        match item {
            Item::Gone => {
                let dir = &bytes[..bytes.len() - name.len()];
                let path = [dir, tar::WHITEOUT, name].concat();
                to.entry(&Entry { path, mode: 0o600, ..Entry::default() });
                Ok(())
            }
            Item::There(ino) => self.file(to, (path, bytes), ino),
            Item::Emptied(ino) => {
                self.file(to, (path, bytes), ino)?;
                let path = [bytes, b"/", tar::OPAQUE].concat();
                to.entry(&Entry { path, mode: 0o600, ..Entry::default() });
                Ok(())
            }
        }
    }

    fn file(
        &mut self,
        to: &mut Writer<'_>,
        (path, name): (&Path, &[u8]),
        ino: u64,
    ) -> Result<(), PoolError> {
        let core = self.b.inode(ino, path)?;
        let Some(kind) = Kind::of_mode(core.mode) else { return Ok(()) };
        let mut entry = Entry {
            path: name.to_vec(),
            kind,
            mode: core.mode & 0o7777,
            uid: core.uid,
            gid: core.gid,
            mtime: core.mtime,
            ..Entry::default()
        };
        if let Some(first) = self.firsts.get_mut(&ino) {
            if !first.is_empty() {
                (entry.kind, entry.target) = (Kind::Link, first.clone());
                to.entry(&entry);
                return Ok(());
            }
            *first = name.to_vec();
        }
        entry.flags = flags(core.inode_flags());
        entry.device = (rustix::fs::major(core.rdev), rustix::fs::minor(core.rdev));
        if kind == Kind::Symlink {
            entry.target = self.b.target(ino, &core, path)?;
        }
        for (name, value) in self.b.xattrs(ino, &core, path)? {
            if name.contains(&b'=') {
                return Err(self.unfit(path, "the name of an extended attribute has a ="));
            }
            entry.xattrs.push((name.into(), value.into()));
        }
        if kind != Kind::File {
            to.entry(&entry);
            return Ok(());
        }
        let data = Data::of(self.b, ino, &core, path)?;
        (entry.size, entry.data) = (core.size, ranges(&data, &core));
        to.entry(&entry);
        let mut bytes = Vec::new();
        for mut range in entry.data {
            while range.start < range.end && !to.is_over() {
                let end = data.part(range.start).1.min(range.end).min(range.start + STEP);
                bytes.resize((end - range.start) as usize, 0);
                data.read(range.start, &mut bytes)?;
                to.data(&bytes);
                range.start = end;
            }
        }
        to.end();
        Ok(())
    }

    fn unfit(&self, path: &Path, what: &'static str) -> PoolError {
        PoolError::Layer { path: path.to_owned(), what }
    }
}

/// Returns the ranges of a file that have data.
fn ranges(data: &Data<'_>, core: &InodeCore) -> Vec<Range<u64>> {
    let (mut found, mut at) = (Vec::<Range<u64>>::new(), 0);
    while at < core.size {
        let (part, end) = data.part(at);
        let end = end.min(core.size);
        match found.last_mut() {
            _ if part == Part::Zeros => {}
            Some(last) if last.end == at => last.end = end,
            _ => found.push(at..end),
        }
        at = end;
    }
    found
}

/// The inode flags, with the names that libarchive has for them.
const FLAGS: [(InodeFlags, &str); InodeFlags::COUNT] = [
    (InodeFlags::SYNC, "sync"),
    (InodeFlags::IMMUTABLE, "schg"),
    (InodeFlags::APPEND, "sappnd"),
    (InodeFlags::NODUMP, "nodump"),
    (InodeFlags::NOATIME, "noatime"),
    (InodeFlags::DIRSYNC, "dirsync"),
];

/// Returns the names of flags, as an archive has them.
fn flags(flags: InodeFlags) -> Vec<u8> {
    let names = FLAGS.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| *name);
    names.collect::<Vec<_>>().join(",").into_bytes()
}

/// Returns the flags with these names; others are passed over.
pub(crate) fn flags_of(names: &[u8]) -> InodeFlags {
    let names = names.split(|byte| *byte == b',');
    let known = |name: &[u8]| FLAGS.iter().find(|(_, known)| known.as_bytes() == name);
    names.filter_map(known).fold(InodeFlags::empty(), |all, (flag, _)| all | *flag)
}
