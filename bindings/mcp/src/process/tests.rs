//! Tests of processes with limits.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;

fn sh(script: &str, limits: Limits, stop: &Stop) -> Finished {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    finish(command, None, limits, stop).unwrap()
}

fn limits(seconds: u64, bytes: usize) -> Limits {
    Limits { time: Duration::from_secs(seconds), bytes }
}

#[test]
fn an_output_keeps_its_beginning_and_its_end() {
    let mut kept = Kept::new(10);
    kept.add(b"abc");
    assert_eq!((kept.text(), kept.omitted()), ("abc".to_owned(), 0));
    kept.add(b"defghij");
    assert_eq!(kept.text(), "abcdefghij");
    kept.add(b"klm");
    assert_eq!((kept.omitted(), kept.total), (3, 13));
    assert_eq!(kept.text(), "abcde\n[3 bytes left out]\nijklm");
    assert!(!kept.strip_prefix(b"b"));
    assert!(kept.strip_prefix(b"ab"));
    assert_eq!((kept.total, kept.omitted()), (11, 3));
}

#[test]
fn a_process_tells_its_status_and_both_outputs() {
    let done = sh("echo out; echo err >&2; exit 3", limits(60, 1000), &Stop::default());
    assert_eq!((done.code(), done.end), (3, End::Itself));
    assert_eq!((&*done.stdout.text(), &*done.stderr.text()), ("out\n", "err\n"));
    let done = sh("kill -9 $$", limits(60, 1000), &Stop::default());
    assert_eq!(done.code(), 128 + 9);
}

#[test]
fn a_process_gets_its_input_and_nothing_else() {
    let input = vec![b'x'; 1 << 20];
    let mut command = Command::new("wc");
    command.arg("-c");
    let done = finish(command, Some(input), limits(60, 1000), &Stop::default()).unwrap();
    assert_eq!(done.stdout.text().trim(), "1048576");
    assert_eq!(sh("cat", limits(60, 1000), &Stop::default()).stdout.total, 0);
}

#[test]
fn a_process_that_is_late_ends_with_all_its_children() {
    let done = sh("sleep 1000 & sleep 1000", limits(1, 1000), &Stop::default());
    assert_eq!((done.end, done.code()), (End::Late, 128 + 15));
    assert!(done.took < Duration::from_secs(60));
    // A process that ignores the first signal.
    let done = sh("trap '' TERM; while :; do sleep 1; done", limits(1, 1000), &Stop::default());
    assert_eq!((done.end, done.code()), (End::Late, 128 + 9));
}

#[test]
fn a_process_ends_when_its_call_is_cancelled() {
    let stop = Stop::default();
    stop.call.store(true, Ordering::Relaxed);
    let done = sh("sleep 1000", limits(1000, 1000), &stop);
    assert_eq!(done.end, End::Stopped);
}

#[test]
fn a_process_in_the_background_does_not_hold_the_call() {
    let done = sh("sleep 20 & echo done", limits(1000, 1000), &Stop::default());
    assert_eq!((&*done.stdout.text(), done.end), ("done\n", End::Itself));
    assert!(done.took < Duration::from_secs(15));
}
