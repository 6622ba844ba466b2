//! Waiting for programs.

use std::time::{Duration, Instant};

/// Waits for a condition, which must come within half a minute.
pub fn eventually(what: &str, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !ready() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the process that serves the mount of a `vfscale run`.
pub fn server_of(run: &std::process::Child) -> rustix::process::Pid {
    let children = format!("/proc/{0}/task/{0}/children", run.id());
    let children = std::fs::read_to_string(children).unwrap();
    let name = |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let server = children.split_whitespace().find(|pid| name(pid) == "vfscale\n").unwrap();
    rustix::process::Pid::from_raw(server.parse().unwrap()).unwrap()
}
