//! The reason why something is not applied.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vfscale_vfs::{Errno, Error};

use crate::error::pool::PoolError;
use crate::tar::reader::Fault;

/// The reason why something is not applied.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) what: String,
    pub(super) errno: Errno,
}

impl Stop {
    /// Returns the error for a place in the input.
    pub(super) fn at(self, place: String) -> PoolError {
        PoolError::Apply { place, what: self.what, errno: self.errno }
    }
}

impl From<&str> for Stop {
    fn from(what: &str) -> Self {
        Self { what: what.to_owned(), errno: Errno::INVAL }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self { what: error.to_string(), errno: error.errno() }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Self { what: error.to_string(), errno }
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        let errno = match &fault {
            Fault::Io(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
            Fault::Form { .. } => Errno::INVAL,
        };
        Self { what: fault.to_string(), errno }
    }
}

/// Returns bytes as a path.
pub(super) fn path_of(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}
