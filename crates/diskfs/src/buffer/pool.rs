//! A pool of memory for copies of blocks.
//!
//! Every transaction copies the blocks that it changes. Soon after, the former copies are no longer
//! needed: those that it replaces, and those that the log has written. A general allocator takes
//! longer to find four kilobytes than copying them takes. So each CPU retains a few.
//!
//! # Invariants
//!
//! * A block in the pool has no other references.
//! * A CPU retains at most [`KEPT`] blocks; all others return to the allocator.

use std::sync::Arc;
#[cfg(not(any(loom, shuttle)))]
use std::sync::LazyLock;

use vfscale_journal::Image;
use vfscale_sync::Mutex;
use vfscale_sync::percpu::PerCpu;

use crate::base::ranks::BlockPool;
use crate::format::{BLOCK_BYTES, Block};

/// Number of blocks that a CPU retains.
const KEPT: usize = 64;

type Slots = PerCpu<Mutex<Vec<Arc<Block>>, BlockPool>>;

/// Returns the slots of the process: a returned block knows nothing of its volume.
#[cfg(not(any(loom, shuttle)))]
fn slots() -> Option<&'static Slots> {
    static SLOTS: LazyLock<Slots> = LazyLock::new(|| {
        let slots = vfscale_sync::cpu::most_slots() as usize;
        PerCpu::new(slots, |_| Mutex::new(Vec::with_capacity(KEPT)))
    });
    Some(&SLOTS)
}

/// Returns no pool: models run many times in a process, each with locks of its own.
#[cfg(any(loom, shuttle))]
fn slots() -> Option<&'static Slots> {
    None
}

/// Copies a block.
fn copy(block: &Block) -> Arc<Block> {
    let spare = slots().and_then(|slots| slots.this().lock().pop());
    if let Some(mut spare) = spare
        && let Some(memory) = Arc::get_mut(&mut spare)
    {
        memory.bytes_mut().copy_from_slice(block.bytes());
        return spare;
    }
    Arc::new(block.clone())
}

/// Returns the block for a change through this reference. If there are other references, they
/// retain the old contents, and this one is replaced by one to a copy.
pub(crate) fn make_mut(block: &mut Arc<Block>) -> &mut Block {
    if Arc::strong_count(block) != 1 {
        let shared = std::mem::replace(block, copy(block));
        release(shared);
    }
    Arc::make_mut(block)
}

/// Drops a reference; the last one returns the memory to the pool.
pub(crate) fn release(mut block: Arc<Block>) {
    if Arc::get_mut(&mut block).is_none() {
        return;
    }
    let Some(slots) = slots() else { return };
    let mut kept = slots.this().lock();
    if kept.len() < KEPT {
        kept.push(block);
    } else {
        drop(kept);
        drop(block);
    }
}

impl Image for Block {
    fn log_bytes(&self) -> usize {
        BLOCK_BYTES
    }

    fn bytes_used(&self) -> usize {
        self.bytes_used()
    }

    fn write(
        &self,
        write: &mut dyn FnMut(&[u8]) -> vfscale_journal::Result<()>,
    ) -> vfscale_journal::Result<()> {
        write(self.bytes())
    }

    fn release(self: Arc<Self>) {
        release(self);
    }
}

#[cfg(test)]
mod tests;
