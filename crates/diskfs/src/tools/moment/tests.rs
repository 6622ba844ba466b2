//! Tests of times as text.

use super::*;

#[test]
fn moments_are_shown() {
    assert_eq!(moment(Timestamp::NEVER), Value::Nothing);
    let before = Timestamp::new(-1, 500_000_000).unwrap();
    assert_eq!(moment(before), "1969-12-31T23:59:59.500000000Z".into());
    assert_eq!(nanoseconds(-1), "1969-12-31T23:59:59.999999999Z".into());
    assert_eq!(nanoseconds(1_795_333_285_000_000_001), "2026-11-22T07:41:25.000000001Z".into());
    // The ends of the range of times.
    assert!(nanoseconds(i64::MIN).to_string().starts_with("1677-09-21"));
    let last = Timestamp::new(i64::MAX, 0).unwrap();
    assert!(matches!(moment(last), Value::Text(_)));
}
