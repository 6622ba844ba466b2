//! Tests of `vfscale-bench` as people use it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../crates/cli/tests/all/for_all.rs"]
mod for_all;

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::for_all::program_for_all;
use rustix::process::{Pid, Signal, kill_process};
use vfscale::block::FileOptions;
use vfscale_diskfs::check;

const PROGRAM: &str = env!("CARGO_BIN_EXE_vfscale-bench");

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> (Output, String, String) {
    let output = bench(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

/// Options with which a run takes some ten milliseconds.
const QUICK: [&str; 6] = ["--slice", "2", "--warm-up", "1", "--rounds", "5"];

fn quick<'a>(args: &[&'a str]) -> Vec<&'a str> {
    args.iter().copied().chain(QUICK).collect()
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn the_lists_have_a_line_for_each() {
    let (output, text, _) = run(&["--list"]);
    assert!(output.status.success());
    assert_eq!(text.lines().count(), vfscale_bench::workloads::ALL.len());
    for (line, workload) in text.lines().zip(vfscale_bench::workloads::ALL) {
        assert!(line.starts_with(&format!("{} ({}, ", workload.name, workload.source)), "{line}");
    }
    let (output, text, _) = run(&["--list-patches"]);
    assert!(output.status.success());
    assert_eq!(text.lines().count(), vfscale::PATCHES.len());
    for (line, patch) in text.lines().zip(vfscale::PATCHES) {
        assert!(line.starts_with(patch.name()) && line.contains(patch.source()), "{line}");
    }
}

#[test]
fn json_on_standard_output_is_nothing_but_json() {
    let dir = tempfile::tempdir().unwrap();
    let target = format!("path:{}", dir.path().display());
    let args = ["create-unlink-same-dir", "--target", "memory", "--target", &target];
    let more = ["--threads", "1,2", "--before", "lockref", "--json", "-"];
    let (output, json, table) = run(&quick(&[&args[..], &more].concat()));
    assert!(output.status.success(), "{table}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let results = json["results"].as_array().unwrap();
    assert_eq!(results.len(), 2 * 3);
    for result in results {
        assert_eq!(result["workload"], "create-unlink-same-dir");
        assert!(result["ops_per_s"]["median"].as_f64().unwrap() > 0.0);
    }
    assert!(table.contains("memory x2 before lockref"), "{table}");
    assert!(is_empty(dir.path()));
}

#[test]
fn markdown_on_standard_output_is_nothing_but_markdown() {
    let (output, section, table) = run(&quick(&["d-path", "--markdown", "-"]));
    assert!(output.status.success() && table.contains("d-path (Long 2013"), "{table}");
    assert!(section.starts_with("# `vfscale bench`\n\n```sh\nvfscale-bench "), "{section}");
    assert!(section.contains("\n| d-path | path/s | "), "{section}");
}

#[test]
fn several_values_after_an_option_and_json_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let (file, target) = (dir.path().join("out.json"), format!("path:{}", work.display()));
    let file = file.to_str().unwrap();
    let args = ["--json", file, "--before", "lockref", "brlock", "--target", "memory", &target];
    let (output, table, stderr) = run(&quick(&[&args[..], &["stat-deep"]].concat()));
    assert!(output.status.success(), "{stderr}");
    assert!(table.contains("memory x1 before lockref+brlock"), "{table}");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(json["results"].as_array().unwrap().len(), 3);
    assert!(is_empty(&work));
}

/// Waits until a run has created a file in an empty directory.
fn wait_until_it_works(dir: &Path) {
    let start = Instant::now();
    while is_empty(dir) {
        assert!(start.elapsed() < Duration::from_secs(60), "the run creates no file");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Every workload runs on a directory, with its checks.
#[test]
fn every_workload_runs_on_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let target = format!("path:{}", dir.path().display());
    let all = vfscale_bench::workloads::ALL.iter().map(|workload| workload.name);
    let mut args: Vec<&str> = all.collect();
    args.extend(["--target", &target, "--files", "50", "--users", "3", "--database", "1"]);
    args.extend(["--threads", "2"]);
    let (output, table, stderr) = run(&quick(&args));
    assert!(output.status.success(), "{table}{stderr}");
    let is_left_out = |name: &str| table.contains(&format!("left out: {name} on "));
    for workload in vfscale_bench::workloads::ALL {
        let is_measured = table.contains(&format!("{} ({})", workload.name, workload.source));
        // Some change mounts or caches of the machine, and opening by handle is for root.
        let may_miss = ["mount-cross", "open-handle", "evict", "remount", "bind-umount"];
        let is_due = !(may_miss.contains(&workload.name) && is_left_out(workload.name));
        assert_eq!(is_measured, is_due, "{} {table}", workload.name);
    }
    assert!(is_empty(dir.path()));
}

#[test]
fn a_real_tree_is_copied_and_nothing_else_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, work) = (dir.path().join("tree"), dir.path().join("work"));
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    std::fs::create_dir(&work).unwrap();
    std::fs::write(tree.join("a/b/file"), "content").unwrap();
    std::os::unix::fs::symlink("/", tree.join("a/link")).unwrap();
    let target = format!("path:{}", work.display());
    let tree = tree.to_str().unwrap();
    let args = ["find-size", "git-diff", "--tree", tree, "--target", "memory", &target];
    let (output, table, stderr) = run(&quick(&args));
    assert!(output.status.success(), "{table}{stderr}");
    assert!(is_empty(&work));
    assert_eq!(std::fs::read(Path::new(tree).join("a/b/file")).unwrap(), b"content");
}

#[test]
fn branches_are_measured_in_memory_and_in_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.vfs");
    for place in [vec![], vec![image.to_str().unwrap()]] {
        let small = ["--files", "5", "--forks", "4", "--depth", "2", "--size", "512M"];
        let many = ["--changed", "2", "--open", "2"];
        let args = [&["branches", "--json", "-"], &small[..], &many, &place].concat();
        let (output, json, table) = run(&args);
        assert!(output.status.success(), "{table}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["rows"][0]["count"], 4, "{json}");
        for row in ["fork, open and first call", "2 branches with", "2 open branches, idle"] {
            assert!(table.contains(row), "{row}: {table}");
        }
    }
    assert!(!image.exists());
}

#[test]
fn readers_and_writers_of_slob_can_be_chosen() {
    let args = ["slob", "--mix", "1:2,3:0", "--database", "1", "--json", "-"];
    let (output, json, table) = run(&quick(&args));
    assert!(output.status.success(), "{table}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let seen = json["results"].as_array().unwrap().iter().map(|result| {
        let number = |field: &str| result[field].as_u64().unwrap();
        (number("threads"), number("readers"), result["unit"].as_str().unwrap().to_owned())
    });
    let due = [(3, 1, "transaction".to_owned()), (3, 3, "query".to_owned())];
    assert_eq!(seen.collect::<Vec<_>>(), due);
    assert!(table.contains("memory 1 readers 2 writers"), "{table}");
}

#[test]
fn workers_can_be_processes() {
    let dir = tempfile::tempdir().unwrap();
    let target = format!("path:{}", dir.path().display());
    let args = ["rename-own-dir", "--target", &target, "--threads", "2", "--processes"];
    let (output, table, stderr) = run(&quick(&args));
    assert!(output.status.success(), "{table}{stderr}");
    assert!(is_empty(dir.path()));
}

/// The whole set takes a while even with `--quick`, so this test interrupts it; the results until
/// then are written.
#[test]
fn published_experiments_run_until_they_are_stopped_and_a_report_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (work, out) = (dir.path().join("work"), dir.path().join("out"));
    std::fs::create_dir(&work).unwrap();
    let target = format!("path:{}", work.display());
    let mut command = bench(&["published", "--quick", "--target", "memory", &target]);
    command.arg("--out").arg(&out).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until_it_works(&work);
    std::thread::sleep(Duration::from_millis(1_000));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    let section = std::fs::read_to_string(out.join("report.md")).unwrap();
    assert!(section.starts_with("# `vfscale bench") && section.contains("Interrupted."));
    assert!(page.contains("Interrupted") && page.ends_with("</html>\n"));
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("results.json")).unwrap()).unwrap();
    assert_eq!(json["interrupted"], true);
    assert!(is_empty(&work));
}

/// A process counts shared lines before it has made any file system, and prints each case at once.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn shared_lines_are_counted_by_a_process_of_its_own() {
    let mut child = bench(&["count"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    // The other cases take as long again.
    child.kill().unwrap();
    child.wait().unwrap();
    let case: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(case["workload"], "create-many");
    assert_eq!(case["before"], serde_json::json!([]));
    assert!(case["lines"].as_u64().unwrap() > 0, "{line}");
}

#[test]
fn reports_of_any_run_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let (output, _, stderr) = run(&quick(&["d-path", "--out", out.to_str().unwrap()]));
    assert!(output.status.success() && stderr.contains("report.html"), "{stderr}");
    assert!(
        std::fs::read_to_string(out.join("report.md")).unwrap().contains("| d-path | path/s |")
    );
    assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains("d-path"));
    assert!(out.join("plots/d-path.svg").exists());
    let file = out.join("report.html");
    let (output, table, stderr) = run(&["d-path", "--out", file.to_str().unwrap()]);
    assert!(!output.status.success() && table.is_empty(), "{stderr}");
    assert!(stderr.contains(file.to_str().unwrap()), "{stderr}");
}

#[test]
fn bad_input_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let missing = format!("path:{}/missing", dir.path().display());
    let cases: &[(&[&str], i32, &str)] = &[
        (&[], 2, "--list"),
        (&["stat-depe"], 2, "did you mean `stat-deep`?"),
        (&["stat-deep", "--target", "tmpfs"], 2, "path:DIR"),
        (&["stat-deep", "--target", "volume:"], 2, "volume:FILE"),
        (&["stat-deep", "--target", "volume:/dev/null"], 1, "/dev/null"),
        (&["stat-deep", "--before", "cil-lists"], 2, "volume:FILE"),
        (&["stat-deep", "--target", &missing], 1, "make it first"),
        (&["stat-deep", "--before", "magic"], 2, "lockref"),
        (&["stat-deep", "--rounds", "4"], 2, "at least 5"),
        (&["stat-deep", "--processes"], 2, "path:DIR"),
        (&["stat-deep", "--rate", "0"], 2, "above 0"),
        (&["stat-deep", "--threads", "0"], 2, "--threads 0"),
        (&["slob", "--mix", "8"], 2, "such as 8:64"),
        (&["slob", "--mix", "8:x"], 2, "such as 8:64"),
        (&["slob", "--mix", "0:0"], 2, "--mix 0:0"),
        (&["slob", "--mix", "4000:4000"], 2, "4096"),
        (&["stat-deep", "--json", "-", "--markdown", "-"], 2, "--markdown"),
    ];
    for (args, code, words) in cases {
        let (output, stdout, stderr) = run(args);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {stderr}");
        assert!(stderr.contains(words) && stdout.is_empty(), "{args:?}: {stderr}");
    }
}

/// Interrupts a run some time after it has created its first file, and returns the printed JSON.
/// No file is left.
fn interrupted_after(wait: Duration, processes: bool) -> serde_json::Value {
    let dir = tempfile::tempdir().unwrap();
    let target = format!("path:{}", dir.path().display());
    let mut command = bench(&["create-unlink-own-dir", "--rounds", "10000", "--slice", "5"]);
    command.args(["--target", &target, "--json", "-"]);
    if processes {
        command.arg("--processes");
    }
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_it_works(dir.path());
    std::thread::sleep(wait);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(is_empty(dir.path()));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["interrupted"], true);
    json
}

#[test]
fn ctrl_c_leaves_nothing_behind_and_prints_the_rounds_until_then() {
    for processes in [false, true] {
        // On a busy machine the first round may take long.
        let has_rounds = |seconds: &f64| {
            let json = interrupted_after(Duration::from_secs_f64(*seconds), processes);
            json["results"][0]["rounds"].as_array().is_some_and(|rounds| !rounds.is_empty())
        };
        assert!([0.3, 3.0, 30.0].iter().any(has_rounds), "no rounds, processes: {processes}");
    }
}

/// On a file system of two megabytes, in a mount namespace of its own, a workload that does not fit
/// fails, and all others are measured.
#[test]
fn a_full_directory_is_told_and_left_empty() {
    const SCRIPT: &str = "mount -t tmpfs -o size=2m small \"$DIR\" || exit 0
        \"$PROGRAM\" stat-deep write-seq create-many-sync --target \"path:$DIR\" \
            --database 4 --files 100 --slice 2 --warm-up 1 --rounds 5
        echo \"status $?\"; ls -A \"$DIR\"; echo end";
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["sh", "-c", SCRIPT]).env("DIR", dir.path()).stdin(Stdio::null());
    let output = command.env("PROGRAM", PROGRAM).output();
    let Some(output) = output.ok().filter(|output| !output.stdout.is_empty()) else {
        println!("######## SKIPPED: a full directory: nothing can be mounted");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = format!("failed: write-seq on path:{} x1: ", dir.path().display());
    let reason = text.lines().find_map(|line| line.strip_prefix(&failed));
    assert!(reason.is_some_and(|reason| reason.contains("No space left")), "{text}");
    assert!(text.contains("stat-deep (Piggin") && text.contains("create-many-sync (own"), "{text}");
    assert!(text.ends_with("\nstatus 1\nend\n"), "{text}");
}

/// On a full volume a workload that does not fit fails, and the volume is intact afterwards. A full
/// device for the results is reported, too.
#[test]
fn a_full_volume_is_told_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("small.vfs");
    vfscale::volume(&image).create(32 << 20).open().unwrap().close().unwrap();
    let target = format!("volume:{}", image.display());
    let args = ["stat-deep", "write-seq", "--target", &target, "--database", "64"];
    let (output, table, stderr) = run(&quick(&args));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let failed = format!("failed: write-seq on {target} x1: ");
    let reason = table.lines().find_map(|line| line.strip_prefix(&failed));
    assert!(reason.is_some_and(|reason| reason.contains("No space left")), "{table}");
    assert!(table.contains("stat-deep (Piggin"), "{table}");
    let volume = vfscale::volume(&image).open().unwrap();
    assert!(volume.task().read_dir("/").unwrap().next().is_none());
    volume.close().unwrap();
    let device = FileOptions::new().read_only(true).open(&image).unwrap();
    let checked = check::check(Arc::new(device), &check::Options::default(), &mut ()).unwrap();
    assert_eq!(checked.count, 0, "{checked:?}");

    let (output, table, stderr) = run(&quick(&["stat-deep", "--json", "/dev/full"]));
    assert!(!output.status.success() && table.contains("stat-deep (Piggin"), "{stderr}");
    assert!(stderr.contains("/dev/full") && stderr.contains("No space left"), "{stderr}");
}

#[test]
fn a_missing_right_is_told_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (closed, open) = (dir.path().join("closed"), dir.path().join("open"));
    std::fs::create_dir(&open).unwrap();
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, Permissions::from_mode(0o555)).unwrap();
    let closed = closed.display().to_string();
    let open = format!("path:{}", open.display());
    let Some((_dir, program)) = program_for_all(Path::new(PROGRAM)) else { return };
    // Without capabilities the permissions of a directory apply to root, too.
    let mut without = vec![program.to_str().unwrap()];
    if rustix::process::geteuid().is_root() {
        without.splice(..0, ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
    }
    for args in [
        &["--target", &open, &format!("path:{closed}")][..],
        &["--target", &open, &format!("volume:{closed}/new.vfs")],
        &["--target", &open, "--out", &format!("{closed}/out")],
    ] {
        let output =
            Command::new(without[0]).args(&without[1..]).arg("stat-deep").args(args).output();
        let Ok(output) = output else {
            println!("######## SKIPPED: a missing right: setpriv is not installed");
            return;
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains(&closed) && stderr.contains("Permission denied"), "{stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    assert!(
        is_empty(Path::new(open.strip_prefix("path:").unwrap())) && is_empty(Path::new(&closed))
    );
}

/// Mounts are made for a run and gone after it, and images with them, unless they were there.
#[test]
fn mounts_are_made_for_a_run_and_unmounted() {
    let mounting = Path::new(PROGRAM).with_file_name("vfscale");
    let probe = Command::new(&mounting).args(["run", "--memory=1M", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        println!("######## SKIPPED: mounts for a run: `vfscale` can't mount, or is not built");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [kept, new] = ["kept.vfs", "new.vfs"].map(|name| dir.path().join(name));
    vfscale::volume(&kept).create(64 << 20).open().unwrap().close().unwrap();
    let images = [&kept, &new].map(|image| format!("mount:{}", image.display()));
    let memory = "mount+noxattr:memory";
    let args = ["create-unlink-own-dir", "--target", memory, &images[0], &images[1]];
    let (output, json, table) = run(&quick(&[&args[..], &["--json", "-"]].concat()));
    assert!(output.status.success(), "{table}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let results = json["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    for result in results {
        assert_eq!(result["mount"]["fs_type"], "fuse.vfscale", "{result}");
        let at = result["mount"]["at"].as_str().unwrap();
        assert!(!mounts.contains(at) && !Path::new(at).exists(), "{at}: {mounts}");
    }
    assert!(kept.exists() && !new.exists());
    let volume = vfscale::volume(&kept).open().unwrap();
    assert_eq!(volume.task().read_dir("/").unwrap().count(), 0);
    volume.close().unwrap();
}
