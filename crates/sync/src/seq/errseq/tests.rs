use super::*;

#[test]
fn each_cursor_is_told_once() {
    let errors = ErrorSeq::new();
    let (one, two) = (ErrorCursor::new(&errors), ErrorCursor::new(&errors));
    assert_eq!(one.advance(&errors), None);
    assert!(errors.is_told());
    errors.record(5);
    assert!(!errors.is_told());
    assert_eq!(one.advance(&errors), Some(5));
    assert!(errors.is_told());
    assert_eq!((one.advance(&errors), two.advance(&errors)), (None, Some(5)));
    assert_eq!(two.advance(&errors), None);
    // A second error of this number is another error.
    errors.record(5);
    errors.record(28);
    assert_eq!((one.advance(&errors), two.advance(&errors)), (Some(28), Some(28)));
    assert_eq!((one.advance(&errors), two.advance(&errors)), (None, None));
}

#[test]
fn a_later_errseq_cursor_gets_only_an_unseen_error() {
    let errors = ErrorSeq::new();
    errors.record(5);
    let later = ErrorCursor::new(&errors);
    let another = ErrorCursor::new(&errors);
    assert_eq!(later.advance(&errors), Some(5));
    assert_eq!(ErrorCursor::new(&errors).advance(&errors), None);
    // The error was recorded before any cursor had seen the first.
    assert_eq!(another.advance(&errors), Some(5));
    errors.reset();
    assert_eq!(ErrorCursor::new(&errors).advance(&errors), None);
}

#[test]
fn an_empty_errseq_has_no_error() {
    let errors = ErrorSeq::new();
    errors.record(0);
    assert_eq!(ErrorCursor::default().advance(&errors), None);
}
