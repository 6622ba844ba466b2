//! Merges of texts, also against git.

use std::fs;
use std::process::Command;

use vfscale_sync::random::{Random, seed};

use super::merge;

fn merged(base: &str, one: &str, other: &str) -> Option<String> {
    let text = merge(base.as_bytes(), one.as_bytes(), other.as_bytes())?;
    Some(String::from_utf8(text).unwrap())
}

#[test]
fn changes_apart_are_merged_and_others_are_not() {
    let base = "a\nb\nc\nd\ne\n";
    let both = Some("A\nb\nc\nd\nE\n".to_owned());
    assert_eq!(merged(base, "A\nb\nc\nd\ne\n", "a\nb\nc\nd\nE\n"), both);
    assert_eq!(merged(base, "a\nX\nc\nd\ne\n", "a\nY\nc\nd\ne\n"), None);
    // Lines next to each other, as git has it.
    assert_eq!(merged(base, "a\nB\nc\nd\ne\n", "a\nb\nC\nd\ne\n"), None);
    assert_eq!(
        merged(base, "a\nB\nc\nd\ne\n", "a\nB\nc\nd\ne\n").as_deref(),
        Some("a\nB\nc\nd\ne\n")
    );
    assert_eq!(merged(base, "", "a\nb\nc\nd\n"), None);
    assert_eq!(merged("", "new\n", ""), Some("new\n".to_owned()));
    assert_eq!(merged("a\nb\nc", "x\na\nb\nc", "a\nb\nc\nd"), Some("x\na\nb\nc\nd".to_owned()));
}

/// Returns a text with some lines of `text` changed, removed or added.
fn changed(text: &[u8], random: &mut Random, who: char) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> =
        text.split_inclusive(|it| *it == b'\n').map(<[_]>::to_vec).collect();
    for n in 0..random.below(4) {
        let at = random.below(lines.len() as u64 + 1) as usize;
        let new = format!("{who}{n} {}\n", random.below(3)).into_bytes();
        match random.below(3) {
            0 if at < lines.len() => lines[at] = new,
            1 if at < lines.len() => drop(lines.remove(at)),
            _ => lines.insert(at, new),
        }
    }
    lines.concat()
}

/// Texts whose changes git merges without a conflict are merged to the same text; and a merge does
/// not depend on the order of the two, nor changes anything when it is done again.
#[test]
fn texts_are_merged_as_git_merges_them() {
    let has_git = Command::new("git").arg("--version").output().is_ok();
    if !has_git {
        eprintln!("skipped in part: there is no git");
    }
    let (seed, dir) = (seed(), tempfile::tempdir().unwrap());
    eprintln!("seed {seed}");
    let (mut random, mut clean) = (Random::new(seed), 0);
    for round in 0..2000 {
        let base = (0..random.below(30)).map(|n| format!("line {n} {}\n", random.below(2)));
        let base = base.collect::<String>().into_bytes();
        let (one, other) = (changed(&base, &mut random, 'a'), changed(&base, &mut random, 'b'));
        let text = merge(&base, &one, &other);
        assert_eq!(text, merge(&base, &other, &one), "round {round}");
        if let Some(text) = &text {
            clean += 1;
            assert_eq!(merge(&base, text, &other).as_ref(), Some(text), "round {round}");
        }
        if has_git && round < 300 {
            let names = ["one", "base", "other"];
            for (name, text) in names.iter().zip([&one, &base, &other]) {
                fs::write(dir.path().join(name), text).unwrap();
            }
            let mut git = Command::new("git");
            git.current_dir(&dir).args(["merge-file", "-p"]);
            let output = git.args(names).output().unwrap();
            let theirs = output.status.success().then_some(output.stdout);
            assert_eq!(
                text,
                theirs,
                "round {round}: {:?}",
                [&one, &base, &other].map(|it| String::from_utf8_lossy(it))
            );
        }
    }
    assert!(clean > 500, "{clean}");
}
