//! Dates of the Gregorian calendar.

/// Returns year, month and day of the date `days` days after 1970-01-01.
///
/// Years are counted from March on and in eras of 400, which all have the same number of days. So
/// the leap day is the last day of its year (Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
pub fn date(days: i64) -> (i64, i64, i64) {
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

/// Returns date and time of the moment `seconds` after 1970-01-01, in universal time, as
/// `2026-11-22T04:14:05` with `T` between them.
pub fn moment(seconds: i64, between: char) -> String {
    const DAY: i64 = 86_400;
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}{between}{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests;
