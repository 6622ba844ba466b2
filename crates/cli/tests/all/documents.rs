//! The `console` and `sh` blocks of README and of the guides: pasted in order, they do what they
//! show.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{can_mount, skipped, vfscale};

/// The guide whose first block of `sh` makes what all documents use.
const AGENTS: &str = include_str!("../../../../docs/guides/agents.md");

/// Programs that a test can't call: they need a checkout, a registry of images, or a machine that
/// systemd has started. Blocks of `sh` with them are parsed only.
const ELSEWHERE: [&str; 4] = ["cargo ", "podman ", "scripts/", "systemctl "];

/// Returns the fenced blocks of a document, each with its language.
fn blocks(markdown: &str) -> impl Iterator<Item = (&str, &str)> {
    markdown.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

/// Returns the commands of the blocks in some languages, each with the lines that it prints. A
/// block of `sh` is one command, which shows nothing.
fn commands(markdown: &str, languages: &[&str]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (language, block) in blocks(markdown).filter(|(name, _)| languages.contains(name)) {
        if language == "sh" {
            found.push((block.to_owned(), String::new()));
            continue;
        }
        for line in block.lines() {
            match (line.strip_prefix("$ "), found.last_mut()) {
                (Some(command), _) => found.push((command.to_owned(), String::new())),
                (None, Some((_, printed))) => *printed += &format!("{line}\n"),
                (None, None) => panic!("{line}: printed by no command"),
            }
        }
    }
    found
}

/// Runs a script in a directory with this command in the path. Returns its output.
fn run(dir: &Path, script: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_vfscale")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("bash")
        .args(["-euc", script])
        .current_dir(dir)
        .env("HOME", dir)
        .env("PATH", format!("{}:{path}", bin.display()))
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

/// Types a document, after what makes `agent` and the repository that it clones.
fn paste(name: &str, markdown: &str) {
    let dir = tempfile::tempdir().unwrap();
    let _mounts = Mounts(dir.path());
    let (_, setup) = blocks(AGENTS).find(|(language, _)| *language == "sh").unwrap();
    let mut commands = commands(markdown, &["console", "sh"]);
    assert!(commands.iter().any(|(_, shown)| !shown.is_empty()), "{name}: shows nothing");
    commands.retain(|(command, _)| {
        let is_elsewhere =
            command.lines().any(|line| ELSEWHERE.iter().any(|p| line.starts_with(p)));
        if is_elsewhere {
            println!("{name}: parsed only: {command}");
            run(dir.path(), &format!("set -n\n{command}"));
        }
        !is_elsewhere && command != setup
    });
    let script = commands.iter().fold(format!("{setup}\n"), |script, (command, _)| {
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
    for (command, printed) in commands(markdown, &["console"]) {
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
fn blocks_of_documents_do_what_they_show() {
    if !can_mount() {
        return;
    }
    if Command::new("git").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skipped("git is not installed: the commands of the documents can't be tried");
    }
    paste("README.md", include_str!("../../../../README.md"));
    paste("agents.md", AGENTS);
    paste("branches.md", include_str!("../../../../docs/guides/branches.md"));
    paste("operating.md", include_str!("../../../../docs/guides/operating.md"));
    paste("containers.md", include_str!("../../../../docs/guides/containers.md"));
    paste("crashlab.md", include_str!("../../../../docs/guides/crashlab.md"));
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
