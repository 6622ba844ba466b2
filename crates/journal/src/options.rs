//! How a journal is set up, and how far its structures are spread.

use std::time::Duration;

use vfscale_sync::cpu;

use crate::Known;
use crate::record::RECORD_BLOCKS_MAX;

/// How far each structure of the journal is spread. `Default` follows the machine; every
/// setting can be taken back on its own, to what the kernel did before.
///
/// ```
/// use vfscale_journal::Scaling;
///
/// let before = Scaling::default().before_cil_lists().before_active_trans();
/// assert_eq!((before.cil_list_slots, before.active_trans_slots), (1, 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// Seed 003, patch 1: what every commit reads is not on a line that commits write.
    pub read_mostly: bool,
    /// Seed 003, patch 2: parts of the count of active transactions.
    pub active_trans_slots: usize,
    /// Seed 003, patch 3: parts of the CIL's counters of space and reservation.
    pub cil_counter_slots: usize,
    /// Seed 003, patch 4: lists of committed items.
    pub cil_list_slots: usize,
    /// Seed 003, patch 5: what a transaction has freed, and is told when it is durable, is on the list of its
    /// CPU. Otherwise on one list, whose lock every commit takes.
    pub busy_extents: bool,
    /// Past the seed: slots of the context lock (a brlock); one is the reader-writer semaphore.
    pub context_slots: usize,
    /// Past the seed: CPUs that keep log space in batches; one is a grant head for all.
    pub grant_slots: usize,
}

impl Scaling {
    /// All structures in `slots` slots (at least one).
    #[must_use]
    pub fn with_slots(slots: usize) -> Self {
        let slots = slots.max(1);
        Self {
            read_mostly: true,
            active_trans_slots: slots,
            cil_counter_slots: slots,
            cil_list_slots: slots,
            busy_extents: true,
            context_slots: slots,
            grant_slots: slots,
        }
    }

    /// As the kernel was before seed 003: one of each, packed.
    #[must_use]
    pub fn kernel_5_7() -> Self {
        Self::with_slots(1).before_read_mostly().before_busy_extents()
    }

    /// Takes patch 1 back: read and written fields of the central structure share a line.
    #[must_use]
    pub fn before_read_mostly(self) -> Self {
        Self { read_mostly: false, ..self }
    }

    /// Takes patch 2 back: one counter of active transactions.
    #[must_use]
    pub fn before_active_trans(self) -> Self {
        Self { active_trans_slots: 1, ..self }
    }

    /// Takes patch 3 back: one counter of CIL space and one of its reservation.
    #[must_use]
    pub fn before_cil_counters(self) -> Self {
        Self { cil_counter_slots: 1, ..self }
    }

    /// Takes patch 4 back: one list of committed items, with one lock.
    #[must_use]
    pub fn before_cil_lists(self) -> Self {
        Self { cil_list_slots: 1, ..self }
    }

    /// Takes patch 5 back: one list of what transactions have freed, with a lock that every commit takes.
    #[must_use]
    pub fn before_busy_extents(self) -> Self {
        Self { busy_extents: false, ..self }
    }
}

impl Default for Scaling {
    fn default() -> Self {
        Self::with_slots(cpu::possible() as usize)
    }
}

/// How a journal is set up, and what is known of it. None of it is in the log, but the id of its device.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How far structures are spread.
    pub scaling: Scaling,
    /// The size of log records, in blocks of 4 KiB: 1 to [`RECORD_BLOCKS_MAX`]; 8 (32 KiB) by default.
    pub record_blocks: u32,
    /// After how long committed changes are pushed to the log although nobody asked; `None`: never.
    pub sync_interval: Option<Duration>,
    /// The CIL is pushed in the background from this many bytes on; `None`: an eighth of the log, at
    /// most 32 MiB. Commits wait for a push at twice as many.
    pub cil_bytes: Option<u64>,
    /// How many bytes of memory items may keep that are not home, as [`LogItem::memory_bytes`] says, and
    /// those of transactions under way beside them; `None`, the default: as many as there are in half of the
    /// log. With half of that in the AIL a transaction that begins waits until some are home.
    ///
    /// [`LogItem::memory_bytes`]: crate::LogItem::memory_bytes
    pub memory_bytes: Option<u64>,
    /// What its owner knows of the log. Nothing by default.
    pub known: Known,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scaling: Scaling::default(),
            record_blocks: 8,
            sync_interval: Some(Duration::from_secs(5)),
            cil_bytes: None,
            memory_bytes: None,
            known: Known::default(),
        }
    }
}

impl Options {
    pub(crate) fn record_blocks(&self) -> usize {
        self.record_blocks.clamp(1, RECORD_BLOCKS_MAX) as usize
    }
}
