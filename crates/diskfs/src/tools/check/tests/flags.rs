//! Flags of inodes that do not match the features of the volume.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_testkit::{CrashPlan, RecordingDevice};

use super::repairs::repair;
use super::sample::{FIFO, LIST, MANY, ORPHAN, Sample, TREE_DIR};
use crate::format::inode::{FLAG_APPEND, FLAG_IMMUTABLE, FLAG_NODUMP, FLAG_SYNC};
use crate::format::superblock::Features;
use crate::tools::check::{LogState, Problem};
use crate::volume::copies;

const UNGUARDED: u32 = 1032;
const UNKNOWN: u32 = 1033;

/// Sets features, as an earlier mount or a later program would.
fn set_features(sample: &Sample, change: impl FnOnce(&mut Features)) {
    let mut superblock = copies::read(&*sample.device).unwrap().superblock;
    change(&mut superblock.features);
    copies::write(&*sample.device, &mut superblock).unwrap();
}

fn has_immutable(sample: &Sample) -> bool {
    copies::read(&*sample.device).unwrap().superblock.features.has_immutable()
}

#[test]
fn a_guarded_inode_needs_the_feature() {
    for (ino, flag) in [(LIST, FLAG_IMMUTABLE), (TREE_DIR, FLAG_APPEND), (ORPHAN, FLAG_APPEND)] {
        let sample = Sample::new();
        sample.inode(ino, |inode| inode.flags = flag | FLAG_NODUMP);
        let found = sample.check().findings;
        let problems: Vec<_> = found.into_iter().map(|finding| finding.problem).collect();
        assert_eq!(problems, [Problem::Unguarded { ino }]);
        let report = repair(&sample);
        assert_eq!((report.count, report.left), (1, 0), "{report:#?}");
        assert!(has_immutable(&sample));
        let after = sample.check();
        assert_eq!((after.findings, after.log), (vec![], LogState::Clean));
        if ino != ORPHAN {
            assert_eq!(sample.core(ino).flags, flag | FLAG_NODUMP, "the flags stay");
        }
    }
}

#[test]
fn flags_that_harm_nobody_need_no_feature() {
    let sample = Sample::new();
    sample.inode(LIST, |inode| inode.flags = FLAG_SYNC | FLAG_NODUMP);
    assert_eq!(sample.found(), [0; 0]);
    sample.inode(LIST, |inode| inode.flags = FLAG_IMMUTABLE);
    set_features(&sample, |features| features.ro_compat |= Features::IMMUTABLE);
    assert_eq!(sample.found(), [0; 0]);
}

#[test]
fn flags_without_a_meaning_are_cleared() {
    let sample = Sample::new();
    sample.inode(MANY, |inode| inode.flags = 1 << 6 | FLAG_NODUMP);
    sample.inode(FIFO, |inode| inode.flags = 1 << 15);
    let found = sample.check().findings;
    let problems: Vec<_> = found.into_iter().map(|finding| finding.problem).collect();
    let of = |ino, flags| Problem::UnknownFlags { ino, flags };
    assert_eq!(problems, [of(MANY, 1 << 6), of(FIFO, 1 << 15)]);
    let report = repair(&sample);
    assert_eq!((report.count, report.left), (2, 0), "{report:#?}");
    assert_eq!((sample.core(MANY).flags, sample.core(FIFO).flags), (FLAG_NODUMP, 0));
    assert!(!has_immutable(&sample), "nothing needs it");
    assert_eq!(sample.found(), [0; 0]);
}

/// A later program may have made the volume, and given a flag a meaning.
#[test]
fn flags_of_a_feature_that_is_not_known_are_retained() {
    let sample = Sample::new();
    sample.inode(MANY, |inode| inode.flags = 1 << 6);
    set_features(&sample, |features| features.compat |= 1 << 40);
    assert_eq!(sample.found(), [0; 0]);
    sample.inode(FIFO, |inode| inode.nlink = 7);
    assert_eq!(repair(&sample).left, 0);
    assert_eq!(sample.core(MANY).flags, 1 << 6);
}

#[test]
fn an_interrupted_repair_of_flags_is_finished() {
    let sample = Sample::new();
    sample.inode(LIST, |inode| inode.flags = FLAG_IMMUTABLE | 1 << 9);
    assert_eq!(sample.found(), [UNGUARDED, UNKNOWN]);
    let device = Arc::new(RecordingDevice::new(sample.device.clone()));
    let recorded = Sample { device: device.clone(), superblock: sample.superblock.clone() };
    assert_eq!(repair(&recorded).left, 0);
    let mut states = 0;
    for state in device.crash_states(CrashPlan::default()) {
        states += 1;
        let device: Arc<dyn Device> = state.device();
        let crashed = Sample { device, superblock: sample.superblock.clone() };
        assert_eq!(repair(&crashed).left, 0, "{state}");
        assert_eq!(crashed.core(LIST).flags, FLAG_IMMUTABLE, "{state}");
        assert!(has_immutable(&crashed), "{state}");
    }
    assert!(states > 10, "{states}");
}
