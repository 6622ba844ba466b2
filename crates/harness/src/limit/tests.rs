use super::*;

fn longest(pieces: &[&str], now: Instant) -> Option<(String, Duration)> {
    let mut running = Running::default();
    pieces.iter().for_each(|piece| running.note(piece, now));
    running.longest().map(|(name, since)| (name.clone(), now - *since))
}

#[test]
fn a_test_runs_from_the_line_that_tells_so_to_its_result() {
    let now = Instant::now() + TOLD_AFTER;
    let told = "test a::b has been running for over 60 seconds\n";
    assert_eq!(longest(&[told], now), Some(("a::b".into(), TOLD_AFTER)));
    assert_eq!(longest(&["test a::c ... ok\n", &told[..9], &told[9..]], now).unwrap().0, "a::b");
    assert_eq!(longest(&[told, "test a::b ... ok\n"], now), None);
    assert_eq!(longest(&[told, "test a::b - should panic ... FAILED\n"], now), None);
}

#[test]
fn a_test_alone_runs_from_its_begun_line_to_the_end_of_the_line() {
    let now = Instant::now();
    assert_eq!(longest(&["test a ... ok\ntest b ... "], now), Some(("b".into(), Duration::ZERO)));
    assert_eq!(longest(&["test a ... ok\ntest b ... ", "ok\n"], now), None);
    assert_eq!(longest(&["test result: ok. 1 passed\n", "words of a test ... "], now), None);
}

fn run_shell(script: &str, limit: u64) -> (i32, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    let mut out = Vec::new();
    let status = run(shell, Duration::from_millis(limit), &mut out).unwrap();
    (status, String::from_utf8(out).unwrap())
}

#[test]
fn a_program_whose_test_hangs_is_ended_and_the_test_named() {
    let (status, out) = run_shell("printf 'test a ... ok\ntest b ... '; exec sleep 1000", 200);
    assert_eq!(status, 124);
    assert!(out.starts_with("test a ... ok\ntest b ... \ntest b ... FAILED\n"), "{out}");
    assert!(out.contains("######## HANGS: b, for 0 s"), "{out}");
}

#[test]
fn a_limit_is_for_each_test() {
    let (status, out) = run_shell(
        "for test in a b c d; do printf \"test $test ... \"; sleep 0.5; echo ok; done; exit 3",
        1900,
    );
    assert_eq!((status, out.lines().last()), (3, Some("test d ... ok")));
    assert_eq!(run_shell("kill -9 $$", 10_000).0, 101);
}

#[test]
fn a_process_left_behind_does_not_keep_its_program() {
    let begun = Instant::now();
    let (status, out) = run_shell("sleep 1000 & echo $!", 10_000);
    Command::new("kill").arg(out.trim()).status().unwrap();
    assert_eq!(status, 0);
    assert!(begun.elapsed() < Duration::from_secs(500));
}
