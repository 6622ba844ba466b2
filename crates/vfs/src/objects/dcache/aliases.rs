//! The dentries of an inode (the kernel's `i_dentry`).
//!
//! # Purpose
//!
//! An inode has a dentry for each of its names that the dcache knows, and one for each name that is
//! gone but still in use. Who comes by the inode, not by a name, finds them here: a file that is
//! opened by its handle gets the dentry that everybody else uses, with its path (the kernel's
//! `d_find_alias`), and a directory, which has one place only, is found where the dcache has it
//! (`d_materialise_unique`).
//!
//! # Invariants
//!
//! * A dentry is on the list of its inode from when it is made until it is about to be freed, which
//!   takes a grace period after that: the list is read under RCU. Not on it are dentries of what
//!   has no place in any tree, and of names that don't exist.
//! * Nearly every inode has one name. As long as there is one dentry at most the head is a pointer
//!   to it, or null, and changes by one exchange, without a lock. Of two and more the head is
//!   marked, and changes under the inode's `i_lock`, as do the links of the dentries; the last but
//!   one that leaves takes the mark off.
//! * A dentry that has left keeps its link to the next one for those who are just there.

use std::ptr::{self, NonNull};

use vfscale_sync::atomic::{AtomicPtr, Ordering};
use vfscale_sync::rcu::{self, Guard};

use crate::objects::dcache::dentry::Dentry;
use crate::objects::inode::Inode;

/// Of the head: there are several, and changes take the lock.
const SEVERAL: usize = 1;

/// The first dentry of an inode, with a mark if there are more.
pub(crate) struct AliasHead(AtomicPtr<Dentry>);

/// The links of a dentry on the list of its inode. They mean something while there are several.
pub(crate) struct AliasLinks {
    next: AtomicPtr<Dentry>,
    prev: AtomicPtr<Dentry>,
}

impl AliasHead {
    pub(crate) fn new() -> AliasHead {
        AliasHead(AtomicPtr::new(ptr::null_mut()))
    }

    /// Replaces one head by another, if it is the one.
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

/// A dentry that the list leads to.
fn there(raw: *mut Dentry, _guard: &Guard) -> Option<&Dentry> {
    // SAFETY: what the list leads to is freed a grace period after it has left it, and so after
    // this section.
    NonNull::new(raw).map(|raw| unsafe { raw.as_ref() })
}

/// The dentries of an inode, those that come and go meanwhile or not.
pub(crate) struct Aliases<'g> {
    next: Option<&'g Dentry>,
    guard: &'g Guard,
}

impl<'g> Iterator for Aliases<'g> {
    type Item = &'g Dentry;

    fn next(&mut self) -> Option<&'g Dentry> {
        let found = self.next?;
        self.next = there(found.aliases().next.load(Ordering::Acquire), self.guard);
        Some(found)
    }
}

impl Inode {
    /// Its dentries: those that have names as well as those that don't any more.
    pub(crate) fn aliases<'g>(&self, guard: &'g Guard) -> Aliases<'g> {
        let head = self.alias_head().0.load(Ordering::Acquire);
        Aliases { next: there(unmarked(head), guard), guard }
    }

    /// Enters a dentry that has just been made.
    #[inline]
    pub(crate) fn enter_alias(&self, dentry: &Dentry) {
        if !self.alias_head().replace(ptr::null_mut(), ptr::from_ref(dentry).cast_mut()) {
            self.enter_more(dentry);
        }
    }

    #[cold]
    fn enter_more(&self, dentry: &Dentry) {
        let (head, links) = (self.alias_head(), dentry.aliases());
        let new = ptr::from_ref(dentry).cast_mut();
        let guard = rcu::pin();
        let _lock = self.lock_aliases();
        loop {
            let old = head.0.load(Ordering::Acquire);
            links.next.store(unmarked(old), Ordering::Relaxed);
            let Some(first) = there(unmarked(old), &guard) else {
                if head.replace(old, new) {
                    return;
                }
                continue;
            };
            first.aliases().prev.store(new, Ordering::Relaxed);
            // Only one that is alone may leave meanwhile; then what was written to it says nothing.
            if head.replace(old, marked(new)) {
                return;
            }
        }
    }

    /// Takes a dentry off that is about to be freed.
    #[inline]
    pub(crate) fn leave_alias(&self, dentry: &Dentry, guard: &Guard) {
        if !self.alias_head().replace(ptr::from_ref(dentry).cast_mut(), ptr::null_mut()) {
            self.leave_more(dentry, guard);
        }
    }

    #[cold]
    fn leave_more(&self, dentry: &Dentry, guard: &Guard) {
        let (head, links) = (self.alias_head(), dentry.aliases());
        let _lock = self.lock_aliases();
        // The others may have left before the lock was taken.
        if head.replace(ptr::from_ref(dentry).cast_mut(), ptr::null_mut()) {
            return;
        }
        debug_assert!(is_marked(head.0.load(Ordering::Relaxed)), "a dentry that is on no list");
        let (next, prev) = (links.next.load(Ordering::Relaxed), links.prev.load(Ordering::Relaxed));
        match there(prev, guard) {
            Some(prev) => prev.aliases().next.store(next, Ordering::Release),
            None => head.set(marked(next)),
        }
        if let Some(next) = there(next, guard) {
            next.aliases().prev.store(prev, Ordering::Relaxed);
        }
        let first = unmarked(head.0.load(Ordering::Relaxed));
        let is_alone = |first: &Dentry| first.aliases().next.load(Ordering::Relaxed).is_null();
        if there(first, guard).is_some_and(is_alone) {
            head.set(first);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
