//! The differences between two branches.
//!
//! The pool tells the blocks that the branches do not share. They lead to the inodes that may
//! differ ([`candidates`]), and these to the names that do ([`names`]). So the time is that of the
//! difference, but for the path of a file that was changed and not renamed: the directories near it
//! are searched for its name, which is where files are made.
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
//! gone or come. No times are relied on.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use vfscale_diskfs::{FileKind, InodeCore};

use crate::error::pool::PoolError;
pub use compare::Changes;
use side::Side;

mod candidates;
pub(crate) mod compare;
mod names;
mod near;
pub(crate) mod side;
mod tree;
mod walk;

/// A difference between two branches, by its path from the root of the volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The path in the second branch; of what is removed, the one in the first.
    pub path: PathBuf,
    /// The kind.
    pub kind: DifferenceKind,
    /// Type and permission bits of what `path` is in that branch, as in `st_mode`.
    pub mode: u32,
    /// Its length in bytes; 0 of a directory.
    pub size: u64,
}

/// The kind of a [`Difference`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DifferenceKind {
    /// Only the second branch has it.
    Added,
    /// The second branch does not have it.
    Removed,
    /// The two branches have different files there, of which the other one has neither at another
    /// path: for example one that a program has written anew and renamed to this name.
    Replaced,
    /// The first branch has it at another path. What is below a directory that was moved is not
    /// told, unless it was moved by itself.
    Moved {
        /// The path in the first branch.
        from: PathBuf,
    },
    /// The two branches have different versions of it.
    Changed(Changes),
}

/// Number, generation and type: they tell whether two inodes are the same one.
type Object = (u64, u32, u32);

fn object(ino: u64, core: &InodeCore) -> Object {
    (ino, core.generation, core.file_type())
}

/// Returns whether two inodes with one number are the same one.
pub(crate) fn is_same(ino: u64, one: &InodeCore, other: &InodeCore) -> bool {
    object(ino, one) == object(ino, other)
}

fn is_directory(file_type: u32) -> bool {
    FileKind::of_mode(file_type) == Some(FileKind::Directory)
}

/// The paths of an inode that only one branch has.
#[derive(Debug, Default)]
struct Paths {
    gone: Vec<PathBuf>,
    come: Vec<PathBuf>,
}

/// A comparison that is under way.
struct Diff<'d> {
    a: &'d Side,
    b: &'d Side,
    lost: HashMap<Object, Paths>,
    /// The results for files with several names.
    known: HashMap<Object, Changes>,
    found: Vec<Difference>,
}

/// Compares two branches. Returns the differences, by path.
///
/// # Errors
/// [`PoolError::Damage`] and errors of reading.
pub(crate) fn diff(a: &Side, b: &Side) -> Result<Vec<Difference>, PoolError> {
    let mut diff = Diff::new(a, b);
    if diff.by_blocks().is_err() {
        diff = Diff::new(a, b);
        diff.walk()?;
    }
    diff.told()
}

/// Makes one difference of a file that has come and another that has gone at the same path, which
/// are next to each other.
fn replaced(found: Vec<Difference>) -> Vec<Difference> {
    let mut told: Vec<Difference> = Vec::with_capacity(found.len());
    for difference in found {
        match told.last_mut() {
            Some(Difference { path, kind: kind @ DifferenceKind::Added, .. })
                if difference.kind == DifferenceKind::Removed && *path == difference.path =>
            {
                *kind = DifferenceKind::Replaced;
            }
            _ => told.push(difference),
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
    fn new(a: &'d Side, b: &'d Side) -> Self {
        Self { a, b, lost: HashMap::new(), known: HashMap::new(), found: Vec::new() }
    }

    /// Returns the differences, when all that may differ was looked at.
    fn told(mut self) -> Result<Vec<Difference>, PoolError> {
        self.moves()?;
        self.found.sort();
        Ok(replaced(self.found))
    }

    /// Tells what was moved, added and removed.
    fn moves(&mut self) -> Result<(), PoolError> {
        let mut lost: Vec<(Object, Paths)> = std::mem::take(&mut self.lost).into_iter().collect();
        for (_, paths) in &mut lost {
            paths.gone.sort();
            paths.come.sort();
        }
        // Where directories that were moved are now; each has one path.
        let moved = lost.iter().filter_map(|((.., kind), paths)| {
            let (from, path) = (paths.gone.first()?, paths.come.first()?);
            is_directory(*kind).then(|| (from.clone(), path.clone()))
        });
        let now: HashMap<PathBuf, PathBuf> = moved.collect();
        for (object, paths) in lost {
            self.moved(object, paths, &now)?;
        }
        Ok(())
    }

    /// Tells what has become of the paths of one inode. `now` says where directories are that were
    /// moved.
    fn moved(
        &mut self,
        object: Object,
        Paths { mut gone, mut come }: Paths,
        now: &HashMap<PathBuf, PathBuf>,
    ) -> Result<(), PoolError> {
        // Names that have moved with their directory, and those that others have made again.
        let with_parent = |from: &Path| Some(now.get(from.parent()?)?.join(from.file_name()?));
        let mut stay = paired(&mut gone, &mut come, with_parent);
        stay.extend(paired(&mut gone, &mut come, |from| Some(from.to_owned())));
        let both = gone.len().min(come.len());
        for path in gone.drain(both..) {
            let core = self.a.inode(object.0, &path)?;
            self.tell(path, DifferenceKind::Removed, &core);
        }
        for path in come.drain(both..) {
            let core = self.b.inode(object.0, &path)?;
            self.tell(path, DifferenceKind::Added, &core);
        }
        let moves = gone.into_iter().zip(come).collect::<Vec<_>>();
        for (from, path) in stay.iter().chain(&moves) {
            let (one, other) = (self.a.inode(object.0, from)?, self.b.inode(object.0, path)?);
            self.same(object.0, (&one, &other), path)?;
        }
        for (from, path) in moves {
            let core = self.b.inode(object.0, &path)?;
            self.tell(path, DifferenceKind::Moved { from }, &core);
        }
        Ok(())
    }

    /// Adds a difference; `core` is what has the path.
    fn tell(&mut self, path: PathBuf, kind: DifferenceKind, core: &InodeCore) {
        let size = if core.is_directory() { 0 } else { core.size };
        self.found.push(Difference { path, kind, mode: core.mode, size });
    }

    /// Compares an inode that both branches have, at `path` in the second one.
    fn same(
        &mut self,
        ino: u64,
        (one, other): (&InodeCore, &InodeCore),
        path: &Path,
    ) -> Result<(), PoolError> {
        let object = object(ino, other);
        let changes = match self.known.get(&object) {
            Some(changes) => *changes,
            None => compare::changes((self.a, ino, one), (self.b, ino, other), path)?,
        };
        if one.nlink > 1 && !one.is_directory() {
            self.known.insert(object, changes);
        }
        if changes.any() {
            self.tell(path.to_owned(), DifferenceKind::Changed(changes), other);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
