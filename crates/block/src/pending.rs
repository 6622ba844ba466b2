//! Writes that a device has begun and not ended.

use std::fmt;

use crate::Error;

/// A write that a device has begun
/// ([`Device::begin_write_pages`](crate::Device::begin_write_pages)).
///
/// Dropping it waits for the write, and forgets its result.
#[must_use = "only waiting shows whether it has succeeded"]
pub struct PendingWrite<'d>(State<'d>);

enum State<'d> {
    Ended(Result<(), Error>),
    /// A function that waits; dropping it waits as well.
    Pending(Box<dyn FnOnce() -> Result<(), Error> + 'd>),
}

impl<'d> PendingWrite<'d> {
    /// Returns a write that has ended.
    pub fn ended(result: Result<(), Error>) -> Self {
        Self(State::Ended(result))
    }

    /// Returns a write that is in flight. `wait` waits for its end and returns its result; dropping
    /// `wait` waits too.
    pub fn in_flight(wait: impl FnOnce() -> Result<(), Error> + 'd) -> Self {
        Self(State::Pending(Box::new(wait)))
    }

    /// Waits for the end of the write. Blocks for the I/O.
    ///
    /// # Errors
    /// Errors of [`Device::write_pages`](crate::Device::write_pages).
    pub fn wait(self) -> Result<(), Error> {
        match self.0 {
            State::Ended(result) => result,
            State::Pending(wait) => wait(),
        }
    }
}

impl fmt::Debug for PendingWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Ended(result) => f.debug_tuple("Ended").field(result).finish(),
            State::Pending(_) => f.write_str("InFlight"),
        }
    }
}
