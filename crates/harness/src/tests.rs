use std::panic::catch_unwind;

use super::*;

#[test]
fn a_wait_ends_as_soon_as_it_is_so() {
    let mut asked = 0;
    wait_until("three questions", || {
        asked += 1;
        asked == 3
    });
    assert_eq!(asked, 3);
    assert!(!comes(Duration::from_millis(5), || false));
}

#[test]
fn stays_notices_an_end() {
    let time = Duration::from_millis(5);
    stays("true", time, || true);
    let mut asked = 0;
    let ends = || {
        asked += 1;
        asked != 2
    };
    let told = catch_unwind(std::panic::AssertUnwindSafe(|| stays("two", time, ends))).unwrap_err();
    assert_eq!(told.downcast_ref::<String>().map(String::as_str), Some("no longer: two"));
}
