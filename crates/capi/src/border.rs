//! The border to C: results as numbers, error texts, panics.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::ssize_t;
use vfscale::posix::Fd;
use vfscale::{Errno, Error};
use vfscale_sync::fork;

/// The reason why a call failed.
pub(crate) enum Failure {
    /// A call of the library failed.
    Call(Error),
    /// The border refused an argument, or a panic ended the call.
    Border(Errno, Cow<'static, str>),
}

impl Failure {
    /// Creates a failure of the border with a text.
    #[cold]
    pub(crate) fn new(errno: Errno, text: impl Into<Cow<'static, str>>) -> Failure {
        Failure::Border(errno, text.into())
    }

    fn errno(&self) -> c_int {
        match self {
            Failure::Call(error) => error.raw_os_error(),
            Failure::Border(errno, _) => errno.raw_os_error(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Call(error)
    }
}

/// A result that C programs get as a number: the value itself, or a negative error number.
pub(crate) trait Reply {
    /// The type of the number.
    type C;

    /// Returns the number of a success.
    fn success(self) -> Self::C;

    /// Returns the number of a failure.
    fn failure(errno: c_int) -> Self::C;
}

macro_rules! reply {
    ($($type:ty as $c:ty: $success:expr;)*) => {
        $(impl Reply for $type {
            type C = $c;

            #[inline]
            fn success(self) -> $c {
                let convert: fn($type) -> $c = $success;
                convert(self)
            }

            fn failure(errno: c_int) -> $c {
                -<$c>::from(errno)
            }
        })*
    };
}

reply! {
    () as c_int: |()| 0;
    c_int as c_int: |value| value;
    bool as c_int: c_int::from;
    Fd as c_int: |fd| fd.0;
    u64 as i64: |value| i64::try_from(value).unwrap_or(i64::MAX);
}

impl Reply for usize {
    type C = ssize_t;

    #[inline]
    fn success(self) -> ssize_t {
        ssize_t::try_from(self).unwrap_or(ssize_t::MAX)
    }

    fn failure(errno: c_int) -> ssize_t {
        -(errno as ssize_t)
    }
}

/// The last failure of a thread, and its text once a program has asked for it.
struct Last {
    call: &'static str,
    failure: Failure,
    text: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Runs an exported function, and returns its result as C programs get it. The text of a failure
/// stays for [`vfscale_error`].
#[inline]
pub(crate) fn border<T: Reply>(
    call: &'static str,
    body: impl FnOnce() -> Result<T, Failure>,
) -> T::C {
    // Locks protect the data that a call was changing when it panicked, as from any other thread.
    let body = AssertUnwindSafe(|| if fork::is_child() { Err(in_child()) } else { body() });
    match catch_unwind(body) {
        Ok(Ok(value)) => value.success(),
        Ok(Err(failure)) => note::<T>(call, failure),
        Err(panic) => note::<T>(call, of_panic(&*panic)),
    }
}

#[cold]
fn note<T: Reply>(call: &'static str, failure: Failure) -> T::C {
    let errno = failure.errno();
    // A thread that ends has no place for the text any more.
    let _ = LAST.try_with(|last| last.replace(Some(Last { call, failure, text: None })));
    T::failure(errno)
}

#[cold]
fn in_child() -> Failure {
    let text = "this process is the child of a fork, which cannot use the library";
    Failure::new(Errno::NOTRECOVERABLE, text)
}

#[cold]
fn of_panic(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
    Failure::new(Errno::NOTRECOVERABLE, format!("a bug of the library, a panic: {text}"))
}

impl Last {
    fn text(&mut self) -> *const c_char {
        let text = self.text.get_or_insert_with(|| {
            let text = match &self.failure {
                Failure::Call(error) => error.to_string(),
                Failure::Border(errno, text) => format!("{}: {text}: {errno}", self.call),
            };
            // A path cannot contain a zero, since it came from C.
            CString::new(text.replace('\0', "?")).unwrap_or_default()
        });
        text.as_ptr()
    }
}

/// Returns the text of the last failure on this thread: the call, the paths, and the error. It is
/// never NULL; it is empty if no call has failed. It stays valid until the next failure on this
/// thread. A call that succeeds changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_error() -> *const c_char {
    let text = || LAST.try_with(|last| last.borrow_mut().as_mut().map(Last::text));
    let text = catch_unwind(text).ok().and_then(Result::ok).flatten();
    text.unwrap_or(c"".as_ptr())
}

/// Returns the version of the library, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests;
