//! Settings of a journal.

use std::time::Duration;

use vfscale_sync::scaling::Scaling;

use crate::Known;
use crate::disk::record::RECORD_BLOCKS_MAX;

/// The settings of a journal, and the recorded state of its log. Only the device id in it is stored
/// in the log.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of shards of the structures.
    pub scaling: Scaling,
    /// Size of log records, in blocks of 4 KiB: 1 to [`RECORD_BLOCKS_MAX`]; 16 (64 KiB) by default,
    /// which is one write for most forces of the log, also for those that two threads share.
    pub record_blocks: u32,
    /// Time after which committed changes are pushed to the log without a force; `None`: never.
    pub sync_interval: Option<Duration>,
    /// Size of the CIL from which on it is pushed in the background, in bytes; `None`: an eighth of
    /// the log, at most 32 MiB. At twice the size, transactions wait for a push before they begin.
    pub cil_bytes: Option<u64>,
    /// Bound on the memory of items that are not written back, in bytes as
    /// [`LogItem::memory_bytes`] reports them. It does not include the items that active
    /// transactions change. `None`, the default: no bound but log space, as many items as half of
    /// the log has room for. When the AIL takes half of the bound, a transaction that begins waits
    /// until some items are written back.
    ///
    /// [`LogItem::memory_bytes`]: crate::LogItem::memory_bytes
    pub memory_bytes: Option<u64>,
    /// State of the log that its owner has recorded. Nothing by default.
    pub known: Known,
    /// Whether a log that is closed, as `known` says, is opened without a write: its epoch begins
    /// with the first transaction, of which [`Hooks::epoch_begun`](crate::Hooks::epoch_begun) tells
    /// the owner. Off by default.
    pub opens_late: bool,
    /// Whether nobody has opened the log yet that `known` says is [new](Known::is_new): then its
    /// opening does not read it. Off by default.
    pub is_unused: bool,
    /// Whether a log whose end can't be read ends there, so that changes which were synced may be
    /// lost ([`Recovered::cut`](crate::Recovered::cut)). What can't be read is overwritten. For a
    /// repair. Off by default.
    pub may_cut: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scaling: Scaling::default(),
            record_blocks: 16,
            sync_interval: Some(Duration::from_secs(5)),
            cil_bytes: None,
            memory_bytes: None,
            known: Known::default(),
            opens_late: false,
            is_unused: false,
            may_cut: false,
        }
    }
}

impl Options {
    pub(crate) fn record_blocks(&self) -> usize {
        self.record_blocks.clamp(1, RECORD_BLOCKS_MAX) as usize
    }
}
