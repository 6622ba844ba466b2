//! Errors: Linux's numbers, with the call and the path that they concern.

use std::fmt;
use std::path::{Path, PathBuf};

pub use rustix::io::Errno;
use vfscale_sync::fork;

/// The result of a call on a [`Task`](crate::Task) or an open file.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a call: Linux's error number, the name of the call, and the path that the caller
/// passed.
///
/// One word in size, so a `Result` of a small value stays in registers.
pub struct Error(Box<Inner>);

struct Inner {
    errno: Errno,
    call: &'static str,
    path: Option<PathBuf>,
}

impl Error {
    /// Creates an error of `call` that concerns no path.
    #[cold]
    pub fn new(call: &'static str, errno: Errno) -> Error {
        Error(Box::new(Inner { errno, call, path: None }))
    }

    /// Creates an error of `call` on `path`.
    #[cold]
    pub fn at(call: &'static str, errno: Errno, path: &Path) -> Error {
        Error(Box::new(Inner { errno, call, path: Some(path.to_owned()) }))
    }

    /// Returns Linux's error number.
    pub fn errno(&self) -> Errno {
        self.0.errno
    }

    /// Returns the name of the call that failed, as in the Linux manual.
    pub fn call(&self) -> &'static str {
        self.0.call
    }

    /// Returns the path that the caller passed, if the call takes one.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.call)?;
        if let Some(path) = &self.0.path {
            write!(f, " {}", path.display())?;
        }
        write!(f, ": {}", self.0.errno)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("call", &self.0.call)
            .field("path", &self.0.path)
            .field("errno", &self.0.errno)
            .finish()
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        std::io::Error::new(std::io::Error::from(error.0.errno).kind(), error)
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        error.0.errno
    }
}

/// The error of a call in the child of a fork: see [`check_fork`].
pub(crate) const IN_CHILD: Errno = Errno::NOTRECOVERABLE;

/// Fails in the child of a fork, before a call takes a lock. A thread that does not exist in the
/// child may have held the lock at the time of the fork.
#[inline]
pub(crate) fn check_fork() -> std::result::Result<(), Errno> {
    if fork::is_child() { Err(IN_CHILD) } else { Ok(()) }
}

/// The reason why a part of a call stopped before its end.
pub(crate) enum Stop<W> {
    /// The call fails.
    Errno(Errno),
    /// The call must first do this work, with nothing held. Then the part runs again.
    First(W),
}

impl<W> From<Errno> for Stop<W> {
    #[inline]
    fn from(errno: Errno) -> Stop<W> {
        Stop::Errno(errno)
    }
}

/// Adds the call and the path to a result that has only an error number.
pub(crate) trait Named<T> {
    fn named(self, call: &'static str) -> Result<T>;
    fn on(self, call: &'static str, path: &Path) -> Result<T>;
}

impl<T> Named<T> for std::result::Result<T, Errno> {
    #[inline]
    fn named(self, call: &'static str) -> Result<T> {
        self.map_err(|errno| Error::new(call, errno))
    }

    #[inline]
    fn on(self, call: &'static str, path: &Path) -> Result<T> {
        self.map_err(|errno| Error::at(call, errno, path))
    }
}
