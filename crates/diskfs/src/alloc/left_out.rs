//! Groups that are left out, because their headers or trees can't be read. Counterpart of the
//! groups of ext4 whose bitmaps are corrupt.
//!
//! # Purpose
//!
//! A group whose header or tree of free space can't be read, or is wrong, costs the volume the free
//! space of that group, and nothing else. From then on no block and no inode is claimed there,
//! until the next opening reads it again. Inodes that lie there, and data, are used as before. The
//! log tells it once.
//!
//! # Which errors
//!
//! An opening leaves out a group whose header it can't read, and a search one that fails while
//! another group has what is searched for; so an outage of the device, in which all groups fail,
//! leaves out none. A commit leaves out the group in whose trees it can't enter a claim: that call
//! fails, and the next one claims elsewhere.
//!
//! The commits at the end of a context must not fail: the log would end. After some attempts they
//! leave out the group as well, and forget the blocks that they have freed there
//! ([`GroupNodes::leaves_out`](super::GroupNodes::leaves_out)). These stay in use on disk, until a
//! repair. All other frees are refused with the error: the inode stays an orphan, for the next
//! mount.
//!
//! # The count of free blocks
//!
//! What is available in a group that is left out must not be reserved any more. It is withdrawn
//! from the [`Space`] before the next reservation ([`Groups::withdraw`]). If the header was not
//! read either, the headers of all other groups are read for that: what remains of the recorded
//! sums then belongs to the groups that are left out. Blocks that are reserved or claimed at that
//! moment are not withdrawn.

use std::fmt::Display;

use vfscale_sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::alloc_group::Group;
use super::space::Space;
use super::{Groups, Totals};
use crate::btree::{Error, Nodes};
use crate::format::Damage;

/// Number of groups that a search tries after errors. More mean that the device has failed.
const FAILURES_MAX: usize = 4;

/// The groups of a volume that are left out.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    count: AtomicU32,
    /// Whether blocks of some were not withdrawn yet.
    is_due: AtomicBool,
}

/// The groups in which a search has failed.
pub(super) struct Failures<'g, E> {
    groups: Vec<(&'g Group, Error<E>)>,
}

impl<'g, E: Display> Failures<'g, E> {
    pub(super) fn new() -> Self {
        Self { groups: Vec::new() }
    }

    /// Adds a group, to search in others first.
    ///
    /// # Errors
    /// The error, if that is no use.
    pub(super) fn add(&mut self, group: &'g Group, error: Error<E>) -> Result<(), Error<E>> {
        let is_of_all = matches!(error, Error::Damage(Damage::Newer { .. }));
        if is_of_all || self.groups.len() >= FAILURES_MAX {
            return Err(error);
        }
        if !self.groups.iter().any(|(other, _)| std::ptr::eq(*other, group)) {
            self.groups.push((group, error));
        }
        Ok(())
    }

    /// Ends a search that has found nothing elsewhere.
    ///
    /// # Errors
    /// The first error, if there was one.
    pub(super) fn end(self) -> Result<(), Error<E>> {
        self.groups.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }
}

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
