//! The differences between two branches.
//!
//! The pool tells the blocks that the branches do not share. They lead to the inodes that may
//! differ ([`candidates`]), and these to the names that do ([`names`]). A merge takes these as they
//! are ([`edges`]); here they are told by path. So the time is that of the difference, but for the
//! names of files that were changed and not renamed: the directories near these are searched for
//! them, which is where files are made.
//!
//! Where the blocks do not tell all of it, both trees are walked, directory by directory
//! ([`walk`]): branches of other volumes, damage, and data that were written without a change of
//! their inode, which a power cut may leave. The results are the same.
//!
//! A file is compared by its inode, its attributes and its contents, which are read only where the
//! branches do not share the blocks. Names that only one side has are matched at the end by inode
//! number and generation: a file that has come elsewhere was moved.
//!
//! Memory: the differences, the directories that differ, and what is below directories that have
//! gone or come; of a walk, the inodes of all directories. No times are relied on.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use vfscale_diskfs::{FileKind, InodeCore, ROOT_INO};

use crate::error::pool::PoolError;
use candidates::Unclear;
pub use compare::Changes;
use difference::Told;
pub use difference::{Difference, DifferenceKind};
pub use differing::Differing;
use edges::Edges;
use object::Object;
use side::Side;

mod candidates;
pub(crate) mod compare;
mod difference;
mod differing;
pub(crate) mod edges;
pub(crate) mod layer;
mod names;
mod near;
pub(crate) mod object;
mod patch;
pub(crate) mod side;
pub(crate) mod text;
pub(crate) mod tree;
mod walk;
mod windows;

fn is_directory(file_type: u32) -> bool {
    FileKind::of_mode(file_type) == Some(FileKind::Directory)
}

/// The paths of an inode that only one branch has.
#[derive(Debug, Default)]
struct Paths {
    gone: Vec<PathBuf>,
    come: Vec<PathBuf>,
}

/// A comparison whose results are told.
struct Diff<'d> {
    edges: Edges<'d>,
    found: Vec<Told>,
}

/// Compares two branches. Returns the differences, by path.
///
/// # Errors
/// [`PoolError::Damage`] and errors of reading.
pub(crate) fn diff(a: &Side, b: &Side) -> Result<Vec<Difference>, PoolError> {
    Ok(told(a, b)?.into_iter().map(|told| told.difference).collect())
}

/// Compares two branches, and calls `each` with the parts of a patch until that returns false: one
/// for each file or directory one of whose paths `is_wanted`. Returns the number of parts.
///
/// # Errors
/// [`PoolError::Damage`] and errors of reading.
pub(crate) fn patch(
    (a, b): (&Side, &Side),
    is_wanted: &dyn Fn(&Path) -> bool,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<u64, PoolError> {
    patch::patch((a, b), &told(a, b)?, is_wanted, each)
}

/// Compares two branches, and calls `each` with the parts of a layer, but for the end of the
/// archive, until that returns false. Only files are in it one of whose paths `is_wanted`. Returns
/// their number.
///
/// # Errors
/// [`PoolError::Layer`], [`PoolError::Damage`] and errors of reading.
pub(crate) fn layer(
    (a, b): (&Side, &Side),
    is_wanted: &dyn Fn(&Path) -> bool,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<u64, PoolError> {
    let (found, times) = compared(a, b)?;
    let has_path = |told: &&Told| told.difference.paths().any(is_wanted);
    let wanted: Vec<&Told> = found.iter().filter(has_path).collect();
    let times = times.into_iter().filter(|(path, _)| is_wanted(path));
    layer::layer((a, b), &wanted, times, each)
}

/// The differences, and the directories that have another time of the last change.
type Compared = (Vec<Told>, Vec<(PathBuf, u64)>);

fn told(a: &Side, b: &Side) -> Result<Vec<Told>, PoolError> {
    Ok(compared(a, b)?.0)
}

fn compared(a: &Side, b: &Side) -> Result<Compared, PoolError> {
    by_blocks(a, b).or_else(|_| Diff::told(Edges::walk(a, b)?))
}

fn by_blocks(a: &Side, b: &Side) -> Result<Compared, Unclear> {
    let mut edges = Edges::by_blocks(a, b)?;
    edges.find_names(|_| true)?;
    Ok(Diff::told(edges)?)
}

/// Makes one difference of a file that has come and another that has gone at the same path, which
/// are next to each other.
fn replaced(found: Vec<Told>) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::with_capacity(found.len());
    for next in found {
        let Difference { path, kind, .. } = &next.difference;
        match told.last_mut() {
            Some(Told { difference, old, .. })
                if difference.kind == DifferenceKind::Added
                    && *kind == DifferenceKind::Removed
                    && difference.path == *path =>
            {
                (difference.kind, *old) = (DifferenceKind::Replaced, next.old);
            }
            _ => told.push(next),
        }
    }
    told
}

/// Takes the pairs out of two sorted lists whose second path is the one that the first leads to.
fn paired(
    gone: &mut Vec<PathBuf>,
    come: &mut Vec<PathBuf>,
    to: impl Fn(&Path) -> Option<PathBuf>,
) -> Vec<(PathBuf, PathBuf)> {
    let mut pairs = Vec::new();
    gone.retain(|from| {
        let path = to(from).and_then(|path| Some(come.remove(come.binary_search(&path).ok()?)));
        let is_left = path.is_none();
        pairs.extend(path.map(|path| (from.clone(), path)));
        is_left
    });
    pairs
}

impl<'d> Diff<'d> {
    /// Returns the differences by path.
    fn told(edges: Edges<'d>) -> Result<Compared, PoolError> {
        let mut diff = Self { edges, found: Vec::new() };
        diff.changes()?;
        diff.moves()?;
        diff.found.sort();
        let (b, times) = (&mut diff.edges.b, &diff.edges.times);
        let times = times.iter().map(|ino| Ok((b.path(*ino)?, *ino)));
        Ok((replaced(diff.found), times.collect::<Result<_, PoolError>>()?))
    }

    /// Tells what has changed at a name that both have.
    fn changes(&mut self) -> Result<(), PoolError> {
        if self.edges.changed.contains_key(&ROOT_INO) {
            self.changed(ROOT_INO, Path::new("/"))?;
        }
        for (ino, edges) in std::mem::take(&mut self.edges.kept) {
            for edge in edges {
                let path = self.edges.b.path_of(&edge)?;
                self.changed(ino, &path)?;
            }
        }
        Ok(())
    }

    /// Tells what was moved, added and removed.
    fn moves(&mut self) -> Result<(), PoolError> {
        let mut lost: BTreeMap<Object, Paths> = BTreeMap::new();
        let Edges { a, b, gone, come, .. } = &mut self.edges;
        for (object, edges) in gone {
            let paths = edges.iter().map(|edge| a.path_of(edge)).collect::<Result<_, _>>()?;
            lost.entry(*object).or_default().gone = paths;
        }
        for (object, edges) in come {
            let paths = edges.iter().map(|edge| b.path_of(edge)).collect::<Result<_, _>>()?;
            lost.entry(*object).or_default().come = paths;
        }
        for paths in lost.values_mut() {
            paths.gone.sort();
            paths.come.sort();
        }
        // Where directories that were moved are now; each has one path.
        let moved = lost.iter().filter_map(|((.., kind), paths)| {
            let (from, path) = (paths.gone.first()?, paths.come.first()?);
            is_directory(*kind).then(|| (from.clone(), path.clone()))
        });
        let now: HashMap<PathBuf, PathBuf> = moved.collect();
        for ((ino, ..), paths) in lost {
            self.moved(ino, paths, &now)?;
        }
        Ok(())
    }

    /// Tells what has become of the paths of one inode. `now` says where directories are that were
    /// moved.
    fn moved(
        &mut self,
        ino: u64,
        Paths { mut gone, mut come }: Paths,
        now: &HashMap<PathBuf, PathBuf>,
    ) -> Result<(), PoolError> {
        // Names that have moved with their directory, and those that others have made again.
        let with_parent = |from: &Path| Some(now.get(from.parent()?)?.join(from.file_name()?));
        let mut stay = paired(&mut gone, &mut come, with_parent);
        stay.extend(paired(&mut gone, &mut come, |from| Some(from.to_owned())));
        let both = gone.len().min(come.len());
        for path in gone.drain(both..) {
            let core = self.edges.a.side.inode(ino, &path)?;
            self.tell((path, &core), DifferenceKind::Removed, (Some(ino), None));
        }
        for path in come.drain(both..) {
            let core = self.edges.b.side.inode(ino, &path)?;
            self.tell((path, &core), DifferenceKind::Added, (None, Some(ino)));
        }
        for (_, path) in stay {
            self.changed(ino, &path)?;
        }
        for (from, path) in gone.into_iter().zip(come) {
            self.changed(ino, &path)?;
            let core = self.edges.b.side.inode(ino, &path)?;
            self.tell((path, &core), DifferenceKind::Moved { from }, (Some(ino), Some(ino)));
        }
        Ok(())
    }

    /// Tells of an inode at `path`, which both branches have, if it has changed.
    fn changed(&mut self, ino: u64, path: &Path) -> Result<(), PoolError> {
        if let Some(changes) = self.edges.changed.get(&ino).copied() {
            let core = self.edges.b.side.inode(ino, path)?;
            let (kind, both) = (DifferenceKind::Changed(changes), (Some(ino), Some(ino)));
            self.tell((path.to_owned(), &core), kind, both);
        }
        Ok(())
    }

    /// Adds a difference; `core` is what has the path.
    fn tell(
        &mut self,
        (path, core): (PathBuf, &InodeCore),
        kind: DifferenceKind,
        (old, new): (Option<u64>, Option<u64>),
    ) {
        let size = if core.is_directory() { 0 } else { core.size };
        let difference = Difference { path, kind, mode: core.mode, size };
        self.found.push(Told { difference, old, new });
    }
}

#[cfg(test)]
mod tests;
