//! Directories: sorted names in blocks.

use zerocopy::IntoBytes;

use crate::Entry;
use crate::error::Error;
use crate::format::{BLOCK, NAME_MAX, RawName};

/// Bytes of an entry.
const ENTRY: usize = size_of::<RawName>();
const OWN: &[u8] = b".";
const PARENT: &[u8] = b"..";

/// Sorts the names of a directory, and adds those of itself and its parent. None has a number yet.
///
/// # Errors
/// [`Error::Name`].
pub(super) fn sorted(mut names: Vec<Box<[u8]>>) -> Result<Vec<Entry>, Error> {
    let is_name = |name: &[u8]| {
        (1..=NAME_MAX).contains(&name.len())
            && name != OWN
            && name != PARENT
            && !name.contains(&b'/')
            && !name.contains(&0)
    };
    if !names.iter().all(|name| is_name(name)) {
        return Err(Error::Name);
    }
    names.extend([OWN, PARENT].map(Box::from));
    let entry = |name| Entry { name, nid: 0, kind: 0 };
    let mut entries: Vec<Entry> = names.into_iter().map(entry).collect();
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    match entries.windows(2).any(|two| two[0].name == two[1].name) {
        true => Err(Error::Name),
        false => Ok(entries),
    }
}

/// Sets the numbers of a directory itself and of its parent.
pub(super) fn set_own(entries: &mut [Entry], nid: u64, parent: u64) {
    for entry in entries {
        match &*entry.name {
            OWN => (entry.nid, entry.kind) = (nid, 2),
            PARENT => (entry.nid, entry.kind) = (parent, 2),
            _ => {}
        }
    }
}

/// Returns the entries of each block, by the lengths of their names.
fn blocks(entries: &[Entry]) -> impl Iterator<Item = &[Entry]> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            bytes += ENTRY + entry.name.len();
            bytes as u64 <= BLOCK
        };
        let count = rest.iter().take_while(fits).count();
        let (block, behind) = rest.split_at(count);
        rest = behind;
        (count > 0).then_some(block)
    })
}

fn bytes_of(block: &[Entry]) -> u64 {
    block.iter().map(|entry| (ENTRY + entry.name.len()) as u64).sum()
}

/// Returns the size of a directory.
pub(super) fn size(entries: &[Entry]) -> u64 {
    let (count, last) = blocks(entries).fold((0, 0), |(count, _), it| (count + 1, bytes_of(it)));
    (count - 1) * BLOCK + last
}

/// Calls `each` with the bytes of each block: all but the last are whole.
///
/// # Errors
/// Any error of `each`.
pub(super) fn write(
    entries: &[Entry],
    mut each: impl FnMut(u64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    for (number, block) in (0..).zip(blocks(entries)) {
        let mut bytes = Vec::with_capacity(BLOCK as usize);
        let mut name_at = block.len() * ENTRY;
        for Entry { name, nid, kind } in block {
            // A block has 4096 bytes.
            let (nid, at, kind) = ((*nid).into(), (name_at as u16).into(), *kind);
            bytes.extend_from_slice(RawName { nid, name_at: at, kind, reserved: 0 }.as_bytes());
            name_at += name.len();
        }
        block.iter().for_each(|entry| bytes.extend_from_slice(&entry.name));
        each(number, &bytes)?;
    }
    Ok(())
}
