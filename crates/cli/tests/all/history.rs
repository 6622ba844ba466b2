//! The history of branches: `checkpoint`, `log`, `branch rollback --to`, and what `branch list`
//! tells.

use std::fs;

use crate::branches::Image;
use crate::common::{can_mount, vfscale};

/// Returns what happened, of each line of a log.
fn events(log: &str) -> Vec<&str> {
    log.lines().map(|line| line.rsplit("  ").next().unwrap()).collect()
}

#[test]
fn checkpoints_are_branches_with_a_text() {
    let image = Image::new(true);
    assert_eq!(image.good(&["checkpoint", "-m", "before the upgrade"], &[]), "main@1\n");
    image.write("main", "/f", "new\n");
    image.write("trial", "/t", "trial\n");
    image.good(&["merge"], &["trial"]);
    image.write("main", "/g", "later\n");
    assert_eq!(image.good(&["checkpoint"], &["trial"]), "trial@1\n");
    assert_eq!(image.names(), ["main", "trial"]);
    let all = image.good(&["branch", "list", "--all"], &[]);
    let told = all.lines().find(|line| line.starts_with("main@1: ")).unwrap();
    assert!(told.contains(", read-only, made 2"), "{told}");
    assert!(told.ends_with(": before the upgrade"), "{told}");

    let log = image.good(&["log"], &[]);
    let expected = [
        "now",
        "merge of trial",
        "checkpoint (trial, trial@1)",
        "checkpoint: before the upgrade (main@1)",
    ];
    assert_eq!(events(&log), expected, "{log}");
    let graph = image.good(&["log", "--graph"], &[]);
    assert!(graph.contains("\n|\\\n| * ") && graph.contains("\n|/\n* "), "{graph}");
    assert_eq!(image.good(&["log"], &["main@1"]).lines().count(), 2);
    assert!(image.bad(1, &["log"], &["none"]).contains("no branch \"none\""));
    assert!(image.bad(1, &["checkpoint", "-m", "two\nlines"], &[]).contains("one line of at most"));

    // A checkpoint is named wherever a branch is that is read.
    let differs = image.call(&["diff"], &["main@1", "main"]);
    assert_eq!(String::from_utf8(differs.stdout).unwrap().lines().count(), 3);
    image.good(&["branch", "create", "--from", "main@1"], &["old"]);
    let says = image.good(&["branch", "rollback", "--to", "main@1"], &["main"]);
    assert!(says.contains("branch \"main@2\"") && says.contains("/g"), "{says}");
    assert_eq!(image.read("/f"), "base\n");
    image.good(&["branch", "rollback", "--to", "trial@1"], &["main"]);
    assert_eq!(image.read("/t"), "trial\n");
    let says = image.bad(1, &["branch", "rollback", "--to", "trial"], &["main"]);
    assert!(says.contains("can be written"), "{says}");
    image.good(&["branch", "delete"], &["main@1"]);
    assert!(!image.good(&["branch", "list", "--all"], &[]).contains("main@1:"));
    image.good(&["fsck"], &[]);
}

#[test]
fn the_server_makes_checkpoints_of_what_is_mounted() {
    if !can_mount() {
        return;
    }
    let image = Image::new(false);
    let dir = image.0.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    image.good(&["mount", "-b"], &[dir.to_str().unwrap()]);
    fs::write(dir.join("f"), "mounted\n").unwrap();
    // The first one makes the image a pool.
    assert_eq!(image.good(&["checkpoint", "-m", "one"], &[]), "main@1\n");
    fs::write(dir.join("f"), "changed\n").unwrap();
    assert_eq!(image.good(&["checkpoint"], &["main"]), "main@2\n");
    let text = image.good(&["branch", "list", "--json", "--all"], &[]);
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list[0]["mounted"][0], dir.to_str().unwrap(), "{text}");
    assert_eq!((&list[1]["text"], &list[1]["mounted"]), (&"one".into(), &serde_json::json!([])));
    let log = image.good(&["log"], &[]);
    assert_eq!(events(&log), ["now", "checkpoint (main@2)", "checkpoint: one (main@1)"]);
    image.good(&["branch", "delete"], &["main@2"]);
    assert!(vfscale().arg("umount").arg(&dir).status().unwrap().success());
    let says = image.good(&["branch", "rollback", "--to", "main@1"], &["main"]);
    assert!(says.contains("/f"), "{says}");
    assert_eq!(image.read("/f"), "mounted\n");
}

/// A run makes a checkpoint of each state that lasts, and none of what has not changed.
#[test]
fn a_run_makes_checkpoints_of_what_has_changed() {
    if !can_mount() {
        return;
    }
    let image = Image::new(true);
    // The command goes on when its last change is in a checkpoint.
    let script = "step() { echo $1 > f; until all | grep -qx $1; do sleep 0.1; done; }
        all() { for n in 1 2 3; do \"$VFSCALE\" cat \"$IMAGE:trial@$n:/f\" 2>&1; done; }
        step 1; step 2; sleep 0.5";
    let mut run = vfscale();
    run.args(["run", "--branch", "trial", "--checkpoint-every", "0.1"]).arg(image.path());
    run.args(["--", "sh", "-c", script]);
    run.env("VFSCALE", env!("CARGO_BIN_EXE_vfscale")).env("IMAGE", image.path());
    let output = run.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let log = image.good(&["log"], &["trial"]);
    let has_made = |number| {
        let event = format!("checkpoint: while sh ran (trial@{number})");
        events(&log).contains(&&*event)
    };
    // The first one may be of the time before the first change.
    assert!(has_made(1) && has_made(2) && !has_made(4), "{log}");
    image.good(&["fsck"], &[]);
}
