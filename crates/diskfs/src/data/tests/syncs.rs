//! Threads that make everything durable, concurrently with others that write back on a slow device.

use std::sync::atomic::AtomicBool as Flag;
use std::thread;

use vfscale_block::{Operation, OsError};
use vfscale_testkit::{Fault as DeviceFault, FaultyDevice, Gate};

use super::file_blocks::Throttle;
use super::volume::{BLOCKS, Mounted, made};
use super::*;
use crate::inode::incore::Node;

type Slow = Arc<FaultyDevice<Arc<dyn Device>>>;

fn slow() -> (Slow, Mounted) {
    let slow = Arc::new(FaultyDevice::new(made()));
    let device: Arc<dyn Device> = slow.clone();
    (slow, Mounted::open(&device, 1 << 20))
}

/// Opens what a crash would leave now.
pub(super) fn crashed(device: &dyn Device) -> Mounted {
    let copy = MemoryDevice::with_block_size(BLOCKS * PAGE, 4096).unwrap();
    let mut bytes = vec![0; (BLOCKS * PAGE) as usize];
    device.read_at(0, &mut bytes).unwrap();
    copy.write_at(0, &bytes).unwrap();
    let copy: Arc<dyn Device> = Arc::new(copy);
    Mounted::open(&copy, 1 << 20)
}

/// One thread writes files back, and is held up at its first write to the device; then `changes`
/// happen; then somebody makes everything durable. What he leaves to a crash is opened.
fn synced_beside(
    (slow, mounted): &(Slow, Mounted),
    write_back: impl FnOnce(&Files) + Send,
    changes: impl FnOnce(),
) -> Mounted {
    let gate = Gate::new();
    slow.arm(DeviceFault::on(Operation::Write).nth(1).hold(&gate));
    let (files, is_over) = (&mounted.files, Flag::new(false));
    thread::scope(|scope| {
        scope.spawn(|| write_back(files));
        gate.wait_for(1);
        changes();
        let sync = scope.spawn(|| {
            files.sync_all().unwrap();
            let left = crashed(&**slow);
            is_over.store(true, Ordering::Release);
            left
        });
        // The thread writes what it can, and then waits; if it does not wait, it ends by itself.
        while slow.calls(Operation::Write) < 2 && !is_over.load(Ordering::Acquire) {
            thread::yield_now();
        }
        gate.open();
        sync.join().unwrap()
    })
}

fn write(mounted: &Mounted, node: &Arc<Node>, byte: u8) {
    mounted.files.file(node).write(0, &[byte; 3 * PAGE_SIZE]).unwrap();
}

fn assert_full(mounted: &Mounted, node: &Arc<Node>, byte: u8) {
    assert_eq!(mounted.contents(&mounted.node(node.ino())), [byte; 3 * PAGE_SIZE]);
}

/// Race: A sync against other threads that write back.
#[test]
fn a_sync_waits_for_files_that_others_are_writing_back() {
    let world = slow();
    let nodes = [world.1.create(), world.1.create()];
    nodes.iter().for_each(|node| write(&world.1, node, 1));
    let write_back = |files: &Files| files.write_back_all().unwrap();
    // The second one is changed again, while it waits for its turn.
    let left = synced_beside(&world, write_back, || write(&world.1, &nodes[1], 2));
    assert_full(&left, &nodes[0], 1);
    assert_full(&left, &nodes[1], 2);
}

/// Race: A sync against other threads that write back.
#[test]
fn a_sync_waits_for_writers_that_are_short_of_memory() {
    let world = slow();
    let nodes = [world.1.create(), world.1.create()];
    nodes.iter().for_each(|node| write(&world.1, node, 1));
    let left = synced_beside(&world, |files| assert!(files.write_back_one()), || ());
    nodes.iter().for_each(|node| assert_full(&left, node, 1));
}

#[test]
fn a_sync_does_all_it_can_and_tells_errors_of_other_threads() {
    let world = slow();
    let (slow, mounted) = &world;
    let nodes = [mounted.create(), mounted.create()];
    write(mounted, &nodes[0], 1);
    // The one that is lost is found by another thread.
    slow.arm(DeviceFault::on(Operation::Write).fail(OsError::IO));
    mounted.files.write_back_all().unwrap_err();
    assert!(!mounted.files.write_errors().is_told());
    slow.disarm();
    // One of two is lost here.
    write(mounted, &nodes[0], 1);
    mounted.files.sync_all().unwrap();
    write(mounted, &nodes[0], 3);
    write(mounted, &nodes[1], 2);
    let store = mounted.files.blocks(&nodes[0]);
    let Mapping::Mapped { start, .. } = store.map(0).unwrap() else { panic!("it was written") };
    let blocks = start * PAGE..(start + 3) * PAGE;
    slow.arm(DeviceFault::on(Operation::Write).within(blocks).fail(OsError::IO));
    mounted.files.sync_all().unwrap_err();
    assert_full(&crashed(&**slow), &nodes[1], 2);
    mounted.files.sync_all().unwrap();
}

/// A sync of a file flushes the device for data of this file, and not for that of others.
#[test]
fn a_sync_flushes_for_its_own_data() {
    let (slow, mounted) = slow();
    let nodes = [mounted.create(), mounted.create()];
    nodes.iter().for_each(|node| write(&mounted, node, 1));
    mounted.files.sync_all().unwrap();
    let sync = |node: &Arc<Node>| {
        let before = slow.calls(Operation::Flush);
        mounted.files.sync(node, true).unwrap();
        slow.calls(Operation::Flush) - before
    };
    assert_eq!([sync(&nodes[0]), sync(&nodes[1])], [0, 0], "everything is durable");
    let write_in_place = |node: &Arc<Node>, byte| {
        write(&mounted, node, byte);
        mounted.files.file(node).write_back().unwrap();
    };
    write_in_place(&nodes[0], 2);
    assert_eq!([sync(&nodes[1]), sync(&nodes[0]), sync(&nodes[0])], [0, 1, 0]);
    // A node that is read anew does not know what was written before.
    write_in_place(&nodes[0], 3);
    let again = mounted.read_anew(&nodes[0]);
    assert_eq!([sync(&again), sync(&again)], [1, 0]);
}

/// All who have written before the device ends a flush share a push of the log, and few flushes:
/// the two that are under way, two more, one of the push for data, and its own.
#[test]
fn syncs_side_by_side_share_a_push_and_its_flush() {
    for (workers, most) in [(2, 4), (8, 6)] {
        let (slow, mounted) = slow();
        let nodes: Vec<_> = (0..workers).map(|_| mounted.create()).collect();
        mounted.files.sync_all().unwrap();
        let stats = || mounted.volume().journal().unwrap().stats();
        let (before, flushes) = (stats(), slow.calls(Operation::Flush));
        let gate = Gate::new();
        slow.arm(DeviceFault::on(Operation::Flush).hold(&gate));
        thread::scope(|scope| {
            for node in &nodes {
                let mounted = &mounted;
                scope.spawn(move || {
                    write(mounted, node, 1);
                    mounted.files.sync(node, true).unwrap();
                });
            }
            let is_written = || stats().commits >= before.commits + workers;
            vfscale_harness::wait_until("the transactions of all", is_written);
            gate.open();
        });
        let (after, flushes) = (stats(), slow.calls(Operation::Flush) - flushes);
        assert_eq!(after.checkpoints - before.checkpoints, 1, "{workers} workers");
        assert!(flushes <= most, "{flushes} flushes for {workers} workers");
        nodes.iter().for_each(|node| assert_full(&crashed(&*slow), node, 1));
    }
}

/// A group's header, a leaf of its trees and the inode fit one block of the log, without the zeros
/// at their ends.
#[test]
fn an_append_with_a_sync_takes_one_block_of_the_log() {
    let (slow, mounted) = slow();
    let node = mounted.create();
    mounted.files.sync_all().unwrap();
    let stats = || mounted.volume().journal().unwrap().stats();
    let (before, flushes) = (stats(), slow.calls(Operation::Flush));
    for page in 0..50 {
        mounted.files.file(&node).write(page * PAGE, &[7; PAGE_SIZE]).unwrap();
        mounted.files.sync(&node, true).unwrap();
    }
    let (after, flushes) = (stats(), slow.calls(Operation::Flush) - flushes);
    let used: Vec<_> = after.tickets.iter().rev().take(50).map(|ticket| ticket.used).collect();
    assert_eq!(used, [4096; 50]);
    assert_eq!((after.checkpoints - before.checkpoints, flushes), (50, 2 * 50));
    assert_eq!(mounted.contents(&mounted.node(node.ino())).len(), 50 * PAGE_SIZE);
}

/// Dirty pages on a sealed volume are written when they can be.
///
/// Race: A sync against other threads that write back.
#[test]
fn a_sealed_volume_is_not_written_and_nothing_is_lost() {
    let (slow, mounted) = slow();
    let node = mounted.create();
    write(&mounted, &node, 1);
    mounted.volume().seal().unwrap();
    let before = slow.calls(Operation::Write);
    for _ in 0..2 {
        assert!(matches!(mounted.files.write_back_all(), Err(Fault::ReadOnly)));
        assert!(matches!(mounted.files.sync(&node, false), Err(Fault::ReadOnly)));
        mounted.files.write_back_one();
    }
    assert_eq!(slow.calls(Operation::Write), before);
    mounted.volume().unseal();
    mounted.files.sync_all().unwrap();
    assert_full(&crashed(&*slow), &node, 1);
}
