//! The callbacks of the log of a volume under repair.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_journal::Hooks;

/// Callbacks that flush the device of the volume after write-back.
pub(crate) struct RepairHooks(pub(crate) Arc<dyn Device>);

impl Hooks for RepairHooks {
    fn flush_home(&self) -> vfscale_journal::Result<()> {
        Ok(self.0.flush()?)
    }
}
