//! How a volume is opened.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_sync::cpu;

#[cfg(doc)]
use crate::inode::orphans::OrphanList;

/// The options for opening a volume.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// Nothing is written, not even the log: what that has is replayed in memory, which holds it
    /// until the volume ends.
    pub read_only: bool,
    /// The log is not looked at, and nothing is written. What it has and is not home is missed, and
    /// what is half home may be damaged.
    pub no_recovery: bool,
    /// How the log is set up.
    pub journal: vfscale_journal::Options,
    /// How many bytes of metadata are kept in memory that could be read again; an eighth more for
    /// the indexes of free space.
    pub cache_bytes: u64,
    /// The device with the log, if it is on one of its own.
    pub log_device: Option<Arc<dyn Device>>,
    /// In how many lists it has its orphans in memory; 0 for one, as without the patch `orphan`
    /// (Kara 2014) ([`OrphanList`]).
    pub orphan_lists: usize,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_recovery: false,
            journal: vfscale_journal::Options::default(),
            cache_bytes: 64 << 20,
            log_device: None,
            orphan_lists: cpu::possible() as usize,
        }
    }
}
