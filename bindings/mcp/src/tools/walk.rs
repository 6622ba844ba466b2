//! Walks in a fixed order, which can go on where another one has ended.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vfscale::{Errno, Result};

use crate::tree::{Kind, Stat, Tree};

/// Visits the files below a directory, each directory before what is in it, and names by their
/// bytes. `after` is the last file that an earlier walk has visited, as names below `dir`. `depth`
/// is the number of directories to go down. Ends when `visit` returns false; returns whether it did
/// not. Files that are removed meanwhile are left out.
pub(crate) fn walk(
    tree: &dyn Tree,
    dir: &Path,
    depth: u64,
    after: &[OsString],
    visit: &mut dyn FnMut(PathBuf, Stat) -> Result<bool>,
) -> Result<bool> {
    let mut names = tree.names(dir)?;
    names.sort_unstable();
    let (first, rest) = match after {
        [first, rest @ ..] => (Some(first), rest),
        [] => (None, after),
    };
    for name in names {
        if first.is_some_and(|first| name < *first) {
            continue;
        }
        let is_visited = first.is_some_and(|first| name == *first);
        let path = dir.join(&name);
        let found = match tree.stat(&path, false) {
            Err(error) if error.errno() == Errno::NOENT => continue,
            found => found?,
        };
        if !is_visited && !visit(path.clone(), found)? {
            return Ok(false);
        }
        if found.kind != Kind::Directory || depth <= 1 {
            continue;
        }
        let rest = if is_visited { rest } else { &[] };
        match walk(tree, &path, depth - 1, rest, visit) {
            Ok(true) => {}
            Err(error) if error.errno() == Errno::NOENT => {}
            ended => return ended,
        }
    }
    Ok(true)
}

/// Returns the names of a path below a directory; none if it is not below it.
pub(crate) fn names_below(dir: &Path, path: &Path) -> Vec<OsString> {
    let below = path.strip_prefix(dir).unwrap_or(Path::new(""));
    below.components().map(|part| part.as_os_str().to_owned()).collect()
}
