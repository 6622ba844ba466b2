//! The memory of Python's objects, which calls read and write in place.
//!
//! # Purpose
//!
//! A call that copies much works without the interpreter's lock, directly on the memory of a new
//! `bytes`, or of the object that the caller passes. The functions for that which PyO3 offers need
//! a newer stable interface than that of Python 3.9, or copy once more under the lock.
//!
//! # Invariants
//!
//! * A new `bytes` has one reference until it is filled, so no other code sees it change.
//! * While a call uses the memory of a caller's object, a `memoryview` that nobody else sees pins
//!   it: an object with views is neither freed nor resized.
//! * As for `os.readinto` and `os.write`, other threads of the program do not change the memory
//!   during the call; what such a program finds in it is unspecified bytes.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::slice;

use pyo3::exceptions::PyOverflowError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

// In the stable interface since Python 3.2, though no longer in its headers.
unsafe extern "C" {
    fn PyObject_AsReadBuffer(
        object: *mut ffi::PyObject,
        buffer: *mut *const c_void,
        len: *mut ffi::Py_ssize_t,
    ) -> c_int;
    fn PyObject_AsWriteBuffer(
        object: *mut ffi::PyObject,
        buffer: *mut *mut c_void,
        len: *mut ffi::Py_ssize_t,
    ) -> c_int;
}

/// Makes a `bytes` of up to `len` bytes, which `fill` writes; `fill` returns their number.
///
/// # Errors
/// `MemoryError`, or the error of `fill`.
pub(crate) fn filled<'py>(
    py: Python<'py>,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> PyResult<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let too_long = || PyOverflowError::new_err("the size is too large");
    let size = ffi::Py_ssize_t::try_from(len).map_err(|_| too_long())?;
    // SAFETY: the interpreter's lock is held; null means memory of any content. The result is a new
    // reference, or null with an exception.
    let bytes = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(ptr::null(), size))
    }?;
    // SAFETY: the object is a `bytes`.
    let memory: *mut c_char = unsafe { ffi::PyBytes_AsString(bytes.as_ptr()) };
    // SAFETY: the memory has `len` bytes, and is this function's until the object is returned. The
    // calls that fill it only write to it.
    let filled = fill(unsafe { slice::from_raw_parts_mut(memory.cast::<u8>(), len) })?;
    if filled == len {
        return Ok(bytes);
    }
    // SAFETY: `filled` bytes have been written.
    let part = unsafe { slice::from_raw_parts(memory.cast::<u8>(), filled.min(len)) };
    Ok(PyBytes::new(py, part).into_any())
}

/// The memory of an object that can be written, such as a `bytearray`.
pub(crate) struct Writable<'py> {
    _view: Bound<'py, PyMemoryView>,
    memory: *mut u8,
    len: usize,
}

impl<'py> Writable<'py> {
    /// Pins the memory.
    ///
    /// # Errors
    /// `TypeError` for another object.
    pub(crate) fn new(object: &Bound<'py, PyAny>) -> PyResult<Writable<'py>> {
        let view = PyMemoryView::from(object)?;
        let (mut memory, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the interpreter's lock is held, and both places are this function's.
        let status =
            unsafe { PyObject_AsWriteBuffer(view.as_ptr(), &raw mut memory, &raw mut len) };
        if status != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Writable { _view: view, memory: memory.cast(), len: len.cast_unsigned() })
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: the memory has `len` bytes, which stay while the view does.
        unsafe { slice::from_raw_parts_mut(self.memory, self.len) }
    }
}

/// The memory of an object that can be read, such as `bytes`.
pub(crate) struct Readable<'py> {
    _view: Bound<'py, PyMemoryView>,
    memory: *const u8,
    len: usize,
}

impl<'py> Readable<'py> {
    /// Pins the memory.
    ///
    /// # Errors
    /// `TypeError` for another object.
    pub(crate) fn new(object: &Bound<'py, PyAny>) -> PyResult<Readable<'py>> {
        let view = PyMemoryView::from(object)?;
        let (mut memory, mut len) = (ptr::null(), 0);
        // SAFETY: the interpreter's lock is held, and both places are this function's.
        let status = unsafe { PyObject_AsReadBuffer(view.as_ptr(), &raw mut memory, &raw mut len) };
        if status != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Readable { _view: view, memory: memory.cast(), len: len.cast_unsigned() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the memory has `len` bytes, which stay while the view does.
        unsafe { slice::from_raw_parts(self.memory, self.len) }
    }
}

/// Calls `f` with the memory of an object that can be written, such as a `bytearray`.
///
/// # Errors
/// `TypeError` for another object, or the error of `f`.
pub(crate) fn with_mut<T>(
    object: &Bound<'_, PyAny>,
    f: impl FnOnce(&mut [u8]) -> PyResult<T>,
) -> PyResult<T> {
    f(Writable::new(object)?.bytes())
}

/// Calls `f` with the memory of an object that can be read, such as `bytes`.
///
/// # Errors
/// `TypeError` for another object, or the error of `f`.
pub(crate) fn with<T>(
    object: &Bound<'_, PyAny>,
    f: impl FnOnce(&[u8]) -> PyResult<T>,
) -> PyResult<T> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return f(bytes.as_bytes());
    }
    f(Readable::new(object)?.bytes())
}
