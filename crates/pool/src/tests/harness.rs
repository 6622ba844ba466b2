//! Set-ups of tests of pools, and sessions on their branches.

use std::ops::Range;
use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};

use crate::Pool;

pub(crate) const UNIT: u64 = 4096;

/// Makes a pool of so many places, with a branch `main` of so many bytes.
pub(crate) fn new_pool(places: u64, bytes: u64) -> (Arc<MemoryDevice>, Pool) {
    let device = Arc::new(MemoryDevice::new(places * UNIT).unwrap());
    let pool = Pool::create(device.clone(), [5; 16]).unwrap();
    pool.create_branch("main", bytes).unwrap();
    (device, pool)
}

/// Writes blocks of a branch in a session, all with one byte.
pub(crate) fn put(pool: &Pool, name: &str, blocks: Range<u64>, byte: u8) {
    let branch = pool.branch(name).unwrap();
    blocks.for_each(|block| branch.write_at(block * UNIT, &[byte; UNIT as usize]).unwrap());
    branch.close().unwrap();
}

/// Returns the first byte of a block of a branch.
pub(crate) fn get(pool: &Pool, name: &str, block: u64) -> u8 {
    let mut bytes = [0xff];
    pool.branch(name).unwrap().read_at(block * UNIT, &mut bytes).unwrap();
    bytes[0]
}

/// Merges; the result is what `write` makes of the branch it is called with.
pub(crate) fn merge(pool: &Pool, from: &str, into: &str, write: impl FnOnce(&str)) {
    pool.fork(into, "fork", false).unwrap();
    let merged = pool.snapshot(from, || ()).unwrap();
    write("fork");
    let adoption = pool.adoption(into, "fork").unwrap();
    pool.adopt_merged(&adoption, (&merged, from)).unwrap();
    merged.close().unwrap();
}

/// Fails if a check of the pool finds anything.
pub(crate) fn assert_whole(pool: &Pool) {
    assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
}

/// Frees all that deleted branches had, and checks the pool.
pub(crate) fn reap(pool: &Pool) {
    while pool.reap(100).unwrap().more {}
    assert_whole(pool);
}
