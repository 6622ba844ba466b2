//! The examples, which `cargo test` builds.

use std::process::Command;

/// Runs an example without a program of its own. Returns what it prints.
fn output(name: &str, args: &[&str]) -> String {
    let tests = std::env::current_exe().unwrap();
    let example = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    let output = Command::new(&example).args(args).output();
    let output = output.unwrap_or_else(|error| {
        panic!("{}: {error}: `cargo test` without --test builds it", example.display())
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_program_writes_into_memory() {
    assert_eq!(output("ten_lines", &[]), "4096 /\n5 /hello\n");
}

#[test]
fn programs_on_branches_are_compared_and_merged() {
    let printed = output("branches", &[]);
    for line in ["left: Added /left", "right: Added /right", "right: 1 added, 0 conflicts"] {
        assert!(printed.contains(line), "no {line:?} in\n{printed}");
    }
    let mut main: Vec<_> = printed.lines().filter(|line| line.starts_with("main: ")).collect();
    main.sort_unstable();
    assert_eq!(main, ["main: /", "main: /base", "main: /left", "main: /right"]);
}

#[test]
fn figures_are_measured() {
    let printed = output("figures", &["1", "10", "100"]);
    for line in ["| stat |", "| list-many |", "10 instances on branches of a base of 100 files"] {
        assert!(printed.contains(line), "no {line:?} in\n{printed}");
    }
}
