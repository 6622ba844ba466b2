//! Inspection of a log without changing it.

use vfscale_block::Device;

use crate::disk::checkpoint::Operations;
use crate::disk::recovery;
use crate::lsn::Geometry;
use crate::{Lsn, RecordHeader, Region, Result, VolumeId};

/// A log that was read once: its whole records, and where a recovery would begin and end.
///
/// The inspection does not write the device. If another process writes the log at that time, the
/// result is some intermediate state, or an error.
#[derive(Debug)]
pub struct Inspection<'d> {
    device: &'d dyn Device,
    geometry: Geometry,
    volume: VolumeId,
    records: Vec<RecordHeader>,
    live: Result<Vec<RecordHeader>>,
}

/// A checkpoint of the log.
#[derive(Debug)]
pub struct Checkpoint<'a> {
    /// LSN of its first record.
    pub lsn: Lsn,
    /// Its sequence number.
    pub sequence: u64,
    /// Length of its stream, in bytes.
    pub stream_bytes: u64,
    /// Its operations; an error ends them.
    pub operations: Operations<'a>,
}

impl<'d> Inspection<'d> {
    /// Reads the log of `volume` in `region`.
    ///
    /// # Errors
    /// `Error::Region`, `Error::Device`; `Error::NotALog` if the region has no record.
    pub fn new(device: &'d dyn Device, region: Region, volume: VolumeId) -> Result<Self> {
        let geometry = recovery::geometry(device, region)?;
        let scanned = recovery::scan(device, geometry, volume)?;
        let live = scanned.find_end(device, geometry, true).map(|found| found.live);
        let mut records = scanned.records;
        if let (true, Err(error)) = (records.is_empty(), &live) {
            return Err(error.clone());
        }
        records.sort_by_key(|record| (record.epoch, record.lsn));
        Ok(Self { device, geometry, volume, records, live })
    }

    /// Returns every whole record, of any epoch, in the order in which they were written.
    #[must_use]
    pub fn records(&self) -> &[RecordHeader] {
        &self.records
    }

    /// Returns the records that a recovery would read, from the tail to the last one.
    ///
    /// # Errors
    /// `Error::Damaged`: the end can't be found.
    pub fn live(&self) -> Result<&[RecordHeader]> {
        self.live.as_deref().map_err(Clone::clone)
    }

    /// Passes each checkpoint that a recovery would replay to `each`, in order.
    ///
    /// # Errors
    /// Errors of the device, `Error::Damaged`, `Error::BadCheckpoint`, and errors of `each`.
    pub fn checkpoints(&self, mut each: impl FnMut(Checkpoint<'_>) -> Result<()>) -> Result<()> {
        let (device, geometry) = (self.device, self.geometry);
        recovery::checkpoints(device, geometry, self.volume, self.live()?, |assembled| {
            let operations = Operations::new(assembled.stream, assembled.sequence);
            each(Checkpoint {
                lsn: assembled.lsn,
                sequence: assembled.sequence,
                stream_bytes: assembled.stream.len() as u64,
                operations: operations.map_err(|why| assembled.bad(why))?,
            })
        })
    }
}
