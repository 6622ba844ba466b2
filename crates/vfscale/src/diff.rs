//! The differences between two branches.
//!
//! Both trees are walked side by side, directory by directory, with a stack of its own. A file that
//! has the same name in both is compared by its inode, its attributes and its contents. Contents
//! are read only where the pool says that the branches do not share the blocks. Names that only one
//! side has are matched at the end by inode number and generation: a file that has come elsewhere
//! was moved.
//!
//! Memory: the differences, the largest directory, and what is below directories that have gone or
//! come. No times are relied on.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vfscale_diskfs::{InodeCore, ROOT_INO};

use crate::error::pool::PoolError;
pub use compare::Changes;
use side::Side;

pub(crate) mod compare;
pub(crate) mod side;

/// A difference between two branches, by its path from the root of the volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The path in the second branch; of what is removed, the one in the first.
    pub path: PathBuf,
    /// The kind.
    pub kind: DifferenceKind,
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
    let (lost, known, found) = (HashMap::new(), HashMap::new(), Vec::new());
    let mut diff = Diff { a, b, lost, known, found };
    diff.walk()?;
    diff.moves()?;
    let mut found = diff.found;
    found.sort();
    Ok(replaced(found))
}

/// Makes one difference of a file that has come and another that has gone at the same path, which
/// are next to each other.
fn replaced(found: Vec<Difference>) -> Vec<Difference> {
    let mut told: Vec<Difference> = Vec::with_capacity(found.len());
    for difference in found {
        match told.last_mut() {
            Some(Difference { path, kind: kind @ DifferenceKind::Added })
                if difference.kind == DifferenceKind::Removed && *path == difference.path =>
            {
                *kind = DifferenceKind::Replaced;
            }
            _ => told.push(difference),
        }
    }
    told
}

impl Diff<'_> {
    /// Compares what has the same path in both branches, and collects the rest.
    fn walk(&mut self) -> Result<(), PoolError> {
        let root = PathBuf::from("/");
        let (one, other) = (self.a.inode(ROOT_INO, &root)?, self.b.inode(ROOT_INO, &root)?);
        self.same(ROOT_INO, (&one, &other), &root)?;
        let mut stack = vec![(root, ROOT_INO, one, other)];
        while let Some((path, ino, one, other)) = stack.pop() {
            let before = self.a.names(ino, &one, &path)?;
            let mut after: HashMap<_, _> =
                self.b.names(ino, &other, &path)?.into_iter().map(|it| (it.name, it.ino)).collect();
            for name in before {
                let path = path.join(OsStr::from_bytes(&name.name));
                let core = self.a.inode(name.ino, &path)?;
                let Some(ino) = after.remove(&name.name) else {
                    self.lose(self.a, path, name.ino, core)?;
                    continue;
                };
                let new = self.b.inode(ino, &path)?;
                if object(ino, &new) != object(name.ino, &core) {
                    self.lose(self.a, path.clone(), name.ino, core)?;
                    self.lose(self.b, path, ino, new)?;
                    continue;
                }
                self.same(ino, (&core, &new), &path)?;
                if core.is_directory() {
                    stack.push((path, ino, core, new));
                }
            }
            for (name, ino) in after {
                let path = path.join(OsStr::from_bytes(&name));
                let core = self.b.inode(ino, &path)?;
                self.lose(self.b, path, ino, core)?;
            }
        }
        Ok(())
    }

    /// Notes a path that only one side has, with all that is below it.
    fn lose(
        &mut self,
        side: &Side,
        path: PathBuf,
        ino: u64,
        core: InodeCore,
    ) -> Result<(), PoolError> {
        let is_old = std::ptr::eq(side, self.a);
        let mut stack = vec![(path, ino, core)];
        while let Some((path, ino, core)) = stack.pop() {
            if core.is_directory() {
                for name in side.names(ino, &core, &path)? {
                    let path = path.join(OsStr::from_bytes(&name.name));
                    let core = side.inode(name.ino, &path)?;
                    stack.push((path, name.ino, core));
                }
            }
            let paths = self.lost.entry(object(ino, &core)).or_default();
            if is_old { &mut paths.gone } else { &mut paths.come }.push(path);
        }
        Ok(())
    }

    /// Tells what was moved, added and removed.
    fn moves(&mut self) -> Result<(), PoolError> {
        let mut pairs = Vec::new();
        // Where directories that were moved are now.
        let mut now = HashMap::new();
        for (object, mut paths) in std::mem::take(&mut self.lost) {
            paths.gone.sort();
            paths.come.sort();
            let both = paths.gone.len().min(paths.come.len());
            let only = |path, kind| Difference { path, kind };
            let removed = paths.gone.drain(both..).map(|path| only(path, DifferenceKind::Removed));
            self.found.extend(removed);
            let added = paths.come.drain(both..).map(|path| only(path, DifferenceKind::Added));
            self.found.extend(added);
            for (from, path) in paths.gone.into_iter().zip(paths.come) {
                now.insert(from.clone(), path.clone());
                pairs.push((object.0, from, path));
            }
        }
        for (ino, from, path) in pairs {
            let (one, other) = (self.a.inode(ino, &from)?, self.b.inode(ino, &path)?);
            self.same(ino, (&one, &other), &path)?;
            let is_implied = from.file_name() == path.file_name()
                && from.parent().and_then(|parent| now.get(parent)).map(PathBuf::as_path)
                    == path.parent();
            if !is_implied {
                self.found.push(Difference { path, kind: DifferenceKind::Moved { from } });
            }
        }
        Ok(())
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
            None => compare::changes((self.a, one), (self.b, other), ino, path)?,
        };
        if one.nlink > 1 && !one.is_directory() {
            self.known.insert(object, changes);
        }
        if changes.any() {
            let kind = DifferenceKind::Changed(changes);
            self.found.push(Difference { path: path.to_owned(), kind });
        }
        Ok(())
    }
}
