//! Tests of dates against a calendar that counts days one by one.

use super::*;

#[test]
fn dates_follow_each_other() {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of = |year, month| match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let (mut year, mut month, mut day) = (1600, 1, 1);
    for days in -135_140..200_000 {
        assert_eq!(date(days), (year, month, day), "{days}");
        day += 1;
        if day > days_of(year, month) {
            (month, day) = (month + 1, 1);
        }
        if month > 12 {
            (year, month) = (year + 1, 1);
        }
    }
}
