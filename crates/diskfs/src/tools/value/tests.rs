//! Tests of a value in words and as JSON.

use super::*;

fn sample() -> Value {
    let extent = |file: u64| Value::fields().with("file", file).with("unwritten", file > 1);
    let inner = Value::fields().with("levels", 2_u16).with("empty", Value::List(vec![]));
    Value::fields()
        .with("name", Value::bytes(b"a\nb"))
        .with("none", Value::Nothing)
        .with("tree", inner)
        .with("extents", [extent(1), extent(2)].into_iter().collect::<Value>())
        .with("id", Value::hex(&[0, 0xAB]))
}

#[test]
fn words() {
    let expected = "\
name: a\\nb
none: -
tree:
  levels: 2
  empty: none
extents:
  file 1, unwritten no
  file 2, unwritten yes
id: 00ab";
    assert_eq!(sample().to_string(), expected);
}

#[test]
fn json() {
    let expected = concat!(
        r#"{"name":"a\\nb","none":null,"tree":{"levels":2,"empty":[]},"#,
        r#""extents":[{"file":1,"unwritten":false},{"file":2,"unwritten":true}],"id":"00ab"}"#
    );
    assert_eq!(serde_json::to_string(&sample()).unwrap(), expected);
}

/// A volume may have any text as its label.
#[test]
fn texts_steer_no_terminal() {
    let label = Value::fields().with("label", "a\u{1b}[2J\nfree: \\x1b");
    assert_eq!(label.to_string(), "label: a\\x1b[2J\\nfree: \\x1b");
}
