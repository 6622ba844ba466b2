use super::known;
use crate::op::{Op, PathArg, Step};
use crate::outcome::{Outcome, Value};

/// Whether two paths of an open file may differ.
fn explained(expected: &str, got: &str) -> bool {
    let step = Step { task: 0, op: Op::PathOf { fd: 0 }, probe: None };
    let path = |path: &str| Outcome::Ok(Value::Path(PathArg::from(path)));
    known(&step, &path(expected), &path(got), false).is_some()
}

#[test]
fn a_file_opened_by_handle_has_no_name_below_its_mount() {
    assert!(explained("/f", "/#N (deleted)"));
    assert!(explained("/d/f (deleted)", "/#N (deleted)"));
    assert!(explained("/e/d/f", "/e/d/#N (deleted)"));
    assert!(explained("/", "/e/d/#N (deleted)"), "a file that a bind does not show");
    assert!(!explained("/e/f", "/e/d/#N (deleted)"), "another mount");
    assert!(!explained("/e/dd/f", "/e/d/#N (deleted)"), "another mount");
    assert!(!explained("/e/d/f", "/e/d/#N"));
    assert!(!explained("/e/d/f", "/e/d/g"));
    assert!(!explained("/e/d/f", "/e/d/f (deleted)"));
}
