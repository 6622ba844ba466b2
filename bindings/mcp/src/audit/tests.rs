//! Tests of the log of calls.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::json;

use super::*;

#[test]
fn records_are_lines_with_short_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    std::fs::write(&path, "before\n").unwrap();
    let audit = Audit::new(Some(&path)).unwrap();
    let long = "ä".repeat(1000);
    let arguments = json!({"path": "/a", "content": long, "paths": [long], "mode": 3});
    let refusal = Refusal::new("no");
    audit.add(&Record::new("write", &arguments, "t", Some(&refusal), None)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, format!("before\n{}", audit.text()));
    let record: Value = serde_json::from_str(&audit.text()).unwrap();
    let short = format!("{}… (2000 bytes)", "ä".repeat(200));
    let arguments = json!({"path": "/a", "content": short, "paths": [short], "mode": 3});
    assert_eq!(record["arguments"], arguments);
    assert_eq!((&record["error"], &record["branch"]), (&json!("no"), &json!("t")));
}

#[test]
fn the_memory_of_records_is_bounded() {
    let audit = Audit::new(None).unwrap();
    let arguments = json!({"a": ["x".repeat(200), "y".repeat(200)]});
    for number in 0..4000 {
        audit.add(&Record::new("write", &arguments, &number.to_string(), None, None)).unwrap();
    }
    let text = audit.text();
    assert!(text.len() <= KEPT_BYTES && text.len() > KEPT_BYTES / 2, "{}", text.len());
    assert!(text.trim_end().lines().last().unwrap().contains("\"3999\""));
}

#[test]
fn a_file_that_cannot_be_written_is_told() {
    assert!(Audit::new(Some(Path::new("/nowhere/audit"))).is_err());
    if Path::new("/dev/full").exists() {
        let audit = Audit::new(Some(Path::new("/dev/full"))).unwrap();
        let told = audit.add(&Record::new("write", &Value::Null, "t", None, None));
        assert!(told.unwrap_err().to_string().contains("audit log can't be written"));
    }
}
