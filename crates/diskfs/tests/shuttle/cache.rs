//! Random schedules of readers, commits and write-back of blocks of metadata:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale-diskfs --test shuttle cache::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well.

use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_diskfs::internals::{Buffer, BufferCache, Expected};
use vfscale_diskfs::on_disk::{Block, Identity, Magic, byte_of_block};
use vfscale_diskfs::{BLOCK_BYTES, Uuid};
use vfscale_journal::{LogItem, Lsn, Pushed};
use vfscale_sync::model::{self, Schedules};

const VOLUME: Uuid = Uuid::from_bytes(*b"volume of models");
const MAGIC: Magic = Magic(*b"test");
const OWNER: u64 = 7;
const BLOCKS: u64 = 64;
const SCHEDULES: usize = 2000;

fn check(model: impl Fn() + Send + Sync + 'static) {
    model::check(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], model);
}

fn expected() -> Expected {
    Expected { magic: MAGIC, owner: OWNER, check: |_, _| Ok(()) }
}

fn sealed(address: u64, first: u8) -> Box<Block> {
    let mut block = Block::zeroed();
    block.body_mut()[0] = first;
    block.seal(&Identity { magic: MAGIC, address, owner: OWNER, volume: VOLUME }, 0);
    block
}

/// Creates a device whose blocks all begin with 1.
fn device() -> Arc<dyn Device> {
    let device =
        MemoryDevice::with_block_size(BLOCKS * BLOCK_BYTES as u64, BLOCK_BYTES as u32).unwrap();
    for address in 0..BLOCKS {
        device.write_at(byte_of_block(address), sealed(address, 1).bytes()).unwrap();
    }
    Arc::new(device)
}

/// Creates a cache that holds one block in each of its shards.
fn cache(device: &Arc<dyn Device>) -> Arc<BufferCache> {
    Arc::new(BufferCache::new(device.clone(), VOLUME, 0))
}

fn read(cache: &BufferCache, address: u64) -> u8 {
    cache.read(address, &expected()).unwrap().body()[0]
}

fn on_device(device: &Arc<dyn Device>, address: u64) -> u8 {
    let mut block = Block::zeroed();
    device.read_at(byte_of_block(address), block.bytes_mut()).unwrap();
    block.verify(&Identity { magic: MAGIC, address, owner: OWNER, volume: VOLUME }).unwrap();
    block.body()[0]
}

fn push(buffer: &Buffer, lsn: u32) {
    assert!(matches!(buffer.push(Lsn::new(1, lsn)), Ok(Pushed::Written)));
}

/// A reader sees versions in their order while other threads evict and write back, and at last the
/// newest one, whether it is in memory or on the device.
///
/// Race: A reader of a block / commits / eviction.
#[test]
fn reader_against_commit_and_eviction() {
    check(|| {
        let device = device();
        let cache = cache(&device);
        let writer = model::spawn(cache.clone(), move |cache| {
            for version in 2..4_u8 {
                let buffer = cache.get(9, &expected()).unwrap();
                buffer.set_block(sealed(9, version).into());
                push(&buffer, version.into());
            }
        });
        // At least one of them is in the same shard of the cache.
        let evictor = model::spawn(cache.clone(), move |cache| {
            (10..40).for_each(|address| assert_eq!(read(&cache, address), 1));
        });
        let mut last = 0;
        for _ in 0..3 {
            let seen = read(&cache, 9);
            assert!(seen >= last, "{seen} after {last}");
            last = seen;
        }
        writer.join().unwrap();
        evictor.join().unwrap();
        assert_eq!((read(&cache, 9), on_device(&device, 9)), (3, 3));
    });
}

/// The address of a freed block belongs to its next owner as soon as freeing has returned, even if
/// another thread is about to write the old block back.
///
/// Race: Write-back of a block / freeing it / its next owner.
#[test]
fn write_home_against_free_and_reuse() {
    check(|| {
        let device = device();
        let cache = cache(&device);
        let old = cache.get(20, &expected()).unwrap();
        old.set_block(sealed(20, 2).into());
        let pusher = model::spawn(old.clone(), move |old| push(&old, 5));
        cache.forget(&old);
        old.set_gone();
        device.write_at(byte_of_block(20), sealed(20, 77).bytes()).unwrap();
        pusher.join().unwrap();
        assert_eq!((on_device(&device, 20), read(&cache, 20)), (77, 77));
    });
}

/// A block that is published at an address that other threads are reading is the one that all later
/// reads return.
///
/// Race: Readers of an address / publishing a block there.
#[test]
fn reading_against_publishing() {
    check(|| {
        let device = device();
        let cache = cache(&device);
        let readers = [0, 1].map(|_| {
            model::spawn(cache.clone(), move |cache| {
                let first = read(&cache, 30);
                let second = read(&cache, 30);
                assert!(second >= first, "{second} after {first}");
            })
        });
        let new = cache.fresh(30, sealed(30, 2).into());
        cache.publish(&new);
        assert_eq!(read(&cache, 30), 2);
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(read(&cache, 30), 2);
        drop(new);
    });
}

/// Readers that miss the same block concurrently read it once in total, and none of them sleeps for
/// ever.
///
/// Race: Readers that miss the same block.
#[test]
fn readers_of_a_missing_block() {
    check(|| {
        let cache = cache(&device());
        let readers = [0, 1, 2]
            .map(|_| model::spawn(cache.clone(), move |cache| assert_eq!(read(&cache, 40), 1)));
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(cache.reads(), 1);
    });
}
