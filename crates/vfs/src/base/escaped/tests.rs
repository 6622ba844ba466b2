use std::collections::HashSet;
use std::path::Path;

use super::Escaped;
use crate::base::error::{Errno, Error};

#[test]
fn no_byte_reaches_a_terminal_as_a_control() {
    let all: Vec<u8> = (0..=255).collect();
    let shown = Escaped::bytes(&all).to_string();
    assert!(!shown.contains(char::is_control), "{shown}");
    let one: HashSet<_> = (0..=255_u8).map(|byte| Escaped::bytes(&[byte]).to_string()).collect();
    assert_eq!(one.len(), 256);
    // A control character of two bytes, which terminals take for an escape sequence.
    assert_eq!(Escaped::new("\u{9b}2J").to_string(), "\\xc2\\x9b2J");
    assert_eq!(Escaped::new("\\x1b").to_string(), "\\\\x1b");
    assert_eq!(Escaped::bytes(b"\xff\xfe ok").to_string(), "\\xff\\xfe ok");
}

#[test]
fn errors_escape_their_paths() {
    let error = Error::between("rename", Errno::NOENT, Path::new("a\x1b[2J"), Path::new("b\nc"));
    assert!(error.to_string().starts_with("rename a\\x1b[2J to b\\nc: "), "{error}");
}
