//! Dates against a calendar that counts days one by one.

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

#[test]
fn moments_are_shown() {
    assert_eq!(moment(Timestamp::NEVER), Value::Nothing);
    let before = Timestamp::new(-1, 500_000_000).unwrap();
    assert_eq!(moment(before), "1969-12-31T23:59:59.500000000Z".into());
    assert_eq!(nanoseconds(-1), "1969-12-31T23:59:59.999999999Z".into());
    assert_eq!(nanoseconds(1_795_333_285_000_000_001), "2026-11-22T07:41:25.000000001Z".into());
    // The ends of what can be counted.
    assert!(nanoseconds(i64::MIN).to_string().starts_with("1677-09-21"));
    let last = Timestamp::new(i64::MAX, 0).unwrap();
    assert!(matches!(moment(last), Value::Text(_)));
}
