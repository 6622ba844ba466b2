//! Tests of the form of numbers and tables.

use super::*;

#[test]
fn numbers_have_three_figures_or_groups_of_three() {
    let cases = [
        (1_234_567.4, "1,234,567"),
        (1_000.0, "1,000"),
        (999.4, "999"),
        (12.345, "12.3"),
        (1.234, "1.23"),
        (0.1234, "0.123"),
        (-12_345.0, "-12,345"),
        (0.0, "0"),
        (f64::NAN, "-"),
    ];
    for (value, text) in cases {
        assert_eq!(number(value), text);
    }
}

#[test]
fn columns_line_up() {
    let line = |fields: &[&str]| fields.iter().map(|f| (*f).to_owned()).collect();
    let columns = Columns(vec![line(&["a", "10"]), line(&["long", "5", "x"])]);
    assert_eq!(columns.render(), "a     10\nlong   5  x\n");
}

#[test]
fn dates_are_right() {
    assert_eq!(date(0), "1970-01-01 00:00 UTC");
    assert_eq!(date(951_827_640), "2000-02-29 12:34 UTC");
    assert_eq!(date(1_795_321_320), "2026-11-22 04:22 UTC");
}
