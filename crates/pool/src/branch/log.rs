//! The delta log of a branch: what got a new place since its last checkpoint.
//!
//! Records lie one after the other from the start of the log on. A checkpoint makes all of them
//! stale by a new sequence. A record names the checksum of the one before, so the log ends at the
//! first block that is not its next record.
//!
//! One flush writes the contents of a small batch and its record together, so after a power cut
//! the record may be there and a content not: it has the checksums of the contents. Only the last
//! record is in doubt: a record is written after the flush of the one before has returned, and so
//! confirms it.
//!
//! A block that was being written when power failed may be unreadable. So a record that can't be
//! read is the end of the log, unless a record of a later batch is there; and a content of the last
//! record that can't be read is not there.

use std::collections::HashMap;

use crate::Error;
use crate::disk::{Disk, offset};
use crate::format::{self, LOG, LOG_MAPS, LogBlock, LogMap, PLACE_BYTES};
use crate::layout::Layout;
use crate::record::{LogArea, Record};

/// Makes a record, the one with this `index` of its batch.
pub(crate) fn record(
    disk: &Disk,
    area: LogArea,
    node: u64,
    number: u32,
    index: usize,
    previous: u32,
    maps: &[LogMap],
) -> (u64, Box<format::Bytes>) {
    let place = area.place + u64::from(number);
    let mut block: LogBlock = format::zeroed();
    let expected = disk.expect(LOG, place);
    block.header = format::header(expected, area.sequence, node, u64::from(number));
    let counts = (maps.len() | index << 16) as u64;
    block.header.extra = (u64::from(previous) | counts << 32).into();
    block.maps[..maps.len()].copy_from_slice(maps);
    (place, format::seal(&block))
}

/// The records of a log that are valid.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// The blocks and their new places, oldest first.
    pub(crate) maps: Vec<(u64, u64)>,
    /// Whether the log has any record, even if nothing of it is valid.
    pub(crate) is_used: bool,
}

/// The first record of a spare log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// There is none.
    Absent,
    /// The device does not read it, and no later batch shows that it was flushed.
    Unreadable,
    /// The record of this node of the history.
    Of(u64),
}

/// Reads whose first record a spare log has.
///
/// # Errors
/// Errors of the device, for a record that was flushed.
pub(crate) fn first(disk: &Disk, area: LogArea) -> Result<First, Error> {
    match read_record(disk, area, None, 0) {
        Ok(Some(block)) => Ok(First::Of(block.header.owner.get())),
        Ok(None) => Ok(First::Absent),
        Err(error) if is_confirmed(disk, area, None, 0) => Err(error),
        Err(_) => Ok(First::Unreadable),
    }
}

/// Reads the log of a branch.
///
/// # Errors
/// Errors of the device, and [`Error::Damage`] for a record that is whole and makes no sense.
pub(crate) fn read(disk: &Disk, record: &Record) -> Result<Replay, Error> {
    let mut replay = Replay::default();
    let Some(area) = record.log else { return Ok(replay) };
    let node = Some(record.id);
    let (mut previous, mut last) = (0, Vec::new());
    for number in 0..u64::from(area.blocks) {
        let place = area.place + number;
        let block = match read_record(disk, area, node, number) {
            Ok(Some(block)) => block,
            Ok(None) => break,
            Err(error) => {
                if is_confirmed(disk, area, node, number) {
                    return Err(error);
                }
                // The block may be readable another time: the log has to begin anew.
                replay.is_used = true;
                break;
            }
        };
        let header = &block.header;
        let count = (header.extra.get() >> 32) as usize & 0xffff;
        if header.extra.get() as u32 != previous {
            break;
        }
        if count == 0 || count > LOG_MAPS {
            return Err(Error::Damage { place, what: "the length of a record" });
        }
        replay.maps.extend(last.iter().map(pair));
        last = block.maps[..count].to_vec();
        if let Some(what) = last.iter().find_map(|map| complaint(map, record, &disk.layout)) {
            return Err(Error::Damage { place, what });
        }
        previous = header.checksum.get();
        replay.is_used = true;
    }
    for map in &last {
        if is_there(disk, map) {
            replay.maps.push(pair(map));
        }
    }
    let mut seen = HashMap::new();
    for (_, place) in &replay.maps {
        if seen.insert(*place, ()).is_some() {
            return Err(Error::Damage { place: area.place, what: "a place is in the log twice" });
        }
    }
    Ok(replay)
}

/// Returns whether a record of a later batch than that of record `number` is there.
fn is_confirmed(disk: &Disk, area: LogArea, node: Option<u64>, number: u64) -> bool {
    (number + 1..u64::from(area.blocks)).any(|later| {
        let record = read_record(disk, area, node, later);
        record.is_ok_and(|record| {
            record
                .is_some_and(|record| later - (record.header.extra.get() >> 48).min(later) > number)
        })
    })
}

/// Reads a record, that of a node unless it is `None`; `None` if the block is not the one that
/// belongs there.
fn read_record(
    disk: &Disk,
    area: LogArea,
    node: Option<u64>,
    number: u64,
) -> Result<Option<LogBlock>, Error> {
    let place = area.place + number;
    let mut bytes = [0; PLACE_BYTES];
    disk.device.read_at(offset(place), &mut bytes)?;
    let block = format::read::<LogBlock>(&bytes, disk.expect(LOG, place)).ok().filter(|block| {
        let header = &block.header;
        header.generation.get() == area.sequence
            && node.is_none_or(|node| header.owner.get() == node)
            && header.number.get() == number
    });
    Ok(block.cloned())
}

fn pair(map: &LogMap) -> (u64, u64) {
    (map.block.get(), map.place.get())
}

fn complaint(map: &LogMap, record: &Record, layout: &Layout) -> Option<&'static str> {
    if map.block.get() >= record.blocks || map.kind.get() > LogMap::CHECKED {
        return Some("a record maps a block that the branch does not have");
    }
    let place = map.place.get();
    (!layout.has(place)).then_some("a record leads out of the pool")
}

/// Returns whether the content of a map of the last record is there.
fn is_there(disk: &Disk, map: &LogMap) -> bool {
    if map.kind.get() == LogMap::FLUSHED {
        return true;
    }
    let mut bytes = [0; PLACE_BYTES];
    let is_read = disk.device.read_at(offset(map.place.get()), &mut bytes).is_ok();
    is_read && crc32c::crc32c(&bytes) == map.checksum.get()
}
