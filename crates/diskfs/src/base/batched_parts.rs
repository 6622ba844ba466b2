//! The parts of a sum that each CPU adds up before the sum gets them.

use vfscale_sync::atomic::{AtomicI64, Ordering};
use vfscale_sync::percpu::PerCpu;

/// For each CPU, the changes of a sum that it does not have yet. Counterpart of
/// `percpu_counter_add_batch` in Linux; the sum is its owner's. `Send` and `Sync`.
#[derive(Debug)]
pub(crate) struct BatchedParts {
    /// The most that a part may differ from 0.
    batch: i64,
    parts: PerCpu<AtomicI64>,
}

impl BatchedParts {
    /// Creates `slots` parts, each of which holds back at most `batch`.
    pub(crate) fn new(slots: usize, batch: u64) -> Self {
        let batch = i64::try_from(batch).unwrap_or(i64::MAX);
        Self { batch, parts: PerCpu::new(slots, |_| AtomicI64::new(0)) }
    }

    /// Adds to the part of this CPU. Returns what the part has added up if that is too much: the
    /// caller adds it to the sum.
    #[inline]
    pub(crate) fn add(&self, change: i64) -> Option<i64> {
        let part = self.parts.this();
        let now = part.fetch_add(change, Ordering::Relaxed) + change;
        (now.abs() > self.batch).then(|| part.swap(0, Ordering::Relaxed))
    }

    /// Returns what all parts hold back. May see a decrement before the increment that it belongs
    /// to.
    pub(crate) fn sum(&self) -> i64 {
        self.parts.iter().map(|part| part.load(Ordering::Relaxed)).sum()
    }

    /// Returns the most that all parts may hold back.
    pub(crate) fn most(&self) -> i64 {
        self.batch * self.parts.len() as i64
    }
}
