//! Tests of `vfscale bench` and `vfscale mcp`, which start a program beside this one or in PATH.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// The commands, their programs, and how to install these.
const PROGRAMS: [[&str; 3]; 2] = [
    ["bench", "vfscale-bench", "cargo install vfscale-bench-cli"],
    ["mcp", "vfscale-mcp", "cargo install vfscale-mcp"],
];

/// Copies the command to a directory, without other programs.
fn installed(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let from = env!("CARGO_BIN_EXE_vfscale");
    // Not by this process: a child that another thread forks would inherit the open file.
    assert!(Command::new("cp").arg(from).arg(dir).status().unwrap().success());
}

/// Writes a script in place of a program, which prints `words` and its arguments.
fn program(file: &Path, words: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let script = format!("#!/bin/sh\necho \"{words}: $*\"\nexit 3\n");
    let write = format!("cat >\"$0\" <<'END' && chmod 755 \"$0\"\n{script}END\n");
    let mut shell = Command::new("sh");
    assert!(shell.args(["-c", &write]).arg(file).status().unwrap().success());
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o755);
}

fn start(dir: &Path, path: &Path, command: &str, arguments: &[&str]) -> (Output, String) {
    let mut vfscale = Command::new(dir.join("vfscale"));
    let path = format!("{}:/usr/bin:/bin", path.display());
    let output = vfscale.arg(command).args(arguments).env("PATH", path).output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).unwrap();
    (output, text)
}

#[test]
fn the_program_beside_comes_first_and_then_the_one_in_path() {
    for [command, file, _] in PROGRAMS {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = (dir.path().join("own"), dir.path().join("other"));
        installed(&own);
        program(&other.join(file), "in path");
        let arguments = ["commute", "--sample", "3", "--help", "-V"];
        let (output, text) = start(&own, &other, command, &arguments);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert_eq!(text, "in path: commute --sample 3 --help -V\n");
        program(&own.join(file), "beside");
        let (output, text) = start(&own, &other, command, &["--list"]);
        assert_eq!((output.status.code(), &*text), (Some(3), "beside: --list\n"));
    }
}

#[test]
fn a_missing_program_is_named_with_the_remedy() {
    for [command, file, remedy] in PROGRAMS {
        let dir = tempfile::tempdir().unwrap();
        installed(dir.path());
        let (output, text) = start(dir.path(), Path::new("/nowhere"), command, &["--list"]);
        assert_eq!(output.status.code(), Some(127), "{text}");
        let beside = dir.path().canonicalize().unwrap().join(file);
        for words in [beside.to_str().unwrap(), "PATH", remedy] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
