//! The spare logs that a superblock names, and those that branches have taken since:
//! [`crate::state::spare_logs`] tells why.

use crate::Error;
use crate::disk::delta_log::{self, First};
use crate::disk::device::Disk;
use crate::disk::format::{RawSpare, SPARES, Superblock};
use crate::disk::layout::Layout;
use crate::disk::record::{LogArea, unused_sequence};
use crate::state::branch_table::Table;
use crate::state::head::Purpose;

/// The spares of a pool that was opened.
#[derive(Debug, Default)]
pub(crate) struct Adopted {
    /// The spares that no branch has.
    pub(crate) spares: Vec<LogArea>,
    /// The first records that a repair could not read. These spares have got sequences that no
    /// superblock has.
    pub(crate) lost: Vec<Error>,
}

/// Returns the spares that a superblock names.
///
/// # Errors
/// [`Error::Damage`].
pub(crate) fn read(block: &Superblock, layout: &Layout) -> Result<Vec<LogArea>, Error> {
    if block.incompat.get() & SPARES == 0 {
        return Ok(Vec::new());
    }
    let areas = block.spares.iter().map(|raw| LogArea {
        place: raw.place.get(),
        blocks: raw.blocks.get(),
        sequence: raw.sequence.get(),
    });
    let spares: Vec<LogArea> = areas.filter(|area| area.place != 0).collect();
    for (index, area) in spares.iter().enumerate() {
        let meets =
            |other: &LogArea| area.place < other.places().end && other.place < area.places().end;
        if area.is_outside(layout) || spares[..index].iter().any(meets) {
            let what = "a spare log is not in the pool, or two are in one place";
            return Err(Error::Damage { place: block.header.place.get(), what });
        }
    }
    Ok(spares)
}

/// Enters spares into a superblock.
pub(crate) fn write(spares: &[LogArea], block: &mut Superblock) {
    // A program that does not know spares may use a pool that has none.
    let bit = if spares.is_empty() { 0 } else { SPARES };
    block.incompat = (block.incompat.get() & !SPARES | bit).into();
    for (raw, area) in block.spares.iter_mut().zip(spares) {
        *raw = RawSpare {
            place: area.place.into(),
            sequence: area.sequence.into(),
            blocks: area.blocks.into(),
            unused: 0.into(),
        };
    }
}

/// Gives each spare that has a first record to the branch that the record names. No log was read
/// yet.
///
/// # Errors
/// [`Error::Unreadable`] for a first record that may have been flushed, unless the purpose is a
/// repair, and [`Error::Damage`] for a record of a branch that can't have the log.
pub(crate) fn adopt(
    disk: &Disk,
    table: &mut Table,
    spares: Vec<LogArea>,
    purpose: Purpose,
) -> Result<Adopted, Error> {
    let mut adopted = Adopted::default();
    for area in spares {
        match delta_log::first(disk, area) {
            Ok(First::Absent) => adopted.spares.push(area),
            Err(error) if purpose == Purpose::Repair => {
                adopted.spares.push(LogArea { sequence: unused_sequence(), ..area });
                adopted.lost.push(error);
            }
            Err(error) => return Err(error),
            Ok(First::Of(node)) => {
                let can_have = table.get(node).is_some_and(|record| {
                    record.log.is_none() && !record.is_frozen() && !record.is_zombie()
                });
                if !can_have {
                    let what = "a spare log has a record of a branch that can't have it";
                    return Err(Error::Damage { place: area.place, what });
                }
                table.update(node, |record| record.log = Some(area));
            }
        }
    }
    Ok(adopted)
}
