//! Which crate may use which.
//!
//! The design draws the crates as layers, and arrows only point down. [`ALLOWED`] is that drawing
//! as data; an arrow that is not in it is a complaint, and so is a crate that the drawing does not
//! know. Dependencies of tests count too: they may reach a little further, by [`ALLOWED_IN_TESTS`],
//! but never to a layer above.

use serde_json::Value;

/// The drawing: a crate, and the crates of this workspace that it may use.
pub const ALLOWED: &[(&str, &[&str])] = &[
    ("vfscale-sync", &[]),
    ("vfscale-block", &["vfscale-sync"]),
    ("vfscale-pool", &["vfscale-block", "vfscale-sync"]),
    ("vfscale-journal", &["vfscale-block", "vfscale-sync"]),
    ("vfscale-erofs", &[]),
    ("vfscale-vfs", &["vfscale-sync"]),
    ("vfscale-memfs", &["vfscale-vfs", "vfscale-sync"]),
    ("vfscale-diskfs", &["vfscale-block", "vfscale-journal", "vfscale-sync", "vfscale-vfs"]),
    ("vfscale-procfs", &["vfscale-vfs", "vfscale-sync"]),
    (
        "vfscale",
        &[
            "vfscale-block",
            "vfscale-diskfs",
            "vfscale-erofs",
            "vfscale-journal",
            "vfscale-memfs",
            "vfscale-pool",
            "vfscale-procfs",
            "vfscale-sync",
            "vfscale-vfs",
        ],
    ),
    ("vfscale-fuse", &["vfscale", "vfscale-sync"]),
    ("vfscale-crashlab", &["vfscale", "vfscale-fuse"]),
    ("vfscale-capi", &["vfscale", "vfscale-sync"]),
    ("vfscale-python", &["vfscale"]),
    ("vfscale-mcp", &["vfscale"]),
    ("vfscale-snapshotter", &["vfscale", "vfscale-command"]),
    ("vfscale-wasi", &["vfscale"]),
    ("vfscale-bench", &["vfscale", "vfscale-diskfs", "vfscale-sync", "vfscale-vfs"]),
    (
        "vfscale-commute",
        &[
            "vfscale",
            "vfscale-bench",
            "vfscale-diskfs",
            "vfscale-memfs",
            "vfscale-sync",
            "vfscale-vfs",
        ],
    ),
    ("vfscale-command", &[]),
    (
        "vfscale-cli",
        &[
            "vfscale",
            "vfscale-command",
            "vfscale-crashlab",
            "vfscale-diskfs",
            "vfscale-fuse",
            "vfscale-vfs",
        ],
    ),
    ("vfscale-bench-cli", &["vfscale", "vfscale-bench", "vfscale-command", "vfscale-commute"]),
    // These stand beside the house and look at it from outside.
    ("vfscale-difftest", &["vfscale-sync", "vfscale-testkit", "vfscale-vfs"]),
    (
        "vfscale-crashtest",
        &[
            "vfscale",
            "vfscale-block",
            "vfscale-diskfs",
            "vfscale-journal",
            "vfscale-sync",
            "vfscale-testkit",
        ],
    ),
    ("vfscale-harness", &[]),
    // The feature `calls` uses what stands above `block`; its devices do not.
    (
        "vfscale-testkit",
        &["vfscale", "vfscale-block", "vfscale-diskfs", "vfscale-fuse", "vfscale-sync"],
    ),
    ("vfscale-tidy", &[]),
];

/// The crates that tests and benchmarks may use beyond that: pretended CPUs, model-checked threads,
/// and the devices of tests, which use nothing above `block`.
pub const ALLOWED_IN_TESTS: &[(&str, &[&str])] = &[
    ("vfscale-bench-cli", &["vfscale-diskfs"]),
    ("vfscale-block", &["vfscale-testkit"]),
    ("vfscale-crashtest", &["vfscale-pool"]),
    ("vfscale-diskfs", &["vfscale-testkit"]),
    ("vfscale-journal", &["vfscale-testkit"]),
    ("vfscale-pool", &["vfscale-testkit"]),
    ("vfscale", &["vfscale-testkit"]),
];

/// The crate that the tests of every other may use.
const OF_ALL_TESTS: &str = "vfscale-harness";

/// One crate of the workspace uses another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// The user.
    pub from: String,
    /// The used.
    pub to: String,
    /// Whether only its tests, examples and benchmarks do.
    pub tests: bool,
}

/// Returns the names of the workspace's crates, and the arrows between them, from the output of
/// `cargo metadata --no-deps`.
pub fn arrows(metadata: &Value) -> (Vec<String>, Vec<Arrow>) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let mut crates = Vec::new();
    let mut arrows = Vec::new();
    for package in list(&metadata["packages"]) {
        let from = text(&package["name"]);
        // A dependency by path is a crate of ours; one from the registry has no path.
        for used in list(&package["dependencies"]).iter().filter(|d| d["path"].is_string()) {
            let tests = used["kind"].as_str() == Some("dev");
            arrows.push(Arrow { from: from.clone(), to: text(&used["name"]), tests });
        }
        crates.push(from);
    }
    (crates, arrows)
}

/// Returns the arrows and crates that the drawing does not allow.
pub fn complaints(crates: &[String], arrows: &[Arrow]) -> Vec<String> {
    let mut found = Vec::new();
    for name in crates.iter().filter(|name| !ALLOWED.iter().any(|(known, _)| known == name)) {
        found.push(format!("crate {name}: not in the drawing; decide its layer first"));
    }
    for Arrow { from, to, tests } in arrows {
        let fits = |table: &[(&str, &[&str])]| {
            table.iter().any(|(user, used)| user == from && used.contains(&to.as_str()))
        };
        if !(fits(ALLOWED) || *tests && (to == OF_ALL_TESTS || fits(ALLOWED_IN_TESTS))) {
            let whose = if *tests { " (in tests)" } else { "" };
            found.push(format!("{from} -> {to}{whose}: not an arrow of the design"));
        }
    }
    found
}

#[cfg(test)]
mod tests;
