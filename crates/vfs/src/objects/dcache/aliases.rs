//! The dentries of an inode. Counterpart of `i_dentry` in Linux.
//!
//! # Purpose
//!
//! An inode has a dentry for each of its names that is in the dcache, and one for each removed name
//! that is still in use. Callers that start at the inode, not at a name, find the dentries here: a
//! file that is opened by its handle gets the dentry that all other users share, with its path
//! (`d_find_alias` in Linux), and a directory, which has only one dentry, is found at its position
//! in the dcache (`d_materialise_unique`).
//!
//! # Invariants
//!
//! * A dentry is on the list of its inode from its creation until it is about to be freed, which
//!   takes a grace period after that: the list is read under RCU. Pseudo dentries, which are in no
//!   tree, and negative dentries are not listed.
//! * Nearly every inode has one name. As long as there is at most one dentry, the head is a pointer
//!   to it, or null, and changes by one exchange, without a lock. With two or more the head is
//!   marked, and changes under the inode's `i_lock`, as do the links of the dentries. When only one
//!   dentry is left, the mark is removed.
//! * A dentry that leaves the list retains its link to the next one, for readers that are at this
//!   dentry.

use std::ptr::{self, NonNull};

use vfscale_sync::atomic::{AtomicPtr, Ordering};
use vfscale_sync::rcu::{self, Guard};

use crate::objects::dcache::dentry::Dentry;
use crate::objects::inode::Inode;

/// Mark in the head: there are several dentries, and changes take the lock.
const SEVERAL: usize = 1;

/// The first dentry of an inode, with a mark if there are more.
pub(crate) struct AliasHead(AtomicPtr<Dentry>);

/// Links of a dentry on the list of its inode. Valid while there are several.
pub(crate) struct AliasLinks {
    next: AtomicPtr<Dentry>,
    prev: AtomicPtr<Dentry>,
}

impl AliasHead {
    pub(crate) fn new() -> AliasHead {
        AliasHead(AtomicPtr::new(ptr::null_mut()))
    }

    /// Replaces the head `old` by `new`; returns false if the head is not `old`.
    #[inline]
    fn replace(&self, old: *mut Dentry, new: *mut Dentry) -> bool {
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn set(&self, head: *mut Dentry) {
        self.0.store(head, Ordering::Release);
    }
}

impl AliasLinks {
    pub(crate) fn new() -> AliasLinks {
        let null = || AtomicPtr::new(ptr::null_mut());
        AliasLinks { next: null(), prev: null() }
    }
}

fn marked(head: *mut Dentry) -> *mut Dentry {
    head.map_addr(|addr| addr | SEVERAL)
}

fn is_marked(head: *mut Dentry) -> bool {
    head.addr() & SEVERAL != 0
}

fn unmarked(head: *mut Dentry) -> *mut Dentry {
    head.map_addr(|addr| addr & !SEVERAL)
}

/// Returns a dentry that the list links to.
fn as_dentry(raw: *mut Dentry, _guard: &Guard) -> Option<&Dentry> {
    // SAFETY: a dentry that the list links to is freed a grace period after it leaves the list, and
    // so after this section.
    NonNull::new(raw).map(|raw| unsafe { raw.as_ref() })
}

/// Iterator over the dentries of an inode. It may or may not return dentries that are added or
/// removed concurrently.
pub(crate) struct Aliases<'g> {
    next: Option<&'g Dentry>,
    guard: &'g Guard,
}

impl<'g> Iterator for Aliases<'g> {
    type Item = &'g Dentry;

    fn next(&mut self) -> Option<&'g Dentry> {
        let found = self.next?;
        self.next = as_dentry(found.aliases().next.load(Ordering::Acquire), self.guard);
        Some(found)
    }
}

impl Inode {
    /// Returns its dentries, with and without names.
    pub(crate) fn aliases<'g>(&self, guard: &'g Guard) -> Aliases<'g> {
        let head = self.alias_head().0.load(Ordering::Acquire);
        Aliases { next: as_dentry(unmarked(head), guard), guard }
    }

    /// Enters a new dentry.
    #[inline]
    pub(crate) fn enter_alias(&self, dentry: &Dentry) {
        if !self.alias_head().replace(ptr::null_mut(), ptr::from_ref(dentry).cast_mut()) {
            self.enter_more(dentry);
        }
    }

    /// Enters a dentry into a list that is not empty.
    #[cold]
    fn enter_more(&self, dentry: &Dentry) {
        let (head, links) = (self.alias_head(), dentry.aliases());
        let new = ptr::from_ref(dentry).cast_mut();
        let guard = rcu::pin();
        let _lock = self.lock_aliases();
        loop {
            let old = head.0.load(Ordering::Acquire);
            links.next.store(unmarked(old), Ordering::Relaxed);
            let Some(first) = as_dentry(unmarked(old), &guard) else {
                if head.replace(old, new) {
                    return;
                }
                continue;
            };
            first.aliases().prev.store(new, Ordering::Relaxed);
            // During this, only a dentry that is alone on the list may leave; then the link written
            // to it has no meaning.
            if head.replace(old, marked(new)) {
                return;
            }
        }
    }

    /// Removes a dentry that is about to be freed.
    #[inline]
    pub(crate) fn leave_alias(&self, dentry: &Dentry, guard: &Guard) {
        if !self.alias_head().replace(ptr::from_ref(dentry).cast_mut(), ptr::null_mut()) {
            self.leave_more(dentry, guard);
        }
    }

    /// Removes a dentry from a list of several, or one that had several a moment ago.
    #[cold]
    fn leave_more(&self, dentry: &Dentry, guard: &Guard) {
        let (head, links) = (self.alias_head(), dentry.aliases());
        let _lock = self.lock_aliases();
        // The other dentries may have left before this thread took the lock.
        if head.replace(ptr::from_ref(dentry).cast_mut(), ptr::null_mut()) {
            return;
        }
        debug_assert!(is_marked(head.0.load(Ordering::Relaxed)), "the dentry is on no list");
        let (next, prev) = (links.next.load(Ordering::Relaxed), links.prev.load(Ordering::Relaxed));
        match as_dentry(prev, guard) {
            Some(prev) => prev.aliases().next.store(next, Ordering::Release),
            None => head.set(marked(next)),
        }
        if let Some(next) = as_dentry(next, guard) {
            next.aliases().prev.store(prev, Ordering::Relaxed);
        }
        let first = unmarked(head.0.load(Ordering::Relaxed));
        let is_alone = |first: &Dentry| first.aliases().next.load(Ordering::Relaxed).is_null();
        if as_dentry(first, guard).is_some_and(is_alone) {
            head.set(first);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
