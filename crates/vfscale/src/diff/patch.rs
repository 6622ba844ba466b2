//! Differences as a patch that git(1) and patch(1) apply.
//!
//! A patch has files and links by their paths. Of a directory that was moved, all files are renamed
//! that it still has. What a patch can't tell is named in a line that begins with `#`, which both
//! programs skip.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vfscale_diskfs::InodeCore;
use vfscale_vfs::Escaped;

use super::compare::{changes, contents};
use super::difference::{DifferenceKind, Told};
use super::object::is_same;
use super::side::Side;
use super::text::{TEXT_MAX, is_text, unified};
use crate::error::pool::PoolError;

/// A file of one side.
struct File<'s> {
    side: &'s Side,
    path: PathBuf,
    ino: u64,
    core: InodeCore,
}

/// A patch that is being made.
struct Patch<'p> {
    a: &'p Side,
    b: &'p Side,
    is_wanted: &'p dyn Fn(&Path) -> bool,
    each: &'p mut dyn FnMut(&[u8]) -> bool,
    /// The new paths of files that were moved.
    moved: HashSet<PathBuf>,
    count: u64,
    is_over: bool,
}

/// Calls `each` with the parts of the patch that makes `b` of `a`, until that returns false. Only
/// files are told one of whose paths `is_wanted`. Returns the number of parts.
///
/// # Errors
/// [`PoolError::Damage`] and errors of reading.
pub(super) fn patch(
    (a, b): (&Side, &Side),
    found: &[Told],
    is_wanted: &dyn Fn(&Path) -> bool,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<u64, PoolError> {
    let (moved, count, is_over) = Default::default();
    let mut patch = Patch { a, b, is_wanted, each, moved, count, is_over };
    for told in found {
        if patch.is_over {
            break;
        }
        patch.told(told)?;
    }
    Ok(patch.count)
}

impl<'p> Patch<'p> {
    fn told(&mut self, told: &Told) -> Result<(), PoolError> {
        let path = &told.difference.path;
        let from = match &told.difference.kind {
            DifferenceKind::Changed(_) if self.moved.contains(path) => return Ok(()),
            DifferenceKind::Moved { from } => from,
            _ => path,
        };
        let file = |side: &'p Side, path: &Path, ino| -> Result<File<'p>, PoolError> {
            Ok(File { side, path: path.to_owned(), ino, core: side.inode(ino, path)? })
        };
        let old = told.old.map(|ino| file(self.a, from, ino)).transpose()?;
        let new = told.new.map(|ino| file(self.b, path, ino)).transpose()?;
        match (old, new) {
            (Some(old), Some(new)) if from != path => self.moved(old, new),
            (old, new) => self.file(old.as_ref(), new.as_ref()),
        }
    }

    /// Tells of a file that was moved, or of those in a directory.
    fn moved(&mut self, old: File<'p>, new: File<'p>) -> Result<(), PoolError> {
        let mut pairs = vec![(old, new)];
        while let Some((old, new)) = pairs.pop() {
            if !new.core.is_directory() {
                self.moved.insert(new.path.clone());
                self.file(Some(&old), Some(&new))?;
                continue;
            }
            self.file(Some(&old), Some(&new))?;
            let mut before = old.side.names(old.ino, &old.core, &old.path)?;
            let mut after = new.side.names(new.ino, &new.core, &new.path)?;
            before.sort_by(|one, other| one.name.cmp(&other.name));
            after.sort_by(|one, other| other.name.cmp(&one.name));
            for name in after {
                let at = before.binary_search_by(|it| it.name.cmp(&name.name));
                let Some(former) = at.ok().map(|at| &before[at]).filter(|it| it.ino == name.ino)
                else {
                    continue;
                };
                let of = |dir: &File<'p>| -> Result<File<'p>, PoolError> {
                    let path = dir.path.join(OsStr::from_bytes(&former.name));
                    let core = dir.side.inode(former.ino, &path)?;
                    Ok(File { side: dir.side, path, ino: former.ino, core })
                };
                let pair = (of(&old)?, of(&new)?);
                if is_same(name.ino, &pair.0.core, &pair.1.core) {
                    pairs.push(pair);
                }
            }
        }
        Ok(())
    }

    /// Tells of a file that was added, removed or changed, if it is wanted.
    fn file(&mut self, old: Option<&File<'_>>, new: Option<&File<'_>>) -> Result<(), PoolError> {
        let mut paths = [old, new].into_iter().flatten().map(|file| &file.path);
        if !self.is_over && paths.any(|path| (self.is_wanted)(path)) {
            self.is_over = !(self.each)(&text_of(old, new)?);
            self.count += 1;
        }
        Ok(())
    }
}

/// Returns the patch of a file that was added, removed or changed.
fn text_of(old: Option<&File<'_>>, new: Option<&File<'_>>) -> Result<Vec<u8>, PoolError> {
    match (old, new) {
        (Some(old), Some(new)) if old.mode().zip(new.mode()).is_some_and(is_one_type) => {
            changed(old, new)
        }
        (Some(old), Some(new)) if old.mode().or(new.mode()).is_none() => {
            let is_moved = old.path != new.path;
            let to =
                if is_moved { format!(" to {}", Escaped::new(&new.path)) } else { String::new() };
            let what = if is_moved { "moved" } else { "changed" };
            Ok(note(&old.path, what, &format!("{to}{}", new.unfit())))
        }
        (old, new) => {
            let gone = old.map(|old| whole(old, false)).transpose()?.unwrap_or_default();
            let come = new.map(|new| whole(new, true)).transpose()?.unwrap_or_default();
            Ok([gone, come].concat())
        }
    }
}

impl File<'_> {
    /// Returns type and permissions, as a patch has them; `None` for what it can't have.
    fn mode(&self) -> Option<u32> {
        match (self.core.is_regular(), self.core.is_link(), self.core.mode & 0o100) {
            (true, _, 0) => Some(0o100_644),
            (true, ..) => Some(0o100_755),
            (_, true, _) => Some(0o120_000),
            _ => None,
        }
    }

    /// Says why a patch can't have this file, whatever its contents are.
    fn unfit(&self) -> &'static str {
        if self.core.is_directory() { ": a directory" } else { ": no file of a patch" }
    }

    /// Returns the contents, if they are a text; or why they are none.
    fn text(&self) -> Result<Result<Vec<u8>, &'static str>, PoolError> {
        let Self { side, path, ino, core } = self;
        if core.is_link() {
            return Ok(Ok(side.target(*ino, core, path)?));
        }
        if core.size > TEXT_MAX {
            return Ok(Err(": larger than 4 MiB"));
        }
        let bytes = contents(side, *ino, core, path)?;
        Ok(if is_text(&bytes) { Ok(bytes) } else { Err(": binary") })
    }
}

fn is_one_type((one, other): (u32, u32)) -> bool {
    one & 0o170_000 == other & 0o170_000
}

/// Returns a line about what a patch can't tell.
fn note(path: &Path, what: &str, why: &str) -> Vec<u8> {
    format!("# {what} {}{why}\n", Escaped::new(path)).into_bytes()
}

/// Returns the patch of a file that has come or gone.
fn whole(file: &File<'_>, is_new: bool) -> Result<Vec<u8>, PoolError> {
    let what = if is_new { "added" } else { "removed" };
    let Some(mode) = file.mode() else {
        return Ok(note(&file.path, what, file.unfit()));
    };
    let text = match file.text()? {
        Ok(text) => text,
        Err(why) => return Ok(note(&file.path, what, why)),
    };
    let [old, new] = ["a", "b"].map(|root| named(root, &file.path));
    let mut out = [b"diff --git ", &old[..], b" ", &new, b"\n"].concat();
    let kind = if is_new { "new" } else { "deleted" };
    out.extend_from_slice(format!("{kind} file mode {mode:o}\n").as_bytes());
    if is_new {
        lines(&mut out, (b"/dev/null", &new), (b"", &text));
    } else {
        lines(&mut out, (&old, b"/dev/null"), (&text, b""));
    }
    Ok(out)
}

/// Returns the patch of a file that both sides have, of one type.
fn changed(old: &File<'_>, new: &File<'_>) -> Result<Vec<u8>, PoolError> {
    let (one, other) = ((old.side, old.ino, &old.core), (new.side, new.ino, &new.core));
    let mut texts = (Vec::new(), Vec::new());
    let mut out = Vec::new();
    if changes(one, other, &new.path)?.content {
        match (old.text()?, new.text()?) {
            (Ok(one), Ok(other)) => texts = (one, other),
            (Err(why), _) | (_, Err(why)) => out = note(&new.path, "changed", why),
        }
    }
    let is_moved = old.path != new.path;
    if old.mode() == new.mode() && !is_moved && texts.0 == texts.1 {
        let is_told = !out.is_empty();
        return Ok(if is_told { out } else { note(&new.path, "changed", ": its attributes") });
    }
    let (was, is) = (named("a", &old.path), named("b", &new.path));
    out.extend_from_slice(&[b"diff --git ", &was[..], b" ", &is, b"\n"].concat());
    if let (Some(before), Some(after)) = (old.mode(), new.mode())
        && before != after
    {
        out.extend_from_slice(format!("old mode {before:o}\nnew mode {after:o}\n").as_bytes());
    }
    if is_moved {
        for (word, path) in [("from", &old.path), ("to", &new.path)] {
            let path = named("", path);
            out.extend_from_slice(&[b"rename ", word.as_bytes(), b" ", &path, b"\n"].concat());
        }
    }
    lines(&mut out, (&was, &is), (&texts.0, &texts.1));
    Ok(out)
}

/// Appends the names of both versions and the lines that differ, if there are any.
fn lines(out: &mut Vec<u8>, names: (&[u8], &[u8]), (before, after): (&[u8], &[u8])) {
    if before == after {
        return;
    }
    for (sign, name) in [(b"--- ", names.0), (b"+++ ", names.1)] {
        // A tab ends a name with spaces.
        let end: &[u8] = if name.contains(&b' ') { b"\t\n" } else { b"\n" };
        out.extend_from_slice(&[sign, name, end].concat());
    }
    unified(before, after, out);
}

/// Returns a path below `root`, quoted as git quotes.
fn named(root: &str, path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    let path = path.strip_prefix(b"/").filter(|_| root.is_empty()).unwrap_or(path);
    let name = [root.as_bytes(), path].concat();
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if name.iter().all(is_plain) {
        return name;
    }
    let mut quoted = vec![b'"'];
    for byte in name {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', byte]),
            byte if is_plain(&byte) => quoted.push(byte),
            byte => quoted.extend(format!("\\{byte:03o}").into_bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}
