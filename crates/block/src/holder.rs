//! The process that has a device open.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A process that has a device open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id as the process sees it: another container may use another one.
    pub pid: u32,
    /// File name of its program.
    pub program: String,
    /// Name of the host, or container, that it runs on.
    pub host: String,
    /// Time at which it opened the device, in whole seconds, by its own clock.
    pub since: SystemTime,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, program, host, since } = self;
        write!(f, "process {pid} ({program}) on {host} since {}", utc(*since))
    }
}

/// Formats a time as `2026-11-22 04:14:05 UTC`. A time before 1970 is shown as the start of 1970.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Returns the year, month and day of the date `days` days after 1 January 1970.
fn civil(days: u64) -> (u64, u64, u64) {
    let leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    // 400 years of the calendar always have the same number of days.
    let (mut year, mut days) = (1970 + days / 146_097 * 400, days % 146_097);
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests;
