//! Tests of the namespace of a run.

use std::fs;

use rustix::mount::{UnmountFlags, unmount};

use super::{Layers, unshare};

/// A thread that has ended, but not given up yet what it shares, would be in the way sometimes.
#[test]
fn a_namespace_is_left_at_any_moment() {
    const TIMES: usize = 10_000;
    let go = || {
        let directory = std::env::current_dir().unwrap();
        for number in 0..TIMES {
            match unshare() {
                Ok(before) => before.enter().unwrap_or_else(|error| panic!("{number}: {error}")),
                Err(error) if number == 0 => return println!("######## SKIPPED: {error}"),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(std::env::current_dir().unwrap(), directory);
    };
    // Other tests keep their directories.
    std::thread::spawn(go).join().unwrap();
}

/// Linux does not say which option it has refused.
#[test]
fn a_refused_option_is_named() {
    let temporary = tempfile::tempdir().unwrap();
    let dirs = ["lower", "upper", "work", "mnt"].map(|name| temporary.path().join(name));
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let [lower, upper, work, mnt] = &dirs;
    let layers = Layers::open([lower, upper, work]).unwrap();
    if let Err(error) = layers.mount(mnt, &["xino=on"]) {
        return println!("######## SKIPPED: {error}");
    }
    unmount(mnt, UnmountFlags::empty()).unwrap();
    let wanted = ["redirect_dir=on", "no_such=on", "metacopy=on"];
    assert_eq!(layers.mount_with(mnt, &["xino=on"], &wanted).unwrap(), ["no_such=on"]);
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(mnt.to_str().unwrap())).unwrap();
    for option in ["redirect_dir=on", "metacopy=on"] {
        assert!(line.contains(option), "{line}");
    }
    unmount(mnt, UnmountFlags::empty()).unwrap();
    let error = layers.mount_with(mnt, &["xino=on", "no_such=on"], &wanted[..1]).unwrap_err();
    assert!(error.to_string().contains("with no_such=on"), "{error}");
}
