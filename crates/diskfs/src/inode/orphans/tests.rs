//! Tests on a volume in memory.

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::cpu;

use super::*;
use crate::Settings;
use crate::base::fault::Fault;
use crate::format::{BLOCK_BYTES, BlockRange};
use crate::icache::table::NodeTable;
use crate::inode::core::{InodeCore, TYPE_REGULAR};
use crate::tools::mkfs::{MkfsOptions, format};
use crate::volume::Volume;
use crate::volume::tx::{Tx, TxReservation};

fn volume(orphan_parts: usize) -> Volume {
    let bytes = 4096 * BLOCK_BYTES as u64;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_size(bytes, 4096).unwrap());
    format(&*device, &MkfsOptions::default()).unwrap();
    let mut settings = Settings::default();
    settings.journal.scaling = settings.journal.scaling.with_orphan_parts(orphan_parts);
    Volume::open(device, settings).unwrap()
}

fn begin(volume: &Volume) -> Tx<'_> {
    let log_blocks = 10 + volume.groups().log_blocks(2, 1);
    volume.begin(TxReservation { log_blocks, space: 20, from_pool: false }).unwrap()
}

/// Creates a file that has a name, according to its record.
fn file(volume: &Volume, table: &NodeTable) -> Arc<Node> {
    let mut tx = begin(volume);
    let node_of = |ino| table.claim(ino, volume.cache());
    let (node, generation) = tx.new_node(8, false, node_of).unwrap();
    let _locked = node.lock();
    tx.set_core(&node, InodeCore { nlink: 1, ..InodeCore::new(TYPE_REGULAR, generation, 5) });
    tx.commit().unwrap();
    drop(_locked);
    node
}

fn set(volume: &Volume, node: &Arc<Node>, is_orphan: bool) -> Result<u64, Fault> {
    let mut tx = begin(volume);
    let _locked = node.lock();
    tx.set_orphan(node, is_orphan);
    tx.commit()
}

/// Lists the orphans on disk, as of the last commit.
fn on_disk(volume: &Volume) -> Vec<u64> {
    volume.groups().orphans(&volume.reader(), 0).unwrap()
}

#[test]
fn memory_and_disk_have_the_same_orphans() {
    for lists in [4, 1, 0] {
        let (volume, table) = (volume(lists), NodeTable::new(100));
        let nodes = [0, 1, 2].map(|_| file(&volume, &table));
        for (cpu, node) in nodes.iter().enumerate() {
            let _there = cpu::pretend(cpu as u32);
            set(&volume, node, true).unwrap();
            assert!(volume.orphans().has(node));
            // A repetition changes nothing, and logs nothing.
            assert_eq!(set(&volume, node, true).unwrap(), 0);
        }
        assert_eq!((volume.orphans().parts(), volume.orphans().len()), (lists.max(1), 3));
        assert_eq!(on_disk(&volume), nodes.each_ref().map(|node| node.ino()));
        // The inode ceases to be one, on whatever CPU this runs.
        set(&volume, &nodes[1], false).unwrap();
        assert_eq!((volume.orphans().has(&nodes[1]), volume.orphans().len()), (false, 2));
        assert_eq!(on_disk(&volume), [nodes[0].ino(), nodes[2].ino()]);
        assert_eq!(set(&volume, &nodes[1], false).unwrap(), 0);
    }
}

#[test]
fn a_transaction_that_fails_leaves_the_marks_as_they_were() {
    for lists in [2, 0] {
        let (volume, table) = (volume(lists), NodeTable::new(100));
        let [node, orphan] = [0, 1].map(|_| file(&volume, &table));
        set(&volume, &orphan, true).unwrap();
        // A dropped transaction, and one that the groups refuse: it frees a free block.
        for is_dropped in [true, false] {
            let mut tx = begin(&volume);
            let _locked = crate::inode::incore::lock_all(&[&node, &orphan]);
            tx.set_orphan(&node, true);
            tx.set_orphan(&orphan, false);
            tx.free(BlockRange { start: 4000, blocks: 1 });
            if !is_dropped {
                assert!(matches!(tx.commit(), Err(Fault::Local(_))));
            }
            assert!(!volume.orphans().has(&node) && volume.orphans().has(&orphan));
        }
        assert_eq!((volume.orphans().len(), on_disk(&volume)), (1, vec![orphan.ino()]));
        set(&volume, &orphan, false).unwrap();
        assert!(volume.orphans().is_empty() && on_disk(&volume).is_empty());
    }
}

#[test]
fn the_last_change_of_an_orphan_in_a_transaction_counts() {
    let (volume, table) = (volume(2), NodeTable::new(100));
    let node = file(&volume, &table);
    let mut tx = begin(&volume);
    let locked = node.lock();
    for is_orphan in [true, false, true] {
        tx.set_orphan(&node, is_orphan);
    }
    tx.commit().unwrap();
    drop(locked);
    assert!(volume.orphans().has(&node));
    assert_eq!(on_disk(&volume), [node.ino()]);
}

#[test]
fn the_node_of_an_orphan_stays_in_memory() {
    let (volume, table) = (volume(1), NodeTable::new(0));
    let node = file(&volume, &table);
    set(&volume, &node, true).unwrap();
    let (ino, kept) = (node.ino(), Arc::downgrade(&node));
    drop(node);
    volume.journal().unwrap().quiesce().unwrap();
    // Enough other nodes are created that the node would be evicted.
    (0..2000).for_each(|_| drop(file(&volume, &table)));
    let node = table.get(&volume, ino).unwrap().unwrap();
    assert!(std::ptr::eq(kept.as_ptr(), &*node) && volume.orphans().has(&node));
}
