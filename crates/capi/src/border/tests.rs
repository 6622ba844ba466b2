use std::ffi::CStr;

use super::*;

fn text() -> String {
    // SAFETY: the function returns a string with a zero, valid until the next failure.
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
fn a_panic_is_an_error() {
    assert_eq!(border::<()>("close", || panic!("planted {}", 1)), -131);
    assert!(text().contains("planted 1"), "{}", text());
}
