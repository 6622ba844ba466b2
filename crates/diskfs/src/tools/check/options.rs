//! The options of a check.

use std::sync::Arc;

use vfscale_block::Device;

#[cfg(doc)]
use super::watch::Watch;

/// Options of a check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether to repair the volume as far as possible.
    pub repair: bool,
    /// Whether a repair gives the volume a new, empty log, and discards the contents of the former
    /// one if they can't be replayed. Without a repair: whether to report the contents that would
    /// be lost.
    pub discard_log: bool,
    /// Whether a repair gives up what the device can't read, and what is overwritten by other
    /// blocks: as if it were destroyed. Otherwise such blocks are left, because the device, or a
    /// copy of it, may be readable another day.
    pub give_up_unreadable: bool,
    /// The device of the log, if it is not in the volume. A new log may be on another device than
    /// the former one.
    pub log: Option<Arc<dyn Device>>,
    /// Maximum number of findings in the report; all are counted, and passed to the [`Watch`].
    pub findings: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            repair: false,
            discard_log: false,
            give_up_unreadable: false,
            log: None,
            findings: 1000,
        }
    }
}
