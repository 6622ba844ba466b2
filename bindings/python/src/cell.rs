//! Cells: what a Python object holds until it is closed.

use std::sync::{Arc, Mutex, PoisonError};

/// Something that Python code can close while other threads use it: they go on with it, and later
/// users find the cell empty.
pub(crate) struct Cell<T>(Mutex<Option<T>>);

impl<T> Cell<T> {
    pub(crate) fn new(value: T) -> Cell<T> {
        Cell(Mutex::new(Some(value)))
    }

    /// Takes the value out.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Puts a value back, if there is none.
    pub(crate) fn put(&self, value: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(value);
    }

    /// Returns whether the value is gone.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Calls `f` with the value, if it is there. `f` neither waits nor takes the lock of the
    /// interpreter.
    pub(crate) fn with<U>(&self, f: impl FnOnce(&T) -> U) -> Option<U> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(f)
    }
}

impl<T: Clone> Cell<T> {
    /// Returns another handle on the value.
    #[inline]
    pub(crate) fn get(&self) -> Option<T> {
        self.with(T::clone)
    }
}

/// The task of a Python object.
pub(crate) type TaskCell = Arc<Cell<Arc<vfscale::Task>>>;
