use super::known;
use vfscale_testkit::calls::op::{Op, Seek, Step};
use vfscale_testkit::calls::outcome::{Outcome, Value};

/// Returns whether two results of a seek to data may differ.
fn explained(expected: Outcome, got: Outcome, allocated: bool) -> bool {
    let op = Op::Lseek { fd: 0, whence: Seek::Data, off: 0 };
    known(&Step { task: 0, op, probe: None }, &expected, &got, allocated).is_some()
}

#[test]
fn data_differ_at_the_end_of_all_offsets_and_after_an_allocation() {
    let at = |offset| Outcome::Ok(Value::Number(offset));
    let nothing = || Outcome::Err(libc::ENXIO);
    assert!(explained(nothing(), at(i64::MAX - 4096), false));
    assert!(!explained(nothing(), at(4096), false));
    assert!(!explained(at(0), at(i64::MAX - 4096), false));
    assert!(explained(nothing(), at(4096), true) && explained(at(0), nothing(), true));
}
