use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use vfscale_block::{Device, MemoryDevice, Operation};
use vfscale_journal::{LogItem, Lsn, Pushed};
use vfscale_testkit::FaultyDevice;

use super::{Buffer, BufferCache};
use crate::Uuid;
use crate::base::fault::Fault;
use crate::format::{BLOCK_BYTES, Block, Damage, Expected, Identity, Magic, byte_of_block};

const VOLUME: Uuid = Uuid::from_bytes(*b"volume of caches");
const MAGIC: Magic = Magic(*b"test");
const OWNER: u64 = 7;
const BLOCKS: u64 = 4096;

/// Rejects blocks whose first byte is 255.
fn check(address: u64, block: &Block) -> Result<(), Damage> {
    let found = u64::from(block.body()[0]);
    if found == 255 { Err(Damage::Address { address, found }) } else { Ok(()) }
}

fn expected() -> Expected {
    Expected { magic: MAGIC, owner: OWNER, check }
}

fn sealed(address: u64, first: u8) -> Box<Block> {
    let mut block = Block::zeroed();
    block.body_mut()[0] = first;
    block.seal(&Identity { magic: MAGIC, address, owner: OWNER, volume: VOLUME }, 0);
    block
}

/// Returns a device whose blocks all have their number in the first byte.
fn device() -> Arc<FaultyDevice<MemoryDevice>> {
    let device = MemoryDevice::new(BLOCKS * BLOCK_BYTES as u64).unwrap();
    for address in 0..BLOCKS {
        let block = sealed(address, (address % 251) as u8);
        device.write_at(byte_of_block(address), block.bytes()).unwrap();
    }
    Arc::new(FaultyDevice::new(device))
}

fn cache(device: &Arc<FaultyDevice<MemoryDevice>>, blocks: u64) -> BufferCache {
    BufferCache::new(device.clone(), VOLUME, blocks * BLOCK_BYTES as u64)
}

fn first_on(device: &impl Device, address: u64) -> u8 {
    let mut block = Block::zeroed();
    device.read_at(byte_of_block(address), block.bytes_mut()).unwrap();
    block.verify(&Identity { magic: MAGIC, address, owner: OWNER, volume: VOLUME }).unwrap();
    block.body()[0]
}

#[test]
fn a_block_is_read_once_and_again_after_it_was_evicted() {
    let device = device();
    let cache = cache(&device, 256);
    for _ in 0..3 {
        assert_eq!(cache.read(9, &expected()).unwrap().body()[0], 9);
    }
    assert_eq!(cache.reads(), 1);
    let held = cache.get(9, &expected()).unwrap();
    for address in 10..BLOCKS {
        cache.read(address, &expected()).unwrap();
    }
    // Some shards have more buffers than others, so the total is below the limit.
    assert!(cache.len() <= 256 + 1, "{} buffers", cache.len());
    assert!(cache.len() >= 64, "{} buffers", cache.len());
    let reads = cache.reads();
    assert!(Arc::ptr_eq(&held, &cache.get(9, &expected()).unwrap()));
    assert_eq!(cache.reads(), reads, "a buffer in use is not evicted");
    cache.read(10, &expected()).unwrap();
    assert_eq!(cache.reads(), reads + 1, "an unused buffer was evicted");
}

#[test]
fn the_buffer_cache_keeps_blocks_used_often() {
    let device = device();
    let cache = cache(&device, 1024);
    for address in 0..BLOCKS {
        cache.read(5, &expected()).unwrap();
        cache.read(address, &expected()).unwrap();
    }
    let reads = cache.reads();
    assert_eq!(reads, BLOCKS, "block 5 was evicted in between");
}

#[test]
fn many_readers_of_a_missing_block_read_it_once() {
    let device = device();
    device.arm(vfscale_testkit::Fault::on(Operation::Read).delay(Duration::from_millis(20)));
    let cache = cache(&device, 256);
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(cache.read(100, &expected()).unwrap().body()[0], 100);
            });
        }
    });
    assert_eq!(cache.reads(), 1);
}

#[test]
fn a_read_that_fails_is_tried_again_by_the_next() {
    let device = device();
    device.arm(vfscale_testkit::Fault::on(Operation::Read).nth(1));
    let cache = cache(&device, 256);
    assert!(matches!(cache.read(3, &expected()), Err(Fault::Device(_))));
    assert_eq!(cache.read(3, &expected()).unwrap().body()[0], 3);
}

#[test]
fn damage_is_found_and_not_kept() {
    let device = device();
    let cache = cache(&device, 256);
    let damaged = |address: u64| match cache.read(address, &expected()) {
        Err(Fault::Damage(damage)) => damage.number(),
        other => panic!("{other:?}"),
    };
    device.arm(vfscale_testkit::Fault::on_any().flip(byte_of_block(20) + 2000, 4));
    assert_eq!(damaged(20), 2);
    device.disarm();
    assert_eq!(cache.read(20, &expected()).unwrap().body()[0], 20);
    device.write_at(byte_of_block(21), sealed(21, 255).bytes()).unwrap();
    assert_eq!(damaged(21), 3, "the check of the kind of block");
    device.write_at(byte_of_block(21), sealed(22, 1).bytes()).unwrap();
    assert_eq!(damaged(21), 3, "a block that belongs elsewhere");
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_block_in_memory_is_not_given_to_another_owner() {
    let device = device();
    let cache = cache(&device, 256);
    cache.read(30, &expected()).unwrap();
    let other = Expected { owner: 8, ..expected() };
    assert!(matches!(cache.read(30, &other), Err(Fault::Damage(damage)) if damage.number() == 5));
    let other = Expected { magic: Magic(*b"else"), ..expected() };
    assert!(matches!(cache.read(30, &other), Err(Fault::Damage(damage)) if damage.number() == 1));
}

#[test]
fn a_published_buffer_replaces_one_being_read() {
    let device = device();
    device.arm(vfscale_testkit::Fault::on(Operation::Read).delay(Duration::from_millis(30)));
    let cache = cache(&device, 256);
    thread::scope(|scope| {
        let reader = scope.spawn(|| cache.read(40, &expected()).unwrap().body()[0]);
        while cache.reads() == 0 {
            thread::yield_now();
        }
        cache.publish(&cache.fresh(40, sealed(40, 99).into()));
        assert_eq!(cache.read(40, &expected()).unwrap().body()[0], 99);
        reader.join().unwrap();
    });
    assert_eq!(cache.read(40, &expected()).unwrap().body()[0], 99);
    assert_eq!(cache.len(), 1);
}

fn push(buffer: &Buffer, lsn: u32) {
    assert!(matches!(buffer.push(Lsn::new(1, lsn)), Ok(Pushed::Written)));
}

#[test]
fn a_buffer_goes_home_once_for_each_version_and_never_when_it_is_gone() {
    let device = device();
    let cache = cache(&device, 256);
    let buffer = cache.get(50, &expected()).unwrap();
    buffer.set_block(sealed(50, 1).into());
    push(&buffer, 10);
    assert_eq!(first_on(&device, 50), 1);
    let writes = device.calls(Operation::Write);
    push(&buffer, 10);
    assert_eq!(device.calls(Operation::Write), writes, "it was written back already");
    buffer.set_block(sealed(50, 2).into());
    push(&buffer, 11);
    assert_eq!(first_on(&device, 50), 2);
    buffer.set_block(sealed(50, 3).into());
    buffer.set_gone();
    push(&buffer, 12);
    assert_eq!(first_on(&device, 50), 2);
}

#[test]
fn freeing_waits_for_a_write_that_has_begun() {
    let device = device();
    let cache = cache(&device, 256);
    let buffer = cache.get(60, &expected()).unwrap();
    buffer.set_block(sealed(60, 1).into());
    let before = device.calls(Operation::Write);
    device.arm(vfscale_testkit::Fault::on(Operation::Write).delay(Duration::from_millis(30)));
    thread::scope(|scope| {
        let pusher = scope.spawn(|| push(&buffer, 10));
        while device.calls(Operation::Write) == before {
            thread::yield_now();
        }
        cache.forget(&buffer);
        buffer.set_gone();
        // From here on the address can be used for anything.
        assert_eq!(first_on(&device, 60), 1, "the write is not complete");
        device.disarm();
        device.write_at(byte_of_block(60), sealed(60, 77).bytes()).unwrap();
        pusher.join().unwrap();
    });
    assert_eq!(first_on(&device, 60), 77);
    assert_eq!(cache.len(), 0);
}

#[test]
fn a_freed_buffer_does_not_take_its_successor_with_it() {
    let device = device();
    let cache = cache(&device, 256);
    let old = cache.get(70, &expected()).unwrap();
    let new = cache.fresh(70, sealed(70, 1).into());
    cache.publish(&new);
    cache.forget(&old);
    assert!(Arc::ptr_eq(&cache.get(70, &expected()).unwrap(), &new));
}
