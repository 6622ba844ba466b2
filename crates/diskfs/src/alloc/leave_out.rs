//! Leaving out groups of a volume: [`left_out`](super::left_out) tells when and why.

use std::fmt::Display;

use vfscale_sync::atomic::Ordering;

use super::alloc_group::Group;
use super::left_out::Failures;
use super::space::Space;
use super::{Groups, Totals};
use crate::btree::Nodes;

impl Groups {
    /// Leaves out the groups in which a search has failed, since another one had what it wanted.
    pub(super) fn leave_out_all<E: Display>(&self, failures: Failures<'_, E>) {
        for (group, error) in failures.groups {
            self.leave_out(group, &error);
        }
    }

    /// Leaves out a group. Does nothing if it is left out already.
    pub(super) fn leave_out(&self, group: &Group, why: &dyn Display) {
        if group.is_left_out.swap(true, Ordering::AcqRel) {
            return;
        }
        self.left_out.count.fetch_add(1, Ordering::AcqRel);
        self.left_out.is_due.store(true, Ordering::Release);
        tracing::error!(
            group = group.whole().group(),
            %why,
            "the group is left out until the next opening: its free space can't be used"
        );
    }

    /// Returns the number of groups that are left out.
    pub(crate) fn left_out(&self) -> u32 {
        self.left_out.count.load(Ordering::Acquire)
    }

    /// Returns whether blocks are to be [withdrawn](Self::withdraw).
    #[inline]
    pub(crate) fn has_to_withdraw(&self) -> bool {
        self.left_out.is_due.load(Ordering::Relaxed)
    }

    /// Withdraws from `space` what is available in groups that are left out. May read the headers
    /// of all groups. The caller holds no lock of a group.
    pub(crate) fn withdraw<N: Nodes>(&self, nodes: &N, space: &Space) {
        if !self.left_out.is_due.swap(false, Ordering::AcqRel) {
            return;
        }
        let is_unread = |group: &Group| group.is_left_out() && !group.is_read();
        if self.list.all_made().any(is_unread) {
            for group in self.from(0) {
                if !group.is_left_out()
                    && let Err(error) = group.ensure_read(nodes)
                {
                    self.leave_out(group, &error);
                }
            }
            self.left_out.is_due.store(false, Ordering::Release);
        }
        let mut blocks = 0;
        for group in self.list.all_made().filter(|group| group.is_left_out()) {
            blocks += self.withdraw_from(group);
        }
        space.withdraw(blocks);
    }

    /// Returns the number of available blocks of a group that is left out, the first time.
    fn withdraw_from(&self, group: &Group) -> u64 {
        if group.is_withdrawn.swap(true, Ordering::AcqRel) {
            return 0;
        }
        if group.is_read() {
            return group.available.load(Ordering::Acquire);
        }
        // All others are read: the rest of the sums is of such groups, and the first one gets it.
        let mut unread = self.shared.unread.lock();
        let rest = unread.available;
        group.read_as_used();
        let blocks = unread.blocks.saturating_sub(group.totals().blocks);
        *unread = Totals { blocks, ..Totals::default() };
        rest
    }

    /// Leaves out a group whose header the opening could not read, and whose blocks it has not
    /// counted.
    pub(super) fn open_without(&self, number: u32, why: &dyn Display) {
        let Some(group) = self.at(number) else { return };
        group.read_as_used();
        group.is_withdrawn.store(true, Ordering::Release);
        self.leave_out(group, why);
    }
}
