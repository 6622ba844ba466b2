//! The choices of an opening.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_sync::cpu;

use crate::page_cache::CacheBudget;

/// The options for opening a volume.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// Whether nothing is written, not even the log: its contents are replayed in memory, and stay
    /// there until the volume is dropped.
    pub read_only: bool,
    /// Whether the log is ignored, and nothing is written. Changes that only the log has are
    /// missing then, and changes that were written back in part may appear as damage.
    pub no_recovery: bool,
    /// The options of the log.
    pub journal: vfscale_journal::Options,
    /// The limit of metadata in memory that could be read again, in bytes. The indexes of free
    /// space may use an eighth more.
    pub cache_bytes: u64,
    /// The budget that its caches share with those of other volumes. They count there in addition
    /// to their own limit.
    pub cache_budget: Option<Arc<CacheBudget>>,
    /// The device with the log, if the log has a device of its own.
    pub log_device: Option<Arc<dyn Device>>,
    /// The size in blocks of the log that the volume gets when it is first opened on a device that
    /// is a copy of another one ([`Device::identity`]), as far as the place of the log permits;
    /// `None` for 1024 (4 MiB).
    pub branch_log_blocks: Option<u64>,
    /// The number of parts of the count of orphans; 0 for one part and one lock, as without the
    /// patch `orphan` (Kara 2014).
    pub orphan_parts: usize,
    /// How often threads have to wait for a directory's lock, or names to come and go in it, before
    /// its names are delayed and changed side by side, until the next checkpoint
    /// (`inode/delayed_names.rs`); `u32::MAX` for never. 12 by default.
    pub dir_heat: u32,
    /// Whether freed blocks are discarded in the background; `None`: if the device is thinly
    /// provisioned ([`Discards::is_thin`](vfscale_block::Discards::is_thin)).
    pub discard: Option<bool>,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_recovery: false,
            journal: vfscale_journal::Options::default(),
            cache_bytes: 64 << 20,
            cache_budget: None,
            log_device: None,
            branch_log_blocks: None,
            orphan_parts: cpu::slots() as usize,
            dir_heat: 12,
            discard: None,
        }
    }
}
