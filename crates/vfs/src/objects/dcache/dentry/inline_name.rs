//! Names that are stored in their dentry.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use crate::objects::dcache::name;

/// Maximum length of a name that is stored in the dentry.
pub(super) const INLINE_MAX: usize = 63;

/// Size of each half, of which the second one is for the name after the first rename.
const HALF: usize = INLINE_MAX.div_ceil(2);

/// A length byte and that many bytes, and zeros. Written when the dentry has its final address,
/// because an array in a value that moves would be built elsewhere and copied. If the name leaves
/// the second half free, that is written once more: by the first rename to such a name. So a file
/// that gets its name by a rename needs no other memory for it.
#[repr(C, align(64))]
pub(super) struct InlineName(UnsafeCell<MaybeUninit<[u8; INLINE_MAX + 1]>>);

impl InlineName {
    /// Reserves the memory.
    #[inline]
    pub(super) fn uninit() -> InlineName {
        InlineName(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Stores the first name, or zeros if it is longer than [`INLINE_MAX`]. Returns whether it is
    /// stored here.
    #[inline]
    pub(super) fn set(&mut self, name: &[u8]) -> bool {
        let stored = self.0.get_mut().write([0; INLINE_MAX + 1]);
        let is_inline = name.len() <= INLINE_MAX;
        if is_inline {
            stored[0] = name.len() as u8;
            stored[1..=name.len()].copy_from_slice(name);
        }
        is_inline
    }

    /// Returns the address of the first name.
    pub(super) fn bytes(&self) -> *mut u8 {
        self.0.get().cast()
    }

    /// Returns whether a stored name is in this memory.
    pub(super) fn contains(&self, name: *const u8) -> bool {
        name.addr().wrapping_sub(self.bytes().addr()) <= INLINE_MAX
    }

    /// Stores the name of the first rename in the second half, if both names fit into a half.
    /// Returns its address. `now` is the stored name of the dentry, and the caller replaces it.
    pub(super) fn second(&self, now: *const u8, name: &[u8]) -> Option<*mut u8> {
        let is_short = |len: usize| name::stored_len(len) <= HALF;
        if !is_short(name.len()) || !std::ptr::eq(now, self.bytes()) {
            return None;
        }
        // SAFETY: the name of the dentry begins with its length.
        if !is_short(usize::from(unsafe { *now })) {
            return None;
        }
        // SAFETY: the second half is within the memory, is zero, and no thread reads it: it has
        // not been the dentry's name yet, since the first half still is, and a replaced one is
        // never the name again. Renames of a dentry exclude each other.
        unsafe {
            let second = self.bytes().add(HALF);
            second.write(name.len() as u8);
            second.add(1).copy_from_nonoverlapping(name.as_ptr(), name.len());
            Some(second)
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
