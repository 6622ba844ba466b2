//! Tests of the logs that take the place of standard error.

use super::*;

#[test]
fn a_file_is_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    for line in ["first", "second"] {
        let log = Log::file(&path).unwrap();
        log.line(line).unwrap();
        log.event("2026-11-25T07:00:00Z  WARN a: b\n").unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("20") && lines[0].ends_with("Z first"), "{text}");
    assert!(lines[2].ends_with("Z second"), "{text}");
    assert_eq!(lines[1], "2026-11-25T07:00:00Z  WARN a: b");
    assert!(Log::file(&dir.path().join("no/log")).is_err());
}

#[test]
fn the_system_gets_a_line_with_its_sender() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    assert!(send(&path, "nobody reads").is_err());
    let system = UnixDatagram::bind(&path).unwrap();
    send(&path, "the log of the volume failed").unwrap();
    let mut line = [0; 200];
    let length = system.recv(&mut line).unwrap();
    let expected = format!("<28>vfscale[{}]: the log of the volume failed", std::process::id());
    assert_eq!(std::str::from_utf8(&line[..length]), Ok(expected.as_str()));
}
