//! Times as text for people, in universal time.

use vfscale_block::calendar;

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
    format!("{}.{nanoseconds:09}Z", calendar::moment(seconds, 'T'))
}

#[cfg(test)]
mod tests;
