//! Bytes of a page on x86-64: copies in assembly.

use super::size::PAGE_SIZE;
use std::arch::asm;
use std::cell::UnsafeCell;
use std::ops::Range;

/// The length from which `rep movsb` is the fastest copy; below, its start-up cost dominates.
const REP_FROM: usize = 1024;

/// The distance, modulo the page size, that the destination must be ahead of the source for `rep
/// movsb`: with less, it takes some thirty times as long on AMD's Zen 3. Large buffers of many
/// allocators begin 16 bytes after the beginning of a page.
const REP_AHEAD: usize = 32;

/// Whether adjacent pages are copied as one.
pub(super) const HAS_RUNS: bool = true;

/// The bytes of a page.
#[repr(transparent)]
pub(super) struct Bytes(UnsafeCell<[u8; PAGE_SIZE]>);

// SAFETY: The bytes are only accessed by the assembly below, whose accesses may race: the page of
// the parent module says why.
unsafe impl Sync for Bytes {}

impl Bytes {
    #[inline]
    fn at(&self, offset: usize) -> *mut u8 {
        self.0.get().cast::<u8>().wrapping_add(offset)
    }

    /// Copies bytes out of the page. The caller has checked the bounds.
    #[inline]
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        debug_assert!(offset + into.len() <= PAGE_SIZE);
        // SAFETY: The source is within the page, the destination is exclusively ours.
        unsafe { copy(self.at(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes into the page. The caller has checked the bounds.
    #[inline]
    pub(super) fn write(&self, offset: usize, from: &[u8]) {
        debug_assert!(offset + from.len() <= PAGE_SIZE);
        // SAFETY: The destination is within the page, where writes may race, and no thread writes
        // the source, which we borrow.
        unsafe { copy(from.as_ptr(), self.at(offset), from.len()) }
    }

    /// Copies the bytes from `offset` on, which may continue in the pages after this one.
    ///
    /// # Safety
    ///
    /// The range is within adjacent pages that are in use.
    #[inline]
    pub(super) unsafe fn read_run(&self, offset: usize, into: &mut [u8]) {
        // SAFETY: The caller promises that the source is within pages; the destination is
        // exclusively ours.
        unsafe { copy(self.at(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Copies to the bytes from `offset` on, which may continue in the pages after this one.
    ///
    /// # Safety
    ///
    /// The range is within adjacent pages that are in use.
    #[inline]
    pub(super) unsafe fn write_run(&self, offset: usize, from: &[u8]) {
        // SAFETY: The caller promises that the destination is within pages, and no thread writes
        // the source.
        unsafe { copy(from.as_ptr(), self.at(offset), from.len()) }
    }

    /// Zeroes a range. The caller has checked the bounds.
    #[inline]
    pub(super) fn zero(&self, range: Range<usize>) {
        debug_assert!(range.start <= range.end && range.end <= PAGE_SIZE);
        // SAFETY: The range is within the page, where writes may race. The direction flag is clear,
        // as the calling convention demands.
        unsafe {
            asm!(
                "rep stosb",
                inout("rcx") range.end - range.start => _,
                inout("rdi") self.at(range.start) => _,
                in("al") 0u8,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Copies `len` bytes, where other threads may access one of the sides concurrently.
///
/// # Safety
///
/// `from` is readable and `to` writable for `len` bytes, and they don't overlap. Of the two ranges,
/// no other thread writes the one that isn't in a page.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: Each function accesses exactly the `len` bytes at both sides.
    unsafe {
        match len {
            REP_FROM.. if !is_just_ahead(from, to) => copy_rep(from, to, len),
            32.. => copy_words(from, to, len),
            16.. => copy_ends::<16>(from, to, len),
            8.. => copy_ends::<8>(from, to, len),
            4.. => copy_ends::<4>(from, to, len),
            1.. => copy_few(from, to, len),
            0 => {}
        }
    }
}

#[inline]
fn is_just_ahead(from: *const u8, to: *const u8) -> bool {
    (1..REP_AHEAD).contains(&(to.addr().wrapping_sub(from.addr()) % PAGE_SIZE))
}

/// Copies with `rep movsb`.
///
/// # Safety
///
/// The caller makes the promises of [`copy`].
#[inline]
unsafe fn copy_rep(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: By the contract of `copy`; the direction flag is clear by the calling convention.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies two words of sixteen bytes at a time; the last two may overlap the former ones, which
/// copies some bytes twice. One word at a time takes twice as long for many lengths and alignments.
///
/// # Safety
///
/// The caller makes the promises of [`copy`]; `len` is at least 32.
#[inline]
unsafe fn copy_words(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: The loop ends before it would pass `len - 32`, and the last copy starts there.
    unsafe {
        asm!(
            "2:",
            "movdqu {first}, [{from} + {at}]",
            "movdqu {second}, [{from} + {at} + 16]",
            "movdqu [{to} + {at}], {first}",
            "movdqu [{to} + {at} + 16], {second}",
            "add {at}, 32",
            "cmp {at}, {last}",
            "jb 2b",
            "movdqu {first}, [{from} + {last}]",
            "movdqu {second}, [{from} + {last} + 16]",
            "movdqu [{to} + {last}], {first}",
            "movdqu [{to} + {last} + 16], {second}",
            from = in(reg) from,
            to = in(reg) to,
            last = in(reg) len - 32,
            at = inout(reg) 0usize => _,
            first = out(xmm_reg) _,
            second = out(xmm_reg) _,
            options(nostack)
        );
    }
}

/// Copies the first and the last word through `$class` registers, of which `$part` are used.
macro_rules! copy_both_ends {
    ($class:ident, $mov:literal, $part:literal, $from:expr, $to:expr, $last:expr) => {
        asm!(
            concat!($mov, " {first", $part, "}, [{from}]"),
            concat!($mov, " {second", $part, "}, [{from} + {last}]"),
            concat!($mov, " [{to}], {first", $part, "}"),
            concat!($mov, " [{to} + {last}], {second", $part, "}"),
            from = in(reg) $from,
            to = in(reg) $to,
            last = in(reg) $last,
            first = out($class) _,
            second = out($class) _,
            options(nostack, preserves_flags)
        )
    };
}

/// Copies the first and the last `WIDTH` bytes, which overlap or meet.
///
/// # Safety
///
/// The caller makes the promises of [`copy`]; `len` is from `WIDTH` to twice `WIDTH`, and `WIDTH`
/// is 4, 8 or 16.
#[inline]
unsafe fn copy_ends<const WIDTH: usize>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - WIDTH;
    // SAFETY: Both words lie within `len` bytes.
    unsafe {
        match WIDTH {
            16 => copy_both_ends!(xmm_reg, "movdqu", "", from, to, last),
            8 => copy_both_ends!(reg, "mov", "", from, to, last),
            _ => copy_both_ends!(reg, "mov", ":e", from, to, last),
        }
    }
}

/// Copies one to three bytes: the first, the middle and the last one, which may coincide.
///
/// # Safety
///
/// The caller makes the promises of [`copy`]; `len` is from 1 to 3.
#[inline]
unsafe fn copy_few(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: All three bytes lie within `len` bytes.
    unsafe {
        asm!(
            "movzx {first:e}, byte ptr [{from}]",
            "movzx {second:e}, byte ptr [{from} + {middle}]",
            "movzx {third:e}, byte ptr [{from} + {last}]",
            "mov byte ptr [{to}], {first:l}",
            "mov byte ptr [{to} + {middle}], {second:l}",
            "mov byte ptr [{to} + {last}], {third:l}",
            from = in(reg) from,
            to = in(reg) to,
            middle = in(reg) len / 2,
            last = in(reg) len - 1,
            first = out(reg) _,
            second = out(reg) _,
            third = out(reg) _,
            options(nostack, preserves_flags)
        );
    }
}
