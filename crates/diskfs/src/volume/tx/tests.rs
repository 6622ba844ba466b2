//! Transactions on whole volumes, with trees that the tests create.

mod crashes;
mod faults;

use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use zerocopy::little_endian::U64;

use super::{Tx, TxReservation};
use crate::Settings;
use crate::base::fault::Fault;
use crate::btree::{Kind, Nodes, Tree};
use crate::format::inode::{INODE_MAGIC, ROOT_INO, chunk_of};
use crate::format::{BLOCK_BYTES, BlockRange, Magic, byte_of_block};
use crate::icache::table::NodeTable;
use crate::inode::core::{InodeCore, TYPE_REGULAR};
use crate::inode::incore::Node;
use crate::volume::Volume;

const BLOCKS: u64 = 4096;

/// A tree of numbers, with few records in a block, so it has many blocks.
struct Numbers;

impl Kind for Numbers {
    type Key = U64;
    type Value = U64;
    const MAGIC: Magic = Magic(*b"vfst");
    const KEY_MIN: U64 = U64::ZERO;
    const RECORDS_MAX: usize = 6;
}

fn need(volume: &Volume, space: u64) -> TxReservation {
    let log_blocks = 40 + volume.groups().log_blocks(2, 0);
    TxReservation { log_blocks: log_blocks.min(100), space, from_pool: false }
}

fn options() -> Settings {
    Settings::default()
}

fn open(device: &Arc<dyn Device>) -> Volume {
    Volume::open(device.clone(), options()).unwrap()
}

fn memory() -> MemoryDevice {
    MemoryDevice::with_block_size(BLOCKS * BLOCK_BYTES as u64, 4096).unwrap()
}

/// Creates a volume in memory.
fn made() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(memory());
    make(&device);
    device
}

fn make(device: &Arc<dyn Device>) {
    crate::tools::mkfs::format(&**device, &crate::tools::mkfs::MkfsOptions::default()).unwrap();
}

/// Creates an empty tree that belongs to `owner`, durably.
fn make_tree(volume: &Volume, owner: u64) -> Tree<Numbers> {
    let mut tx = volume.begin(need(volume, 4)).unwrap();
    let tree = Tree::create(&mut tx, owner, 0).unwrap();
    let sequence = tx.commit().unwrap();
    volume.force(sequence).unwrap();
    tree
}

fn insert(tx: &mut Tx<'_>, tree: Tree<Numbers>, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        tree.insert(tx, key.into(), (key * 2).into()).unwrap();
    }
}

fn remove(tx: &mut Tx<'_>, tree: Tree<Numbers>, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        assert!(tree.remove(tx, key.into()).unwrap().is_some(), "key {key} was not there");
    }
}

/// Checks a tree and returns its keys.
fn keys<N: Nodes<Error = Fault>>(nodes: &N, tree: Tree<Numbers>) -> Vec<u64> {
    tree.check(nodes, |damage| panic!("{damage}"), |_| {}).unwrap();
    let records = tree.range(nodes, ..).unwrap().map(Result::unwrap);
    records
        .map(|record| {
            assert_eq!(record.value.get(), record.key.get() * 2);
            record.key.get()
        })
        .collect()
}

/// Returns the free space by the counter.
fn left(volume: &Volume) -> u64 {
    volume.space().figures().free
}

/// Returns the free space by the groups and by the counter, which agree if no transaction is
/// active.
fn available(volume: &Volume) -> u64 {
    let available = volume.groups().totals().available;
    assert_eq!(left(volume), available);
    available
}

/// Any threads may use a volume and its shared state concurrently, and a transaction one after the
/// other.
const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_shared<T: Send + Sync>() {}
    is_send::<Tx<'static>>();
    is_shared::<Volume>();
    is_shared::<crate::volume::Reader<'static>>();
};

#[test]
fn a_committed_transaction_survives_opening() {
    let device = made();
    let volume = open(&device);
    let tree = make_tree(&volume, 3);
    let mut tx = volume.begin(need(&volume, 30)).unwrap();
    insert(&mut tx, tree, 0..60);
    assert_eq!(keys(&tx, tree).len(), 60);
    assert_eq!(keys(&volume.reader(), tree), [0; 0], "nobody else sees it");
    tx.commit().unwrap();
    assert_eq!(keys(&volume.reader(), tree), Vec::from_iter(0..60));
    let free = available(&volume);
    volume.close().unwrap();
    let volume = open(&device);
    assert!(volume.recovered().was_clean);
    assert_eq!(keys(&volume.reader(), tree), Vec::from_iter(0..60));
    assert_eq!(available(&volume), free);
}

#[test]
fn a_dropped_transaction_changes_nothing() {
    let device = made();
    let volume = open(&device);
    let tree = make_tree(&volume, 3);
    let mut tx = volume.begin(need(&volume, 30)).unwrap();
    insert(&mut tx, tree, 0..40);
    tx.commit().unwrap();
    let (free, stats) = (available(&volume), volume.journal().unwrap().stats());
    let mut tx = volume.begin(need(&volume, 100)).unwrap();
    insert(&mut tx, tree, 40..90);
    remove(&mut tx, tree, 0..35);
    let run = tx.claim(100, 1, 20).unwrap();
    tx.free(run);
    tx.new_node(8, true, |ino| NodeTable::new(1).claim(ino, volume.cache())).unwrap();
    assert!(left(&volume) < free);
    drop(tx);
    assert_eq!(available(&volume), free);
    assert_eq!(keys(&volume.reader(), tree), Vec::from_iter(0..40));
    let now = volume.journal().unwrap().stats();
    assert_eq!((now.grant_used, now.active), (stats.grant_used, 0));
    assert!(volume.failure().is_none());
    // Its claims are free again.
    let mut tx = volume.begin(need(&volume, 30)).unwrap();
    insert(&mut tx, tree, 40..90);
    tx.commit().unwrap();
    assert_eq!(keys(&volume.reader(), tree), Vec::from_iter(0..90));
}

#[test]
fn freed_blocks_come_back_when_that_is_durable_and_not_before() {
    let device = made();
    let volume = open(&device);
    let tree = make_tree(&volume, 3);
    let free = available(&volume);
    let mut tx = volume.begin(need(&volume, 40)).unwrap();
    insert(&mut tx, tree, 0..40);
    let run = tx.claim(200, 10, 10).unwrap();
    volume.force(tx.commit().unwrap()).unwrap();
    let used = free - available(&volume);
    assert!(used > 15, "{used} blocks");
    let mut tx = volume.begin(need(&volume, 40)).unwrap();
    remove(&mut tx, tree, 0..40);
    tx.free(run);
    let sequence = tx.commit().unwrap();
    assert_eq!(left(&volume), free - used);
    volume.force(sequence).unwrap();
    assert_eq!(available(&volume), free);
    assert_eq!(keys(&volume.reader(), tree), [0; 0]);
}

/// The blocks of files wait for the push, which enters what has come and gone in no tree. Until
/// then they are expected like all freed blocks, so a thread that lacks them waits.
#[test]
fn runs_of_files_are_delayed_and_come_back_when_they_are_durable() {
    let device = made();
    let volume = open(&device);
    let root = NodeTable::new(1000).get(&volume, ROOT_INO).unwrap().unwrap();
    let change = |space: u64, runs: &mut dyn FnMut(&mut Tx<'_>)| {
        let mut tx = volume.begin(need(&volume, space)).unwrap();
        let _guard = root.lock();
        tx.edit(&root, |_, core| {
            core.uid += 1;
            Ok(())
        })
        .unwrap();
        runs(&mut tx);
        tx.commit().unwrap()
    };
    // The first transactions of an opening are not delayed after small contexts.
    let (free, mut claimed) = (available(&volume), Vec::new());
    for _ in 0..5 {
        change(3, &mut |tx| claimed.push(tx.claim(200, 3, 3).unwrap()));
    }
    assert!(volume.groups().delayed().log_bytes() > 0, "nothing was delayed");
    assert_eq!((left(&volume), volume.space().is_coming()), (free - 15, false));
    let sequence = change(0, &mut |tx| claimed[1..4].iter().for_each(|run| tx.free(*run)));
    assert_eq!((left(&volume), volume.space().figures().coming), (free - 15, 9));
    volume.force(sequence).unwrap();
    assert_eq!(volume.groups().delayed().log_bytes(), 0);
    assert_eq!((available(&volume), volume.space().is_coming()), (free - 6, false));
    drop(volume);
    // As a crash leaves it.
    let volume = open(&device);
    assert_eq!(available(&volume), free - 6);
    let left = |run: &&BlockRange| {
        volume.groups().claim(&volume.reader(), run.start, 3, 3).unwrap() == Some(**run)
    };
    assert_eq!(claimed[1..4].iter().filter(left).count(), 3);
}

/// Each freed block is a run of its own, so the tree of free space grows and uses some of them
/// itself: the transactions that free these blocks have nothing else to return.
#[test]
fn a_transaction_counts_freed_blocks_that_trees_take() {
    let bytes = 16 * BLOCKS * BLOCK_BYTES as u64;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_size(bytes, 4096).unwrap());
    make(&device);
    let volume = open(&device);
    let mut tx = volume.begin(need(&volume, 12_000)).unwrap();
    let (mut runs, mut left) = (Vec::new(), 12_000);
    while left > 0 {
        runs.push(tx.claim(0, 1, left).unwrap());
        left -= runs[runs.len() - 1].blocks;
    }
    volume.force(tx.commit().unwrap()).unwrap();
    for start in runs.iter().flat_map(|run| (run.start..run.end()).step_by(2)) {
        let mut tx = volume.begin(need(&volume, 0)).unwrap();
        tx.free(BlockRange::one(start));
        tx.commit().unwrap();
    }
    volume.sync().unwrap();
    available(&volume);
}

#[test]
fn a_block_that_was_made_and_freed_in_one_transaction_leaves_nothing() {
    let device = made();
    let volume = open(&device);
    let tree = make_tree(&volume, 3);
    let free = available(&volume);
    let mut tx = volume.begin(need(&volume, 40)).unwrap();
    insert(&mut tx, tree, 0..40);
    remove(&mut tx, tree, 0..40);
    volume.force(tx.commit().unwrap()).unwrap();
    assert_eq!(available(&volume), free);
    assert_eq!(keys(&volume.reader(), tree), [0; 0]);
}

#[test]
fn a_transaction_that_needs_more_space_than_free_does_not_begin() {
    let device = made();
    let volume = open(&device);
    let free = available(&volume);
    let refused = volume.begin(need(&volume, free + 1));
    assert!(matches!(refused, Err(Fault::NoSpace)));
    assert_eq!(available(&volume), free);
    let mut tx = volume.begin(TxReservation { from_pool: true, ..need(&volume, 0) }).unwrap();
    assert!(matches!(tx.claim(0, u32::MAX, u32::MAX), Err(Fault::NoSpace)));
    drop(tx);
    assert_eq!(available(&volume), free);
}

#[test]
fn a_transaction_that_would_log_too_much_is_not_committed() {
    let device = made();
    let volume = open(&device);
    let tree = make_tree(&volume, 3);
    let free = available(&volume);
    let small = TxReservation { log_blocks: 3, space: 40, from_pool: false };
    let mut tx = volume.begin(small).unwrap();
    insert(&mut tx, tree, 0..40);
    let committed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tx.commit()));
    // With assertions the commit panics; without them it fails.
    assert!(!matches!(committed, Ok(Ok(_))));
    assert_eq!(available(&volume), free);
    assert_eq!(keys(&volume.reader(), tree), [0; 0]);
    make_tree(&volume, 4);
}

/// The copy of an inode may be changed by halves after an error.
#[test]
fn an_edit_that_fails_leaves_a_transaction_that_commits_nothing() {
    let device = made();
    let volume = open(&device);
    let table = NodeTable::new(1000);
    let root = table.get(&volume, ROOT_INO).unwrap().unwrap();
    let _locked = root.lock();
    let mut tx = volume.begin(need(&volume, 0)).unwrap();
    let failed = tx.edit(&root, |_, core| {
        core.uid = 7;
        Err::<(), _>(Fault::NoSpace)
    });
    assert!(matches!(failed, Err(Fault::NoSpace)));
    assert!(matches!(tx.commit(), Err(Fault::NoSpace)));
    assert_eq!(root.core().uid, 0);
    let mut tx = volume.begin(need(&volume, 0)).unwrap();
    tx.edit(&root, |_, core| {
        core.uid = 8;
        Ok(())
    })
    .unwrap();
    assert_eq!((root.core().uid, tx.core(&root).uid), (0, 8));
    tx.commit().unwrap();
    assert_eq!(root.core().uid, 8);
}

#[test]
fn claims_that_were_made_before_are_used() {
    let device = made();
    let volume = open(&device);
    let free = available(&volume);
    assert!(volume.space().take(5, false));
    let run = volume.groups().claim(&volume.reader(), 300, 5, 5).unwrap().unwrap();
    let mut tx = volume.begin(need(&volume, 0)).unwrap();
    tx.use_claim(run);
    volume.force(tx.commit().unwrap()).unwrap();
    assert_eq!(available(&volume), free - 5);
    let mut tx = volume.begin(need(&volume, 0)).unwrap();
    tx.free(run);
    volume.force(tx.commit().unwrap()).unwrap();
    assert_eq!(available(&volume), free);
}

#[test]
fn new_inodes_come_in_chunks_whose_blocks_are_there() {
    let device = made();
    let volume = open(&device);
    let (mut numbers, table) = (Vec::new(), NodeTable::new(100));
    let node_of = |ino| table.claim(ino, volume.cache());
    for _ in 0..3 {
        let mut tx =
            volume.begin(TxReservation { log_blocks: 100, space: 8, from_pool: false }).unwrap();
        for _ in 0..30 {
            numbers.push(tx.new_node(8, false, node_of).unwrap().0.ino());
        }
        volume.force(tx.commit().unwrap()).unwrap();
    }
    let free = available(&volume);
    numbers.sort_unstable();
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "a number was given out twice");
    drop(volume);
    // After a crash, and after a close.
    for _ in 0..2 {
        let volume = open(&device);
        for address in numbers.iter().map(|ino| ino / 8) {
            let owner = chunk_of(address);
            let expected =
                crate::format::Expected { magic: INODE_MAGIC, owner, check: |_, _| Ok(()) };
            volume.cache().read(address, &expected).unwrap();
        }
        assert_eq!(available(&volume), free);
        volume.close().unwrap();
    }
}

#[test]
fn chunks_that_are_given_up_can_become_anything() {
    let device = made();
    let volume = open(&device);
    let free = available(&volume);
    let big = TxReservation { log_blocks: 100, space: 32, from_pool: false };
    let table = NodeTable::new(1000);
    let mut tx = volume.begin(big).unwrap();
    let mut nodes = Vec::new();
    for _ in 0..200 {
        let node_of = |ino| table.claim(ino, volume.cache());
        let (node, generation) = tx.new_node(8, false, node_of).unwrap();
        tx.set_core(&node, InodeCore::new(TYPE_REGULAR, generation, 0));
        nodes.push(node);
    }
    let commit = |tx: Tx<'_>, nodes: &[&Arc<Node>]| {
        let _locked: Vec<_> = nodes.iter().map(|node| node.lock_nested()).collect();
        tx.commit().unwrap()
    };
    volume.force(commit(tx, &nodes.iter().collect::<Vec<_>>())).unwrap();
    assert!(nodes.iter().all(|node| node.sequence() > 0 && node.core().is_regular()));
    // Half of them are freed in an earlier transaction, and half in the one that frees their
    // chunks; the latter half was logged in a change before.
    let (even, odd): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.ino() % 2 == 0);
    let mut tx = volume.begin(big).unwrap();
    odd.iter().for_each(|node| tx.inode(node).nlink = 7);
    commit(tx, &odd);
    for half in [even, odd] {
        let mut tx = volume.begin(big).unwrap();
        for node in &half {
            tx.set_core(node, InodeCore::free(node.core().generation));
            tx.free_inode(node.ino());
        }
        volume.force(commit(tx, &half)).unwrap();
    }
    let back = available(&volume);
    assert!(back > free - 24, "no chunk was given up: {free} and {back}");
    // All of these blocks become data, which neither a write-back nor a recovery overwrites.
    let mut tx = volume.begin(TxReservation { space: 600, ..big }).unwrap();
    let mut runs = Vec::new();
    for _ in 0..600 {
        runs.push(tx.claim(8, 1, 1).unwrap());
    }
    write_data(&volume, &runs);
    volume.force(tx.commit().unwrap()).unwrap();
    let device = device.clone();
    drop(volume);
    let volume = open(&device);
    check_data(&device, &runs);
    volume.close().unwrap();
    check_data(&device, &runs);
}

fn data_of(address: u64) -> Vec<u8> {
    address.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

fn write_data(volume: &Volume, runs: &[BlockRange]) {
    for address in runs.iter().flat_map(|run| run.range()) {
        volume.device().write_at(byte_of_block(address), &data_of(address)).unwrap();
    }
    volume.mark_data_written();
}

fn check_data(device: &Arc<dyn Device>, runs: &[BlockRange]) {
    for address in runs.iter().flat_map(|run| run.range()) {
        let mut found = vec![0; BLOCK_BYTES];
        device.read_at(byte_of_block(address), &mut found).unwrap();
        assert!(found == data_of(address), "block {address} has other contents");
    }
}
