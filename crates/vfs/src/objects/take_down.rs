//! The end of a superblock: frees its tree, its inodes and itself, in steps.
//!
//! # Purpose
//!
//! The last use of a superblock ends in deferred work, inside whatever call happens to run that
//! work. A tree of millions of files must not be taken down there: that call would take seconds, in
//! one RCU section, during which no grace period would end anywhere. So the superblock is passed to
//! the reclaim thread ([`vfscale_sync::reclaim`]), which takes some hundred dentries down in each
//! step, children before parents, in a separate section for each step.
//!
//! # When memory is freed
//!
//! A grace period lies between the last use and the first step. Sections that began before that use
//! ended have ended too, and no thread finds a dentry or inode of the superblock any more: each
//! path to one begins with a mount or with a use. So the reclaim thread frees them immediately. All
//! that remains for other threads is to free the pages and similar objects that the driver itself
//! defers.
//!
//! Without such a thread (in models, and if the system cannot start one), the thread that drops the
//! last use takes everything down, in its current section; then dentries and inodes wait for a
//! grace period. This also applies to a superblock that never had a root: its driver refused it,
//! and no other thread saw it.

use std::ptr::NonNull;

use vfscale_sync::prefetch::{prefetch, soon};
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::reclaim::{self, Work};

use crate::objects::dcache::dentry::{self, Dentry};
use crate::objects::super_block::SuperBlock;

/// Number of dentries or inodes that a step takes down.
const STEP: usize = 256;

/// Ends a superblock.
///
/// # Safety
/// It came from a box, its last use was dropped, and no other thread ends it.
pub(crate) unsafe fn end(raw: NonNull<SuperBlock>) {
    // SAFETY: the superblock is not freed until the work below has been done.
    let (key, has_root) = unsafe { (raw.as_ref().dev(), raw.as_ref().root_raw().is_some()) };
    // Its list of open files is empty; memory that the list retains for later files may be needed
    // elsewhere. SAFETY: the superblock is not freed until the work below has been done.
    unsafe { raw.as_ref() }.files().trim();
    let by_thread = TakeDown { sb: raw, stage: Stage::Begin, is_alone: true };
    if has_root && reclaim::submit(key, Box::new(by_thread)).is_ok() {
        return;
    }
    let _section = rcu::pin();
    let mut here = TakeDown { sb: raw, stage: Stage::Begin, is_alone: false };
    while here.step() {}
}

/// The progress of a take-down.
enum Stage {
    Begin,
    Tree(TreeWalk),
    Inodes,
}

/// The end of one superblock.
struct TakeDown {
    sb: NonNull<SuperBlock>,
    stage: Stage,
    /// Whether a grace period has passed since the last use.
    is_alone: bool,
}

// SAFETY: a `SuperBlock` is `Send`, and so are its dentries.
unsafe impl Send for TakeDown {}

impl Work for TakeDown {
    fn step(&mut self) -> bool {
        // SAFETY: it is freed only below, in the last step.
        let sb = unsafe { self.sb.as_ref() };
        match &mut self.stage {
            Stage::Begin => {
                let root = sb.root_raw();
                sb.begin_end(self.is_alone, root.is_some());
                self.stage = root.map_or(Stage::Inodes, |root| Stage::Tree(TreeWalk::new(root)));
                true
            }
            Stage::Tree(walk) => {
                if !walk.step(sb, &rcu::pin()) {
                    self.stage = Stage::Inodes;
                }
                true
            }
            Stage::Inodes => {
                if sb.evict_inodes(STEP) {
                    return true;
                }
                sb.end_inodes(&rcu::pin());
                // SAFETY: it came from a box, and no thread uses it after this step.
                drop(unsafe { Box::from_raw(self.sb.as_ptr()) });
                false
            }
        }
    }
}

/// A walk that frees a tree which no other thread changes any more.
struct TreeWalk {
    root: NonNull<Dentry>,
    /// Directories with the hash from which on their children remain to be freed; `None` if only
    /// the directory itself remains.
    dirs: Vec<(NonNull<Dentry>, Option<u64>)>,
}

impl TreeWalk {
    fn new(root: NonNull<Dentry>) -> TreeWalk {
        TreeWalk { root, dirs: vec![(root, Some(0))] }
    }

    /// Frees some hundred dentries. Returns false when all are freed.
    fn step(&mut self, sb: &SuperBlock, guard: &Guard) -> bool {
        let mut freed = 0;
        let mut children = Vec::with_capacity(STEP);
        while freed < STEP {
            let Some((dir, from)) = self.dirs.last_mut() else { return false };
            let dir = *dir;
            let Some(hash) = from.take() else {
                self.dirs.pop();
                // SAFETY: it was linked in the tree, no thread can reach it, and its children are
                // freed.
                unsafe { dentry::take_down(sb, dir, dir != self.root, guard) };
                freed += 1;
                continue;
            };
            // SAFETY: it is freed after it leaves the stack.
            let table = unsafe { dir.as_ref() }.children();
            // Whole buckets, whose entries are not accessed again once they are freed.
            *from = table.scan_buckets(hash, STEP, guard, |child| {
                prefetch(child);
                children.push(NonNull::from(child));
            });
            for (at, &child) in children.iter().enumerate() {
                // SAFETY: A later child is freed in a later iteration of this loop.
                soon(&children, at, |later| prefetch(unsafe { later.as_ref() }.inode()));
                // SAFETY: each child has one parent, whose table was the only path to it.
                unsafe {
                    if child.as_ref().children().is_empty() {
                        dentry::take_down(sb, child, true, guard);
                        freed += 1;
                    } else {
                        self.dirs.push((child, Some(0)));
                    }
                }
            }
            children.clear();
        }
        true
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
