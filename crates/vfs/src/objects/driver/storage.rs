//! Figures of the parts of a driver that lie between its files and its device.

/// The log and the cache of a file system, counted for its administrator. A driver leaves out what
/// it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StorageCounts {
    /// The log, of a file system that has one and may be written.
    pub log: Option<LogCounts>,
    /// The cache of the data and metadata of a device.
    pub cache: Option<CacheCounts>,
}

/// The use of a log. Numbers of events count from the opening of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Bytes that it has for changes.
    pub bytes: u64,
    /// Bytes of these that hold changes not written back yet, or are reserved.
    pub used_bytes: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Checkpoints that became durable.
    pub checkpoints: u64,
    /// Writes of its device.
    pub writes: u64,
    /// Flushes of its device.
    pub flushes: u64,
    /// Transactions that have waited for space in it.
    pub space_waits: u64,
    /// Transactions that have waited for the memory of changed metadata.
    pub memory_waits: u64,
}

/// The use of a cache, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// The most bytes of file data.
    pub bytes_max: u64,
    /// Pages of files that are as on the device.
    pub clean_bytes: u64,
    /// Pages of files that are changed, or being written back.
    pub dirty_bytes: u64,
    /// Changed metadata that is not written back yet; it counts apart from the file data.
    pub changed_metadata_bytes: u64,
}
