//! Entries in a tree.

use std::ops::{Bound, ControlFlow};

use zerocopy::{FromZeros, IntoBytes, transmute};

use super::entry::{DirEntry, Found, damage, is_name, possible, taken_bit};
use crate::btree::{Entry, Error, Nodes, Record, Tree};
use crate::format::Damage;
use crate::format::damage::DirFault;
use crate::format::dir::{
    COLLISIONS_MAX, DirKey, DirPart, DirTree, HEAD_NAME_BYTES, PART_NAME_BYTES, POSITION_MAX,
    POSITION_MIN, RawHead,
};
use crate::inode::core::FileKind;

/// The result of a call that reads or changes blocks.
pub(super) type Outcome<T, N> = Result<T, Error<<N as Nodes>::Error>>;

/// The assembly of consecutive records to entries.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    ino: u64,
    found: Option<Found>,
    name_bytes: usize,
    name: Vec<u8>,
    /// The next record of the entry.
    part: u8,
}

impl Assembly {
    pub(super) fn new(ino: u64) -> Self {
        Self { ino, ..Self::default() }
    }

    /// Takes the next record. Returns the entry if that completes it. After an error it continues
    /// with the record that did not belong (which may [complete](Self::complete) an entry), or with
    /// the next entry.
    pub(super) fn push(
        &mut self,
        record: &Record<DirTree>,
    ) -> Result<Option<DirEntry<'_>>, Damage> {
        let (position, part) = (record.key.position.get(), record.key.part);
        let missing = match self.found {
            Some(found) if found.position == position && part == self.part => {
                self.extend(&record.value.0);
                return self.complete();
            }
            // Records of the entry before are missing.
            Some(_) => self.finish(),
            None => Ok(()),
        };
        if part != 0 {
            return Err(damage(self.ino, position, DirFault::Part { part }));
        }
        self.begin(position, transmute!(record.value.0))?;
        missing?;
        self.complete()
    }

    /// Takes the next record, and calls `each` with the entry if that completes it, even if the
    /// record begins an entry too early.
    pub(super) fn push_any(
        &mut self,
        record: &Record<DirTree>,
        each: &mut dyn FnMut(DirEntry<'_>),
    ) -> Result<(), Damage> {
        match self.push(record) {
            Ok(entry) => {
                entry.into_iter().for_each(each);
                Ok(())
            }
            Err(damage) => {
                if let Ok(Some(entry)) = self.complete() {
                    each(entry);
                }
                Err(damage)
            }
        }
    }

    /// Ends after the last record.
    pub(super) fn finish(&mut self) -> Result<(), Damage> {
        match self.found.take() {
            Some(Found { position, .. }) if self.name.len() < self.name_bytes => {
                Err(damage(self.ino, position, DirFault::Part { part: self.part }))
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, position: u64, head: RawHead) -> Result<(), Damage> {
        let fault = |fault| damage(self.ino, position, fault);
        if !(POSITION_MIN..=POSITION_MAX).contains(&position) {
            return Err(fault(DirFault::Position));
        }
        if head.name_bytes == 0 {
            return Err(fault(DirFault::Name));
        }
        let kind = FileKind::of_raw(head.kind);
        let kind = kind.ok_or_else(|| fault(DirFault::Type { kind: head.kind }))?;
        self.found = Some(Found { position, ino: head.ino.get(), kind });
        self.name_bytes = head.name_bytes.into();
        self.name.clear();
        self.part = 0;
        self.extend(&head.name);
        Ok(())
    }

    fn extend(&mut self, bytes: &[u8]) {
        let missing = self.name_bytes - self.name.len();
        self.name.extend_from_slice(&bytes[..missing.min(bytes.len())]);
        self.part += 1;
    }

    /// Returns the entry, if its name is complete.
    pub(super) fn complete(&mut self) -> Result<Option<DirEntry<'_>>, Damage> {
        if self.name.len() < self.name_bytes {
            return Ok(None);
        }
        let Some(Found { position, ino, kind }) = self.found.take() else { return Ok(None) };
        if !is_name(&self.name) {
            return Err(damage(self.ino, position, DirFault::Name));
        }
        Ok(Some(DirEntry { position, ino, kind, name: &self.name }))
    }
}

/// Finds `name` in directory `ino`, and returns the taken ones of its sixteen positions, which
/// begin with `base`, as bits.
pub(super) fn find<N: Nodes>(
    (ino, base): (u64, u64),
    nodes: &N,
    tree: &Tree<DirTree>,
    name: &[u8],
) -> Outcome<(Option<Found>, u16), N> {
    let keys = DirKey::new(base, 0)..=DirKey::new(base + COLLISIONS_MAX - 1, u8::MAX);
    let (mut found, mut taken) = (None, 0);
    let mut assembly = Assembly::new(ino);
    for record in tree.range(nodes, keys)? {
        if let Some(entry) = assembly.push(&record?)? {
            taken |= taken_bit(base, entry.position);
            if entry.name == name {
                found = Some(possible(ino, nodes, entry.found())?);
            }
        }
    }
    assembly.finish()?;
    Ok((found, taken))
}

/// Passes `emit` the entries after a position, until it breaks or fails.
pub(super) fn read<N: Nodes>(
    ino: u64,
    nodes: &N,
    tree: &Tree<DirTree>,
    behind: u64,
    mut emit: impl FnMut(DirEntry<'_>) -> Result<ControlFlow<()>, Damage>,
) -> Outcome<(), N> {
    let start = Bound::Excluded(DirKey::new(behind, u8::MAX));
    let mut assembly = Assembly::new(ino);
    for record in tree.range(nodes, (start, Bound::Unbounded))? {
        if let Some(entry) = assembly.push(&record?)?
            && emit(entry)?.is_break()
        {
            return Ok(());
        }
    }
    Ok(assembly.finish()?)
}

pub(super) fn insert<N: Nodes>(
    ino: u64,
    nodes: &mut N,
    tree: &Tree<DirTree>,
    entry: &DirEntry<'_>,
) -> Outcome<(), N> {
    for Entry { key, value } in records(entry) {
        if !tree.insert(nodes, key, value)? {
            return Err(damage(ino, entry.position, DirFault::Part { part: key.part }).into());
        }
    }
    Ok(())
}

pub(super) fn remove<N: Nodes>(
    ino: u64,
    nodes: &mut N,
    tree: &Tree<DirTree>,
    position: u64,
    name: &[u8],
) -> Outcome<(), N> {
    for part in (0..parts(name)).rev() {
        if tree.remove(nodes, DirKey::new(position, part))?.is_none() {
            return Err(damage(ino, position, DirFault::Part { part }).into());
        }
    }
    Ok(())
}

/// Replaces the inode of an entry.
pub(super) fn update<N: Nodes>(
    ino: u64,
    nodes: &mut N,
    tree: &Tree<DirTree>,
    entry: &DirEntry<'_>,
) -> Outcome<(), N> {
    let former = match records(entry).next() {
        Some(Entry { key, value }) => tree.update(nodes, key, value)?,
        None => None,
    };
    match former {
        Some(_) => Ok(()),
        None => Err(damage(ino, entry.position, DirFault::Part { part: 0 }).into()),
    }
}

/// Returns the number of records of an entry: 9 at most.
fn parts(name: &[u8]) -> u8 {
    1 + name.len().saturating_sub(HEAD_NAME_BYTES).div_ceil(PART_NAME_BYTES) as u8
}

/// Returns the records of an entry.
pub(super) fn records(entry: &DirEntry<'_>) -> impl Iterator<Item = Record<DirTree>> {
    let DirEntry { position, ino, kind, name } = *entry;
    let (first, rest) = name.split_at(name.len().min(HEAD_NAME_BYTES));
    let mut head = RawHead {
        ino: ino.into(),
        kind: kind.to_raw(),
        // The creator of an entry has checked the name.
        name_bytes: name.len() as u8,
        ..RawHead::new_zeroed()
    };
    head.name[..first.len()].copy_from_slice(first);
    let head = DirPart(transmute!(head));
    let more = rest.chunks(PART_NAME_BYTES).map(|bytes| {
        let mut part = DirPart::new_zeroed();
        part.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        part
    });
    let values = std::iter::once(head).chain(more);
    values.zip(0..).map(move |(value, part)| Entry { key: DirKey::new(position, part), value })
}
