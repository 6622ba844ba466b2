//! The log of a recording.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_block::cow::ExtentData;

/// One line of the log.
#[derive(Clone, Debug)]
pub(crate) enum LogEntry {
    /// A write, or a discard, of the bytes `start..end` of a device began.
    Change { disk: usize, start: u64, end: u64, data: ExtentData },
    /// A flush of a device began.
    Flush(usize),
    /// The call that began with the line of this number returned.
    Returned(usize),
    /// The size of a device changed.
    Resized { disk: usize, size: u64 },
    /// A device lost the changes that had returned and no flush had covered.
    Forgotten(usize),
    /// The test made a promise.
    Mark,
}

/// A recording up to some moment. Cheap to clone: contents are shared.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    /// Image of each device at the start; the first one began the log.
    pub(crate) bases: Vec<Arc<dyn Device>>,
    pub(crate) entries: Vec<LogEntry>,
}
