//! Tests of reading differences.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::json;

use super::*;

#[test]
fn differences_are_counted_and_the_first_ones_kept() {
    let one = json!({"kind": "changed", "path": "/a", "type": "file", "mode": "100644", "size": 1,
        "parts": ["content"]});
    let moved = json!({"kind": "moved", "path": "/c", "from": "/b", "type": "file", "mode": "",
        "size": 1});
    let text = json!([one, moved, one]).to_string();
    let found = first(&mut text.as_bytes(), 2).unwrap();
    assert_eq!((found.total, found.kinds["changed"], found.files.len()), (3, 2, 2));
    assert_eq!(found.text(), "changed /a (content)\nmoved /b -> /c\n[and 1 more]");
    assert!(first(&mut &text.as_bytes()[..20], 2).is_err());
}
