//! The phases of a check, in order.

use vfscale_block::Device;

use super::finding::Problem;
use super::state::{Check, GivenUp};
use super::watch::Findings;
use crate::LogPlace;
use crate::format::superblock::GroupSums;
use crate::volume::copies::{CopyState, FoundSuperblock};

/// Checks the volume on a device that no other program writes during the check. For a repair,
/// collects the changes to make; `given_up` lists the parts that can't be rebuilt. `sums` are those
/// that the superblock has now.
pub(super) fn run<'d, 'w>(
    device: &'d dyn Device,
    found: &FoundSuperblock,
    tell: Findings<'w>,
    given_up: Option<&'d GivenUp>,
    sums: Option<GroupSums>,
) -> Check<'d, 'w> {
    let mut check = Check::new(device, found, tell, given_up);
    check.superblocks(found);
    check.groups();
    check.records();
    check.contents();
    check.salvage();
    check.names();
    check.free_space();
    check.sums(found.superblock.log(), sums);
    check
}

impl Check<'_, '_> {
    fn superblocks(&mut self, found: &FoundSuperblock) {
        // The superblock is written before its copies: a crash in between leaves the copies old.
        let is_first_current =
            found.copies.first().map(|copy| &copy.state) == Some(&CopyState::Current);
        for copy in &found.copies {
            let state = match &copy.state {
                CopyState::Current => continue,
                CopyState::Old { .. } if is_first_current => {
                    self.unfinished.copies += 1;
                    continue;
                }
                CopyState::Old { generation } => {
                    let newest = found.superblock.generation();
                    format!("generation {generation}, where the newest is {newest}")
                }
                CopyState::Damaged(error) => error.to_string(),
                CopyState::Unreadable(error) => error.to_string(),
            };
            self.tell.add(Problem::Copy { address: copy.address, state });
        }
        if found.superblock.features.needs_repair() {
            self.tell.add(Problem::Interrupted);
        }
        if let LogPlace::Inside { start, blocks } = found.superblock.log() {
            self.used.insert(start..start + blocks, |_| {});
        }
    }
}
