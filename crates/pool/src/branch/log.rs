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

use std::collections::HashMap;

use crate::Error;
use crate::disk::{Disk, offset};
use crate::format::{self, LOG, LOG_MAPS, LogBlock, LogMap, PLACE_BYTES, is_fixed};
use crate::record::{LogArea, Record};

/// Makes a record.
pub(super) fn record(
    disk: &Disk,
    area: LogArea,
    node: u64,
    number: u32,
    previous: u32,
    maps: &[LogMap],
) -> (u64, Box<format::Bytes>) {
    let place = area.place + u64::from(number);
    let mut block: LogBlock = format::zeroed();
    let expected = disk.expect(LOG, place);
    block.header = format::header(expected, area.sequence, node, u64::from(number));
    block.header.extra = (u64::from(previous) | (maps.len() as u64) << 32).into();
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

/// Reads the log of a branch.
///
/// # Errors
/// Errors of the device, and [`Error::Damage`] for a record that is whole and makes no sense.
pub(crate) fn read(disk: &Disk, record: &Record) -> Result<Replay, Error> {
    let mut replay = Replay::default();
    let Some(area) = record.log else { return Ok(replay) };
    let (mut previous, mut last) = (0, Vec::new());
    for number in 0..u64::from(area.blocks) {
        let place = area.place + number;
        let mut bytes = [0; PLACE_BYTES];
        disk.device.read_at(offset(place), &mut bytes)?;
        let Ok(block) = format::read::<LogBlock>(&bytes, disk.expect(LOG, place)) else { break };
        let header = &block.header;
        let count = (header.extra.get() >> 32) as usize;
        if header.generation.get() != area.sequence
            || header.owner.get() != record.id
            || header.number.get() != number
            || header.extra.get() as u32 != previous
        {
            break;
        }
        if count == 0 || count > LOG_MAPS {
            return Err(Error::Damage { place, what: "the length of a record" });
        }
        replay.maps.extend(last.iter().map(pair));
        last = block.maps[..count].to_vec();
        if let Some(what) = last.iter().find_map(|map| complaint(map, record, disk.places)) {
            return Err(Error::Damage { place, what });
        }
        previous = format::checksum_of(&bytes);
        replay.is_used = true;
    }
    for map in &last {
        if is_there(disk, map)? {
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

fn pair(map: &LogMap) -> (u64, u64) {
    (map.block.get(), map.place.get())
}

fn complaint(map: &LogMap, record: &Record, places: u64) -> Option<&'static str> {
    if map.block.get() >= record.blocks || map.kind.get() > LogMap::CHECKED {
        return Some("a record maps a block that the branch does not have");
    }
    let place = map.place.get();
    (is_fixed(place) || place >= places).then_some("a record leads out of the pool")
}

/// Returns whether the content of a map of the last record is there.
fn is_there(disk: &Disk, map: &LogMap) -> Result<bool, Error> {
    if map.kind.get() == LogMap::FLUSHED {
        return Ok(true);
    }
    let mut bytes = [0; PLACE_BYTES];
    disk.device.read_at(offset(map.place.get()), &mut bytes)?;
    Ok(crc32c::crc32c(&bytes) == map.checksum.get())
}
