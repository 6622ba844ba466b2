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
//! A block that was being written when power failed may be unreadable. One that was flushed may be
//! so as well, and nothing tells which: a record, or a content of the last record, that can't be
//! read makes the log *broken*. So does a block that is not the next record if one of a later batch
//! follows it. A broken log is not replayed, and nothing is written over it; a repair goes on with
//! what comes before.

use std::collections::HashSet;

use zerocopy::IntoBytes;

use crate::Error;
use crate::disk::device::{Disk, offset};
use crate::disk::format::{self, LOG, LOG_MAPS, LogBlock, LogMap, PLACE_BYTES};
use crate::disk::layout::Layout;
use crate::disk::record::{LogArea, Record};

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
    /// The reason why more may have been flushed than `maps` has.
    pub(crate) broken: Option<Broken>,
}

/// The reason why a log is not replayed.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) error: Error,
    /// The places that are in use besides those of the maps; `None` if they are not known.
    pub(crate) places: Option<Vec<u64>>,
}

/// The first record of a spare log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// There is none.
    Absent,
    /// This node of the history has the log.
    Of(u64),
}

/// Reads whose log a spare log is.
///
/// # Errors
/// [`Error::Unreadable`] for a first record that may have been flushed.
pub(crate) fn first(disk: &Disk, area: LogArea) -> Result<First, Error> {
    let found = read_record(disk, area, None, 0);
    if let Ok(Found::Record(block) | Found::OneByteOff(block)) = &found {
        return Ok(First::Of(block.header.owner.get()));
    }
    match confirmed(disk, area, None, 0) {
        Some(node) => Ok(First::Of(node)),
        None => found
            .map(|_| First::Absent)
            .map_err(|error| error.unreadable(area.place, "the first record of a spare log")),
    }
}

/// Reads the log of a branch.
pub(crate) fn read(disk: &Disk, record: &Record) -> Replay {
    let mut replay = Replay::default();
    let Some(area) = record.log else { return replay };
    let (mut previous, mut last) = (0, Vec::new());
    for number in 0..u64::from(area.blocks) {
        let block = match next_record(disk, area, record, number, previous) {
            Ok(Some(block)) => block,
            Ok(None) => break,
            Err(error) => {
                replay.broken = Some(Broken { error, places: None });
                // The block may be readable another time: the log has to begin anew.
                replay.is_used = true;
                break;
            }
        };
        replay.maps.extend(last.iter().map(pair));
        last = block.maps[..count(&block)].to_vec();
        previous = block.header.checksum.get();
        replay.is_used = true;
    }
    let there: Result<Vec<bool>, Error> = last.iter().map(|map| is_there(disk, map)).collect();
    match there {
        Ok(there) => {
            let maps = last.iter().zip(there).filter(|(_, is_there)| *is_there);
            replay.maps.extend(maps.map(|(map, _)| pair(map)));
        }
        // To leave out one content would mix what two flushes have made durable.
        Err(error) => {
            let places = last.iter().map(|map| map.place.get()).collect();
            replay.broken.get_or_insert(Broken { error, places: Some(places) });
        }
    }
    let mut seen = HashSet::new();
    if !replay.maps.iter().all(|(_, place)| seen.insert(*place)) {
        let error = Error::Damage { place: area.place, what: "a place is in the log twice" };
        replay.broken.get_or_insert(Broken { error, places: None });
    }
    replay
}

/// Returns how many maps a record has.
fn count(block: &LogBlock) -> usize {
    (block.header.extra.get() >> 32) as usize & 0xffff
}

/// Reads the record of a branch with this number, which names the checksum of the one before;
/// `None` if the log ends before it.
///
/// # Errors
/// [`Error::Unreadable`] if the device does not read it, and [`Error::Damage`] if it is wrong and
/// was there, or makes no sense.
fn next_record(
    disk: &Disk,
    area: LogArea,
    record: &Record,
    number: u64,
    previous: u32,
) -> Result<Option<LogBlock>, Error> {
    let (place, node) = (area.place + number, Some(record.id));
    let found = read_record(disk, area, node, number);
    let found =
        found.map_err(|error| error.unreadable(place, "a record of the log of a branch"))?;
    let is_there = || confirmed(disk, area, node, number).is_some();
    let what = "a record of the log of a branch is wrong";
    let block = match found {
        Found::Record(block) => Some(block),
        Found::OneByteOff(block) if is_there() => Some(block),
        Found::OneByteOff(_) => return Err(Error::Damage { place, what }),
        Found::Other => None,
    };
    let Some(block) = block.filter(|block| block.header.extra.get() as u32 == previous) else {
        return if is_there() { Err(Error::Damage { place, what }) } else { Ok(None) };
    };
    let count = count(&block);
    if count == 0 || count > LOG_MAPS {
        return Err(Error::Damage { place, what: "the length of a record" });
    }
    match block.maps[..count].iter().find_map(|map| complaint(map, record, &disk.layout())) {
        Some(what) => Err(Error::Damage { place, what }),
        None => Ok(Some(block)),
    }
}

/// Returns the owner of a record of a later batch than that of record `number`, if there is one: it
/// shows that the record was flushed.
fn confirmed(disk: &Disk, area: LogArea, node: Option<u64>, number: u64) -> Option<u64> {
    (number + 1..u64::from(area.blocks)).find_map(|later| {
        let Ok(Found::Record(LogBlock { header, .. })) = read_record(disk, area, node, later)
        else {
            return None;
        };
        let start = later - (header.extra.get() >> 48).min(later);
        (start > number).then(|| header.owner.get())
    })
}

/// Bytes of the header of a block.
const HEADER_BYTES: usize = size_of::<format::Header>();

/// The block in a place of a log.
enum Found {
    /// The record that belongs there.
    Record(LogBlock),
    /// That record, but for a wrong byte. The rest of an older block behind the part of a record
    /// that was written when power failed looks like this once in some thousand times: it is right
    /// if the record was flushed.
    OneByteOff(LogBlock),
    /// Another block.
    Other,
}

/// Reads a record, that of a node unless it is `None`.
fn read_record(disk: &Disk, area: LogArea, node: Option<u64>, number: u64) -> Result<Found, Error> {
    let place = area.place + number;
    let mut bytes = [0; PLACE_BYTES];
    disk.device.read_at(offset(place), &mut bytes)?;
    let find = |bytes: &format::Bytes| {
        let block = format::read::<LogBlock>(bytes, disk.expect(LOG, place)).ok().cloned();
        block.filter(|LogBlock { header, .. }| {
            header.generation.get() == area.sequence
                && node.is_none_or(|node| header.owner.get() == node)
                && header.number.get() == number
        })
    };
    if let Some(block) = find(&bytes) {
        return Ok(Found::Record(block));
    }
    // Most other blocks are told by their header, in less time.
    let expected = format::header(disk.expect(LOG, place), area.sequence, 0, number);
    let (header, expected) = (&bytes[..HEADER_BYTES], expected.as_bytes());
    let differences = header.iter().zip(expected).enumerate().filter(|(at, (is, should))| {
        is != should && (!(4..8).contains(at) && !(40..48).contains(at) && *at < 56)
    });
    if differences.count() > 1 {
        return Ok(Found::Other);
    }
    let mended = format::mended(&bytes).and_then(|bytes| find(&bytes));
    Ok(mended.map_or(Found::Other, Found::OneByteOff))
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
///
/// # Errors
/// [`Error::Unreadable`].
fn is_there(disk: &Disk, map: &LogMap) -> Result<bool, Error> {
    if map.kind.get() == LogMap::FLUSHED {
        return Ok(true);
    }
    let (mut bytes, place) = ([0; PLACE_BYTES], map.place.get());
    let read = disk.device.read_at(offset(place), &mut bytes).map_err(Error::from);
    read.map_err(|error| error.unreadable(place, "a content that the last record names"))?;
    Ok(crc32c::crc32c(&bytes) == map.checksum.get())
}
