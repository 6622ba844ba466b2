//! The policy for a volume that is no longer reliable.
//!
//! When its log fails, or it finds damage of metadata, a volume stops: nothing more becomes
//! durable, and it accepts no change. The next opening replays the changes that were durable.
//! Reading still works where it can: what the log has not got stays in memory. [`OnError`] decides
//! which errors callers get. The call that finds damage reports it (`EUCLEAN`), a call that needs
//! the log reports the log's error (`EIO`), and every later change reports the error of the policy.
//! A later call that only reads reports `EIO` if it can't, and never damage: parts of what it finds
//! may belong to changes that were given up.

use std::sync::OnceLock;

use vfscale_sync::atomic::AtomicBool;
use vfscale_vfs::super_block::{ReadOnlySwitch, SuperBlock};

use crate::base::on_error::OnError;

/// The policy, and whether the volume has stopped.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) on_error: OnError,
    /// The number of the fault that stopped an earlier mount, if the volume was not checked since.
    pub(super) before: Option<u32>,
    pub(super) is_told: AtomicBool,
    pub(super) switch: OnceLock<ReadOnlySwitch>,
}

impl Stop {
    pub(super) fn new(on_error: OnError, before: Option<u32>) -> Self {
        Self { on_error, before, is_told: AtomicBool::new(false), switch: OnceLock::new() }
    }

    /// Sets the superblock that the volume serves. Called once.
    pub(super) fn serve(&self, sb: &SuperBlock) {
        let _ = self.switch.set(sb.read_only_switch());
    }
}
