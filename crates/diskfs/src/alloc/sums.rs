//! The sums over all groups, those that were read and those that were not.

use vfscale_sync::atomic::Ordering;

use super::alloc_group::Group;
use super::{Groups, Totals};
use crate::format::superblock::GroupSums;

impl Groups {
    /// Returns the sums over all groups. Changes that are made during the call may be seen or not.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let unread = self.shared.unread.lock();
        let mut sum = *unread;
        for group in self.list.all_made().filter(|group| group.is_read()) {
            sum.add(&group.totals());
        }
        sum
    }

    /// Returns the sums to be recorded when the log is closed: they are those of the headers on
    /// disk. `None` if a later opening has to look at the headers, because there are orphans or
    /// unaccounted blocks, if blocks are claimed, or if groups are left out.
    #[must_use]
    pub fn sums(&self) -> Option<GroupSums> {
        if self.left_out() > 0 {
            return None;
        }
        let mut sum = *self.shared.unread.lock();
        for group in self.list.all_made().filter(|group| group.is_read()) {
            sum.add(&group.settled()?);
        }
        let Totals { available, inodes, free_inodes, orphans, .. } = sum;
        let trees = self.shared.largest_trees.load(Ordering::Relaxed);
        (orphans == 0).then_some(GroupSums { available, inodes, free_inodes, trees })
    }

    /// Lists the groups with orphans: those that had some when the volume was opened, and those
    /// that have some now.
    #[must_use]
    pub fn with_orphans(&self) -> Vec<u32> {
        let has_some = |group: &&Group| group.counts.orphans.load(Ordering::Relaxed) > 0;
        let now = self.list.all_made().filter(has_some).map(|group| group.whole().group());
        let mut groups: Vec<_> = self.with_orphans.iter().copied().chain(now).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}
