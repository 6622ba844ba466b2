//! Merging what is in one object: contents, attributes and extended attributes, each by itself.

use std::collections::BTreeMap;
use std::path::Path;

use vfscale_diskfs::InodeCore;
use vfscale_vfs::InodeFlags;

use super::report::{ConflictKind, Strategy};
use super::text;
use crate::diff::compare::{changes, contents};
use crate::diff::side::Side;
use crate::diff::text::{TEXT_MAX, is_text};
use crate::error::pool::PoolError;

/// Contents that an object gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Content {
    /// INTO's.
    #[default]
    Kept,
    /// FROM's.
    Theirs,
    /// A merged text.
    Text(Vec<u8>),
}

/// The changes of an object of INTO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) content: Content,
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) flags: Option<InodeFlags>,
    pub(super) mtime: Option<i64>,
    /// Extended attributes; `None` for those that go.
    pub(super) xattrs: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Update {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The change of an object, and what both sides have changed.
#[derive(Default)]
pub(super) struct Change {
    pub(super) update: Update,
    pub(super) conflicts: Vec<ConflictKind>,
}

/// Merges a value that is equal on both sides, or was changed by one of them. Returns what INTO has
/// to take, or that both have changed it.
fn three<T: PartialEq + Clone>(base: Option<&T>, one: &T, other: &T) -> Result<Option<T>, ()> {
    if one == other || base == Some(other) {
        Ok(None)
    } else if base == Some(one) {
        Ok(Some(other.clone()))
    } else {
        Err(())
    }
}

/// Merges an object that both sides have, by its numbers in the base and in both.
///
/// # Errors
/// [`PoolError::Damage`] and errors of reading.
pub(super) fn merge(
    base: Option<(&Side, u64)>,
    (into, ino): (&Side, u64),
    (from, other): (&Side, u64),
    strategy: Strategy,
) -> Result<Change, PoolError> {
    let path = Path::new("/");
    let before = base.map(|(side, ino)| side.inode(ino, path)).transpose()?;
    let (one, two) = (into.inode(ino, path)?, from.inode(other, path)?);
    let base = base.zip(before.as_ref());
    let base = base.map(|((side, ino), core)| (side, ino, core));
    let mut change = Change::default();
    let mut is_merged = false;
    if one.is_regular() {
        match content(base, (into, ino, &one), (from, other, &two))? {
            Some(content) => {
                is_merged = matches!(content, Content::Text(_));
                change.update.content = content;
            }
            None => {
                change.conflicts.push(ConflictKind::Content);
                if strategy == Strategy::Theirs {
                    change.update.content = Content::Theirs;
                }
            }
        }
    }
    attributes(before.as_ref(), &one, &two, strategy, &mut change);
    change.update.mtime = if change.conflicts.contains(&ConflictKind::Content) {
        // The time is that of the contents that stay.
        let is_theirs = change.update.content == Content::Theirs && two.mtime != one.mtime;
        is_theirs.then_some(two.mtime)
    } else {
        mtime(before.as_ref().filter(|_| !is_merged), &one, &two)
    };
    let before = base.map(|(side, ino, core)| xattrs(side, ino, core)).transpose()?;
    let (one, two) = (xattrs(into, ino, &one)?, xattrs(from, other, &two)?);
    merge_xattrs(&before.unwrap_or_default(), &one, &two, strategy, &mut change);
    Ok(change)
}

type File<'c> = (&'c Side, u64, &'c InodeCore);

fn differ(one: File<'_>, other: File<'_>) -> Result<bool, PoolError> {
    changes(one, other, Path::new("/")).map(|changes| changes.content)
}

/// Returns the contents that INTO's file gets, or `None` for a conflict.
fn content(
    base: Option<File<'_>>,
    one: File<'_>,
    other: File<'_>,
) -> Result<Option<Content>, PoolError> {
    if !differ(one, other)? {
        return Ok(Some(Content::Kept));
    }
    let Some(base) = base else { return Ok(None) };
    if !differ(base, other)? {
        return Ok(Some(Content::Kept));
    }
    if !differ(base, one)? {
        return Ok(Some(Content::Theirs));
    }
    if [base, one, other].iter().any(|(.., core)| core.size > TEXT_MAX) {
        return Ok(None);
    }
    let read = |(side, ino, core)| contents(side, ino, core, Path::new("/"));
    let [before, ours, theirs] = [read(base)?, read(one)?, read(other)?];
    if ![&before, &ours, &theirs].into_iter().all(|bytes| is_text(bytes)) {
        return Ok(None);
    }
    Ok(text::merge(&before, &ours, &theirs).map(|merged| match merged == ours {
        true => Content::Kept,
        false => Content::Text(merged),
    }))
}

fn attributes(
    base: Option<&InodeCore>,
    one: &InodeCore,
    other: &InodeCore,
    strategy: Strategy,
    change: &mut Change,
) {
    let mut is_conflict = false;
    let mut value = |of: fn(&InodeCore) -> u32| {
        let base = base.map(of);
        three(base.as_ref(), &of(one), &of(other)).unwrap_or_else(|()| {
            is_conflict = true;
            (strategy == Strategy::Theirs).then(|| of(other))
        })
    };
    // A link has no permissions of its own.
    let is_link = one.is_link();
    change.update.mode = value(|core| core.mode & 0o7777).filter(|_| !is_link);
    change.update.uid = value(|core| core.uid);
    change.update.gid = value(|core| core.gid);
    let flags = value(|core| core.inode_flags().bits());
    change.update.flags = flags.map(InodeFlags::from_bits_truncate);
    if is_conflict {
        change.conflicts.push(ConflictKind::Attributes);
    }
}

/// Returns the time of the last change, if it is another one than INTO has: that of the side that
/// has changed it, or else the later one.
pub(super) fn mtime(base: Option<&InodeCore>, one: &InodeCore, other: &InodeCore) -> Option<i64> {
    let time = match base.map(|base| base.mtime) {
        Some(base) if base == one.mtime => other.mtime,
        Some(base) if base == other.mtime => one.mtime,
        _ => one.mtime.max(other.mtime),
    };
    (time != one.mtime).then_some(time)
}

type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns the extended attributes of an inode, by name.
pub(super) fn xattrs(side: &Side, ino: u64, core: &InodeCore) -> Result<Xattrs, PoolError> {
    let attributes = side.xattrs(ino, core, Path::new("/"))?;
    Ok(attributes.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
}

fn merge_xattrs(
    base: &Xattrs,
    one: &Xattrs,
    other: &Xattrs,
    strategy: Strategy,
    change: &mut Change,
) {
    let mut is_conflict = false;
    let names: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
    for name in names {
        let [base, one, other] = [base, one, other].map(|it| it.get(name).cloned());
        match three(Some(&base), &one, &other) {
            Ok(None) => {}
            Ok(Some(value)) => {
                change.update.xattrs.insert(name.clone(), value);
            }
            Err(()) => {
                is_conflict = true;
                if strategy == Strategy::Theirs {
                    change.update.xattrs.insert(name.clone(), other);
                }
            }
        }
    }
    if is_conflict {
        change.conflicts.push(ConflictKind::Xattrs);
    }
}

/// Returns whether two files have the same type and contents.
pub(super) fn is_copy(
    (into, ino): (&Side, u64),
    (from, other): (&Side, u64),
) -> Result<bool, PoolError> {
    let path = Path::new("/");
    let (one, two) = (into.inode(ino, path)?, from.inode(other, path)?);
    let is_kind = one.file_type() == two.file_type() && !one.is_directory();
    Ok(is_kind && !differ((into, ino, &one), (from, other, &two))?)
}
