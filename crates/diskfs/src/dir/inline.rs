//! Entries in an inode.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use zerocopy::{FromBytes, IntoBytes};

use super::entry::{DirEntry, damage, is_name};
use crate::format::Damage;
use crate::format::damage::DirFault;
use crate::format::dir::{ENTRY_BYTES, POSITION_MAX, POSITION_MIN, RawEntry};
use crate::inode::core::{DataFork, FileKind};

/// Returns the bytes of the entries.
pub(super) fn bytes(data: &DataFork) -> &[u8] {
    match data {
        DataFork::Inline(bytes) => bytes,
        _ => &[],
    }
}

/// Iterates over the entries in order, each with its bytes. Ends after an error.
pub(super) fn entries(ino: u64, bytes: &[u8]) -> Entries<'_> {
    Entries { ino, bytes, at: 0, behind: POSITION_MIN - 1 }
}

pub(super) struct Entries<'a> {
    ino: u64,
    bytes: &'a [u8],
    at: usize,
    /// The position of the entry before.
    behind: u64,
}

impl<'a> Entries<'a> {
    fn entry(&mut self) -> Result<(Range<usize>, DirEntry<'a>), Damage> {
        let ino = self.ino;
        let fault = |position, fault| damage(ino, position, fault);
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let cut = fault(self.behind, DirFault::Cut);
        let (raw, rest) = RawEntry::read_from_prefix(rest).map_err(|_| cut)?;
        let position = raw.position.get();
        if position <= self.behind || position > POSITION_MAX {
            return Err(fault(position, DirFault::Position));
        }
        let name =
            rest.get(..raw.name_bytes.into()).ok_or_else(|| fault(position, DirFault::Cut))?;
        if !is_name(name) {
            return Err(fault(position, DirFault::Name));
        }
        let kind = FileKind::of_raw(raw.kind);
        let kind = kind.ok_or_else(|| fault(position, DirFault::Type { kind: raw.kind }))?;
        let end = self.at + ENTRY_BYTES + name.len();
        self.behind = position;
        let range = self.at..end;
        self.at = end;
        Ok((range, DirEntry { position, ino: raw.ino.get(), kind, name }))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(Range<usize>, DirEntry<'a>), Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.at = self.bytes.len();
        }
        Some(entry)
    }
}

/// Returns the entries with one more, unless they exceed `room` bytes.
pub(super) fn inserted(
    ino: u64,
    bytes: &[u8],
    entry: &DirEntry<'_>,
    room: usize,
) -> Result<Option<Arc<[u8]>>, Damage> {
    let raw = raw(entry);
    if bytes.len() + raw.as_bytes().len() + entry.name.len() > room {
        return Ok(None);
    }
    let mut at = bytes.len();
    for other in entries(ino, bytes) {
        let (range, other) = other?;
        if other.position > entry.position {
            at = range.start;
            break;
        }
    }
    let (before, behind) = bytes.split_at(at);
    Ok(Some(joined(&[before, raw.as_bytes(), entry.name, behind])))
}

/// Returns the entries without the one at `position`.
pub(super) fn removed(ino: u64, bytes: &[u8], position: u64) -> Result<Arc<[u8]>, Damage> {
    let range = range(ino, bytes, position)?;
    Ok(joined(&[&bytes[..range.start], &bytes[range.end..]]))
}

/// Returns the entries with `entry` in place of the one with the same position and name.
pub(super) fn replaced(ino: u64, bytes: &[u8], entry: &DirEntry<'_>) -> Result<Arc<[u8]>, Damage> {
    let range = range(ino, bytes, entry.position)?;
    let raw = raw(entry);
    Ok(joined(&[&bytes[..range.start], raw.as_bytes(), entry.name, &bytes[range.end..]]))
}

fn range(ino: u64, bytes: &[u8], position: u64) -> Result<Range<usize>, Damage> {
    for entry in entries(ino, bytes) {
        let (range, entry) = entry?;
        if entry.position == position {
            return Ok(range);
        }
    }
    Err(damage(ino, position, DirFault::Position))
}

/// Joins the parts, which fit into an inode, with a single allocation.
fn joined(parts: &[&[u8]]) -> Arc<[u8]> {
    let mut all: SmallVec<[u8; 512]> = SmallVec::new();
    parts.iter().for_each(|part| all.extend_from_slice(part));
    Arc::from(&all[..])
}

/// Returns the head of an entry; its name follows.
fn raw(entry: &DirEntry<'_>) -> RawEntry {
    RawEntry {
        position: entry.position.into(),
        ino: entry.ino.into(),
        kind: entry.kind.to_raw(),
        // The creator of an entry has checked the name.
        name_bytes: entry.name.len() as u8,
    }
}
