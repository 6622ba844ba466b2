//! Tests of the rights of processes.

use super::*;

/// Root needs `CAP_SYS_ADMIN`: root of a container may lack it.
#[test]
fn root_without_its_rights_is_no_administrator() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    assert!(certainly_has(std::process::id(), Capabilities::SYS_ADMIN));
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin", "sleep", "60"]);
    let Ok(mut child) = command.spawn() else { return };
    let is_there = |pid: u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
    };
    while !is_there(child.id()) {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    let is_one = certainly_has(child.id(), Capabilities::SYS_ADMIN);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_one);
}
