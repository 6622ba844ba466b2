//! Times as text for people, in universal time.

use vfscale_block::calendar::date;

use super::value::Value;
use crate::Timestamp;

/// Returns the time as text, or [`Value::Nothing`] for [`Timestamp::NEVER`].
pub(crate) fn moment(at: Timestamp) -> Value {
    match at {
        Timestamp::NEVER => Value::Nothing,
        at => shown(at.seconds(), at.nanoseconds()).into(),
    }
}

/// Returns the time `at` nanoseconds after 1970-01-01 as text.
pub(crate) fn nanoseconds(at: i64) -> Value {
    let second = 1_000_000_000;
    let fraction = u32::try_from(at.rem_euclid(second)).unwrap_or_default();
    shown(at.div_euclid(second), fraction).into()
}

fn shown(seconds: i64, nanoseconds: u32) -> String {
    const DAY: i64 = 86_400;
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

#[cfg(test)]
mod tests;
