//! The clock of change times.

use rustix::time::ClockId;
#[cfg(not(shuttle))]
use rustix::time::clock_gettime;
use vfscale_sync::clock;

use crate::base::types::Timestamp;

/// A day, after which `relatime` stores an access anyway.
pub(crate) const DAY_NANOS: i64 = 24 * 3600 * 1_000_000_000;

/// Upper bound of the lead of a fine time stamp over the coarse clock: its longest tick, 10 ms, and
/// a margin.
pub(crate) const SKEW_NANOS: i64 = 20_000_000;

/// Returns the time of the last clock tick (1 to 10 ms ago at most). It is cheap to read and equal
/// on every CPU during a tick, so change times are rarely written. Shortly after a call of
/// [`now_fine`] by any thread it is the exact time, so that it is not earlier than what that call
/// returned.
#[inline]
pub(crate) fn now() -> Timestamp {
    let tick = read(ClockId::RealtimeCoarse);
    Timestamp(clock::of_process().coarse(tick, || read(ClockId::Realtime)))
}

/// Returns the time to the nanosecond.
pub(crate) fn now_fine() -> Timestamp {
    Timestamp(clock::of_process().exact(|| read(ClockId::Realtime)))
}

/// Returns the time to store for a change at `time`, which [`now`] has returned: an exact one, if
/// the change has to be in order with those of other file systems of the machine.
#[inline]
pub(crate) fn to_store(time: Timestamp) -> Timestamp {
    if clock::is_in_system_order() { exact(time) } else { time }
}

/// Returns an exact time for one that may be that of the last tick: a later one is exact already.
#[cold]
fn exact(time: Timestamp) -> Timestamp {
    if time.0 <= read(ClockId::RealtimeCoarse) { now_fine() } else { time }
}

/// Reads the clock of a model, whose ticks are as long as the longest of the system's.
#[cfg(shuttle)]
fn read(clock: ClockId) -> i64 {
    const TICK_NANOS: i64 = 10_000_000;
    let now = vfscale_sync::model::read_clock();
    if matches!(clock, ClockId::RealtimeCoarse) { now - now % TICK_NANOS } else { now }
}

/// Reads a clock of the system, in nanoseconds since 1970.
#[cfg(not(shuttle))]
#[inline]
fn read(clock: ClockId) -> i64 {
    let t = clock_gettime(clock);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}
