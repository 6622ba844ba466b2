//! Determines the commit that is being built, if it is known.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
    };
    // The log changes with every commit. Without a log, cargo does not notice a new commit.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    // In a copy of this source inside another repository, git reports a meaningless commit.
    let here = std::fs::canonicalize("../..").ok();
    let top = git(&["rev-parse", "--show-toplevel"]).map(Into::into);
    if here != top {
        return;
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=VFSCALE_COMMIT={commit}");
    }
}
