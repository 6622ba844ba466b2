//! Paths of two calls, up to renaming.

use std::fmt;

/// Number of names in a directory that a case may use.
const NAMES: u8 = 4;

/// A path, up to renaming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SymbolicPath {
    /// A name in the root: `e`.
    Top,
    /// A directory in the root: `d0` or `d1`.
    Dir(u8),
    /// A name in a directory: `d0/a`.
    Name(u8, u8),
    /// The name `x` in the directory at such a name: `d0/a/x`.
    Child(u8, u8),
}

impl SymbolicPath {
    /// Returns the name whose occupant the path depends on; `None` for a directory.
    pub(super) fn leaf(self) -> Option<SymbolicPath> {
        match self {
            SymbolicPath::Dir(_) => None,
            SymbolicPath::Child(dir, name) => Some(SymbolicPath::Name(dir, name)),
            leaf => Some(leaf),
        }
    }

    /// Returns the directory that the path is, or is in; `None` for the root.
    pub(super) fn dir(self) -> Option<u8> {
        match self {
            SymbolicPath::Top => None,
            SymbolicPath::Dir(dir) | SymbolicPath::Name(dir, _) | SymbolicPath::Child(dir, _) => {
                Some(dir)
            }
        }
    }
}

impl fmt::Display for SymbolicPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |name: u8| char::from(b'a' + name);
        match *self {
            SymbolicPath::Top => f.write_str("e"),
            SymbolicPath::Dir(dir) => write!(f, "d{dir}"),
            SymbolicPath::Name(dir, name) => write!(f, "d{dir}/{}", letter(name)),
            SymbolicPath::Child(dir, name) => write!(f, "d{dir}/{}/x", letter(name)),
        }
    }
}

/// Returns all sequences of `count` paths that differ in which paths or directories are equal.
/// Directories and names are numbered by appearance, so no two sequences differ by renaming only.
pub(super) fn sequences(count: usize) -> Vec<Vec<SymbolicPath>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        let longer = |spots: &Vec<SymbolicPath>| -> Vec<Vec<SymbolicPath>> {
            next(spots).into_iter().map(|spot| [spots.as_slice(), &[spot]].concat()).collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Returns the paths that may follow `spots`: those named before, and the first new one.
fn next(spots: &[SymbolicPath]) -> Vec<SymbolicPath> {
    let dirs = dirs(spots);
    let mut found = vec![SymbolicPath::Top];
    for dir in 0..(dirs + 1).min(2) {
        let names = (0..NAMES).take_while(|name| spots.iter().any(|s| names_it(*s, dir, *name)));
        let names = names.count() as u8;
        found.push(SymbolicPath::Dir(dir));
        for name in 0..(names + 1).min(NAMES) {
            // Listed twice: most random cases should be about such names.
            found.extend([
                SymbolicPath::Name(dir, name),
                SymbolicPath::Name(dir, name),
                SymbolicPath::Child(dir, name),
            ]);
        }
    }
    found
}

fn names_it(spot: SymbolicPath, dir: u8, name: u8) -> bool {
    spot.leaf() == Some(SymbolicPath::Name(dir, name))
}

/// Returns the number of directories that some paths use.
pub(super) fn dirs(spots: &[SymbolicPath]) -> u8 {
    spots.iter().filter_map(|spot| spot.dir()).map(|dir| dir + 1).max().unwrap_or(0)
}

/// Returns the names that some paths depend on, without duplicates, in order of appearance.
pub(super) fn leaves(spots: &[SymbolicPath]) -> Vec<SymbolicPath> {
    let mut found = Vec::new();
    for leaf in spots.iter().filter_map(|spot| spot.leaf()) {
        if !found.contains(&leaf) {
            found.push(leaf);
        }
    }
    found
}

#[cfg(test)]
mod tests;
