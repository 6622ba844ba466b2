//! What tests of the command share.

use std::process::{Command, Stdio};

/// The command, with nothing to read.
pub fn vfscale() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vfscale"));
    command.stdin(Stdio::null());
    command
}

/// Whether this machine lets us mount; says so loudly when it does not.
pub fn can_mount() -> bool {
    let probe = vfscale().args(["run", "--memory=1M", "true"]).output().unwrap();
    let message = String::from_utf8_lossy(&probe.stderr);
    if !probe.status.success() {
        assert!(
            message.contains("/dev/fuse") || message.contains("not permitted to mount"),
            "{message}"
        );
        // Which directory it was differs each time, and a run tells the same words once.
        let why =
            message.rsplit_once(": run as root").map_or(&*message, |_| "not permitted to mount");
        eprintln!("\n######## SKIPPED: {why}\n");
    }
    probe.status.success()
}
