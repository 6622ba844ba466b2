//! Tests of the command as people use it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::common::{can_mount, vfscale};
use crate::for_all::program_for_all;
use rustix::process::{Pid, Signal, kill_process};

fn run(args: &[&str]) -> Output {
    let mut command = vfscale();
    command.arg("run").args(args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    Kid(child).output()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap().trim()
}

/// A child process that is killed at the end of the test.
struct Kid(Child);

impl Kid {
    /// Waits until the child exits, with a time limit.
    fn output(mut self) -> Output {
        vfscale_harness::wait_until("the end of the command", || {
            self.0.try_wait().unwrap().is_some()
        });
        let mut output = Output { status: self.0.wait().unwrap(), stdout: vec![], stderr: vec![] };
        if let Some(stdout) = &mut self.0.stdout {
            stdout.read_to_end(&mut output.stdout).unwrap();
        }
        if let Some(stderr) = &mut self.0.stderr {
            stderr.read_to_end(&mut output.stderr).unwrap();
        }
        output
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mount_line(dir: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    mounts.lines().find(|line| line.split(' ').nth(1) == dir.to_str()).map(str::to_owned)
}

/// A directory that `vfscale mount` serves.
struct Mount {
    kid: Option<Kid>,
    dir: PathBuf,
    _parent: tempfile::TempDir,
}

impl Mount {
    fn new(args: &[&str]) -> Mount {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("mnt").clone();
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("below"), "hidden meanwhile").unwrap();
        let mut command = vfscale();
        command.args(["mount", "--memory=64M"]).args(args).arg(&dir).stderr(Stdio::piped());
        let mut kid = Kid(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(kid.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted at "), "{line}");
        Mount { kid: Some(kid), dir, _parent: parent }
    }

    fn finish(&mut self) {
        let output = self.kid.take().unwrap().output();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(mount_line(&self.dir), None);
        assert_eq!(fs::read_to_string(self.dir.join("below")).unwrap(), "hidden meanwhile");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if mount_line(&self.dir).is_some() {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
    }
}

#[test]
fn a_command_runs_in_a_file_system_of_its_own() {
    if !can_mount() {
        return;
    }
    let script = "echo text >file && mkdir dir && cat file && pwd && echo $VFSCALE_MOUNT && \
                  stat -f -c %T . && grep \" $PWD \" /proc/mounts";
    let output = run(&["--memory", "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines[0], "text");
    assert_eq!(lines[1], lines[2]);
    assert!(lines[4].contains("fuse.vfscale"), "{lines:?}");
    assert!(!Path::new(lines[1]).exists(), "the temporary directory stays");
    assert_eq!(mount_line(Path::new(lines[1])), None);
}

/// A disabled patch shows in the table of locks; by default its lock does not exist.
#[test]
fn patches_are_taken_back_and_locks_are_recorded() {
    let refused = run(&["--memory", "--before", "magic", "true"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("dcache-hash"), "{}", text(&refused.stderr));
    if !can_mount() {
        return;
    }
    let touch = ["sh", "-c", "echo a >a; echo b >b; rm a"];
    let default = run(&[&["--memory", "--lockstat"][..], &touch].concat());
    let table = text(&default.stderr);
    assert!(default.status.success() && table.contains("acquisitions"), "{table}");
    assert!(table.contains("d_children") && !table.contains("dcache_lock"), "{table}");
    let before = ["--memory", "--lockstat", "--before", "dcache-hash", "--before=files-lock"];
    let before = run(&[&before[..], &touch].concat());
    let table = text(&before.stderr);
    let row = table.lines().find(|line| line.trim_start().starts_with("dcache_lock ")).unwrap();
    let acquisitions: u64 = row.split_whitespace().nth(8).unwrap().parse().unwrap();
    assert!(acquisitions >= 3, "{table}");
    let quiet = run(&[&["--memory"][..], &touch].concat());
    assert_eq!(text(&quiet.stderr), "");
}

/// With `--proc` the tree shows its own state, in the kernel's formats. `rm` and `rmdir` fail on
/// that directory as on a mount; nothing else is affected.
#[test]
fn the_state_of_the_tree_is_shown_when_asked_for() {
    if !can_mount() {
        return;
    }
    let script = "set -e; cd .vfscale; stat -c %s mounts; cat mounts; cut -f1 file-nr; \
        cat file-nr inode-state dentry-state >/dev/null; grep -c class lock_stat; \
        grep lockref scaling; ls -a tasks; cd ..; echo data >file; cat file; ls -A; \
        if rm -rf .vfscale 2>/dev/null; then echo removed; fi; rm file; ls -A";
    let run = run(&["--memory=4M", "--proc", "--before=lockref", "sh", "-c", script]);
    assert!(run.status.success(), "{run:?}");
    let lines: Vec<_> = text(&run.stdout).lines().collect();
    assert_eq!(lines[0], "0");
    assert!(lines[1].contains(" / memfs rw"), "{lines:?}");
    assert!(lines[2].starts_with("vfscale /.vfscale vfscale ro,nosuid,nodev,noexec"), "{lines:?}");
    // The file that is being read, and the files that the server has open.
    assert!(lines[3].parse::<u64>().unwrap() >= 1, "{lines:?}");
    let settings = ["lockref\tbefore", "lockref-spread\tbefore"];
    assert_eq!((lines[4], &lines[5..7]), ("1", settings.as_slice()));
    assert_eq!(lines[7..], [".", "..", "data", ".vfscale", "file", ".vfscale"]);
    let both = vfscale().args(["run", "--memory", "--proc", "--writeback", "true"]).output();
    assert!(!both.unwrap().status.success());
}

#[test]
fn the_exit_status_is_the_commands() {
    if !can_mount() {
        return;
    }
    for code in [0, 1, 7, 255] {
        let output = run(&["--memory", "sh", "-c", &format!("exit {code}")]);
        assert_eq!(output.status.code(), Some(code));
    }
    let output = run(&["--memory", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(output.status.code(), Some(128 + 9));
    let output = run(&["--memory", "--", "no-such-command-anywhere"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("no-such-command-anywhere: command not found"));
    let output = run(&["--memory", "--", "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(126));
    assert!(text(&output.stderr).contains("/etc/passwd"));
}

#[test]
fn relative_commands_are_meant_from_here() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "#!/bin/sh\necho \"$0\"\nexit 3\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let status = vfscale()
        .args(["run", "--memory", "./script"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(3));
}

#[test]
fn signals_reach_the_command() {
    if !can_mount() {
        return;
    }
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
        let script = format!("trap 'exit 33' {name}; pwd; while :; do sleep 0.05; done");
        let mut command = vfscale();
        command.args(["run", "--memory", "sh", "-c", &script]).stdout(Stdio::piped());
        let mut kid = Kid(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(kid.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        kid.signal(signal);
        assert_eq!(kid.output().status.code(), Some(33), "{name}");
        assert!(!Path::new(line.trim()).exists());
    }
    // Without a trap the signal ends the command, and the status reports it.
    let mut command = vfscale();
    command.args(["run", "--memory", "sh", "-c", "echo; exec sleep 60"]).stdout(Stdio::piped());
    let mut kid = Kid(command.spawn().unwrap());
    BufReader::new(kid.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    kid.signal(Signal::TERM);
    assert_eq!(kid.output().status.code(), Some(128 + 15));
}

#[test]
fn commands_do_not_inherit_blocked_signals() {
    if !can_mount() {
        return;
    }
    let output = run(&["--memory", "grep", "SigBlk", "/proc/self/status"]);
    assert_eq!(text(&output.stdout), "SigBlk:\t0000000000000000");
}

#[test]
fn processes_left_behind_do_not_keep_the_mount() {
    if !can_mount() {
        return;
    }
    let output = run(&["--memory", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!; pwd; exit 5"]);
    assert_eq!(output.status.code(), Some(5));
    let (pid, dir) = text(&output.stdout).split_once('\n').unwrap();
    assert!(!Path::new(dir).exists());
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn the_size_is_a_bound() {
    if !can_mount() {
        return;
    }
    let script = "df --output=size -B1 . | tail -1; head -c 5M /dev/zero >f; echo $?; stat -c %s f";
    let output = run(&["--memory=4M", "sh", "-c", script]);
    let lines: Vec<&str> = text(&output.stdout).lines().map(str::trim).collect();
    assert_eq!(lines[..2], [&(4 << 20).to_string(), "1"]);
    assert!(text(&output.stderr).contains("No space left on device"));
    assert!(lines[2].parse::<u64>().unwrap() > 3 << 20);
    let output = run(&[
        "--memory",
        "--inodes=10",
        "sh",
        "-c",
        "for i in 0 1 2 3 4 5 6 7 8 9 a b; do : >$i; done",
    ]);
    assert!(text(&output.stderr).contains("No space left on device"));
}

#[test]
fn a_mount_ends_with_signals() {
    if !can_mount() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut mount = Mount::new(&[]);
        fs::write(mount.dir.join("f"), "x").unwrap();
        mount.kid.as_ref().unwrap().signal(signal);
        mount.finish();
    }
}

#[test]
fn a_mount_ends_with_umount() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new(&[]);
    assert!(Command::new("umount").arg(&mount.dir).status().unwrap().success());
    mount.finish();
}

#[test]
fn a_mount_in_use_ends_with_a_signal() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new(&[]);
    let file = fs::File::create(mount.dir.join("f")).unwrap();
    mount.kid.as_ref().unwrap().signal(Signal::TERM);
    mount.finish();
    drop(file);
}

#[test]
fn options_reach_the_mount() {
    if !can_mount() {
        return;
    }
    let options = "ro,nosuid,nodev,noexec,fsname=my\\,data,dev,remount=";
    let refused = vfscale().args(["mount", "--memory", "-o", options, "/tmp"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("remount="));
    let mut mount = Mount::new(&["-o", "ro,nosuid,nodev,noexec,fsname=my\\,data", "--mode=1711"]);
    let line = mount_line(&mount.dir).unwrap();
    assert!(line.starts_with("my,data ") || line.starts_with("my\\054data "), "{line}");
    let flags: Vec<&str> = line.split(' ').nth(3).unwrap().split(',').collect();
    for flag in ["ro", "nosuid", "nodev", "noexec", "default_permissions"] {
        assert!(flags.contains(&flag), "{line}");
    }
    assert_eq!(fs::metadata(&mount.dir).unwrap().mode() & 0o7777, 0o1711);
    let refused = fs::write(mount.dir.join("f"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    if rustix::process::geteuid().is_root() {
        let remount = vfscale().args(["mount", "-o", "remount,rw,exec"]).arg(&mount.dir).status();
        assert!(remount.unwrap().success());
        let line = mount_line(&mount.dir).unwrap();
        assert!(!line.contains("noexec") && line.contains("nosuid"), "{line}");
        fs::write(mount.dir.join("f"), "").unwrap();
    }
    mount.kid.as_ref().unwrap().signal(Signal::TERM);
    mount.finish();
}

#[test]
fn the_background_is_left_alone() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = vfscale();
    command.args(["mount", "--memory=1M", "--background"]).arg(dir.path());
    let status = command.status().unwrap();
    assert!(status.success());
    assert!(mount_line(dir.path()).is_some());
    fs::write(dir.path().join("f"), "served").unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("f")).unwrap(), "served");
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
    assert_eq!(mount_line(dir.path()), None);
    // The foreground process reports errors of the background process.
    let mut command = vfscale();
    command.args(["mount", "--memory=1M", "--background"]).arg(dir.path().join("missing"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("does not exist"), "{}", text(&output.stderr));
}

#[test]
fn it_is_the_helper_of_mount() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let helper = dir.path().join("mount.vfscale");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vfscale"), &helper).unwrap();
    let mnt = dir.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    let mut command = Command::new(&helper);
    command.arg("memory").arg(&mnt).args(["-n", "-o", "rw,dev,suid,size=1M,fsname=any name"]);
    assert!(command.status().unwrap().success());
    let line = mount_line(&mnt).unwrap();
    assert!(line.starts_with("any\\040name "), "{line}");
    // A user other than root gets no devices, whatever the options.
    assert_eq!(line.contains("nodev"), !rustix::process::geteuid().is_root(), "{line}");
    assert!(Command::new("umount").arg(&mnt).status().unwrap().success());
}

/// Users without the right to mount use `fusermount3`.
#[test]
fn other_users_mount_through_the_helper() {
    let all = fs::metadata("/dev/fuse").is_ok_and(|meta| meta.mode() & 0o006 == 0o006);
    let tools = ["fusermount3", "setpriv"]
        .iter()
        .all(|tool| Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok());
    if !rustix::process::geteuid().is_root() || !all || !tools {
        eprintln!(
            "\n######## SKIPPED: needs root, fusermount3, setpriv, and a /dev/fuse open to all\n"
        );
        return;
    }
    let Some((dir, program)) = program_for_all(Path::new(env!("CARGO_BIN_EXE_vfscale"))) else {
        return;
    };
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    command.current_dir(dir.path()).env("TMPDIR", dir.path());
    command.args(["run", "--memory=16M", "sh", "-c"]);
    command.arg("id -u; stat -c %u .; echo text >f; cat f; grep \" $PWD \" /proc/mounts; exit 9");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = Kid(command.spawn().unwrap()).output();
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines[..3], ["65534", "65534", "text"]);
    let mounted_at = Path::new(lines[3].split(' ').nth(1).unwrap());
    assert!(!mounted_at.exists());
    assert_eq!(mount_line(mounted_at), None);
}

#[test]
fn what_is_wrong_is_named() {
    let refused = |args: &[&str], code: i32, names: &[&str]| {
        let output = vfscale().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        for name in names {
            assert!(text(&output.stderr).contains(name), "{args:?}: {}", text(&output.stderr));
        }
    };
    refused(&["mount", "--memory", "/no/such/dir"], 1, &["/no/such/dir", "mkdir"]);
    refused(&["mount", "--memory", "/etc/passwd"], 1, &["/etc/passwd", "not a directory"]);
    refused(&["mount", "/tmp"], 2, &["--memory"]);
    refused(&["run", "true"], 2, &["--memory"]);
    refused(&["mount", "--memory=lots", "/tmp"], 2, &["`lots`", "64M"]);
    refused(&["mount", "--memory", "-o", "fast", "/tmp"], 2, &["`fast`"]);
    refused(&["mount", "--memory=1", "/tmp"], 1, &["space"]);
    refused(&["run", "--memory", "-o", "remount", "true"], 2, &["remount"]);
    let output =
        vfscale().args(["run", "--memory", "true"]).env("TMPDIR", "/no/such/dir").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("TMPDIR"), "{}", text(&output.stderr));
    assert_eq!(output.status.signal(), None);
}
