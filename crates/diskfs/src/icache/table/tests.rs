use std::sync::Barrier;
use std::thread;

use vfscale_block::{Device, MemoryDevice};

use super::*;
use crate::Settings;
use crate::Uuid;
use crate::format::inode::{INODE_MAGIC, ino_at, records_mut};
use crate::format::{BLOCK_BYTES, Block, Identity, byte_of_block};
use crate::inode::core::TYPE_REGULAR;
use crate::inode::times::Times;
use crate::tools::mkfs::{self, MkfsOptions};

const ID: Uuid = Uuid::from_bytes(*b"volume of tables");
const BLOCKS: u64 = 4096;
/// The first block of inodes, and the number of such blocks.
const FIRST: u64 = 8;
const INODE_BLOCKS: u64 = 64;

/// Creates a volume with inodes in all slots but the last of each block.
fn volume() -> Volume {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(BLOCKS * BLOCK_BYTES as u64).unwrap());
    let options = MkfsOptions { uuid: Some(ID), ..MkfsOptions::default() };
    mkfs::format(&device, &options).unwrap();
    // On blocks that belong to no chunk: the groups are not consulted here.
    for address in FIRST..FIRST + INODE_BLOCKS {
        let mut block = Block::zeroed();
        for record in &mut records_mut(&mut block)[..7] {
            *record = InodeCore::new(TYPE_REGULAR | 0o600, 1, 0).encode();
        }
        let owner = crate::format::inode::chunk_of(address);
        block.seal(&Identity { magic: INODE_MAGIC, address, owner, volume: ID }, 0);
        device.write_at(byte_of_block(address), block.bytes()).unwrap();
    }
    Volume::open(device, Settings::default()).unwrap()
}

#[test]
fn one_number_has_one_node_whoever_asks_first() {
    let volume = volume();
    let table = NodeTable::new(1000);
    for block in FIRST..FIRST + 8 {
        let (ino, barrier) = (ino_at(block, 3), Barrier::new(4));
        let nodes: Vec<_> = thread::scope(|scope| {
            let ask = || {
                barrier.wait();
                table.get(&volume, ino).unwrap().unwrap()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(nodes.iter().all(|node| Arc::ptr_eq(node, &nodes[0])));
    }
    assert_eq!(table.len(), 8);
}

#[test]
fn numbers_that_no_inode_has_are_no_nodes() {
    let volume = volume();
    let table = NodeTable::new(1000);
    assert!(table.get(&volume, ino_at(FIRST, 7)).unwrap().is_none());
    for ino in [0, 7, u64::MAX, ino_at(BLOCKS, 0)] {
        assert!(table.get(&volume, ino).unwrap().is_none());
    }
    let damage = table.get(&volume, ino_at(FIRST + INODE_BLOCKS, 0)).unwrap_err();
    assert!(matches!(damage, Fault::Local(_)), "{damage}");
    assert_eq!(table.len(), 0);
}

/// Race: An error of write-back against the calls that report it.
#[test]
fn nodes_that_nobody_needs_are_given_up_and_others_stay() {
    let volume = volume();
    let table = NodeTable::new(0);
    let used = table.get(&volume, ino_at(FIRST, 0)).unwrap().unwrap();
    let dirty = ino_at(FIRST, 1);
    let times = Times { atime: 1, mtime: 2, ctime: 3 };
    let node = table.get(&volume, dirty).unwrap().unwrap();
    assert!(node.follow_times(node.core().generation, || times));
    drop(node);
    // The error has not been reported yet.
    let failed = ino_at(FIRST, 2);
    table.get(&volume, failed).unwrap().unwrap().write_errors().record(5);
    for block in FIRST..FIRST + INODE_BLOCKS {
        for slot in 0..7 {
            table.get(&volume, ino_at(block, slot)).unwrap().unwrap();
        }
    }
    assert!(table.len() <= 16 * table.shards.len() + 3, "{}", table.len());
    assert!(Arc::ptr_eq(&used, &table.get(&volume, used.ino()).unwrap().unwrap()));
    assert!(table.get(&volume, dirty).unwrap().unwrap().has_new_times());
    assert!(!table.get(&volume, failed).unwrap().unwrap().write_errors().is_told());
}

#[test]
fn a_number_that_was_freed_keeps_its_node_for_the_next_inode() {
    let volume = volume();
    let table = NodeTable::new(1000);
    let ino = ino_at(FIRST, 2);
    let node = table.get(&volume, ino).unwrap().unwrap();
    let locked = node.lock();
    node.publish(InodeCore::free(1).into(), Times::of(&node.core()), None);
    drop(locked);
    assert!(table.get(&volume, ino).unwrap().is_none());
    assert!(Arc::ptr_eq(&node, &table.claim(ino, volume.cache())));
}

/// A thread that asks a thousand tables for unused nodes does not look through all of each.
#[test]
fn a_table_without_unused_nodes_is_searched_in_parts() {
    let shared = Arc::new(SharedLimit::new(10));
    let table = NodeTable::with_limit(1 << 16, Some(shared));
    assert!(table.shards.len() > 4 * SHARDS_IN_VAIN);
    for calls in 1..=4 {
        assert_eq!(table.drop_unused(64), 0);
        assert_eq!(table.looked_at.load(Ordering::Relaxed), calls * SHARDS_IN_VAIN);
    }
}
