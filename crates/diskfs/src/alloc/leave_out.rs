//! Leaving out groups of a volume: [`left_out`](super::left_out) tells when and why.

use std::fmt::Display;

use vfscale_sync::atomic::Ordering;

use super::ag_update::tell_lost;
use super::alloc_group::Group;
use super::changes::BlockChanges;
use super::delayed::DelayedChunks;
use super::finished::Finished;
use super::left_out::{Failures, is_of_all};
use super::space::Space;
use super::{GroupNodes, GroupPart, Groups, Totals};
use crate::btree::{Error, Nodes};

impl Groups {
    /// Leaves out the groups in which a search has failed, since another one had what it wanted.
    pub(super) fn leave_out_all<E: Display>(&self, failures: Failures<'_, E>) {
        for (group, error) in failures.groups {
            self.leave_out(group, &error);
        }
    }

    /// Leaves out a group. Does nothing but note damage if it is left out already.
    pub(super) fn leave_out<E: Display>(&self, group: &Group, why: &Error<E>) {
        if matches!(why, Error::Damage(_)) {
            group.is_damaged.store(true, Ordering::Release);
        }
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

    /// Leaves out a group with an error that is damage of this group.
    ///
    /// # Errors
    /// Any other error.
    pub(super) fn leave_out_damaged<E: Display>(
        &self,
        group: &Group,
        error: Error<E>,
    ) -> Result<(), Error<E>> {
        match &error {
            Error::Damage(damage) if !is_of_all(damage) => {
                self.leave_out(group, &error);
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Finishes the changes of a transaction in one group, which is left out if it can't have
    /// them, and adds the group to `finished` unless nothing of them remains. Groups are locked in
    /// order.
    pub(super) fn finish_or_leave_out<'g, N: GroupNodes>(
        &'g self,
        group: &'g Group,
        nodes: &mut N,
        part: GroupPart<'_>,
        blocks: &mut Option<Box<BlockChanges>>,
        finished: &mut Finished<'g>,
    ) -> Result<(), Error<N::Error>> {
        let mut part = part;
        if group.is_left_out() && !self.left_out.is_recovering.load(Ordering::Relaxed) {
            match self.remaining(group, nodes, part) {
                Some(remaining) => part = remaining,
                None => return Ok(()),
            }
        }
        let has_claims = matches!(&part, GroupPart::All(part) if !part.claims.is_empty());
        self.finish_in(group, nodes, part, blocks, finished).inspect_err(|error| {
            let is_of_group = match error {
                Error::Damage(damage) => !is_of_all(damage),
                Error::Nodes(error) => {
                    (has_claims || nodes.leaves_out()) && N::is_unreadable(error)
                }
            };
            if is_of_group {
                self.leave_out(group, error);
            }
        })
    }

    /// Returns the changes of a transaction that a group which is left out is to have nevertheless;
    /// `None` if there are none. A group that is damaged, and any in a transaction that must not
    /// fail, gets no freed blocks back; nor does it get changes of inodes in use that it does not
    /// know, because its tree of inodes is damaged. All of these stay in use on disk.
    #[cold]
    fn remaining<'c, N: GroupNodes>(
        &self,
        group: &Group,
        nodes: &N,
        mut part: GroupPart<'c>,
    ) -> Option<GroupPart<'c>> {
        let is_damaged = group.is_damaged();
        if !is_damaged && !nodes.leaves_out() {
            return Some(part);
        }
        let number = group.whole().group();
        if let GroupPart::All(part) = &mut part {
            part.forget_frees(number);
            if part.is_empty() {
                return None;
            }
        }
        if is_damaged
            && let Some(inodes) = part.of_inodes()
            && inodes.iter().all(|(_, change)| !change.is_new)
        {
            let mut state = group.lock_to_change();
            let made = group.make_index(&mut state, nodes);
            let delayed = made.and_then(|()| group.delay(nodes, &state.delayed, inodes));
            if matches!(delayed, Err(Error::Damage(_))) {
                let inodes = inodes.len();
                tracing::warn!(group = number, inodes, "inodes are not freed until a repair");
                return None;
            }
        }
        Some(part)
    }

    /// Forgets delayed frees of a group that is to have none, as those of a transaction are. The
    /// caller holds its lock.
    pub(super) fn forget_delayed<N: GroupNodes>(
        &self,
        group: &Group,
        nodes: &N,
        delayed: &mut DelayedChunks,
    ) {
        if group.is_left_out() && (group.is_damaged() || nodes.leaves_out()) {
            let blocks = delayed.runs.forget_frees();
            if blocks > 0 {
                tell_lost(group.whole().group(), blocks);
            }
        }
    }

    /// Sets whether a mount recovers orphans. Meanwhile no other transaction changes the volume.
    pub(crate) fn set_recovering(&self, is_recovering: bool) {
        self.left_out.is_recovering.store(is_recovering, Ordering::Relaxed);
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
    pub(super) fn open_without<E: Display>(&self, number: u32, why: &Error<E>) {
        let Some(group) = self.at(number) else { return };
        group.read_as_used();
        group.is_withdrawn.store(true, Ordering::Release);
        self.leave_out(group, why);
    }
}
