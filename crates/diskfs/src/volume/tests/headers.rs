//! Openings that read no header of a group, and groups that are read when they are used.

use std::sync::{Arc, Barrier};
use std::thread;

use vfscale_block::{Device, MemoryDevice, Operation};
use vfscale_testkit::FaultyDevice;

use super::{calls, large};
use crate::Settings;
use crate::alloc::Totals;
use crate::base::fault::Fault;
use crate::format::{Block, Damage, Identity, byte_of_block};
use crate::tools::check::{Options, Problem, Report, check};
use crate::volume::tx::TxReservation;
use crate::volume::{Volume, copies};

/// Reads of an opening: three superblocks, and two blocks of the log.
const READS: u64 = 5;

fn open(device: &Arc<dyn Device>) -> Volume {
    Volume::open(device.clone(), Settings::default()).unwrap()
}

/// Takes blocks in some groups, in one transaction each, durably.
fn use_groups(volume: &Volume, groups: impl IntoIterator<Item = u64>) {
    for group in groups {
        let log_blocks = volume.groups().log_blocks(1, 0);
        let need = TxReservation { log_blocks, space: 3, from_pool: false };
        let mut tx = volume.begin(need).unwrap();
        let near = group * volume.geometry().group_blocks() + 100;
        let run = tx.claim(near, 3, 3).unwrap();
        assert_eq!(run.start / volume.geometry().group_blocks(), group);
        let sequence = tx.commit().unwrap();
        volume.force(sequence).unwrap();
    }
}

/// Returns the totals that the headers have.
fn totals_of_headers(device: &Arc<dyn Device>) -> Totals {
    let mut superblock = copies::read(&**device).unwrap().superblock;
    superblock.sums = None;
    let copy = vfscale_block::CowDevice::in_place_of(device.clone());
    copies::write(&copy, &mut superblock).unwrap();
    let options = Settings { read_only: true, ..Settings::default() };
    Volume::open(Arc::new(copy), options).unwrap().groups().totals()
}

fn checked(device: &Arc<dyn Device>, repair: bool) -> Report {
    check(device.clone(), &Options { repair, ..Options::default() }, &mut ()).unwrap()
}

/// Returns the device of a volume that was closed after some groups were used.
fn closed(
    groups: impl IntoIterator<Item = u64>,
) -> (Arc<FaultyDevice<MemoryDevice>>, Arc<dyn Device>) {
    let device = large();
    let held: Arc<dyn Device> = device.clone();
    let volume = open(&held);
    assert_eq!(volume.geometry().group_blocks(), 8192);
    use_groups(&volume, groups);
    volume.close().unwrap();
    (device, held)
}

/// Changes the header of a group, whose address `change` gets as well.
fn change_header(device: &dyn Device, group: u64, change: impl FnOnce(&mut Block, u64)) {
    let address = group * 8192 + 1;
    let mut block = Block::zeroed();
    device.read_at(byte_of_block(address), block.bytes_mut()).unwrap();
    change(&mut block, address);
    device.write_at(byte_of_block(address), block.bytes()).unwrap();
}

/// Spoils the header of a group, or restores it.
fn spoil(device: &dyn Device, group: u64) {
    change_header(device, group, |block, _| block.bytes_mut()[100] ^= 1);
}

#[test]
fn a_closed_volume_is_opened_without_its_headers() {
    let (device, held) = closed([0, 7, 31]);
    for round in 0..3 {
        let sums = copies::read(&*held).unwrap().superblock.sums;
        assert!(sums.is_some(), "{round}");
        let expected = totals_of_headers(&held);
        let before = calls(&device)[0];
        let volume = open(&held);
        assert_eq!(calls(&device)[0] - before, READS, "{round}");
        assert_eq!(volume.groups().totals(), expected);
        let figures = volume.space().figures();
        assert_eq!((figures.blocks, figures.free), (expected.blocks, expected.available));
        // The sums, and the use of groups, read nothing else than those groups.
        assert_eq!(calls(&device)[0] - before, READS);
        use_groups(&volume, [round, 30]);
        assert!(calls(&device)[0] - before <= READS + 2 * 5, "{round}");
        assert_eq!(volume.groups().totals().available, expected.available - 6);
        volume.close().unwrap();
        assert_eq!(totals_of_headers(&held).available, expected.available - 6);
    }
    // After a crash, all headers count.
    let volume = open(&held);
    use_groups(&volume, [3]);
    let expected = volume.groups().totals();
    drop(volume);
    assert_eq!(copies::read(&*held).unwrap().superblock.sums, None);
    let before = calls(&device)[0];
    let volume = open(&held);
    assert!(calls(&device)[0] - before >= 32);
    assert_eq!(volume.groups().totals(), expected);
    use_groups(&volume, [4]);
    volume.close().unwrap();
    assert!(copies::read(&*held).unwrap().superblock.sums.is_some());
}

/// A group whose header is damaged is left out when it is used first: claims go to other groups,
/// and its free space is withdrawn. An outage, in which no group can be read, leaves out none.
#[test]
fn a_group_with_a_damaged_header_is_left_out() {
    let (device, held) = closed([0]);
    let before = totals_of_headers(&held);
    spoil(&*held, 9);
    let volume = open(&held);
    let claim = |group: u64| volume.groups().claim(&volume.reader(), group * 8192 + 100, 1, 1);
    for _ in 0..2 {
        for group in [9, 10] {
            let run = claim(group).unwrap().unwrap();
            assert_eq!(run.start / 8192, 10);
            volume.groups().unclaim(run);
        }
    }
    assert_eq!(volume.groups().left_out(), 1);
    assert!(volume.groups().orphans(&volume.reader(), 9).unwrap().is_empty());
    volume.metadata().withdraw();
    let after = volume.groups().totals();
    let lost = before.available - after.available;
    assert!((8192 - 200..8192).contains(&lost) && after.blocks == before.blocks, "{lost}");
    assert_eq!(volume.space().figures().free, after.available);
    use_groups(&volume, [8, 10]);
    assert_eq!(volume.space().figures().free, volume.groups().totals().available);
    volume.close().unwrap();
    assert_eq!(copies::read(&*held).unwrap().superblock.sums, None);
    // An opening that reads all headers finds the same.
    let volume = open(&held);
    assert_eq!(volume.groups().left_out(), 1);
    assert_eq!(volume.groups().totals(), Totals { available: after.available - 6, ..after });
    assert_eq!(volume.space().figures().free, volume.groups().totals().available);
    volume.close().unwrap();
    spoil(&*held, 9);
    let volume = open(&held);
    assert_eq!(volume.groups().totals().available, before.available - 6);
    volume.close().unwrap();
    let volume = open(&held);
    let claim = || volume.groups().claim(&volume.reader(), 9 * 8192 + 100, 1, 1);
    device.arm(vfscale_testkit::Fault::on(Operation::Read));
    let fault = Fault::from(claim().unwrap_err());
    assert!(matches!(&fault, Fault::Damage(_) | Fault::Device(_)), "{fault}");
    device.disarm();
    assert_eq!((claim().unwrap().unwrap().start / 8192, volume.groups().left_out()), (9, 0));
}

/// A header from after the end of the log belongs to a volume that was used with another log.
#[test]
fn a_header_that_is_newer_than_a_closed_log_is_found() {
    let (_, held) = closed([0]);
    for (lsn, is_newer) in [(1, false), (u64::MAX, true)] {
        change_header(&*held, 9, |block, address| {
            let header = block.header();
            let (magic, owner, volume) = (header.magic, header.owner.get(), header.volume);
            block.seal(&Identity { magic, address, owner, volume }, lsn);
        });
        let volume = open(&held);
        let claimed = volume.groups().claim(&volume.reader(), 9 * 8192 + 100, 1, 1);
        let found = claimed.map_err(Fault::from);
        let is_found = matches!(found, Err(Fault::Damage(Damage::Newer { .. })));
        assert_eq!(is_found, is_newer, "{found:?}");
    }
}

/// Race: The first uses of groups by several threads.
#[test]
fn groups_are_read_by_threads_at_the_same_time() {
    let (_, held) = closed(0..32);
    for _ in 0..20 {
        let volume = open(&held);
        let (before, barrier) = (volume.groups().totals(), Barrier::new(3));
        let claims: u64 = thread::scope(|scope| {
            let claims = || {
                barrier.wait();
                let claim = |group: u64| {
                    let near = group * 8192 + 200;
                    volume.groups().claim(&volume.reader(), near, 1, 1).unwrap().unwrap()
                };
                (0..32).map(|group| claim(group).len()).sum::<u64>()
            };
            let threads = [scope.spawn(claims), scope.spawn(claims)];
            barrier.wait();
            // The sums never miss a group, and never count one twice.
            for _ in 0..50 {
                let now = volume.groups().totals();
                assert!(
                    now.available <= before.available && now.available + 64 >= before.available
                );
                assert_eq!((now.blocks, now.inodes), (before.blocks, before.inodes));
            }
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert_eq!(volume.groups().totals().available, before.available - claims);
    }
}

/// A check finds sums that differ from the headers, and a repair removes them.
#[test]
fn wrong_sums_are_found() {
    let device: Arc<dyn Device> = large();
    let volume = open(&device);
    let log_blocks = volume.groups().log_blocks(1, 0);
    drop(volume.begin(TxReservation { log_blocks, space: 3, from_pool: false }).unwrap());
    volume.close().unwrap();
    assert_eq!(checked(&device, false).findings, []);
    let right = totals_of_headers(&device);
    let mut superblock = copies::read(&*device).unwrap().superblock;
    let sums = superblock.sums.as_mut().unwrap();
    sums.available -= 1;
    copies::write(&*device, &mut superblock).unwrap();
    let report = checked(&device, false);
    assert_eq!(report.findings.len(), 1);
    assert!(matches!(report.findings[0].problem, Problem::Sums { .. }), "{:?}", report.findings);
    // The volume can be used: a few blocks are missed, and nothing else.
    let volume = open(&device);
    assert_eq!(volume.space().figures().free, right.available - 1);
    drop(volume);
    assert_eq!((checked(&device, true).left, checked(&device, false).count), (0, 0));
    assert_eq!(open(&device).groups().totals(), right);
}
