//! References to one object, counted on the CPU where they are taken.
//!
//! # Purpose
//!
//! An [`Arc`] counts its references in one word next to the object: each thread that takes a
//! reference writes a line that all others write too, and that every reader of the object's first
//! fields reads. Where each file, or each transaction, refers to the whole volume, that is the
//! false sharing that Chinner's "xfs: fix a couple of performance issues" (2020, patch 1) removes.
//! Here each CPU has a count of its own, and each of these counts is one unit of the `Arc`.
//!
//! # Invariants
//!
//! * The object lives as long as the [`PerCpuArc`] or any [`Kept`] of it: a count that is not zero
//!   holds one unit of the object's own.
//! * A count is on cache lines of its own. It is written when a reference is taken, and when that
//!   reference is dropped.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::percpu::PerCpu;

/// An object, and a count of references to it for each CPU. `Send` and `Sync` as `Arc<T>` is.
pub struct PerCpuArc<T> {
    object: Arc<T>,
    counts: PerCpu<Arc<CpuCount<T>>>,
}

/// A reference that was counted on the CPU where it was taken. `Send` and `Sync` as `Arc<T>` is.
pub struct Kept<T>(Arc<CpuCount<T>>);

/// A per-CPU count of references. Aligned to two lines, since x86 fetches them in pairs.
#[repr(align(128))]
struct CpuCount<T>(Arc<T>);

impl<T> PerCpuArc<T> {
    /// Creates per-CPU counts of references to `object`, in `slots` slots (at least one).
    pub fn new(slots: usize, object: Arc<T>) -> Self {
        let counts = PerCpu::new(slots, |_| Arc::new(CpuCount(Arc::clone(&object))));
        Self { object, counts }
    }

    /// Takes a reference.
    pub fn keep(&self) -> Kept<T> {
        Kept(Arc::clone(self.counts.this()))
    }

    /// Returns the number of references of each CPU, for diagnostics.
    pub fn kept(&self) -> Vec<usize> {
        self.counts.iter().map(|count| Arc::strong_count(count) - 1).collect()
    }
}

impl<T> Deref for PerCpuArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T: fmt::Debug> fmt::Debug for PerCpuArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
