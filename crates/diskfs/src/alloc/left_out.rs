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
//! repair. All other frees are refused with the error of the device: the inode stays an orphan, for
//! the next mount.
//!
//! # Damage
//!
//! No attempt mends damage, and there is no outage of it: whoever meets it leaves the group out,
//! and a search that finds nothing elsewhere has found nothing. The transaction that meets it has
//! changed nothing, and is repeated (`Volume::beside_damage`). From then on all transactions
//! forget what they free there: blocks, and inodes that the tree of chunks does not know as they
//! are ([`Groups::finish_or_leave_out`](super::Groups::finish_or_leave_out)).
//!
//! The recovery of orphans by a mount forgets nothing: it fails, and what it has not freed is left
//! to the next mount, which may read what this one could not.
//!
//! Nothing is written over by that. A free that is forgotten leaves more in use on disk than is, at
//! this opening and at all later ones. A claim and a new inode are never forgotten: they are
//! entered, or their transaction fails. The group and a file may contradict each other, and either
//! may be wrong; so blocks which the group calls free are not given to others either.
//!
//! Delayed changes were accepted with all blocks that they need in memory, so the push can meet
//! nothing but a wrong counter, and puts up with it. Delayed frees of a group that is left out in
//! the meantime are forgotten like those of a transaction.
//!
//! # The count of free blocks
//!
//! Available blocks of a group that is left out must not be reserved any more. They are withdrawn
//! from the [`Space`](super::space::Space) before the next reservation
//! ([`Groups::withdraw`](super::Groups::withdraw)). If the header was not read either, the headers
//! of all other groups are read for that: what remains of the recorded sums then belongs to the
//! groups that are left out. Blocks that are reserved or claimed at that moment are not withdrawn.

use std::fmt::Display;

use vfscale_sync::atomic::{AtomicBool, AtomicU32};

use super::alloc_group::Group;
use crate::btree::Error;
use crate::format::Damage;

/// Number of groups that a search tries after errors. More mean that the device has failed.
const FAILURES_MAX: usize = 4;

/// The groups of a volume that are left out.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    pub(super) count: AtomicU32,
    /// Whether blocks of some were not withdrawn yet.
    pub(super) is_due: AtomicBool,
    /// Whether a mount recovers orphans, for which nothing is forgotten.
    pub(super) is_recovering: AtomicBool,
}

/// The groups in which a search has failed.
pub(super) struct Failures<'g, E> {
    pub(super) groups: Vec<(&'g Group, Error<E>)>,
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
        let is_outage = match &error {
            Error::Damage(damage) => is_of_all(damage),
            Error::Nodes(_) => self.unreadable().count() >= FAILURES_MAX,
        };
        if is_outage {
            return Err(error);
        }
        if !self.groups.iter().any(|(other, _)| std::ptr::eq(*other, group)) {
            self.groups.push((group, error));
        }
        Ok(())
    }

    fn unreadable(&self) -> impl Iterator<Item = &(&'g Group, Error<E>)> {
        self.groups.iter().filter(|(_, error)| matches!(error, Error::Nodes(_)))
    }

    /// Takes those of a search that has found nothing elsewhere which are damage, if it is not the
    /// device that fails.
    ///
    /// # Errors
    /// The first error of the device, if there was one.
    pub(super) fn end(mut self) -> Result<Self, Error<E>> {
        let is_unreadable = |(_, error): &(&Group, Error<E>)| matches!(error, Error::Nodes(_));
        match self.groups.iter().position(is_unreadable) {
            Some(at) => Err(self.groups.swap_remove(at).1),
            None => Ok(self),
        }
    }
}

/// Returns whether damage that a group has shown is one of the whole volume: its log is not the one
/// that was used last.
pub(super) fn is_of_all(damage: &Damage) -> bool {
    matches!(damage, Damage::Newer { .. })
}
