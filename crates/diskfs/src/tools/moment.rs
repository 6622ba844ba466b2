//! Moments as people write them, in universal time.

use vfscale_block::calendar::date;

use super::value::Value;
use crate::Timestamp;

/// Returns the moment as text, or [`Value::Nothing`] for [`Timestamp::NEVER`].
pub(crate) fn moment(at: Timestamp) -> Value {
    match at {
        Timestamp::NEVER => Value::Nothing,
        at => shown(at.seconds(), at.nanoseconds()).into(),
    }
}

/// Returns the moment `at` nanoseconds after 1970-01-01 as text.
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

/// Returns the Gregorian date `days` days after 1970-01-01. Years are counted from March on and in
/// eras of 400, which all have an equal number of days; the leap day is then the last one of its
/// year (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn date(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 146_097;
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let leaps = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let is_next = month >= 10;
    let (month, year) = (if is_next { month - 9 } else { month + 3 }, year_of_era + era * 400);
    (year + i64::from(is_next), month, day)
}

#[cfg(test)]
mod tests;
