//! The options for FUSE over io_uring. A test process of its own, because it changes a switch of
//! the whole machine, and restores it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::process::Output;

use common::{can_mount, vfscale};

/// The switch of the kernel's FUSE module.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The switch, which gets its former value back.
struct Switch(String);

impl Switch {
    /// Switches off, or reports visibly that this machine does not permit it.
    fn off() -> Option<Switch> {
        let former = fs::read_to_string(SWITCH).unwrap_or_default();
        if let Err(e) = fs::write(SWITCH, "N") {
            eprintln!("\n######## SKIPPED: FUSE over io_uring can't be switched: {e}\n");
            return None;
        }
        Some(Switch(former.trim().to_owned()))
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        fs::write(SWITCH, &self.0).unwrap();
    }
}

fn run(args: &[&str]) -> Output {
    let command = ["run", "--memory=16M", "--transport=uring"];
    vfscale().args(command).args(args).args(["--", "sh", "-c", "echo > f && ls"]).output().unwrap()
}

#[test]
fn the_switch_is_named_and_set_on_request() {
    if !can_mount() {
        return;
    }
    let Some(_switch) = Switch::off() else { return };
    let refused = run(&[]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains(SWITCH) && message.contains("--enable-uring"), "{message}");
    assert_eq!(fs::read_to_string(SWITCH).unwrap().trim(), "N");

    let mounted = run(&["--enable-uring"]);
    let message = String::from_utf8_lossy(&mounted.stderr).into_owned();
    assert!(mounted.status.success(), "{message}");
    assert_eq!(String::from_utf8_lossy(&mounted.stdout), "f\n");
    assert!(message.contains("switched on for the whole machine: the parameter"), "{message}");
    assert_eq!(fs::read_to_string(SWITCH).unwrap().trim(), "Y");

    let mounted = run(&["--enable-uring"]);
    assert!(mounted.status.success());
    assert!(mounted.stderr.is_empty(), "{}", String::from_utf8_lossy(&mounted.stderr));
}

#[test]
fn the_switch_is_for_this_transport() {
    let mut command = vfscale();
    let refused = command.args(["run", "--memory=16M", "--enable-uring", "--", "true"]).output();
    assert_eq!(refused.unwrap().status.code(), Some(2));
}
