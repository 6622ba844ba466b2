//! The settings of an opening, from the builder of a volume down to its log.

use std::sync::Arc;
use std::time::Duration;

use vfscale_block::Device;

use crate::base::on_error::OnError;
use crate::page_cache::CacheBudget;

/// The heat of a directory at which its names are delayed.
const DIR_HEAT: u32 = 12;

/// The settings of an open volume, of its files and its log. Whoever opens it makes one, and every
/// part reads what concerns it: [`DiskFs`](crate::vfs_impl::DiskFs) passes it whole to the
/// [`Volume`](crate::Volume) and to its `Files`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether nothing is written, not even the log: its contents are replayed in memory, and stay
    /// there until the volume is dropped.
    pub read_only: bool,
    /// Whether the log is ignored, and nothing is written. Changes that only the log has are
    /// missing then, and changes that were written back in part may appear as damage.
    pub no_recovery: bool,
    /// The behaviour when the volume finds damage, or its log fails: [`OnError::Shutdown`] by
    /// default.
    pub on_error: OnError,
    /// The settings of the log, with the scaling settings of the whole volume. By default, its
    /// items take at most 160 MiB until they are written back, and it has no interval: the files
    /// force it after their data.
    pub journal: vfscale_journal::Options,
    /// The time after which changes become durable without a sync, data together with names;
    /// `None`: only by a sync, or when room is needed. 5 seconds by default.
    pub sync_interval: Option<Duration>,
    /// The maximum number of bytes of file data in memory. 256 MiB by default.
    pub data_cache_bytes: u64,
    /// The maximum number of bytes of clean metadata in memory, which could be read again. The
    /// indexes of free space may use an eighth more. 64 MiB by default.
    pub metadata_cache_bytes: u64,
    /// The budget in which data and clean metadata count, with those of other volumes, instead of
    /// the two limits above. None by default.
    pub cache_budget: Option<Arc<CacheBudget>>,
    /// The device of the log, if that is on a separate one.
    pub log_device: Option<Arc<dyn Device>>,
    /// The size in blocks of the log that the volume gets when it is first opened on a device that
    /// is a copy of another one ([`Device::identity`]), as far as the place of the log permits;
    /// `None` for 1024 (4 MiB).
    pub branch_log_blocks: Option<u64>,
    /// Whether the data of a file that replaces another, by a rename or after truncation to
    /// nothing, is written before the replacement is durable, as ext4's option of this name does.
    /// On by default.
    pub auto_da_alloc: bool,
    /// Whether freed blocks are discarded in the background, at the sync interval, and at the end;
    /// `None`, the default: if the device is thinly provisioned
    /// ([`Discards::is_thin`](vfscale_block::Discards::is_thin)).
    pub discard: Option<bool>,
    /// The number of times that threads have to wait for a directory's lock, or names to come and
    /// go in it, before its names are delayed and changed side by side, until the next checkpoint
    /// (`inode/delayed_names.rs`). For tests: 0 for always, `u32::MAX` for never.
    #[doc(hidden)]
    pub dir_heat: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            read_only: false,
            no_recovery: false,
            on_error: OnError::default(),
            journal: vfscale_journal::Options {
                sync_interval: None,
                memory_bytes: Some(160 << 20),
                ..vfscale_journal::Options::default()
            },
            sync_interval: Some(Duration::from_secs(5)),
            data_cache_bytes: 256 << 20,
            metadata_cache_bytes: 64 << 20,
            cache_budget: None,
            log_device: None,
            branch_log_blocks: None,
            auto_da_alloc: true,
            discard: None,
            dir_heat: DIR_HEAT,
        }
    }
}

impl Settings {
    /// Returns the maximum number of bytes of clean metadata in memory, of its own or of the
    /// budget.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        match &self.cache_budget {
            Some(budget) => budget.of_metadata(),
            None => self.metadata_cache_bytes,
        }
    }
}
