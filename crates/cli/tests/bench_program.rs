//! Tests of `vfscale bench`, which starts the program beside it or in PATH.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Copies the command to a directory, without the program that measures.
fn installed(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let from = env!("CARGO_BIN_EXE_vfscale");
    // Not by this process: a child that another thread forks would inherit the open file.
    assert!(Command::new("cp").arg(from).arg(dir).status().unwrap().success());
}

/// Writes a script in place of the program that measures, which prints `words` and its arguments.
fn program(dir: &Path, words: &str) {
    fs::create_dir_all(dir).unwrap();
    let script = format!("#!/bin/sh\necho \"{words}: $*\"\nexit 3\n");
    let write = format!("cat >\"$0\" <<'END' && chmod 755 \"$0\"\n{script}END\n");
    let file = dir.join("vfscale-bench");
    let mut shell = Command::new("sh");
    assert!(shell.args(["-c", &write]).arg(&file).status().unwrap().success());
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o755);
}

fn bench(dir: &Path, path: &Path, arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(dir.join("vfscale"));
    let path = format!("{}:/usr/bin:/bin", path.display());
    let output = command.arg("bench").args(arguments).env("PATH", path).output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).unwrap();
    (output, text)
}

#[test]
fn the_program_beside_comes_first_and_then_the_one_in_path() {
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = (dir.path().join("own"), dir.path().join("other"));
    installed(&own);
    program(&other, "in path");
    let arguments = ["commute", "--sample", "3", "--help", "-V"];
    let (output, text) = bench(&own, &other, &arguments);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert_eq!(text, "in path: commute --sample 3 --help -V\n");
    program(&own, "beside");
    let (output, text) = bench(&own, &other, &["--list"]);
    assert_eq!((output.status.code(), &*text), (Some(3), "beside: --list\n"));
}

#[test]
fn a_missing_program_is_named_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    installed(dir.path());
    let (output, text) = bench(dir.path(), Path::new("/nowhere"), &["--list"]);
    assert_eq!(output.status.code(), Some(127), "{text}");
    let beside = dir.path().canonicalize().unwrap().join("vfscale-bench");
    for words in [beside.to_str().unwrap(), "PATH", "cargo install vfscale-bench-cli"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
