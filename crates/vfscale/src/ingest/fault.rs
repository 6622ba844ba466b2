//! Errors of taking over an overlay.

use std::path::Path;

use vfscale_vfs::{Errno, Error};

use crate::error::pool::PoolError;

/// Returns the error of a path of the overlay.
pub(super) fn failed(path: &Path, error: &Error) -> PoolError {
    lie(path, &error.to_string(), error.errno())
}

/// Returns the error of a path of which the upper layer or the view says nonsense.
pub(super) fn lie(path: &Path, what: &str, errno: Errno) -> PoolError {
    PoolError::Overlay { path: Path::new("/").join(path), what: what.to_owned(), errno }
}
