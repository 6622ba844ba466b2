//! The border to C: results as numbers, error texts, panics.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::{c_char, c_int};
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

/// The longest text of a failure, in bytes; two paths of the longest length have room. A longer
/// text is cut.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// The last failure of a thread.
///
/// A program holds the pointer to the text across later calls, also where it does not see it:
/// `printf("%d %s", vfscale_mkdir(...), vfscale_error())` has it before the call where arguments
/// are evaluated from the right. So all texts of a thread are in one place, which stays until the
/// thread ends, and a failure after a question for the text changes it there and then. Other
/// failures, which nobody may ask about, cost no text.
struct Last {
    /// A failure whose text is not in `text`.
    failure: RefCell<Option<(&'static str, Failure)>>,
    text: OnceCell<Box<[Cell<u8>]>>,
    /// Whether the program has asked for the text since the last failure.
    asked: Cell<bool>,
}

thread_local! {
    static LAST: Last = const {
        Last { failure: RefCell::new(None), text: OnceCell::new(), asked: Cell::new(false) }
    };
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
    let note = AssertUnwindSafe(|| LAST.try_with(|last| last.note(call, failure)));
    let _ = catch_unwind(note);
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
    fn note(&self, call: &'static str, failure: Failure) {
        self.failure.replace(Some((call, failure)));
        if self.asked.replace(false) {
            self.write();
        }
    }

    /// Returns the text, which has a zero at its end.
    fn text(&self) -> *const c_char {
        self.asked.set(true);
        self.write().as_ptr().cast()
    }

    /// Writes the text of the last failure in its place, unless it is there.
    fn write(&self) -> &[Cell<u8>] {
        let place = self.text.get_or_init(|| vec![Cell::new(0); TEXT_BYTES_MAX + 1].into());
        let text = match self.failure.take() {
            None => return place,
            Some((_, Failure::Call(error))) => error.to_string(),
            Some((call, Failure::Border(errno, text))) => format!("{call}: {text}: {errno}"),
        };
        let cut = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        for (to, byte) in place.iter().zip(cut.bytes()) {
            // A path cannot contain a zero, since it came from C; a message may.
            to.set(if byte == 0 { b'?' } else { byte });
        }
        place[cut.len()].set(0);
        place
    }
}

/// Returns the text of the last failure on this thread: the call, the paths, and the error. It is
/// never NULL; it is empty if no call has failed. The pointer is valid until the thread ends, and
/// always the same. The text under it becomes that of a later failure, at the latest when it is
/// asked for: copy what shall stay. So printf("%d %s", vfscale_mkdir(...), vfscale_error()) prints
/// the text of this call's failure, whichever argument is evaluated first. A call that succeeds
/// changes nothing. A text of more than 16 KiB is cut.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_error() -> *const c_char {
    let text = AssertUnwindSafe(|| LAST.try_with(Last::text));
    catch_unwind(text).ok().and_then(Result::ok).unwrap_or(c"".as_ptr())
}

/// Returns the version of the library, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests;
