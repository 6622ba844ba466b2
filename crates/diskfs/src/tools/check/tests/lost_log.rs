//! Repairs that discard a log, are cut off, and are completed by others.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_testkit::{CrashPlan, RecordingDevice};

use super::mending::filled;
use super::sample::{CHUNK, GROUP, Sample};
use crate::format::byte_of_block;
use crate::tools::check::{self, Options, Report};
use crate::volume::copies;

fn repair(sample: &Sample, discard_log: bool) -> Option<Report> {
    let options = Options { repair: true, discard_log, ..Options::default() };
    check::check(sample.device.clone(), &options, &mut ()).ok()
}

/// A block of inodes that was never written back is made without the log that had it. The repair
/// that has discarded the log is cut off; the next one may not discard any, and completes it.
#[test]
fn a_later_repair_knows_that_the_log_is_lost() {
    let sample = filled();
    let copy = sample.copied();
    copy.device.write_at(byte_of_block(CHUNK + 1), &[0xA5; 4096]).unwrap();
    let other = copy.copied();
    assert!(repair(&other, false).unwrap().left > 0, "the log may have the block");
    // No log is there.
    copy.device.write_at(byte_of_block(2 * GROUP + 8), &[0; 4096]).unwrap();
    let device = Arc::new(RecordingDevice::new(copy.device.clone()));
    let recorded = Sample { device: device.clone(), superblock: sample.superblock.clone() };
    assert_eq!(repair(&recorded, true).unwrap().left, 0);
    let (mut completed, mut refused) = (0, 0);
    for state in device.crash_states(CrashPlan::default()) {
        let cut = Sample { device: state.device(), superblock: sample.superblock.clone() };
        let marked = copies::read(&*cut.device).unwrap().superblock.features.needs_repair();
        match repair(&cut, false) {
            Some(report) if report.left == 0 => completed += usize::from(marked),
            Some(report) => {
                // The new log is not there yet.
                let has_log = report.findings.iter().all(|found| found.number() != 1001);
                assert!(!has_log, "{state}: {:#?}", report.findings);
                refused += 1;
                assert_eq!(repair(&cut, true).unwrap().left, 0, "{state}");
            }
            None => refused += 1,
        }
        // Nothing is forgotten, and nothing is left to repair.
        assert_eq!(repair(&cut, true).unwrap().left, 0, "{state}");
        assert_eq!(repair(&cut, false).unwrap().count, 0, "{state}");
        let superblock = copies::read(&*cut.device).unwrap().superblock;
        assert!(!superblock.features.needs_repair(), "{state}");
    }
    assert!(completed > 5 && refused > 5, "{completed} completed, {refused} refused");
}

/// A log that was replayed before it was replaced has lost nothing: a block of inodes is not given
/// up because a repair was cut off.
#[test]
fn a_replayed_log_is_not_lost() {
    let sample = filled();
    let copy = sample.copied();
    copy.device.write_at(byte_of_block(CHUNK + 1), &[0xA5; 4096]).unwrap();
    let mut superblock = copies::read(&*copy.device).unwrap().superblock;
    superblock.features = superblock.features.with_repair(true);
    copies::write(&*copy.device, &mut superblock).unwrap();
    assert!(repair(&copy, true).unwrap().left > 0);
    assert_eq!(copy.media().raw(CHUNK + 1).unwrap().bytes(), [0xA5; 4096]);
}
