use serde_json::json;

use super::*;

fn check(from: &str, to: &str, kind: Option<&str>) -> Vec<String> {
    let metadata = json!({"packages": [{
        "name": from,
        "dependencies": [
            {"name": "libc", "kind": null},
            {"name": to, "kind": kind, "path": "/somewhere"},
        ],
    }]});
    let (crates, arrows) = arrows(&metadata);
    complaints(&crates, &arrows)
}

#[test]
fn arrows_down_are_allowed() {
    assert!(check("vfscale-vfs", "vfscale-sync", None).is_empty());
    assert!(check("vfscale-cli", "vfscale-fuse", None).is_empty());
}

#[test]
fn arrows_up_and_aside_are_not() {
    assert_eq!(check("vfscale-sync", "vfscale-vfs", None).len(), 1);
    assert_eq!(check("vfscale-vfs", "vfscale-memfs", None).len(), 1);
    assert_eq!(check("vfscale-fuse", "vfscale-vfs", Some("build")).len(), 1);
}

#[test]
fn tests_reach_further_but_never_up() {
    assert!(check("vfscale-crashtest", "vfscale-pool", Some("dev")).is_empty());
    assert_eq!(check("vfscale-crashtest", "vfscale-pool", None).len(), 1);
    assert_eq!(check("vfscale-vfs", "vfscale-memfs", Some("dev")).len(), 1);
}

#[test]
fn a_crate_that_nobody_drew_is_told() {
    assert_eq!(check("vfscale-shed", "vfscale-sync", None).len(), 2);
}

/// A place for each crate, so that no two use each other, directly or through others. The devices
/// of tests are apart: they use `block`, whose tests use them.
#[test]
fn the_drawing_itself_has_no_circle() {
    let mut placed: Vec<&str> = Vec::new();
    while placed.len() < ALLOWED.len() {
        let next = ALLOWED.iter().find(|(name, uses)| {
            let extra = ALLOWED_IN_TESTS.iter().filter(|(n, _)| n == name).flat_map(|(_, u)| *u);
            let extra = extra.filter(|used| **used != "vfscale-testkit");
            !placed.contains(name) && uses.iter().chain(extra).all(|u| placed.contains(u))
        });
        placed.push(next.expect("a circle").0);
    }
}
