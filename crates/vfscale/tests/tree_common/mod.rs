//! Whole trees, read through a task. Tests of the library and of its insides have them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vfscale_vfs::{Result, Task, Timestamp};

/// Inode number, generation and type: of the same inode in two branches.
pub(crate) type Object = (u64, u32, u32);

/// The files of a tree by path.
pub(crate) type Tree = BTreeMap<PathBuf, Known>;

/// All that is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) object: Object,
    /// The first path of the file.
    pub(crate) first: PathBuf,
    /// The bytes of a file, the target of a link.
    pub(crate) content: Vec<u8>,
    /// Mode, owner, group and device.
    pub(crate) attributes: (u32, u32, u32, u64),
    pub(crate) mtime: Timestamp,
    pub(crate) xattrs: Vec<(OsString, Option<Vec<u8>>)>,
}

impl Known {
    pub(crate) fn is_dir(&self) -> bool {
        self.attributes.0 & 0o170_000 == 0o040_000
    }
}

/// Reads everything in a tree, which a crash may have damaged.
///
/// # Errors
/// Errors of the calls.
pub(crate) fn read_tree(task: &Task) -> Result<Tree> {
    let (mut found, mut stack) = (Tree::new(), vec![PathBuf::from("/")]);
    let mut firsts: BTreeMap<Object, PathBuf> = BTreeMap::new();
    while let Some(path) = stack.pop() {
        let known = look(task, &path)?;
        if known.is_dir() {
            for entry in task.read_dir(&path)? {
                stack.push(entry?.path());
            }
        }
        let first = firsts.entry(known.object).or_insert_with(|| path.clone());
        *first = path.clone().min(std::mem::take(first));
        found.insert(path, known);
    }
    for known in found.values_mut() {
        known.first.clone_from(&firsts[&known.object]);
    }
    Ok(found)
}

fn look(task: &Task, path: &Path) -> Result<Known> {
    let stat = task.symlink_metadata(path)?;
    let (mut content, mut xattrs) = (Vec::new(), Vec::new());
    if stat.is_symlink() {
        content = task.read_link(path)?.into_os_string().into_encoded_bytes();
    } else {
        for name in task.list_xattrs(path)? {
            let value = task.xattr(path, &name)?;
            xattrs.push((name, value));
        }
        xattrs.sort();
    }
    if stat.is_file() {
        content = task.read(path)?;
    }
    let object = (stat.ino, stat.generation, stat.mode & 0o170_000);
    let attributes = (stat.mode, stat.uid, stat.gid, stat.rdev);
    let (first, mtime) = (PathBuf::new(), stat.mtime);
    Ok(Known { object, first, content, attributes, mtime, xattrs })
}

/// Reads everything in a tree but inode numbers, which copies of a file do not have in common.
pub(crate) fn read_contents(task: &Task) -> Tree {
    let mut found = read_tree(task).unwrap();
    found.values_mut().for_each(|known| known.object = Object::default());
    found
}

/// Returns how the files are that differ.
pub(crate) fn unequal(one: &Tree, other: &Tree) -> Vec<String> {
    let told = |known: Option<&Known>| {
        known.map(|it| {
            let text = String::from_utf8_lossy(&it.content[..it.content.len().min(200)]);
            let first = it.first.display();
            format!("{first} {text:?} {:?} {:?} {:?}", it.attributes, it.mtime, it.xattrs)
        })
    };
    let mut paths: Vec<_> = one.keys().chain(other.keys()).collect();
    paths.sort();
    paths.dedup();
    let differing = paths.into_iter().filter(|path| one.get(*path) != other.get(*path));
    let lines = differing.map(|path| {
        format!("{}: {:?} | {:?}", path.display(), told(one.get(path)), told(other.get(path)))
    });
    lines.collect()
}
