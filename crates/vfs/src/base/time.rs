//! The clock of change times.

use rustix::time::{ClockId, clock_gettime};

use crate::base::types::Timestamp;

/// A day, after which `relatime` keeps an access anyway.
pub(crate) const DAY_NANOS: i64 = 24 * 3600 * 1_000_000_000;

/// How far a fine stamp may be ahead of the coarse clock: its longest tick, 10 ms, and some.
pub(crate) const SKEW_NANOS: i64 = 20_000_000;

/// The time of the last clock tick (1 to 10 ms ago at most): cheap, and the same for every CPU
/// during a tick, so that change times are rarely written.
#[inline]
pub(crate) fn now() -> Timestamp {
    read(ClockId::RealtimeCoarse)
}

/// The time to the nanosecond.
pub(crate) fn now_fine() -> Timestamp {
    read(ClockId::Realtime)
}

#[inline]
fn read(clock: ClockId) -> Timestamp {
    let t = clock_gettime(clock);
    Timestamp(t.tv_sec * 1_000_000_000 + t.tv_nsec)
}
