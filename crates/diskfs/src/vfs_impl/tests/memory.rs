//! The limit of changed metadata in memory.

use super::*;
use crate::format::BLOCK_BYTES;

/// The log has room for ten times the changes, and no thread syncs.
#[test]
fn changed_metadata_take_no_more_memory_than_their_bound() {
    const FILES: usize = 8_000;
    const CLEAN: u64 = MIB / 4;
    const CHANGED: u64 = MIB;
    let device = Arc::new(MemoryDevice::new(1024 * MIB).unwrap());
    let made = MkfsOptions { log_blocks: Some(8_000), ..MkfsOptions::default() };
    mkfs::format(&*device, &made).unwrap();
    let mut options =
        Settings { sync_interval: None, metadata_cache_bytes: CLEAN, ..Settings::default() };
    options.journal.scaling = Scaling::with_slots(2);
    options.journal.memory_bytes = Some(CHANGED);
    let mounted = opened_with(device, options);
    let (mut buffers, mut changed) = (0, 0);
    for at in 0..FILES {
        mounted.write(&format!("/{at}"), b"");
        buffers = buffers.max(mounted.fs.volume().cache().len());
        changed = changed.max(mounted.fs.volume().journal().unwrap().stats().ail_bytes);
    }
    // A shard of the cache holds at least one block, and may hold one more that is being read.
    let buffers = buffers as u64 * BLOCK_BYTES as u64;
    assert!(buffers <= CLEAN + CHANGED + MIB, "{} KiB of blocks", buffers >> 10);
    assert!(changed <= CHANGED, "{} KiB in the AIL", changed >> 10);
    let mounted = mounted.again();
    assert_eq!(mounted.names("/").len(), FILES);
}
