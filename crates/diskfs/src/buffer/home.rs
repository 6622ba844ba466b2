//! Where blocks of metadata are written and read, and blocks of inodes on their way there.
//!
//! # Why blocks of inodes wait for each other
//!
//! Eight inodes lie in a block, and each of them is an item of the log that goes home by itself;
//! most times all eight do, one soon after the other, and the chunk they are of as well. So what is
//! pushed only changes the block in memory, and the block waits here until the journal has the
//! homes of all that it has pushed flushed
//! ([`Hooks::flush_home`](vfscale_journal::Hooks::flush_home)): then each block is written once,
//! all together and in the order of their addresses. Until that has returned the journal keeps the
//! items, so that nothing is taken for being home that is not.
//!
//! A block that waits is held, so the cache does not drop it, and who reads it finds what is
//! newest. One that is given up meanwhile is gone ([`Buffer::set_gone`]), and is not written.
//!
//! # Locks
//!
//! `home_pending` protects which blocks wait; a leaf, not held during I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_journal::Lsn;
use vfscale_sync::Mutex;

use super::Buffer;
use crate::Uuid;
use crate::base::ranks::HomePending;

/// Where blocks of metadata are written and read.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) volume: Uuid,
    /// Blocks that are to be written, by address, with the latest change of each.
    pending: Mutex<BTreeMap<u64, (Arc<Buffer>, Lsn)>, HomePending>,
}

impl Home {
    pub(super) fn new(device: Arc<dyn Device>, volume: Uuid) -> Self {
        Self { device, volume, pending: Mutex::new(BTreeMap::new()) }
    }

    /// Queues a block for write-back, as the version at `lsn`.
    pub(super) fn add(&self, buffer: &Arc<Buffer>, lsn: Lsn) {
        let mut pending = self.pending.lock();
        // An earlier push may have a later LSN.
        let known = pending.get(&buffer.address()).map_or(Lsn::NONE, |(_, lsn)| *lsn);
        // A block that was freed and made again has another buffer.
        let former = pending.insert(buffer.address(), (Arc::clone(buffer), lsn.max(known)));
        drop(pending);
        drop(former);
    }

    /// Writes all blocks that wait. Durable after a flush. One thread at a time, as the journal
    /// pushes.
    ///
    /// # Errors
    /// Those of the device; the journal is shut down then, and they are written no more.
    pub(crate) fn write_all(&self) -> Result<(), vfscale_block::Error> {
        let pending = std::mem::take(&mut *self.pending.lock());
        let begun = pending.values().filter_map(|(buffer, lsn)| buffer.begin_write(*lsn));
        let begun: Vec<_> = begun.collect();
        let writes: Vec<_> = begun.iter().map(|writing| writing.write()).collect();
        self.device.write_many(&writes)?;
        begun.iter().for_each(|writing| writing.done());
        Ok(())
    }

    pub(super) fn forget_all(&self) {
        drop(std::mem::take(&mut *self.pending.lock()));
    }
}
