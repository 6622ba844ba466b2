//! When a call releases the interpreter's lock.

use std::sync::LazyLock;
use std::time::Duration;

use pyo3::prelude::*;
use vfscale::posix::WaitToken;
use vfscale::{Errno, Result};

use crate::alarm;

/// The most bytes that a call on a tree in memory copies without releasing the interpreter's lock.
pub(crate) const ATTACHED_BYTES_MAX: usize = 4096;

/// The time after which a waiting call looks whether a signal has arrived.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// A token under which no call waits.
static NO_WAIT: LazyLock<WaitToken> = LazyLock::new(|| {
    let token = WaitToken::new();
    token.cancel();
    token
});

/// Runs `f`, without the interpreter's lock if `release`.
#[inline]
pub(crate) fn run<T: Send>(py: Python<'_>, release: bool, f: impl FnOnce() -> T + Send) -> T {
    if release { py.detach(f) } else { f() }
}

/// Runs a call that may wait for another task. Tries it first so that it does not wait; if it would
/// have, releases the interpreter's lock and waits until it is done, or a signal handler of Python
/// raises.
///
/// # Errors
/// Any error of the call, in the inner result, and `EAGAIN` if it would wait and the thread of the
/// alarm can't be started; the exception of a signal handler in the outer one.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    release: bool,
    mut f: impl FnMut(&WaitToken) -> Result<T> + Send,
) -> PyResult<Result<T>> {
    let mut done = run(py, release, || f(&NO_WAIT));
    while matches!(&done, Err(error) if error.errno() == Errno::INTR) {
        py.check_signals()?;
        done = py.detach(|| alarm::within(SIGNALS_EVERY, &mut f));
    }
    Ok(done)
}
