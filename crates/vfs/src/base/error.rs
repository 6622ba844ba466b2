//! Errors: Linux's numbers, with the call and the path that they concern.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use rustix::io::Errno;
use vfscale_sync::fork;

use crate::base::escaped::Escaped;

/// The result of a call on a [`Task`](crate::Task) or an open file.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The result of a step of a call, whose error has no path yet.
pub(crate) type Outcome<T> = std::result::Result<T, Errno>;

/// The error of a call: Linux's error number, the name of the call, and the path or the two paths
/// that the caller passed, which its text has [`Escaped`]. A call on an open file takes no path:
/// its error has that of the file, or only the name if a task with a root of its own has opened it.
///
/// One word in size, so a `Result` of a small value stays in registers.
///
/// ```
/// # use vfscale_vfs::Errno;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let error = task.read("/none").unwrap_err();
/// assert_eq!(error.errno(), Errno::NOENT);
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// assert_eq!(error.path(), Some(std::path::Path::new("/none")));
/// assert!(error.to_string().starts_with("openat /none: "));
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    errno: Errno,
    call: &'static str,
    path: Option<PathBuf>,
    new_path: Option<PathBuf>,
    cause: Option<Cause>,
}

/// The error of a layer above, which says more than a call and a path.
type Cause = Box<dyn std::error::Error + Send + Sync>;

impl Error {
    /// Creates an error of `call` that concerns no path.
    #[cold]
    pub fn new(call: &'static str, errno: Errno) -> Error {
        Error::make(call, errno, [None, None], None)
    }

    /// Creates an error of `call` on `path`.
    #[cold]
    pub fn at(call: &'static str, errno: Errno, path: &Path) -> Error {
        Error::make(call, errno, [Some(path), None], None)
    }

    /// Creates an error of `call` on two paths.
    #[cold]
    pub fn between(call: &'static str, errno: Errno, path: &Path, new: &Path) -> Error {
        Error::make(call, errno, [Some(path), Some(new)], None)
    }

    /// Creates an error whose text is that of `cause`.
    #[cold]
    pub fn caused(
        call: &'static str,
        errno: Errno,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        Error::make(call, errno, [None, None], Some(Box::new(cause)))
    }

    #[cold]
    fn make(
        call: &'static str,
        errno: Errno,
        paths: [Option<&Path>; 2],
        cause: Option<Cause>,
    ) -> Error {
        let [path, new_path] = paths.map(|path| path.map(Path::to_owned));
        Error(Box::new(Inner { errno, call, path, new_path, cause }))
    }

    /// Returns Linux's error number.
    pub fn errno(&self) -> Errno {
        self.0.errno
    }

    /// Returns the name of the call that failed, as in the Linux manual.
    pub fn call(&self) -> &'static str {
        self.0.call
    }

    /// Returns Linux's error number as an integer, as [`std::io::Error::raw_os_error`].
    pub fn raw_os_error(&self) -> i32 {
        self.0.errno.raw_os_error()
    }

    /// Returns the error that this one was made of, if it is not one of a call: for example a
    /// `vfscale::VolumeError`.
    pub fn cause(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.cause.as_deref()
    }

    /// Returns the kind of the error in the terms of the standard library.
    pub fn kind(&self) -> io::ErrorKind {
        io::Error::from(self.0.errno).kind()
    }

    /// Returns the path that the caller passed, if the call takes one. If it takes two, the first:
    /// the old name of a rename, the original of a link.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the second path that the caller passed, if the call takes two: the new name.
    pub fn new_path(&self) -> Option<&Path> {
        self.0.new_path.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cause) = &self.0.cause {
            return cause.fmt(f);
        }
        f.write_str(self.0.call)?;
        if let Some(path) = &self.0.path {
            write!(f, " {}", Escaped::new(path))?;
        }
        if let Some(path) = &self.0.new_path {
            write!(f, " to {}", Escaped::new(path))?;
        }
        write!(f, ": {}", self.0.errno)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("call", &self.0.call)
            .field("path", &self.0.path)
            .field("new_path", &self.0.new_path)
            .field("errno", &self.0.errno)
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_ref().and_then(|cause| cause.source())
    }
}

/// Retains the error number only, as the errors of the standard library do, so that
/// [`raw_os_error`](std::io::Error::raw_os_error) and [`kind`](std::io::Error::kind) tell what
/// happened.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        error.0.errno.into()
    }
}

/// Takes over the error number, or `EIO` if there is none, and retains the error as the
/// [cause](Error::cause): so `?` works in one function after the methods of a
/// [`File`](crate::File) and those of the traits in [`std::io`].
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::caused("io", Errno::from_io_error(&error).unwrap_or(Errno::IO), error)
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
    /// The call must first do deferred work, with nothing held. Then the part runs again.
    Deferred(W),
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
    fn between(self, call: &'static str, path: &Path, new: &Path) -> Result<T>;
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

    #[inline]
    fn between(self, call: &'static str, path: &Path, new: &Path) -> Result<T> {
        self.map_err(|errno| Error::between(call, errno, path, new))
    }
}
