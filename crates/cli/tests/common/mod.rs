//! Helpers of the command's tests.

use std::process::{Command, Stdio};

/// Returns the command, with an empty standard input.
pub fn vfscale() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vfscale"));
    command.stdin(Stdio::null());
    command
}

/// Returns whether this machine allows mounting, and prints a conspicuous line if not.
pub fn can_mount() -> bool {
    let probe = vfscale().args(["run", "--memory=1M", "true"]).output().unwrap();
    let message = String::from_utf8_lossy(&probe.stderr);
    if !probe.status.success() {
        assert!(
            message.contains("/dev/fuse") || message.contains("not permitted to mount"),
            "{message}"
        );
        // The message without the directory, which differs each time: `scripts/test` prints equal
        // lines once.
        let why =
            message.rsplit_once(": run as root").map_or(&*message, |_| "not permitted to mount");
        skipped(why);
    }
    probe.status.success()
}

/// Prints a conspicuous line: a test can't run here.
pub fn skipped(why: &str) {
    eprintln!("\n######## SKIPPED: {why}\n");
}

/// Returns the process that serves the mount of a `vfscale run`.
#[allow(dead_code, reason = "not every test program asks for it")]
pub fn server_of(run: &std::process::Child) -> rustix::process::Pid {
    let children = format!("/proc/{0}/task/{0}/children", run.id());
    let children = std::fs::read_to_string(children).unwrap();
    let name = |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let server = children.split_whitespace().find(|pid| name(pid) == "vfscale\n").unwrap();
    rustix::process::Pid::from_raw(server.parse().unwrap()).unwrap()
}
