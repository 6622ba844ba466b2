//! A whole tree, read through the library.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfscale::posix::{At, AtFlags, InodeFlags, Stat, Whence};
use vfscale::{Errno, FileType, Task};

/// Maximum size of a file that is read whole.
const WHOLE_MAX: u64 = 256 << 20;

/// Type of a file with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A directory: inode numbers by name.
    Dir(BTreeMap<OsString, u64>),
    /// A regular file and its data; of one larger than 256 MiB, which damage can make of any, the
    /// blocks that are not zero, each behind its position. Data are ignored when the shapes of
    /// two trees are compared.
    File(Arc<Vec<u8>>),
    /// A symbolic link and its target.
    Link(PathBuf),
    /// Any other type.
    Other,
}

/// Times of a file, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Access time.
    pub atime: i64,
    /// Modification time.
    pub mtime: i64,
    /// Change time.
    pub ctime: i64,
    /// Birth time.
    pub btime: i64,
}

impl Times {
    /// Extracts the times of a `stat` result.
    pub fn of(stat: &Stat) -> Self {
        let Stat { atime, mtime, ctime, btime, .. } = stat;
        Self { atime: atime.0, mtime: mtime.0, ctime: ctime.0, btime: btime.0 }
    }

    /// Returns the times by name. The modification time is the first one.
    pub(crate) fn all(self) -> [(&'static str, i64); 4] {
        let Self { atime, mtime, ctime, btime } = self;
        [("mtime", mtime), ("atime", atime), ("ctime", ctime), ("btime", btime)]
    }
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of links.
    pub nlink: u32,
    /// Device number of a device file.
    pub rdev: u64,
    /// Inode flags.
    pub flags: InodeFlags,
    /// Times before anything was read. Trees are compared without them
    /// ([`crate::model::clock`]).
    pub times: Times,
    /// Extended attributes.
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    /// Type and content.
    pub body: Body,
    /// Names: the number of the directory, and the name in it.
    pub names: BTreeSet<(u64, OsString)>,
}

impl Node {
    /// Returns the data of a regular file.
    pub fn data(&self) -> Option<&[u8]> {
        match &self.body {
            Body::File(data) => Some(data),
            _ => None,
        }
    }

    /// Returns whether both inodes are equal apart from data, names and times.
    fn same_attributes(&self, other: &Node) -> bool {
        let attributes = |n: &Node| (n.mode, n.uid, n.gid, n.nlink, n.rdev, n.flags);
        attributes(self) == attributes(other) && self.xattrs == other.xattrs
    }

    /// Returns whether both are directories, and equal apart from their entries and times.
    pub(crate) fn same_but_entries(&self, other: &Node) -> bool {
        let is_dir = |node: &Node| matches!(node.body, Body::Dir(_));
        let rest = |n: &Node| (n.mode, n.uid, n.gid, n.flags);
        is_dir(self)
            && is_dir(other)
            && rest(self) == rest(other)
            && self.names == other.names
            && self.xattrs == other.xattrs
    }

    /// Returns whether both inodes are equal apart from data and times. Every change of names and
    /// attributes makes them unequal.
    pub fn same_shape(&self, other: &Node) -> bool {
        let bodies = match (&self.body, &other.body) {
            (Body::File(_), Body::File(_)) => true,
            (one, other) => one == other,
        };
        bodies && self.names == other.names && self.same_attributes(other)
    }
}

/// A tree: all inodes by number.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Inode number of the root.
    pub root: u64,
    /// All inodes.
    pub nodes: BTreeMap<u64, Node>,
}

impl Tree {
    /// Reads a tree.
    ///
    /// # Errors
    /// Describes the call that failed, or the inconsistency.
    pub fn read(task: &Task) -> Result<Tree, String> {
        let root = stat(task, Path::new("/"))?.ino;
        let mut tree = Tree { root, nodes: BTreeMap::new() };
        tree.add(task, Path::new("/"))?;
        Ok(tree)
    }

    /// Shares with `before` the data of each file that has the same there: a long script has a tree
    /// for each call.
    pub(crate) fn share_data(&mut self, before: &Tree) {
        for (ino, node) in &mut self.nodes {
            if let Body::File(data) = &mut node.body
                && let Some(Node { body: Body::File(old), .. }) = before.nodes.get(ino)
                && old == data
            {
                *data = Arc::clone(old);
            }
        }
    }

    fn add(&mut self, task: &Task, path: &Path) -> Result<u64, String> {
        let stat = stat(task, path)?;
        if let Some(known) = self.nodes.get(&stat.ino) {
            if matches!(known.body, Body::Dir(_)) {
                return Err(format!("{}: a directory with two names", path.display()));
            }
            return Ok(stat.ino);
        }
        let node = Node {
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            nlink: stat.nlink,
            rdev: stat.rdev,
            flags: stat.flags,
            times: Times::of(&stat),
            xattrs: xattrs(task, path)?,
            body: body(task, path, &stat)?,
            names: BTreeSet::new(),
        };
        self.nodes.insert(stat.ino, node);
        if stat.file_type() == FileType::Directory {
            self.add_entries(task, path, stat.ino)?;
        }
        Ok(stat.ino)
    }

    fn add_entries(&mut self, task: &Task, path: &Path, dir: u64) -> Result<(), String> {
        let entries = task.read_dir(path).map_err(|e| e.to_string())?;
        for entry in entries {
            let entry = entry.map_err(|e| e.to_string())?;
            let below = entry.path();
            let ino = self.add(task, &below)?;
            let Some(node) = self.nodes.get_mut(&ino) else { continue };
            node.names.insert((dir, entry.file_name()));
            let said = (entry.ino(), entry.file_type());
            if said != (ino, FileType::from_raw_mode(node.mode)) {
                return Err(format!("{}: its entry has {said:?}", below.display()));
            }
            if let Some(Body::Dir(names)) = self.nodes.get_mut(&dir).map(|dir| &mut dir.body)
                && names.insert(entry.file_name(), ino).is_some()
            {
                return Err(format!("{}: listed twice", below.display()));
            }
        }
        Ok(())
    }

    /// Returns the inode number at an absolute path; symbolic links are not followed.
    pub fn find(&self, path: &str) -> Option<u64> {
        let names = path.split('/').filter(|name| !name.is_empty());
        let mut ino = self.root;
        for name in names {
            let Body::Dir(entries) = &self.nodes.get(&ino)?.body else { return None };
            ino = *entries.get(std::ffi::OsStr::new(name))?;
        }
        Some(ino)
    }

    /// Returns whether a path has no dots, and no symbolic link that a walk would follow.
    pub(crate) fn is_plain(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
        let is_link = |end: usize| {
            let found = self.find(&path[..end]).and_then(|ino| self.nodes.get(&ino));
            found.is_some_and(|node| matches!(node.body, Body::Link(_)))
        };
        !path.split('/').any(|name| matches!(name, "." | "..")) && !ends.into_iter().any(is_link)
    }

    /// Compares the names, attributes and links of two trees, but not the data of regular files.
    /// Returns the number in `other` of each inode of `self`.
    ///
    /// # Errors
    /// Describes the first difference.
    pub fn match_shape(&self, other: &Tree) -> Result<BTreeMap<u64, u64>, String> {
        let mut pairs = BTreeMap::new();
        let mut taken = BTreeSet::new();
        let mut todo = vec![(PathBuf::from("/"), self.root, other.root)];
        while let Some((path, ours, theirs)) = todo.pop() {
            let name = path.display();
            match pairs.get(&ours) {
                Some(known) if *known == theirs => continue,
                Some(_) => return Err(format!("{name}: names another file than before")),
                None if !taken.insert(theirs) => {
                    return Err(format!("{name}: names a file that it did not name before"));
                }
                None => drop(pairs.insert(ours, theirs)),
            }
            let (Some(one), Some(two)) = (self.nodes.get(&ours), other.nodes.get(&theirs)) else {
                return Err(format!("{name}: an inode is missing"));
            };
            if !one.same_attributes(two) {
                let text = |n: &Node| {
                    format!(
                        "{:o} {}:{} {} links, rdev {}, {:?}, {} attributes",
                        n.mode,
                        n.uid,
                        n.gid,
                        n.nlink,
                        n.rdev,
                        n.flags,
                        n.xattrs.len()
                    )
                };
                return Err(format!("{name}: {} instead of {}", text(two), text(one)));
            }
            match (&one.body, &two.body) {
                (Body::Dir(ours), Body::Dir(theirs)) => {
                    if !ours.keys().eq(theirs.keys()) {
                        let lists = [ours, theirs].map(|dir| dir.keys().collect::<Vec<_>>());
                        return Err(format!("{name}: {:?} instead of {:?}", lists[1], lists[0]));
                    }
                    let both = ours.iter().zip(theirs.values());
                    todo.extend(both.map(|((entry, a), b)| (path.join(entry), *a, *b)));
                }
                (Body::File(_), Body::File(_)) => {}
                (one, two) if one != two => {
                    return Err(format!("{name}: {two:?} instead of {one:?}"));
                }
                _ => {}
            }
        }
        Ok(pairs)
    }

    /// Returns a path of an inode.
    pub fn path_of(&self, ino: u64) -> String {
        let (mut path, mut at) = (String::new(), ino);
        while let Some((dir, name)) = self.nodes.get(&at).and_then(|node| node.names.first()) {
            path = format!("/{}{path}", name.display());
            at = *dir;
        }
        path
    }
}

fn stat(task: &Task, path: &Path) -> Result<Stat, String> {
    task.symlink_metadata(path).map(Stat::from).map_err(|e| e.to_string())
}

fn xattrs(task: &Task, path: &Path) -> Result<BTreeMap<OsString, Vec<u8>>, String> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let names = task.posix().listxattrat(At::Cwd, path, flags).map_err(|e| e.to_string())?;
    let get = |name: OsString| {
        let value =
            task.posix().getxattrat(At::Cwd, path, &name, flags).map_err(|e| e.to_string())?;
        Ok((name, value))
    };
    names.into_iter().map(get).collect()
}

fn body(task: &Task, path: &Path, stat: &Stat) -> Result<Body, String> {
    Ok(match stat.file_type() {
        FileType::Directory => Body::Dir(BTreeMap::new()),
        FileType::RegularFile if stat.size > WHOLE_MAX => {
            Body::File(Arc::new(blocks(task, path).map_err(|e| e.to_string())?))
        }
        FileType::RegularFile => {
            let data = task.read(path).map_err(|e| e.to_string())?;
            if data.len() as u64 != stat.size {
                let (name, size) = (path.display(), stat.size);
                return Err(format!("{name}: {} bytes read of {size}", data.len()));
            }
            Body::File(Arc::new(data))
        }
        FileType::Symlink => Body::Link(task.read_link(path).map_err(|e| e.to_string())?),
        _ => Body::Other,
    })
}

/// Returns the blocks of a file that are not zero, each behind its position.
fn blocks(task: &Task, path: &Path) -> vfscale::Result<Vec<u8>> {
    const BLOCK: u64 = 4096;
    let (file, mut all, mut at) = (task.open(path)?, Vec::new(), 0);
    let mut block = [0; BLOCK as usize];
    loop {
        at = match file.seek(Whence::Data(at)) {
            Ok(data) => data / BLOCK * BLOCK,
            Err(error) if error.errno() == Errno::NXIO => return Ok(all),
            Err(error) => return Err(error),
        };
        let read = file.pread(&mut block, at)?;
        if block[..read].iter().any(|byte| *byte != 0) {
            all.extend_from_slice(&at.to_le_bytes());
            all.extend_from_slice(&block[..read]);
        }
        at += BLOCK;
    }
}

#[cfg(test)]
mod tests;
