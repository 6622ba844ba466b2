use vfscale_block::{Device, MemoryDevice, Operation};
use vfscale_testkit::FaultyDevice;

use super::*;
use crate::Uuid;
use crate::format::{Block, Identity, byte_of_block};
use crate::inode::core::TYPE_REGULAR;

const VOLUME: Uuid = Uuid::from_bytes(*b"volume of nodes.");
const INO: u64 = 64 * 8 + 3;

fn device() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(1 << 20).unwrap();
    for address in 64..72 {
        let mut block = Block::zeroed();
        block.seal(&Identity { magic: INODE_MAGIC, address, owner: 64, volume: VOLUME }, 0);
        device.write_at(byte_of_block(address), block.bytes()).unwrap();
    }
    Arc::new(device)
}

fn core(mode: u32) -> InodeCore {
    InodeCore::new(TYPE_REGULAR | mode, 1, 5)
}

#[test]
fn a_push_writes_its_own_record_and_no_other() {
    let device = device();
    let cache = PerCpuArc::new(1, Arc::new(BufferCache::new(device.clone(), VOLUME, 1 << 20)));
    let nodes = [INO, INO + 1].map(|ino| Node::new(ino, core(0o600).into(), &cache));
    let push = |node: &Node, lsn: u64| {
        assert!(matches!(node.push(Lsn::from_bits(lsn << 32)), Ok(Pushed::Written)));
        cache.write_queue().write_all().unwrap();
    };
    push(&nodes[0], 1);
    let record = |ino: u64| {
        let mut block = Block::zeroed();
        device.read_at(byte_of_block(block_of(ino)), block.bytes_mut()).unwrap();
        let identity =
            Identity { magic: INODE_MAGIC, address: block_of(ino), owner: 64, volume: VOLUME };
        block.verify(&identity).unwrap();
        crate::format::inode::records(&block)[slot_of(ino)].clone()
    };
    assert_eq!(record(INO), core(0o600).encode());
    assert!(record(INO + 1).is_free());
    let locked = nodes[1].lock();
    nodes[1].publish(core(0o640).into(), Times::of(&nodes[1].core()), None);
    drop(locked);
    push(&nodes[1], 2);
    assert_eq!(record(INO), core(0o600).encode());
    assert_eq!(record(INO + 1), core(0o640).encode());
}

/// Inodes of a block that are pushed together are written together, once, and not before.
#[test]
fn a_block_is_written_once_for_all_its_inodes() {
    let device = Arc::new(FaultyDevice::new(device()));
    let cache = PerCpuArc::new(1, Arc::new(BufferCache::new(device.clone(), VOLUME, 1 << 20)));
    let nodes = (0..8).map(|slot| Node::new(64 * 8 + slot, core(0o600).into(), &cache));
    let nodes: Vec<_> = nodes.collect();
    for node in &nodes {
        assert!(matches!(node.push(Lsn::from_bits(1 << 32)), Ok(Pushed::Written)));
    }
    assert_eq!(device.calls(Operation::Write), 0);
    // A reader of the block finds the newest records.
    let block = cache.read(64, &Node::expected(INO)).unwrap();
    assert!(crate::format::inode::records(&block).iter().all(|record| !record.is_free()));
    cache.write_queue().write_all().unwrap();
    assert_eq!(device.calls(Operation::Write), 1);
    cache.write_queue().write_all().unwrap();
    assert_eq!(device.calls(Operation::Write), 1);
    // A node whose chunk is freed before the write is not written.
    assert!(matches!(nodes[0].push(Lsn::from_bits(2 << 32)), Ok(Pushed::Written)));
    cache.give_up_inodes(64);
    cache.write_queue().write_all().unwrap();
    assert_eq!(device.calls(Operation::Write), 1);
    // A failed write is an error of the flush.
    let node = Node::new(72 * 8, core(0o600).into(), &cache);
    assert!(node.push(Lsn::from_bits(3 << 32)).is_err());
}

#[test]
fn times_that_changed_in_passing_are_told_once_and_kept_until_a_commit_has_them() {
    let cache = PerCpuArc::new(1, Arc::new(BufferCache::new(device(), VOLUME, 1 << 20)));
    let node = Node::new(INO, core(0o600).into(), &cache);
    let _locked = node.lock();
    assert!(!node.has_new_times());
    assert!(node.follow_times(node.core().generation, || Times { atime: 9, mtime: 5, ctime: 5 }));
    assert!(!node.follow_times(node.core().generation, || Times { atime: 10, mtime: 5, ctime: 5 }));
    let copy = node.core();
    assert_eq!((copy.atime, copy.mtime), (10, 5));
    // The VFS reports other times while the transaction is under way.
    node.follow_times(node.core().generation, || Times { atime: 11, mtime: 5, ctime: 5 });
    node.publish(copy.clone(), Times::of(&copy), None);
    assert!(node.has_new_times());
    assert_eq!(node.core().atime, 11);
    let copy = node.core();
    node.publish(copy.clone(), Times::of(&copy), None);
    assert!(!node.has_new_times());
    assert_eq!(node.core().atime, 11);
    // A time that the transaction itself changes does not count as changed by another thread.
    node.follow_times(node.core().generation, || Times { atime: 12, mtime: 5, ctime: 5 });
    let copy = node.core();
    node.publish(InodeCore { ctime: 7, ..(*copy).clone() }.into(), Times::of(&copy), None);
    assert!(!node.has_new_times());
    assert_eq!((node.core().atime, node.core().ctime), (12, 7));
    // Nor do the times of an earlier inode with this number.
    assert!(!node.follow_times(0, || Times { atime: 20, mtime: 20, ctime: 20 }));
    // A transaction that frees the inode discards them.
    assert!(node.follow_times(1, || Times { atime: 13, mtime: 5, ctime: 7 }));
    let copy = node.core();
    node.follow_times(1, || Times { atime: 14, mtime: 5, ctime: 7 });
    node.publish(InodeCore::free(1).into(), Times::of(&copy), None);
    assert!(!node.has_new_times());
    assert!(!node.follow_times(1, || Times { atime: 15, mtime: 5, ctime: 7 }));
}

#[test]
fn several_are_locked_in_one_order_and_each_once() {
    let cache = PerCpuArc::new(1, Arc::new(BufferCache::new(device(), VOLUME, 1 << 20)));
    let [a, b] = [INO, INO + 1].map(|ino| Node::new(ino, core(0o600).into(), &cache));
    let guards = lock_all(&[&b, &a, &b]);
    assert_eq!(guards.len(), 2);
    assert!(a.lock.is_taken() && b.lock.is_taken());
    drop(guards);
    assert!(!a.lock.is_taken());
}
