//! Repairs, and proof that they leave no new problems.

use std::collections::BTreeSet;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_testkit::{CrashPlan, RecordingDevice};

use super::sample::{EXTENTS, FIFO, GROUP, LIST, MANY, Sample, TREE_DIR};
use crate::Settings;
use crate::base::fault::Fault;
use crate::btree::Tree;
use crate::format::byte_of_block;
use crate::format::group::{FREE_ROOT_AT, FreeSpace};
use crate::format::inode::ROOT_INO;
use crate::tools::check::{self, LogState, Options, Report};
use crate::volume::{Volume, copies};

type Damaged = (&'static str, fn(&Sample));

pub(super) fn repair(sample: &Sample) -> Report {
    let options = Options { repair: true, ..Options::default() };
    check::check(sample.device.clone(), &options, &mut ()).unwrap()
}

fn spoil(sample: &Sample, address: u64) {
    sample.device.write_at(byte_of_block(address), &[0xA5; 4096]).unwrap();
}

/// Each of these problems is found and repaired.
#[test]
fn repair_mends_what_follows_from_the_rest() {
    let sample = Sample::new();
    let damages: &[Damaged] = &[
        ("nothing", |_| {}),
        ("the superblock", |s| spoil(s, 0)),
        ("a copy", |s| spoil(s, GROUP)),
        ("figures", |s| {
            s.header(0, |h| (h.free, h.free_inodes, h.orphans) = (1, 2, 3));
            s.header(2, |h| (h.inodes, h.tree_blocks) = (64, 7));
        }),
        ("a header", |s| spoil(s, 1)),
        ("the tree of free space", |s| spoil(s, GROUP + FREE_ROOT_AT)),
        ("a header and the tree of free space", |s| {
            spoil(s, 3 * GROUP + 1);
            spoil(s, 3 * GROUP + FREE_ROOT_AT);
        }),
        ("set aside and free", |s| s.header(1, |h| h.set_aside.push(GROUP + 50))),
        ("free and in use", |s| {
            s.trees(|overlay| {
                let tree = Tree::<FreeSpace>::at(FREE_ROOT_AT, 0);
                tree.insert(overlay, s.core(LIST).first_block().into(), 2.into()).unwrap();
            });
        }),
        ("much that is not free", |s| {
            s.trees(|overlay| {
                let tree = Tree::<FreeSpace>::at(GROUP + FREE_ROOT_AT, 1);
                tree.update(overlay, (GROUP + 8).into(), 1.into()).unwrap();
            });
        }),
        ("links", |s| {
            s.inode(MANY, |i| i.nlink = 1);
            s.inode(TREE_DIR, |i| i.nlink = 9);
            s.inode(ROOT_INO, |i| i.nlink = 0);
        }),
        ("blocks", |s| {
            s.inode(EXTENTS, |i| i.blocks = 0);
            s.inode(FIFO, |i| i.blocks = 5);
        }),
    ];
    for (name, damage) in damages {
        let copy = sample.copied();
        damage(&copy);
        let before = copy.check();
        assert_eq!(before.count == 0, *name == "nothing", "{name}: {:#?}", before.findings);
        let report = repair(&copy);
        assert_eq!((report.count, report.left), (before.count, 0), "{name}: {report:#?}");
        let after = copy.check();
        assert_eq!((after.findings, after.log), (vec![], LogState::Clean), "{name}");
        // Nothing is left to repair, and the data of files are at the same addresses.
        assert_eq!(repair(&copy).count, 0, "{name}");
        for ino in [MANY, EXTENTS, TREE_DIR] {
            assert_eq!(copy.core(ino).data, sample.core(ino).data, "{name}");
        }
    }
}

/// An ambiguous problem is reported and not repaired.
#[test]
fn repair_leaves_ambiguous_problems() {
    let sample = Sample::new();
    let damages: &[Damaged] = &[
        // The blocks of the lost inodes must not become free.
        ("inodes, and free space", |s| {
            spoil(s, 9);
            s.header(0, |h| h.free += 1);
            spoil(s, GROUP + FREE_ROOT_AT);
        }),
    ];
    for (name, damage) in damages {
        let copy = sample.copied();
        damage(&copy);
        let report = repair(&copy);
        assert!(report.left > 0 && report.left <= report.count, "{name}: {report:#?}");
        // The tree of free space was not rebuilt.
        assert!(copy.found().contains(&1));
    }
}

/// A repair that a crash interrupts has repaired some problems, and the next one repairs the rest.
/// Until then the volume can't be mounted.
#[test]
fn a_repair_may_be_interrupted() {
    let sample = Sample::new().copied();
    spoil(&sample, GROUP);
    spoil(&sample, GROUP + 1);
    spoil(&sample, 2 * GROUP + FREE_ROOT_AT);
    sample.inode(MANY, |i| i.nlink = 1);
    sample.inode(EXTENTS, |i| i.blocks = 0);
    sample.header(0, |h| h.free += 1);
    let before = sample.numbers();
    assert!(before.len() > 4, "{before:?}");
    let device = Arc::new(RecordingDevice::new(sample.device.clone()));
    let recorded = Sample { device: device.clone(), superblock: sample.superblock.clone() };
    assert_eq!(repair(&recorded).left, 0);
    let mut found_at_all = BTreeSet::new();
    let (mut states, mut refused) = (0, 0);
    for state in device.crash_states(CrashPlan::default()) {
        states += 1;
        let crashed = Sample { device: state.device(), superblock: sample.superblock.clone() };
        let found = crashed.numbers();
        assert!(found.is_subset(&with_mark(&before)), "{state}: {found:?}");
        refused += usize::from(is_refused(&crashed, &before, &state));
        assert_eq!(repair(&crashed).left, 0, "{state}");
        assert_eq!(crashed.core(MANY).data, sample.core(MANY).data, "{state}");
        drop(Volume::open(crashed.device, Settings::default()).unwrap());
        found_at_all.insert(found);
    }
    // States with all problems, with none, and with some.
    assert!(states > 20 && found_at_all.len() > 2, "{states}: {found_at_all:?}");
    assert!(found_at_all.contains(&before) && found_at_all.contains(&BTreeSet::new()));
    assert!(refused > 10, "{refused}");
}

/// Number of the finding for an interrupted repair, and of the one for copies of the superblock.
const INTERRUPTED: u32 = 1002;
const COPIES: u32 = 1000;

fn with_mark(numbers: &BTreeSet<u32>) -> BTreeSet<u32> {
    numbers.iter().copied().chain([INTERRUPTED]).collect()
}

/// Returns whether a mount refuses the volume that an interrupted repair left. If it does not, the
/// volume has all findings from before or none, except for copies of the superblock.
pub(super) fn is_refused(
    crashed: &Sample,
    before: &BTreeSet<u32>,
    state: &dyn std::fmt::Display,
) -> bool {
    let found = crashed.numbers();
    match Volume::open(crashed.copied().device, Settings::default()).map(drop) {
        Err(Fault::NeedsRepair) => {
            assert!(found.contains(&INTERRUPTED), "{state}");
            true
        }
        opened => {
            let rest = |found: &BTreeSet<_>| {
                found.iter().copied().filter(|n| *n != COPIES).collect::<BTreeSet<_>>()
            };
            let is_whole = rest(&found).is_empty() || rest(&found) == rest(before);
            assert!(is_whole, "{state}: {opened:?} with {found:?}");
            false
        }
    }
}

/// The mark of an interrupted repair may be the only finding; the next repair clears it.
#[test]
fn a_repair_that_was_interrupted_is_found_and_finished() {
    let sample = Sample::new().copied();
    let mut superblock = sample.superblock.clone();
    superblock.features = superblock.features.with_repair(true);
    copies::write(&*sample.device, &mut superblock).unwrap();
    assert_eq!(sample.found(), [INTERRUPTED]);
    for read_only in [false, true] {
        let options = Settings { read_only, ..Settings::default() };
        let opened = Volume::open(sample.device.clone(), options).map(drop);
        assert!(matches!(opened, Err(Fault::NeedsRepair)), "{opened:?}");
    }
    let report = repair(&sample);
    assert_eq!((report.count, report.left), (1, 0));
    drop(Volume::open(sample.device.clone(), Settings::default()).unwrap());
}

/// A repair of a volume whose log can't be replayed changes nothing, and does not record that the
/// volume was checked.
#[test]
fn a_volume_whose_log_is_gone_is_left_alone() {
    let sample = Sample::new().copied();
    spoil(&sample, 2 * GROUP + 8);
    sample.header(0, |h| h.free += 1);
    spoil(&sample, GROUP);
    let before = sample.bytes();
    let report = repair(&sample);
    assert_eq!((report.count, report.left, report.log), (3, 3, LogState::Unusable));
    assert!(sample.bytes() == before);
}
