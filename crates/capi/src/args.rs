//! Arguments: pointers and flags of C programs as values of the library.
//!
//! The functions that read pointers are unsafe, and their promise is that of the header: a pointer
//! is null, or it points to as many bytes as the header says, which stay as they are (or, for
//! results, belong to the call) until the function returns. `given!` calls them in the exported
//! functions, whose callers have made that promise.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, size_of};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use libc::iovec;
use vfscale::posix::{At, AtFlags, Fd, OFlags};
use vfscale::{Errno, Mode};

use crate::border::Failure;

/// Converts a pointer that the caller of an exported function passed.
macro_rules! given {
    ($convert:ident($($argument:expr),*)) => {
        // SAFETY: the exported function is unsafe, and its caller has promised what the header says
        // about its pointers.
        unsafe { $crate::args::$convert($($argument),*) }
    };
}
pub(crate) use given;

/// Largest number of vectors of a call, as in Linux.
const VECTORS_MAX: usize = 1024;
/// Largest size of an options structure that a later version may pass.
const OPTIONS_MAX: usize = 4096;

#[cold]
fn null(what: &'static str) -> Failure {
    Failure::new(Errno::FAULT, format!("{what} is NULL"))
}

/// Returns a string without its zero.
///
/// # Safety
/// The pointer is null, or that of a string with a zero that does not change during the call.
pub(crate) unsafe fn string<'a>(
    pointer: *const c_char,
    what: &'static str,
) -> Result<&'a OsStr, Failure> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller promises a string with a zero.
    let string = unsafe { CStr::from_ptr(pointer) };
    Ok(OsStr::from_bytes(string.to_bytes()))
}

/// Returns a path.
///
/// # Safety
/// As [`string`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a Path, Failure> {
    // SAFETY: the caller promises a string with a zero.
    unsafe { string(pointer, "the path") }.map(Path::new)
}

/// Returns a path, or `None` for a null pointer.
///
/// # Safety
/// As [`string`].
pub(crate) unsafe fn optional_path<'a>(pointer: *const c_char) -> Option<&'a Path> {
    // SAFETY: the caller promises null or a string with a zero.
    unsafe { path(pointer) }.ok()
}

/// Returns a text, or `None` for a null pointer.
///
/// # Safety
/// As [`string`].
pub(crate) unsafe fn optional_text(
    pointer: *const c_char,
    what: &'static str,
) -> Result<Option<String>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises a string with a zero.
    let text = unsafe { string(pointer, what) }?;
    let invalid = || Failure::new(Errno::INVAL, format!("{what} is not UTF-8"));
    text.to_str().map(|text| Some(text.to_owned())).ok_or_else(invalid)
}

fn check_len<T>(pointer: *const T, len: usize) -> Result<bool, Failure> {
    if len == 0 {
        return Ok(false);
    }
    if pointer.is_null() {
        return Err(null("the buffer"));
    }
    if !pointer.is_aligned() || len > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::new(Errno::FAULT, "the buffer is not aligned, or larger than memory"));
    }
    Ok(true)
}

/// Returns values to read.
///
/// # Safety
/// The pointer is null, or that of `len` values that do not change during the call.
pub(crate) unsafe fn values<'a, T: Plain>(
    pointer: *const T,
    len: usize,
) -> Result<&'a [T], Failure> {
    if !check_len(pointer, len)? {
        return Ok(&[]);
    }
    // SAFETY: the caller promises `len` values; the length was checked.
    Ok(unsafe { slice::from_raw_parts(pointer, len) })
}

/// Returns bytes to write to a file.
///
/// # Safety
/// As [`values`].
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller promises `len` bytes.
    unsafe { values(pointer.cast(), len) }
}

/// Returns a buffer that the call may fill.
///
/// # Safety
/// The pointer is null, or that of `len` bytes that belong to the call until it returns.
pub(crate) unsafe fn buffer<'a>(pointer: *mut c_void, len: usize) -> Result<&'a mut [u8], Failure> {
    let pointer = pointer.cast::<u8>();
    if !check_len(pointer, len)? {
        return Ok(&mut []);
    }
    // SAFETY: the caller promises `len` bytes of its own; the length was checked.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, len) })
}

fn vector_count(count: c_int) -> Result<usize, Failure> {
    let valid = usize::try_from(count).ok().filter(|count| *count <= VECTORS_MAX);
    valid.ok_or_else(|| Failure::new(Errno::INVAL, "the number of vectors is not 0 to 1024"))
}

fn check_total(vectors: &[iovec]) -> Result<(), Failure> {
    let sum = vectors.iter().try_fold(0_usize, |sum, vector| sum.checked_add(vector.iov_len));
    match sum {
        Some(sum) if sum <= isize::MAX as usize => Ok(()),
        _ => Err(Failure::new(Errno::INVAL, "the vectors have more bytes than SSIZE_MAX")),
    }
}

/// Returns the vectors of a write.
///
/// # Safety
/// The pointer is null, or that of `count` vectors, each as in [`bytes`].
pub(crate) unsafe fn vectors<'a>(
    pointer: *const iovec,
    count: c_int,
) -> Result<Vec<IoSlice<'a>>, Failure> {
    // SAFETY: the caller promises `count` vectors.
    let all = unsafe { values(pointer, vector_count(count)?) }?;
    check_total(all)?;
    // SAFETY: the caller promises that each has as many bytes as it says.
    let one = |v: &iovec| unsafe { bytes(v.iov_base, v.iov_len) }.map(IoSlice::new);
    all.iter().map(one).collect()
}

/// Returns the vectors of a read.
///
/// # Safety
/// The pointer is null, or that of `count` vectors, each as in [`buffer`]; no two overlap.
pub(crate) unsafe fn vectors_mut<'a>(
    pointer: *const iovec,
    count: c_int,
) -> Result<Vec<IoSliceMut<'a>>, Failure> {
    // SAFETY: the caller promises `count` vectors.
    let all = unsafe { values(pointer, vector_count(count)?) }?;
    check_total(all)?;
    // SAFETY: the caller promises that each has as many bytes as it says, and that none overlap.
    let one = |v: &iovec| unsafe { buffer(v.iov_base, v.iov_len) }.map(IoSliceMut::new);
    all.iter().map(one).collect()
}

/// A place for a result of a call.
pub(crate) struct Place<'a, T>(&'a mut MaybeUninit<T>);

impl<T> Place<'_, T> {
    /// Stores the result.
    pub(crate) fn set(self, value: T) {
        self.0.write(value);
    }
}

/// Returns the place for a result, before the call changes anything.
///
/// # Safety
/// The pointer is null, or that of memory for a `T` that belongs to the call until it returns.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T) -> Result<Place<'a, T>, Failure> {
    if pointer.is_null() {
        return Err(null("the place for the result"));
    }
    if !pointer.is_aligned() {
        return Err(Failure::new(Errno::FAULT, "the place for the result is not aligned"));
    }
    // SAFETY: the caller promises memory for a `T`; nothing reads it before it is written.
    Ok(Place(unsafe { &mut *pointer.cast::<MaybeUninit<T>>() }))
}

/// Returns the place for a result that the caller may not want: `None` for a null pointer.
///
/// # Safety
/// As [`place`].
pub(crate) unsafe fn optional_place<'a, T>(
    pointer: *mut T,
) -> Result<Option<Place<'a, T>>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises what `place` asks for.
    unsafe { place(pointer) }.map(Some)
}

/// Places for a result that is a list.
pub(crate) struct Room<'a, T>(&'a mut [MaybeUninit<T>]);

impl<T> Room<'_, T> {
    /// Stores as much of a list as there is room for, and returns how long it is.
    pub(crate) fn fill(self, list: impl ExactSizeIterator<Item = T>) -> usize {
        let len = list.len();
        for (place, value) in self.0.iter_mut().zip(list) {
            place.write(value);
        }
        len
    }
}

/// Returns places for at most `max` results, before the call changes anything.
///
/// # Safety
/// The pointer is null, or that of memory for `max` values that belongs to the call until it
/// returns.
pub(crate) unsafe fn room<'a, T>(pointer: *mut T, max: usize) -> Result<Room<'a, T>, Failure> {
    if !check_len(pointer, max)? {
        return Ok(Room(&mut []));
    }
    let pointer = pointer.cast::<MaybeUninit<T>>();
    // SAFETY: the caller promises memory for `max` values; the length was checked, and nothing
    // reads the memory before it is written.
    Ok(Room(unsafe { slice::from_raw_parts_mut(pointer, max) }))
}

/// Returns a value that the call reads and changes; `None` for a null pointer.
///
/// # Safety
/// The pointer is null, or that of a `T` that belongs to the call until it returns.
pub(crate) unsafe fn in_out<'a, T: Plain>(pointer: *mut T) -> Result<Option<&'a mut T>, Failure> {
    if !pointer.is_null() && !pointer.is_aligned() {
        return Err(Failure::new(Errno::FAULT, "the value is not aligned"));
    }
    // SAFETY: the caller promises null or a `T` of its own.
    Ok(unsafe { pointer.as_mut() })
}

/// A type of which every pattern of bits is a value.
///
/// # Safety
/// Every pattern of bits of the type is a value of it.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers, and structures of integers and pointers, have no other patterns.
unsafe impl Plain for u8 {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for i64 {}
// SAFETY: an integer and a pointer.
unsafe impl Plain for iovec {}
// SAFETY: two integers.
unsafe impl Plain for libc::timespec {}

/// Returns options that a caller passed with their size, as `openat2(2)` does: the fields that an
/// older caller does not know are 0, and those that only a newer one knows must be 0 (`E2BIG`).
///
/// # Safety
/// The pointer is null, or that of `size` bytes that do not change during the call.
pub(crate) unsafe fn options<T: Plain>(pointer: *const T, size: usize) -> Result<T, Failure> {
    let mut options = MaybeUninit::<T>::zeroed();
    if !pointer.is_null() {
        if size == 0 || size > OPTIONS_MAX {
            let text = "the size of the options is not that of the structure";
            return Err(Failure::new(Errno::INVAL, text));
        }
        // SAFETY: the caller promises `size` bytes, of any alignment.
        let given = unsafe { slice::from_raw_parts(pointer.cast::<u8>(), size) };
        let known = given.len().min(size_of::<T>());
        if given[known..].iter().any(|byte| *byte != 0) {
            let text = "the options have values that this version does not know";
            return Err(Failure::new(Errno::TOOBIG, text));
        }
        // SAFETY: the target has `size_of::<T>()` bytes, and the source `known` ones.
        unsafe { given.as_ptr().copy_to_nonoverlapping(options.as_mut_ptr().cast(), known) };
    }
    // SAFETY: every byte is 0 or the caller's, and every pattern is a value.
    Ok(unsafe { options.assume_init() })
}

/// Returns the directory that a path starts from.
pub(crate) fn at(dirfd: c_int) -> At<'static> {
    if dirfd == libc::AT_FDCWD { At::Cwd } else { At::Fd(Fd(dirfd)) }
}

/// Returns the `AT_*` flags, unknown ones included, which the call refuses.
pub(crate) fn at_flags(flags: c_int) -> AtFlags {
    AtFlags::from_bits_retain(flags.cast_unsigned())
}

/// Returns the `O_*` flags, unknown ones included.
pub(crate) fn o_flags(flags: c_int) -> OFlags {
    OFlags::from_bits_retain(flags.cast_unsigned())
}

/// Returns the bits of a mode.
pub(crate) fn mode(mode: libc::mode_t) -> Mode {
    Mode::from_bits_retain(mode)
}

/// Returns an offset.
///
/// # Errors
/// `EINVAL` for a negative one.
pub(crate) fn offset(offset: i64, what: &'static str) -> Result<u64, Failure> {
    u64::try_from(offset).map_err(|_| Failure::new(Errno::INVAL, format!("{what} is negative")))
}

/// Copies a text to a buffer without a zero, and returns its length. A buffer of 0 bytes only asks
/// for the length.
///
/// # Errors
/// `ERANGE` if the buffer is too short.
pub(crate) fn fill(buffer: &mut [u8], text: &[u8]) -> Result<usize, Failure> {
    if !buffer.is_empty() {
        let Some(target) = buffer.get_mut(..text.len()) else {
            let text = format!("the buffer has {} bytes of {}", buffer.len(), text.len());
            return Err(Failure::new(Errno::RANGE, text));
        };
        target.copy_from_slice(text);
    }
    Ok(text.len())
}

#[cfg(test)]
mod tests;
