//! Servers and commands below limits, after a hang-up or a kill, and with a server that hangs.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};

use crate::common::{can_mount, server_of, vfscale};

/// An image, and a directory to mount it at.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        fs::create_dir(place.dir()).unwrap();
        vfscale::volume(place.image()).create(64 << 20).open().unwrap().close().unwrap();
        place
    }

    /// Makes one if this machine allows mounting.
    fn mountable() -> Option<Place> {
        can_mount().then(Place::new)
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("disk.vfs")
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("mnt")
    }

    fn is_mounted(&self) -> bool {
        is_mounted(&self.dir())
    }

    /// Runs the command in the directory of the place, below limits that the shell sets.
    fn below(&self, limits: &str, arguments: &str) -> (Option<i32>, String) {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{limits}; exec \"$0\" {arguments}"));
        command.arg(env!("CARGO_BIN_EXE_vfscale")).current_dir(self.0.path());
        said(&mut command)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-q", "-l"]).arg(self.dir()).status();
    }
}

fn said(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.contains(&format!(" {} ", dir.display()))
}

#[test]
fn a_limit_of_the_size_of_files_is_an_error_like_others() {
    let place = Place::new();
    let refused = |limits: &str, command: &str| {
        let (status, text) = place.below(&format!("{limits}; ulimit -f 100"), command);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains(".vfs: ") && text.contains("ulimit -f unlimited"), "{text}");
    };
    refused("true", "mkfs -q --size=64M other.vfs");
    assert!(!place.0.path().join("other.vfs").exists());
    let (status, text) = place.below("ulimit -f 100", "fsck -q disk.vfs");
    assert_eq!(status, Some(0), "{text}");
    if !can_mount() {
        return;
    }
    refused("rm -f other.vfs", "run other.vfs -- sh -c true");
    refused("true", "mount --background disk.vfs mnt");
    // Of 512 bytes each: the 64 MiB of the image.
    let (status, text) = place.below("ulimit -f 131072", "mount --background disk.vfs mnt");
    assert_eq!(status, Some(0), "{text}");
    let (status, text) = place.below("true", "grow mnt --size 128M");
    assert_eq!(status, Some(1), "{text}");
    assert!(fs::read_dir(place.dir()).is_ok(), "the server is gone");
    // Programs in the mount have the limits and the signals of those who start them.
    let ignored = "run --memory -- grep SigIgn /proc/self/status";
    let (status, text) = place.below("true", ignored);
    assert_eq!(status, Some(0), "{text}");
    let ignored = u64::from_str_radix(text.trim_end().rsplit('\t').next().unwrap(), 16).unwrap();
    assert_eq!(ignored & 1 << (libc::SIGXFSZ - 1), 0, "{text}");
}

#[test]
fn the_background_reports_only_a_mount_that_is_served() {
    let Some(place) = Place::mountable() else { return };
    let mut failed = 0;
    for files in 6..=20 {
        let limits = format!("ulimit -n {files}");
        let (status, text) = place.below(&limits, "mount --background disk.vfs mnt");
        let is_served = place.is_mounted() && fs::read_dir(place.dir()).is_ok();
        assert_eq!(status == Some(0), is_served, "{files} files: {status:?}: {text}");
        failed += i32::from(!is_served);
        if is_served {
            // With few files the server may be unable to say when it is closed.
            let (_, text) = said(vfscale().arg("umount").arg(place.dir()));
            assert!(!place.is_mounted(), "{files} files: {text}");
        } else {
            assert!(!place.is_mounted(), "{files} files: dead");
        }
    }
    assert!(failed > 0);
}

/// The terminal of `ssh -t` is closed: the kernel tells only the leader of the session.
#[test]
fn a_hang_up_reaches_the_command() {
    if !can_mount() || Command::new("script").arg("--version").output().is_err() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let run = format!(
        "exec {} run --memory -- sh -c 'trap \"echo told >{dir}/told; exit 3\" HUP; \
         echo ready >{dir}/ready; while :; do sleep 0.05; done'",
        env!("CARGO_BIN_EXE_vfscale"),
        dir = temp.path().display()
    );
    let mut command = Command::new("script");
    command.args(["-q", "-c", &run, "/dev/null"]).env("SHELL", "/bin/sh");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut terminal = command.spawn().unwrap();
    vfscale_harness::wait_until("the start of the command", || temp.path().join("ready").exists());
    kill_process(Pid::from_child(&terminal), Signal::KILL).unwrap();
    terminal.wait().unwrap();
    vfscale_harness::wait_until("the end of the command", || temp.path().join("told").exists());
}

/// Ctrl-Z: the shell is told that its job has stopped, and others can use the mount. The signal is
/// for all of the job, or for the process that the shell has started.
#[test]
fn a_stopped_command_stops_no_mount() {
    if !can_mount() {
        return;
    }
    let mut command = vfscale();
    let script = "pwd; while read line; do echo $line; done; exit 3";
    command.args(["run", "--memory", "--", "sh", "-c", script]).process_group(0);
    let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = run.stdin.take().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let dir = PathBuf::from(lines.next().unwrap().unwrap());
    let pid = Pid::from_child(&run);
    for (n, send) in [kill_process_group, kill_process].into_iter().enumerate() {
        send(pid, Signal::TSTP).unwrap();
        vfscale_harness::wait_until("the stop", || {
            let waited = waitpid(Some(pid), WaitOptions::UNTRACED | WaitOptions::NOHANG).unwrap();
            waited.is_some_and(|(_, status)| status.stopped())
        });
        writeln!(stdin, "line {n}").unwrap();
        let mut touch = Command::new("touch").arg(dir.join(format!("f{n}"))).spawn().unwrap();
        vfscale_harness::wait_until("a call in the mount", || touch.try_wait().unwrap().is_some());
        assert!(touch.wait().unwrap().success());
        send(pid, Signal::CONT).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), format!("line {n}"));
    }
    drop(stdin);
    assert_eq!(run.wait().unwrap().code(), Some(3));
    assert!(!dir.exists());
}

/// The server of a killed run unmounts in its place, and closes the volume.
#[test]
fn the_server_of_a_killed_run_closes_the_volume() {
    let Some(place) = Place::mountable() else { return };
    let mut run = vfscale();
    run.arg("run").arg(place.image()).args(["--", "sh", "-c", "echo kept > f; pwd; exec sleep 60"]);
    let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let dir = PathBuf::from(lines.next().unwrap().unwrap());
    run.kill().unwrap();
    run.wait().unwrap();
    vfscale_harness::wait_until("the end of the mount", || !dir.exists());
    let (status, text) = said(vfscale().arg("run").arg(place.image()).args(["--", "cat", "f"]));
    assert_eq!((status, text.as_str()), (Some(0), "kept\n"));
}

#[test]
fn other_users_see_nothing_of_a_run_of_root() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let listed = |options: &[&str]| {
        let script = "chmod 777 .; setpriv --reuid=65534 --regid=65534 --clear-groups ls \"$PWD\"";
        let (status, text) =
            said(vfscale().arg("run").args(options).args(["--memory", "--", "sh", "-c", script]));
        (status == Some(0), text)
    };
    let (was_listed, text) = listed(&[]);
    assert!(!was_listed && text.contains("Permission denied"), "{text}");
    let (was_listed, text) = listed(&["--allow-other"]);
    assert!(was_listed, "{text}");
}

#[test]
fn a_command_is_no_image() {
    let temp = tempfile::tempdir().unwrap();
    for (words, says) in [
        (&["run", "--", "bash", "-c", "true"][..], "IMAGE"),
        (&["run", "--discard", "--", "bash", "-c", "true"], "IMAGE"),
        (&["run", "bash", "-c", "true"], "`-c`"),
    ] {
        let (status, text) = said(vfscale().args(words).current_dir(temp.path()));
        assert_eq!(status, Some(2), "{words:?}: {text}");
        assert!(text.contains(says), "{words:?}: {text}");
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0, "{words:?}");
    }
}

#[test]
fn the_next_run_removes_the_dead_mount_of_a_killed_one() {
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let names = || -> Vec<_> {
        fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    let mut command = vfscale();
    command.args(["run", "--memory", "sh", "-c", "pwd; exec sleep 60"]).env("TMPDIR", temp.path());
    let mut killed = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let stdout = killed.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    let dead = PathBuf::from(line.trim());
    assert!(dead.starts_with(temp.path()) && is_mounted(&dead));
    let mode = fs::metadata(dead.parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let next = || {
        let mut next = vfscale();
        said(next.args(["run", "--memory", "true"]).env("TMPDIR", temp.path()))
    };
    // While it runs, it stays.
    assert_eq!(next(), (Some(0), String::new()));
    assert!(is_mounted(&dead));
    for pid in [server_of(&killed), Pid::from_child(&killed)] {
        kill_process(pid, Signal::KILL).unwrap();
    }
    killed.wait().unwrap();
    fs::create_dir(temp.path().join("vfscale-1999999999-0")).unwrap();
    vfscale_harness::wait_until("the removal of the dead mount", || {
        assert_eq!(next(), (Some(0), String::new()));
        !is_mounted(&dead)
    });
    // Other directories stay.
    assert_eq!(names(), ["vfscale-1999999999-0"]);
}

#[test]
fn only_mounts_of_vfscale_are_trimmed() {
    let temp = tempfile::tempdir().unwrap();
    let (status, text) = said(vfscale().arg("trim").arg(temp.path()));
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("no file system of vfscale is mounted there"), "{text}");
}

/// A server that does not reply: commands say so within a time.
#[test]
fn a_server_that_hangs_is_not_waited_for() {
    let Some(place) = Place::mountable() else { return };
    let mut server = vfscale().args(["mount"]).arg(place.image()).arg(place.dir()).spawn().unwrap();
    vfscale_harness::wait_until("the mount", || place.is_mounted());
    fs::metadata(place.dir().join("none")).unwrap_err();
    kill_process(Pid::from_child(&server), Signal::STOP).unwrap();
    let start = |words: &[&str]| {
        let mut command = vfscale();
        command.args(words);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let end = |words: &[&str], mut child: Child| {
        vfscale_harness::wait_until(format!("the end of {words:?}"), || {
            child.try_wait().unwrap().is_some()
        });
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let [image, dir] = [place.image(), place.dir()].map(|path| path.display().to_string());
    let other = place.0.path().join("other");
    fs::create_dir(&other).unwrap();
    let words = ["umount", "--timeout=1", &dir];
    let (status, text) = end(&words, start(&words));
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("does not reply") && text.contains("--force"), "{text}");
    let all = [
        &["branch", "list", &image][..],
        &["mount", "--background", "-o", "branch=a", &image, &other.display().to_string()],
        &["run", "--branch=a", &image, "true"],
        &["grow", &image, "--size=128M"],
        &["grow", &dir, "--size=128M"],
        &["branch", "create", &dir, "b"],
        &["trim", &image],
        &["trim", &dir],
        &["freeze", &dir, "true"],
        &["sync", &dir],
        &["stat", &dir],
        &["mount", "-o", "remount,ro", &dir],
        &["diff", &dir, "a", "b"],
    ];
    for (words, child) in all.map(|words| (words, start(words))) {
        let (status, text) = end(words, child);
        let expected = if words[0] == "diff" { 2 } else { 1 };
        assert_eq!(status, Some(expected), "{words:?}: {text}");
        assert!(text.contains("does not reply"), "{words:?}: {text}");
    }
    // Force ends the mount, and says that the volume is not closed.
    let words = ["umount", "--force", "--timeout=1", &dir];
    let (status, text) = end(&words, start(&words));
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("not closed after 1 s") && !place.is_mounted(), "{text}");
    kill_process(Pid::from_child(&server), Signal::CONT).unwrap();
    assert!(server.wait().unwrap().success());
}
