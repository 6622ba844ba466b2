//! The console blocks of README and of the guides: pasted in order, they do what they show.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{can_mount, skipped, vfscale};

/// The program that the documents call `agent`: it changes one file and adds another.
const AGENT: &str = r#"#!/bin/sh -e
src=$(ls -d src project/src 2>/dev/null || true)
echo "// $1" >>"$src/main.rs"
echo 1 >"$src/../bench.txt"
"#;

/// Makes the repository that the documents clone.
const PROJECT: &str = r#"
git config --global user.email nobody@example.org
git config --global user.name nobody
git config --global safe.directory '*'
git init -q project && mkdir project/src && echo 'fn main() {}' >project/src/main.rs
git -C project add -A && git -C project commit -qm first
"#;

/// Returns the commands of the console blocks, each with the lines that it prints.
fn commands(markdown: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let blocks = markdown.split("```console\n").skip(1);
    for line in blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines()) {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((command.to_owned(), String::new())),
            (None, Some((_, printed))) => *printed += &format!("{line}\n"),
            (None, None) => panic!("{line}: printed by no command"),
        }
    }
    found
}

/// Runs a script in a directory with this command, and `agent`, in the path. Returns its output.
fn run(dir: &Path, script: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_vfscale")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("bash")
        .args(["-euc", script])
        .current_dir(dir)
        .env("HOME", dir)
        .env("PATH", format!("{}:{}:{path}", bin.display(), dir.join("bin").display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Unmounts what a document has left mounted, so that the directory can be removed.
struct Mounts<'a>(&'a Path);

impl Drop for Mounts<'_> {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.0).unwrap().flatten() {
            _ = vfscale().arg("umount").arg(entry.path()).stderr(Stdio::null()).status();
        }
    }
}

fn paste(name: &str, markdown: &str) {
    let dir = tempfile::tempdir().unwrap();
    let _mounts = Mounts(dir.path());
    let agent = dir.path().join("bin/agent");
    fs::create_dir(dir.path().join("bin")).unwrap();
    fs::write(&agent, AGENT).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    run(dir.path(), PROJECT);
    let commands = commands(markdown);
    assert!(!commands.is_empty(), "{name}: no console blocks");
    let script = commands.iter().fold(String::new(), |script, (command, _)| {
        format!("{script}{command}\nprintf '\\n---\\n'\n")
    });
    let printed = run(dir.path(), &script);
    for ((command, expected), printed) in commands.iter().zip(printed.split("\n---\n")) {
        assert!(
            expected.is_empty() || *expected == format!("{}\n", printed.trim_end()),
            "{name}: {command}\nshows\n{expected}prints\n{printed}"
        );
    }
}

/// Returns a recording, as asciinema plays it (version 2 of its format), of the commands of a
/// document with the lines that it shows. Somebody types 25 letters a second, and reads for a
/// second.
fn recording(markdown: &str) -> String {
    let mut events = String::from("{\"version\": 2, \"width\": 100, \"height\": 28}\n");
    let mut now = 0;
    let mut say = |after: u64, text: &str| {
        now += after;
        let text = serde_json::to_string(&text.replace('\n', "\r\n")).unwrap();
        events += &format!("[{}.{:03}, \"o\", {text}]\n", now / 1000, now % 1000);
    };
    for (command, printed) in commands(markdown) {
        say(1000, "$ ");
        command.chars().for_each(|letter| say(40, letter.encode_utf8(&mut [0; 4])));
        say(300, &format!("\n{printed}"));
    }
    events
}

/// `VFSCALE_RECORD=1` writes the recording anew.
#[test]
fn the_recorded_session_is_that_of_the_readme() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures/session.cast");
    let recording = recording(include_str!("../../../../README.md"));
    if std::env::var_os("VFSCALE_RECORD").is_some() {
        fs::write(&path, &recording).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == recording,
        "README.md shows other commands than docs/pictures/session.cast: run this test with VFSCALE_RECORD=1"
    );
}

#[test]
fn console_blocks_of_documents_do_what_they_show() {
    if !can_mount() {
        return;
    }
    if Command::new("git").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skipped("git is not installed: the commands of the documents can't be tried");
    }
    paste("README.md", include_str!("../../../../README.md"));
    paste("agents.md", include_str!("../../../../docs/guides/agents.md"));
    paste("operating.md", include_str!("../../../../docs/guides/operating.md"));
    paste("containers.md", include_str!("../../../../docs/guides/containers.md"));
    paste("backup.md", include_str!("../../../../docs/guides/backup.md"));
}

/// Bash asks the program for branches, and completes the part of a word behind a colon.
#[test]
fn completions_know_the_branches_of_an_image() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), "vfscale man share; vfscale mkfs -q d.vfs --size 32M");
    run(dir.path(), "vfscale branch create d.vfs trial; vfscale branch create d.vfs other");
    let script = r#"
        set +eu
        source share/bash-completion/completions/vfscale
        COMP_WORDS=(vfscale LINE) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _vfscale_asking vfscale "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}" 2>/dev/null
        echo "${COMPREPLY[*]}""#;
    let completed = |words: &str| run(dir.path(), &script.replace("LINE", words));
    assert_eq!(completed("branch delete d.vfs t"), "trial\n");
    assert_eq!(completed("diff d.vfs main ''"), "main other trial\n");
    assert_eq!(completed("ls d.vfs : o"), "other\n");
    assert_eq!(completed("run d.vfs --branch = ''"), "main other trial\n");
    assert_eq!(completed("bra"), "branch\n");
}
