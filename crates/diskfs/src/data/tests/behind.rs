//! Write-behind of sequential writers.

use std::thread;
use std::time::Duration;

use vfscale_block::Operation;
use vfscale_testkit::{Fault as DeviceFault, FaultyDevice, Gate};

use super::syncs::crashed;
use super::volume::{Mounted, made};
use super::*;
use crate::inode::incore::Node;

/// So large that nothing is written back because much is dirty.
const CACHE: u64 = 256 << 20;

fn slow() -> (Arc<FaultyDevice<Arc<dyn Device>>>, Mounted) {
    let slow = Arc::new(FaultyDevice::new(made()));
    let device: Arc<dyn Device> = slow.clone();
    (slow, Mounted::open(&device, CACHE))
}

/// Writes four megabytes in order.
fn write_in_order(mounted: &Mounted, node: &Arc<Node>, byte: u8) {
    for n in 0..4 {
        mounted.files.file(node).write(n << 20, &vec![byte; 1 << 20]).unwrap();
    }
}

#[test]
fn a_sequential_writer_is_written_behind() {
    let mounted = Mounted::open(&made(), CACHE);
    let node = mounted.create();
    write_in_order(&mounted, &node, 3);
    mounted.files.file(&node).write(4 << 20, b"more").unwrap();
    vfscale_harness::wait_until("pages are written behind", || {
        mounted.files.pages().unstable() <= 1
    });
    assert_eq!(node.core().size, 4 << 20);
    mounted.files.sync(&node, true).unwrap();
    assert_eq!(node.core().size, (4 << 20) + 4);
    mounted.close();
}

#[test]
fn two_files_are_written_behind_by_two_threads() {
    let (slow, mounted) = slow();
    let nodes = [mounted.create(), mounted.create()];
    let gate = Gate::new();
    slow.arm(DeviceFault::on(Operation::Write).hold(&gate));
    for (node, byte) in nodes.iter().zip([1, 2]) {
        write_in_order(&mounted, node, byte);
    }
    // A single thread would be held up at the first one.
    gate.wait_for(2);
    gate.open();
    mounted.files.sync_all().unwrap();
    slow.disarm();
    for (node, byte) in nodes.iter().zip([1, 2]) {
        assert_eq!(mounted.contents(node), vec![byte; 4 << 20]);
    }
    mounted.close();
}

#[test]
fn a_sync_waits_for_what_is_being_written_behind() {
    let (slow, mounted) = slow();
    let node = mounted.create();
    let gate = Gate::new();
    slow.arm(DeviceFault::on(Operation::Write).nth(1).hold(&gate));
    write_in_order(&mounted, &node, 7);
    gate.wait_for(1);
    let left = thread::scope(|scope| {
        let sync = scope.spawn(|| {
            mounted.files.sync_all().unwrap();
            crashed(&*slow)
        });
        vfscale_harness::pause(Duration::from_millis(20));
        let is_early = sync.is_finished();
        gate.open();
        assert!(!is_early, "the sync did not wait");
        sync.join().unwrap()
    });
    assert_eq!(left.contents(&left.node(node.ino())), vec![7; 4 << 20]);
    mounted.close();
}
