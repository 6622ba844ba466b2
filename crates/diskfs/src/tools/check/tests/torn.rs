//! Blocks of inodes with a wrong checksum, or with wrong records, and what can't be read: a repair
//! retains what is right.

use std::sync::Arc;

use vfscale_block::{Device, Operation};
use vfscale_testkit::{Fault, FaultyDevice};

use super::damage::flip;
use super::mending::{data, filled, in_tree, look_up};
use super::repairs::repair;
use super::sample::{
    BELOW, CHUNK, EXTENTS, FIFO, FREE, GROUP, LIST, MANY, ORPHAN, Sample, TREE_DIR,
};
use crate::Settings;
use crate::format::byte_of_block;
use crate::format::group::{CHUNK_ROOT_AT, FREE_ROOT_AT};
use crate::format::inode::{ROOT_INO, block_of, records_mut, slot_of};
use crate::inode::core::{DataFork, InodeCore};
use crate::tools::check::{self, Options, Report};
use crate::vfs_impl::DiskFs;

/// Flips a bit in the record of an inode.
fn flip_record(sample: &Sample, ino: u64) {
    flip(sample, block_of(ino), 48 + slot_of(ino) as u64 * 504 + 60);
}

/// Checks that these inodes are gone, and that all others are the same.
fn all_but(copy: &Sample, before: &Sample, gone: &[u64], case: &str) {
    assert_eq!(copy.check().findings, [], "{case}");
    let changed = |ino: &u64| [ROOT_INO, ORPHAN, FREE].contains(ino) || gone.contains(ino);
    for ino in (ROOT_INO..FREE).filter(|ino| !changed(ino)) {
        let (is, was) = (copy.core(ino), before.core(ino));
        let same = InodeCore { parent: was.parent, nlink: was.nlink, ..is.clone() };
        // Names that lead nowhere go.
        let is_alike = same == was || is.is_directory();
        assert!(is_alike, "{case}: {ino}: {is:?} {was:?}");
        assert_eq!(data(copy, ino), data(before, ino), "{case}: {ino}");
    }
    for ino in gone.iter().filter(|ino| **ino != ROOT_INO) {
        let found = copy.core_of(*ino);
        assert!(found.is_none_or(|core| core.is_directory() && core.mode & 0o777 == 0o700));
    }
    DiskFs::open(copy.device.clone(), Settings::default()).unwrap().close().unwrap();
}

#[test]
fn a_wrong_record_costs_one_inode() {
    let sample = filled();
    for ino in (ROOT_INO..FREE).filter(|ino| *ino != ORPHAN) {
        let copy = sample.copied();
        flip_record(&copy, ino);
        let found = copy.found();
        assert!(found.contains(&2) && found.contains(&412), "{ino}: {found:?}");
        // Also in a block whose checksum is right.
        let sealed = copy.copied();
        sealed.block(block_of(ino), |_| {});
        assert!(!sealed.found().contains(&2) && sealed.found().contains(&412));
        for copy in [copy, sealed] {
            assert_eq!(repair(&copy).left, 0, "{ino}: {:#?}", copy.check().findings);
            all_but(&copy, &sample, &[ino], &format!("inode {ino}"));
            assert_eq!(repair(&copy).count, 0, "{ino}");
        }
    }
}

/// A wrong checksum alone costs nothing: a bit of the header, and one behind the records.
#[test]
fn a_wrong_checksum_of_a_block_costs_nothing() {
    let sample = filled();
    for (block, at) in [(CHUNK, 4), (CHUNK, 4090), (CHUNK + 1, 40)] {
        let copy = sample.copied();
        flip(&copy, block, at);
        assert_eq!(copy.found(), [2], "{at}");
        let report = repair(&copy);
        assert_eq!((report.count, report.left), (1, 0));
        all_but(&copy, &sample, &[], &format!("{block} {at}"));
        assert_eq!(copy.core(ROOT_INO), sample.core(ROOT_INO));
    }
}

/// Without a root, everything that was in it is found again.
#[test]
fn a_new_root_is_made() {
    let sample = filled();
    let ways: [fn(&Sample); 3] = [
        |copy| flip_record(copy, ROOT_INO),
        |copy| {
            copy.block(block_of(ROOT_INO), |block| {
                records_mut(block)[slot_of(ROOT_INO)] = InodeCore::free(7).encode();
            });
        },
        |copy| copy.inode(ROOT_INO, |i| (i.mode, i.parent) = (0o100_644, 0)),
    ];
    for (way, damage) in ways.iter().enumerate() {
        let copy = sample.copied();
        damage(&copy);
        assert_eq!(repair(&copy).left, 0, "{way}: {:#?}", copy.check().findings);
        all_but(&copy, &sample, &[], &format!("way {way}"));
        let place = look_up(&copy, ROOT_INO, "lost+found").unwrap();
        for ino in [MANY, LIST, EXTENTS, FIFO, TREE_DIR] {
            let found = look_up(&copy, place, &format!("#{ino}"));
            assert_eq!(found, (ino != MANY).then_some(ino), "{way}: {ino}");
        }
        assert_eq!(copy.core(BELOW).parent, TREE_DIR);
    }
}

/// Of two kinds of damage, one of which can't be repaired, the other one is repaired.
#[test]
fn damage_that_stays_does_not_hold_up_the_rest() {
    let sample = filled();
    let copy = sample.copied();
    flip_record(&copy, FIFO);
    copy.inode(MANY, |i| i.nlink += 1);
    flip(&copy, GROUP + FREE_ROOT_AT, 100);
    copy.block(block_of(LIST), |_| {});
    let DataFork::Tree { root } = sample.core(EXTENTS).data else { panic!("a tree") };
    let device = Arc::new(FaultyDevice::new(copy.device.clone()));
    let block = byte_of_block(root)..byte_of_block(root + 1);
    device.arm(Fault::on(Operation::Read).within(block));
    let faulty = Sample { device, superblock: sample.superblock.clone() };
    assert!(repair(&faulty).left > 0);
    assert_eq!(look_up(&faulty, ROOT_INO, "fifo"), None);
    assert!(faulty.core_of(FIFO).is_none());
    assert_eq!(faulty.core(MANY).nlink, sample.core(MANY).nlink);
    // When the device can read it again, nothing of the file is lost.
    assert_eq!(repair(&copy).left, 0, "{:#?}", copy.check().findings);
    all_but(&copy, &sample, &[FIFO], "readable again");
    // The reverse: a wrong record does not hold up the free space.
    let copy = sample.copied();
    flip_record(&copy, FIFO);
    flip(&copy, GROUP + FREE_ROOT_AT, 100);
    assert_eq!(repair(&copy).left, 0, "{:#?}", copy.check().findings);
}

fn giving_up(sample: &Sample) -> Report {
    let options = Options { repair: true, give_up_unreadable: true, ..Options::default() };
    check::check(sample.device.clone(), &options, &mut ()).unwrap()
}

/// Blocks of inodes that can't be read, or that are other blocks, are left unless they are given
/// up. Then the sectors that can be read are retained.
#[test]
fn repair_gives_up_unreadable_blocks_only_if_told() {
    let sample = filled();
    let copy = sample.copied();
    let other = [0xA5; 4096];
    copy.device.write_at(byte_of_block(CHUNK + 1), &other).unwrap();
    assert!(repair(&copy).left > 0);
    assert_eq!(copy.media().raw(CHUNK + 1).unwrap().bytes(), other);
    assert_eq!(giving_up(&copy).left, 0, "{:#?}", copy.check().findings);
    all_but(&copy, &sample, &(72..76).collect::<Vec<_>>(), "another block");
    // A sector in which are parts of inodes 66 and 67.
    let copy = sample.copied();
    let device = Arc::new(FaultyDevice::new(copy.device.clone()));
    let at = byte_of_block(CHUNK) + 3 * 512;
    device.arm(Fault::on(Operation::Read).within(at..at + 512));
    let faulty = Sample { device: device.clone(), superblock: sample.superblock.clone() };
    assert!(repair(&faulty).left > 0);
    assert_eq!(repair(&copy).left, 0);
    all_but(&copy, &sample, &[], "left");
    let armed = Arc::downgrade(&device);
    let heal = move || armed.upgrade().into_iter().for_each(|device| device.disarm());
    device.arm(Fault::on(Operation::Write).within(at..at + 512).run(heal));
    assert_eq!(giving_up(&faulty).left, 0, "{:#?}", copy.check().findings);
    all_but(&copy, &sample, &[66, 67], "given up");
}

/// A bad sector of a file is no obstacle to the search for chunks in its group.
#[test]
fn chunks_are_found_beside_data_that_can_not_be_read() {
    let sample = filled();
    let copy = sample.copied();
    let at = extents_at(&copy, 21);
    flip(&copy, at / GROUP * GROUP + CHUNK_ROOT_AT, 100);
    let device = Arc::new(FaultyDevice::new(copy.device.clone()));
    device.arm(Fault::on(Operation::Read).within(byte_of_block(at)..byte_of_block(at + 1)));
    let faulty = Sample { device: device.clone(), superblock: sample.superblock.clone() };
    let report = repair(&faulty);
    assert!(report.count > 0 && report.left == 0, "{:#?}", report.findings);
    device.disarm();
    all_but(&copy, &sample, &[], "a bad sector of a file");
}

/// Another block in the place of inodes that are all free takes nothing.
#[test]
fn a_block_of_free_inodes_is_made_again() {
    let sample = filled();
    let copy = sample.copied();
    copy.device.write_at(byte_of_block(CHUNK + 3), &[0xA5; 4096]).unwrap();
    assert_eq!(repair(&copy).left, 0, "{:#?}", copy.check().findings);
    all_but(&copy, &sample, &[], "free inodes");
}

/// A file shares two blocks with another one, of which the device can't read the second one, or
/// can't write the place of its copy.
#[test]
fn a_copy_loses_only_what_can_not_be_read() {
    let sample = filled();
    let shared = sample.copied();
    let theirs = shared.core(LIST).first_block();
    in_tree(&shared, 7, |extent| extent.start = theirs);
    let place = |at: u64| byte_of_block(at)..byte_of_block(at + 1);
    let with = |fault: Fault| {
        let (copy, superblock) = (shared.copied(), sample.superblock.clone());
        let device = Arc::new(FaultyDevice::new(copy.device.clone()));
        device.arm(fault);
        (copy, Sample { device, superblock })
    };
    let copied = shared.copied();
    assert_eq!(repair(&copied).left, 0);
    let wanted = data(&copied, EXTENTS);
    // The place of the first copy can't be written.
    let first = extents_at(&copied, 21);
    let (copy, faulty) = with(Fault::on(Operation::Write).within(place(first)));
    assert_eq!(repair(&faulty).left, 0, "{:#?}", copy.check().findings);
    assert_eq!(data(&copy, EXTENTS), wanted);
    assert_ne!(extents_at(&copy, 21), first);
    // The second block can't be read.
    let (copy, faulty) = with(Fault::on(Operation::Read).within(place(theirs + 1)));
    assert!(repair(&faulty).left > 0);
    assert_eq!((data(&copy, EXTENTS), extents_at(&copy, 22)), (wanted.clone(), theirs + 1));
    assert_ne!(extents_at(&copy, 21), theirs);
    let report = giving_up(&faulty);
    assert_eq!(report.left, 0, "{:#?}", copy.check().findings);
    assert!(report.findings.iter().any(|found| found.number() == 1035));
    let after = data(&copy, EXTENTS);
    assert!(wanted.iter().all(|(at, bytes)| *at == 22 || after.get(at) == Some(bytes)));
    assert!(!after.contains_key(&22));
}

/// Returns the place of a block of the file with a tree.
fn extents_at(sample: &Sample, file_block: u64) -> u64 {
    let extents = super::mending::extents(sample, &sample.core(EXTENTS), EXTENTS);
    let extent = extents.iter().find(|e| (e.file_block..e.end()).contains(&file_block)).unwrap();
    extent.start + (file_block - extent.file_block)
}
