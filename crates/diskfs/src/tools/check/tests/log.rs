//! Volumes that were not closed, and logs that can't be read.

use vfscale_block::Device;
use vfscale_journal::Journal;

use super::sample::{GROUP, Sample};
use crate::format::byte_of_block;
use crate::format::group::{GroupHeader, HEADER_AT, MAGIC};
use crate::tools::check::overlay::Overlay;
use crate::tools::check::{CheckedLog, LogState, repair};

/// Opens the volume's log, commits a change of the header of group 1, and ends without writing it
/// back.
pub(super) fn change_header(sample: &Sample, change: impl FnOnce(&mut GroupHeader)) {
    let logged = CheckedLog::new(sample.device.clone(), None, &sample.superblock).unwrap();
    let (journal, _): (Journal, _) = logged.replay(&sample.superblock, false).unwrap();
    let media = sample.media();
    let mut overlay = Overlay::new(&media);
    let mut block = media.block(MAGIC, GROUP + HEADER_AT, 1).unwrap();
    let mut header = GroupHeader::decode(GROUP + HEADER_AT, &block, |_| true).unwrap();
    change(&mut header);
    header.encode(&mut block);
    overlay.blocks.insert(GROUP + HEADER_AT, block);
    repair::commit(&journal, &sample.device, overlay).unwrap();
    journal.force_all().unwrap();
}

#[test]
fn a_log_is_replayed_in_memory() {
    let sample = Sample::new().copied();
    sample.header(1, |header| header.free += 1);
    assert_eq!(sample.found(), [1013]);
    change_header(&sample, |header| header.free -= 1);
    let before = sample.bytes();
    let report = sample.check();
    assert_eq!(report.findings, []);
    assert_eq!(report.log, LogState::Replayed { checkpoints: 1, items: 1 });
    assert_eq!(sample.bytes(), before);
    // The reverse: the damage is in the log.
    change_header(&sample, |header| header.free -= 1);
    assert_eq!(sample.found(), [1013]);
}

#[test]
fn a_log_that_is_gone_is_found() {
    let sample = Sample::new().copied();
    sample.device.write_at(byte_of_block(2 * GROUP + 8), &[0; 4096]).unwrap();
    let report = sample.check();
    assert_eq!(report.log, LogState::Unusable);
    assert_eq!(sample.found(), [1001]);
}
