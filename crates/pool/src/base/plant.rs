//! Faults that tests plant, to see that the tests find them.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests plant faults"))]
pub(crate) enum Plant {
    /// A record claims that its contents were flushed before.
    RecordBeforeContent = 1,
    /// Places of the last record are overwritten in place.
    OverwriteUnconfirmed = 2,
    /// Places that a commit gives up are written by others before it is durable.
    EarlyReuse = 4,
    /// A superblock is written without flushing what it leads to.
    RootBeforeContent = 8,
    /// A reader does not hold up the reuse of places.
    ReaderUnseen = 16,
    /// A fork does not make later writes of the parent go to other places.
    ForkWithoutDepth = 32,
    /// Places that a node replaces and its parent has are not put on its dead list.
    DeadForgotten = 64,
    /// A flush does not wait for the writers that are inside.
    BatchNotClosed = 128,
    /// A repair takes places that only the logs of branches refer to.
    LoggedUnclaimed = 256,
    /// The first record of a log is not there when the commit is that names the log.
    FirstRecordLate = 512,
    /// A log becomes a spare with the sequence that it had.
    SpareSequenceAgain = 1 << 10,
    /// A superblock goes on naming a spare that a branch has taken.
    SpareKept = 1 << 11,
    /// A spare that a branch takes stays on the list.
    SpareTwice = 1 << 12,
    /// An opening does not look for the records of spares.
    SpareNotAdopted = 1 << 13,
    /// An opening looks for the records of spares when it has replayed the logs of branches.
    SpareAdoptedLate = 1 << 14,
    /// The first record of a spare has no checksums of contents that were not flushed.
    FirstUnchecked = 1 << 15,
    /// A superblock is written before what it leads to is flushed, too.
    SuperblockEarly = 1 << 16,
    /// An opening takes blocks that it can't read for ones that were never written.
    UnreadableAbsent = 1 << 17,
}

/// The faults of a pool: none outside of tests.
#[derive(Debug, Default)]
pub(crate) struct Plants {
    #[cfg(test)]
    bits: std::sync::atomic::AtomicU32,
}

impl Plants {
    /// Returns whether a fault is planted.
    #[cfg(test)]
    pub(crate) fn has(&self, plant: Plant) -> bool {
        self.bits.load(std::sync::atomic::Ordering::Relaxed) & plant as u32 != 0
    }

    /// Returns whether a fault is planted.
    #[cfg(not(test))]
    pub(crate) fn has(&self, _: Plant) -> bool {
        false
    }

    /// Plants a fault.
    #[cfg(test)]
    pub(crate) fn add(&self, plant: Plant) {
        self.bits.fetch_or(plant as u32, std::sync::atomic::Ordering::Relaxed);
    }
}
