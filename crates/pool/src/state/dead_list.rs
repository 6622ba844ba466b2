//! Dead lists: the places that a node's parent has, and the node has no more.
//!
//! They become free when the parent goes and the node is its only child. On the device a list is a
//! chain of blocks, newest first; only its newest block may have room.

use crate::Error;
use crate::disk::device::Disk;
use crate::disk::format::{self, DEAD, DeadBlock, Entry, FANOUT};
use crate::disk::record::Record;
use crate::state::commit::{Change, Shared, State};

/// A dead list as the branch table tells it: the place of the newest block, and the length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadList {
    pub(crate) head: u64,
    pub(crate) count: u64,
}

impl DeadList {
    /// Returns the list of a node.
    pub(crate) fn of(record: &Record) -> Self {
        Self { head: record.dead, count: record.dead_count }
    }

    /// Makes this the list of a node.
    pub(crate) fn store(self, record: &mut Record) {
        (record.dead, record.dead_count) = (self.head, self.count);
    }
}

/// The entries of a list, and the places of its blocks.
pub(crate) type Contents = (Vec<Entry>, Vec<u64>);

/// Reads a dead list: its entries, and the places of its blocks.
///
/// # Errors
/// Errors of reading and [`Error::Damage`].
pub(crate) fn read(disk: &Disk, list: DeadList) -> Result<Contents, Error> {
    let (mut entries, mut blocks, mut place) = (Vec::new(), Vec::new(), list.head);
    while place != 0 {
        let (block, previous) = read_block(disk, place)?;
        entries.extend(block);
        blocks.push(place);
        if entries.len() as u64 > list.count || entries.len() as u64 > disk.layout().places {
            break;
        }
        place = previous;
    }
    if entries.len() as u64 != list.count {
        return Err(Error::Damage { place: list.head, what: "the length of a dead list" });
    }
    Ok((entries, blocks))
}

fn read_block(disk: &Disk, place: u64) -> Result<(Vec<Entry>, u64), Error> {
    let block: DeadBlock = disk.read(DEAD, place)?;
    let count = block.header.number.get() as usize;
    if count == 0 || count > FANOUT {
        return Err(Error::Damage { place, what: "the length of a block of a dead list" });
    }
    let entries = block.entries[..count].iter().map(|raw| Entry(raw.get()));
    let entries: Vec<Entry> = entries.collect();
    let wrong = |entry: &Entry| {
        let what = entry.is_none().then_some("an empty entry in a dead list");
        what.or_else(|| disk.layout().complaint(*entry, format::DEPTH_MAX))
    };
    match entries.iter().find_map(wrong) {
        Some(what) => Err(Error::Damage { place, what }),
        None => Ok((entries, block.header.extra.get())),
    }
}

/// Appends entries to the dead list of node `id`, whether that can be read or not.
///
/// # Errors
/// Errors of reading bitmaps, and [`Error::Full`] if the reserve is used up.
pub(crate) fn append(
    shared: &Shared,
    state: &mut State,
    change: &mut Change,
    id: u64,
    list: DeadList,
    mut entries: Vec<Entry>,
) -> Result<DeadList, Error> {
    if entries.is_empty() {
        return Ok(list);
    }
    let count = list.count + entries.len() as u64;
    let mut head = list.head;
    let has_room = !list.count.is_multiple_of(FANOUT as u64) && head != 0;
    // A block that can't be read stays in the list, which only a repair can use again.
    let newest = has_room.then(|| read_block(&shared.disk, head));
    if let Some(Ok((former, previous))) = newest {
        change.clears.push(head);
        change.replaced += 1;
        entries.splice(0..0, former);
        head = previous;
    }
    for part in entries.chunks(FANOUT) {
        let place = shared.reserved(state, change)?;
        let mut block: DeadBlock = format::zeroed();
        let expected = shared.disk.expect(DEAD, place);
        block.header = format::header(expected, state.generation + 1, id, part.len() as u64);
        block.header.extra = head.into();
        for (raw, entry) in block.entries.iter_mut().zip(part) {
            raw.set(entry.0);
        }
        change.written.blocks.push((place, format::seal(&block)));
        head = place;
    }
    Ok(DeadList { head, count })
}
