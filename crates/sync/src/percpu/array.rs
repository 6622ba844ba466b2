//! One value for each CPU.

use std::fmt;
use std::ops::Deref;

use crate::cpu;

/// Puts a value on cache lines of its own: whatever lies beside it, what is written here is on no
/// line with it (seed 003, patch 1). 128 bytes, because x86 fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Apart<T>(pub T);

const _: () = assert!(align_of::<Apart<u8>>() == 128 && size_of::<Apart<u8>>() == 128);

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// One `T` for each slot, where a slot stands for the CPUs whose number is equal to it modulo the
/// number of slots.
///
/// `PerCpu<T>` is `Send` and `Sync` exactly as a boxed slice of `T` is.
pub struct PerCpu<T> {
    slots: Box<[Apart<T>]>,
}

impl<T> PerCpu<T> {
    /// Makes `slots` slots (at least one), each from `make`, which gets the number of its slot.
    pub fn new(slots: usize, mut make: impl FnMut(usize) -> T) -> Self {
        let slots = (0..slots.max(1)).map(|slot| Apart(make(slot))).collect();
        Self { slots }
    }

    /// The number of the slot of the CPU that runs this thread. It may be out of date at once.
    #[inline]
    #[must_use]
    pub fn this_slot(&self) -> usize {
        let (cpu, slots) = (cpu::current() as usize, self.slots.len());
        // A division costs more than the rest of the function, and is seldom needed.
        if cpu < slots { cpu } else { cpu % slots }
    }

    /// The slot of the CPU that runs this thread.
    ///
    /// The thread may be moved to another CPU at any time, so the slot can be used by several
    /// threads at once; it is merely improbable.
    #[inline]
    #[must_use]
    pub fn this(&self) -> &T {
        &self.slots[self.this_slot()].0
    }

    /// The slot with number `slot`, or `None` when there is no such slot.
    #[inline]
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<&T> {
        self.slots.get(slot).map(|padded| &padded.0)
    }

    /// All slots, in the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator {
        self.slots.iter().map(|padded| &padded.0)
    }

    /// The number of slots, at least one.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always at least one slot")]
    pub fn len(&self) -> usize {
        self.slots.len()
    }
}

impl<T: fmt::Debug> fmt::Debug for PerCpu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
