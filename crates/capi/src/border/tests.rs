use std::ffi::CStr;

use super::*;

fn text() -> String {
    // SAFETY: the function returns a string with a zero, valid until the thread ends.
    unsafe { CStr::from_ptr(vfscale_error()) }.to_string_lossy().into_owned()
}

#[test]
fn results_are_numbers() {
    assert_eq!(border("t", || Ok(())), 0);
    assert_eq!(border("t", || Ok(Fd(7))), 7);
    assert_eq!(border("t", || Ok(true)), 1);
    assert_eq!(border("t", || Ok(1_usize << 40)), 1 << 40);
    assert_eq!(border("t", || Ok(u64::MAX)), i64::MAX);
}

#[test]
fn failures_are_negative_and_leave_a_text() {
    let fail = || Err::<usize, _>(Failure::new(Errno::FAULT, "the path is NULL"));
    assert_eq!(border("open", fail), -14);
    assert!(text().starts_with("open: the path is NULL: "), "{}", text());
    assert_eq!(border("open", || Ok(())), 0);
    assert!(text().starts_with("open: the path is NULL: "), "a success leaves the text");
    let call = || Err::<(), _>(Error::new("mkdirat", Errno::EXIST).into());
    assert_eq!(border("mkdir", call), -17);
    assert!(text().starts_with("mkdirat: "), "{}", text());
    std::thread::spawn(|| assert_eq!(text(), "")).join().ok();
}

#[test]
fn a_text_that_is_held_becomes_that_of_the_next_failure() {
    let fail = |text: &str| {
        border("open", || Err::<(), _>(Failure::new(Errno::FAULT, text.to_owned())));
    };
    let held = vfscale_error();
    // SAFETY: as in `text`.
    let read = || unsafe { CStr::from_ptr(held) }.to_string_lossy().into_owned();
    fail("one");
    assert!(read().starts_with("open: one: "), "{}", read());
    fail("two");
    assert!(read().starts_with("open: one: "), "nobody has asked: {}", read());
    assert_eq!((text(), held), (read(), vfscale_error()));
    assert!(read().starts_with("open: two: "), "{}", read());
}

#[test]
fn a_long_text_is_cut() {
    for (before, kept) in [(0, TEXT_BYTES_MAX - 1), (1, TEXT_BYTES_MAX)] {
        let long = format!("\0{}{}", "x".repeat(before), "é".repeat(TEXT_BYTES_MAX));
        border("op", || Err::<(), _>(Failure::new(Errno::IO, long)));
        assert_eq!(text().len(), kept);
        assert!(text().starts_with("op: ?") && text().ends_with('é'));
    }
    border("op", || Err::<(), _>(Failure::new(Errno::IO, "short")));
    assert!(text().starts_with("op: short: "), "{}", text());
}

#[test]
fn a_panic_is_an_error() {
    assert_eq!(border::<()>("close", || panic!("planted {}", 1)), -131);
    assert!(text().contains("planted 1"), "{}", text());
}
