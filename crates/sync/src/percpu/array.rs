//! An array with one value for each CPU.

use std::fmt;

pub use crossbeam_utils::CachePadded;

use crate::cpu;

// On the processors that matter here, two lines: x86 fetches them in pairs.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const _: () = assert!(align_of::<CachePadded<u8>>() == 128 && size_of::<CachePadded<u8>>() == 128);

/// An array with one `T` for each slot. The CPUs of a slot are those whose number is equal to it
/// modulo the number of slots. Counterpart of a per-CPU variable in Linux.
///
/// `PerCpu<T>` is `Send` and `Sync` exactly as a boxed slice of `T` is.
pub struct PerCpu<T> {
    slots: Box<[CachePadded<T>]>,
}

impl<T> PerCpu<T> {
    /// Creates `slots` slots (at least one), each by `make`, which gets the number of its slot.
    pub fn new(slots: usize, mut make: impl FnMut(usize) -> T) -> Self {
        let slots = (0..slots.max(1)).map(|slot| CachePadded::new(make(slot))).collect();
        Self { slots }
    }

    /// Returns the number of the slot of the CPU that runs this thread. The thread may be moved at
    /// any time, so it is a hint.
    #[inline]
    pub fn this_slot(&self) -> usize {
        self.slot_of(cpu::current())
    }

    /// Returns the number of the slot of a CPU, for a caller that uses several structures and has
    /// [its number](cpu::current) already.
    #[inline]
    pub fn slot_of(&self, cpu: u32) -> usize {
        let (cpu, slots) = (cpu as usize, self.slots.len());
        // A division costs more than the rest of the function, and is seldom needed.
        if cpu < slots { cpu } else { cpu % slots }
    }

    /// Returns the slot of the CPU that runs this thread.
    ///
    /// The thread may be moved to another CPU at any time, so several threads can use the slot
    /// concurrently; it is merely improbable.
    #[inline]
    pub fn this(&self) -> &T {
        self.of(cpu::current())
    }

    /// Returns the slot of a CPU, as [`this`](Self::this) does for the present one.
    #[inline]
    pub fn of(&self, cpu: u32) -> &T {
        &self.slots[self.slot_of(cpu)]
    }

    /// Returns the slot with number `slot`, or `None` if there is no such slot.
    #[inline]
    pub fn get(&self, slot: usize) -> Option<&T> {
        self.slots.get(slot).map(|padded| &**padded)
    }

    /// Returns all slots, in the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator {
        self.slots.iter().map(|padded| &**padded)
    }

    /// Returns the number of slots, at least one.
    #[inline]
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
