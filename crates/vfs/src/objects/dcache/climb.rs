//! Steps from a dentry to its parents, with the names on the way.
//!
//! Each step reads name and parent of a dentry together, under the dentry's sequence count, which
//! every change of either changes ([`Dentry::set_moved`]). See the page of `d_path` for how a whole
//! path of such steps becomes consistent.

use smallvec::SmallVec;
use vfscale_sync::rcu::Guard;

use crate::objects::dcache::dentry::Dentry;

/// Returns whether `dentry` is `top` or below it, in one superblock. Exact if the caller prevents
/// moves of directories to other parents; otherwise each step up was valid at some moment.
pub(crate) fn is_below(dentry: &Dentry, top: &Dentry, guard: &Guard) -> bool {
    let mut dentry = dentry;
    loop {
        if std::ptr::eq(dentry, top) {
            return true;
        }
        if dentry.is_root() {
            return false;
        }
        (_, dentry, _) = name_and_parent(dentry, guard);
    }
}

/// A name on the climb, its dentry, and the sequence count under which it was read.
pub(crate) struct PathStep<'g> {
    pub(crate) name: &'g [u8],
    pub(crate) dentry: &'g Dentry,
    seq: u32,
}

/// The names of a path, the last one first.
pub(crate) struct Climb<'g>(pub(crate) SmallVec<[PathStep<'g>; 16]>);

impl<'g> Climb<'g> {
    pub(crate) fn new() -> Climb<'g> {
        Climb(SmallVec::new())
    }

    /// Adds the names from `dentry` up to, but excluding, the first dentry that is a root of its
    /// file system or for which `is_top` returns true. Returns that dentry.
    pub(crate) fn climb(
        &mut self,
        dentry: &'g Dentry,
        is_top: impl Fn(&Dentry) -> bool,
        guard: &'g Guard,
    ) -> &'g Dentry {
        let mut at = dentry;
        while !is_top(at) && !at.is_root() {
            let (name, parent, seq) = name_and_parent(at, guard);
            self.0.push(PathStep { name, dentry: at, seq });
            at = parent;
        }
        at
    }

    /// Returns whether one of the names has changed since it was read.
    pub(crate) fn has_changed(&self) -> bool {
        self.0.iter().any(|step| step.dentry.seq().retry(step.seq))
    }
}

/// Returns name and parent of a dentry, read together, and its sequence count while it had both.
#[inline]
pub(crate) fn name_and_parent<'g>(
    dentry: &'g Dentry,
    guard: &'g Guard,
) -> (&'g [u8], &'g Dentry, u32) {
    loop {
        let seq = dentry.seq().begin();
        let (name, parent) = (dentry.name(guard), dentry.parent(guard));
        if !dentry.seq().retry(seq) {
            return (name, parent, seq);
        }
    }
}
