//! `vfscale crashlab`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::common::{can_mount, vfscale};

/// Runs a command of a shell in the laboratory, and a check. `image` may be none.
fn crashlab(options: &[&str], image: Option<&Path>, (command, check): (&str, &str)) -> Output {
    let mut lab = vfscale();
    lab.arg("crashlab").args(options).args(["--check", check]).args(image);
    lab.args(["--", "sh", "-c", command]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns an image in which `f` has the text `old`.
fn image(dir: &Path) -> std::path::PathBuf {
    let image = dir.join("disk.vfs");
    let mut run = vfscale();
    run.args(["run", "--size=64M"]).arg(&image);
    let status = run.args(["--", "sh", "-c", "echo old >f"]).status().unwrap();
    assert!(status.success());
    image
}

const WHOLE: &str = "test \"$(cat f)\" = old || test \"$(cat f)\" = new";

#[test]
fn a_rename_without_a_sync_loses_a_file_by_posix_only() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let before = fs::read(&image).unwrap();
    let command = "echo new >f.new; mv f.new f";
    let posix = crashlab(&[], Some(&image), (command, WHOLE));
    assert_eq!(posix.status.code(), Some(1));
    let expected = "3 steps of the command; 9 states after a power cut, by the promises of posix: \
         3 failed the check\n\n\
         1. power cut after step 3: exit status 1\n  \
           kept  create /f.new\n  \
           LOST  write /f.new, bytes 0 to 4\n  \
           kept  rename /f.new over /f\n";
    assert_eq!(text(&posix.stdout), expected, "{}", text(&posix.stderr));
    for promise in ["ext4", "vfscale"] {
        let ordered = crashlab(&["--promise", promise], Some(&image), (command, WHOLE));
        let said = text(&ordered.stdout);
        assert_eq!(ordered.status.code(), Some(0), "{said}");
        assert!(said.contains(&format!("by the promises of {promise}: 0 failed")), "{said}");
    }
    let synced = "echo new >f.new; sync f.new; mv f.new f";
    assert!(crashlab(&[], Some(&image), (synced, WHOLE)).status.success());
    assert!(fs::read(&image).unwrap() == before, "the image was written");
}

/// The check reads what the command has said: it may have promised something.
#[test]
fn what_a_command_has_acknowledged_has_to_be_there() {
    if !can_mount() {
        return;
    }
    let check = "if grep -q saved; then test -s f; fi";
    let unsynced = "echo new >f.new; sync f.new; mv f.new f; echo saved";
    let lost = crashlab(&["--promise=ext4"], None, (unsynced, check));
    let said = text(&lost.stdout);
    assert_eq!(lost.status.code(), Some(1), "{said}{}", text(&lost.stderr));
    assert!(said.starts_with("saved\n"), "{said}");
    assert!(said.ends_with("  LOST  rename /f.new to /f\n  kept  say \"saved\\n\"\n"), "{said}");
    for promise in ["posix", "ext4", "vfscale"] {
        let synced = "echo new >f.new; sync f.new; mv f.new f; sync .; echo saved";
        let kept = crashlab(&["--promise", promise], None, (synced, check));
        assert!(kept.status.success(), "{}", text(&kept.stdout));
    }
}

#[test]
fn the_report_as_json_has_each_step_and_what_the_check_prints() {
    if !can_mount() {
        return;
    }
    let check = "cat f 2>&1; test ! -e f || test -s f";
    let output = crashlab(&["--json", "--promise=ext4"], None, ("echo hi; echo 1 >f", check));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    // Standard output is the report's alone.
    assert_eq!(text(&output.stderr), "hi\n");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["promise"], "ext4");
    assert_eq!(
        [&report["steps"], &report["states"], &report["checked"], &report["failed"]],
        [3, 3, 3, 1]
    );
    let cause = &report["causes"][0];
    assert_eq!([&cause["ended"], &cause["output"]], ["exit status 1", ""]);
    let created = &cause["story"][0];
    assert_eq!([&created["text"], &created["fate"]], ["create /f", "kept"]);
}

#[test]
fn a_check_that_takes_too_long_has_failed() {
    if !can_mount() {
        return;
    }
    let check = "test -e f || ! test -e d || exec sleep 1000";
    let output = crashlab(&["--timeout=1"], None, ("mkdir d; echo 1 >f", check));
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(said.contains(": too long\n"), "{said}");
}

#[test]
fn what_says_nothing_about_power_cuts_is_refused() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none.vfs");
    let refused = |image, command, check, status, why: &str| {
        let output = crashlab(&[], image, (command, check));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(why), "{said}");
    };
    refused(None, "exit 3", "true", 2, "the command ended with exit status 3");
    refused(None, "true", "true", 2, "the command has changed nothing");
    refused(None, "echo >f", "echo it is not there; test -e f", 2, "it is not there");
    refused(None, "echo >f", "test ! -e f", 2, "the check fails after the command");
    refused(Some(&none), "true", "true", 1, "none.vfs: the image does not exist");
}

#[test]
fn a_command_that_is_left_behind_ends_with_the_recording() {
    if !can_mount() {
        return;
    }
    let command = "echo 1 >f; (while :; do echo more >>g; sleep 0.01; done) & sleep 0.1";
    let mut lab = vfscale();
    lab.args(["crashlab", "--states=3", "--check", "true", "--", "sh", "-c", command]);
    let status = lab.stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_signal_ends_the_laboratory_and_its_mount() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("told");
    let mut lab = vfscale();
    lab.args(["crashlab", "--check", "true", "--", "sh", "-c"]);
    let command = format!("pwd >{0}.new; mv {0}.new {0}; exec sleep 1000", told.display());
    let mut lab = lab.arg(command).stderr(Stdio::null()).spawn().unwrap();
    vfscale_harness::wait_until("the command runs", || told.exists());
    let mount = fs::read_to_string(&told).unwrap();
    let pid = rustix::process::Pid::from_child(&lab);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(lab.wait().unwrap().code(), Some(128 + 15));
    assert!(!Path::new(mount.trim_end()).exists(), "{mount}");
}

#[test]
fn a_relative_program_is_one_of_the_working_directory() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    fs::write(&program, "#!/bin/sh\necho 1 >f\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut lab = vfscale();
    lab.args(["crashlab", "--check", "true", "--", "./program"]).current_dir(dir.path());
    let output = lab.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
