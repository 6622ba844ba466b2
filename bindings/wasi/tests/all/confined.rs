//! Guests that try to get out of their directories.

use std::sync::Arc;

use vfscale::Task;
use vfscale_wasi::{Access, Filesystem};

use crate::puppet::{
    CREAT, DIRECTORY, EXCL, FOLLOW, NOENT, PATH, PERM, Puppet, READ, ROFS, ROOT, TRUNC, WRITE,
};
use crate::trees::Tree;

/// Returns a tree with `/jail`, and what its guests must not reach in `/outside`.
fn tree_with_jail(tree: &Tree) -> Task {
    let task = tree.task();
    task.create_dir_all("/jail/dir").unwrap();
    task.create_dir_all("/outside/dir").unwrap();
    task.write("/outside/file", "secret").unwrap();
    for (name, target) in [
        ("absolute", "/outside"),
        ("relative", "../outside"),
        ("deep", "dir/../../outside"),
        ("to file", "../outside/file"),
        ("dangling", "../outside/new"),
        ("root", "/"),
    ] {
        task.symlink(target, format!("/jail/{name}")).unwrap();
    }
    task
}

fn jail(task: &Arc<Task>, access: Access) -> Filesystem {
    let mut files = Filesystem::new();
    files.preopen(Arc::clone(task), "/jail", "/", access).unwrap();
    files
}

fn names(task: &Task) -> Vec<String> {
    let entries = task.walk_dir("/outside").map(|entry| format!("{:?}", entry.unwrap().path));
    let mut names: Vec<_> = entries.collect();
    names.sort();
    names
}

const OUT_BY_DOTS: [&str; 5] =
    ["..", "../outside/file", "dir/../../outside/file", "/outside/file", "dir/../.."];
const OUT_BY_LINKS: [&str; 5] =
    ["absolute/file", "relative/file", "deep/file", "root/outside/file", "absolute/dir/../file"];

/// Tries every call that follows `path`, which leads out.
fn try_followed(guest: &mut Puppet, path: &str) {
    for oflags in [0, DIRECTORY, TRUNC] {
        assert_eq!(guest.open(path, oflags, READ), Err(PERM), "open {path} {oflags}");
    }
    // These may also find that the name, whatever it leads to, exists.
    for oflags in [CREAT, CREAT | EXCL] {
        assert!(guest.open(path, oflags, READ).is_err(), "open {path} {oflags}");
    }
    assert_eq!(guest.open(path, 0, READ | WRITE), Err(PERM), "open {path}");
    assert_eq!(guest.stat(FOLLOW, path), Err(PERM), "stat {path}");
    guest.put(PATH, path.as_bytes());
    let times = [ROOT.into(), FOLLOW.into(), PATH.into(), path.len() as u64, 1, 1, 0b101];
    assert_eq!(guest.call("path_filestat_set_times", &times), PERM, "times of {path}");
}

/// Tries every call on the name at the end of `path`, which is outside.
fn try_named(guest: &mut Puppet, path: &str) {
    assert_eq!(guest.stat(0, path), Err(PERM), "stat {path}");
    assert_eq!(guest.make_dir(ROOT, path), PERM, "mkdir {path}");
    assert_eq!(guest.remove_dir(ROOT, path), PERM, "rmdir {path}");
    assert_eq!(guest.unlink(ROOT, path), PERM, "unlink {path}");
    assert_eq!(guest.rename(path, "mine"), PERM, "rename {path}");
    assert_eq!(guest.rename("dir", path), PERM, "rename to {path}");
    assert_eq!(guest.link(0, path, "mine"), PERM, "link {path}");
    assert_eq!(guest.link(0, "own", path), PERM, "link at {path}");
    assert_eq!(guest.symlink("x", path), PERM, "symlink at {path}");
    assert_eq!(guest.read_link(path), Err(PERM), "readlink {path}");
}

#[test]
fn no_call_leads_out() {
    for tree in Tree::all() {
        let task = Arc::new(tree_with_jail(&tree));
        task.write("/jail/own", "").unwrap();
        let before = names(&task);
        for mut guest in Puppet::both(|| jail(&task, Access::ReadWrite)) {
            for path in OUT_BY_DOTS.into_iter().chain(OUT_BY_LINKS) {
                try_followed(&mut guest, path);
                try_named(&mut guest, path);
            }
            for path in ["to file", "absolute", "relative/", "dangling", "root", "deep/."] {
                try_followed(&mut guest, path);
            }
            let dir = guest.open("dir", DIRECTORY, READ).unwrap();
            assert_eq!(guest.open_at(dir, FOLLOW, "../own", 0, READ, 0), Err(PERM));
            assert_eq!(guest.open_at(dir, FOLLOW, "../dir/x", CREAT, READ, 0), Err(PERM));
        }
        assert_eq!(names(&task), before);
        assert_eq!(task.read("/outside/file").unwrap(), b"secret");
    }
}

/// Linux follows a link at the end of a path if a slash follows, whatever the call.
#[test]
fn slashes_at_the_end_of_a_link_lead_nowhere() {
    for tree in Tree::all() {
        let task = Arc::new(tree_with_jail(&tree));
        task.write("/jail/own", "").unwrap();
        let before = names(&task);
        for mut guest in Puppet::both(|| jail(&task, Access::ReadWrite)) {
            for path in ["absolute/", "relative//", "dangling/", "to file/", "root/"] {
                assert_eq!(guest.stat(0, path), Err(PERM), "stat {path}");
                assert_eq!(guest.read_link(path), Err(PERM), "readlink {path}");
                assert_eq!(guest.link(0, path, "mine"), PERM, "link {path}");
                let calls = [
                    guest.make_dir(ROOT, path),
                    guest.remove_dir(ROOT, path),
                    guest.unlink(ROOT, path),
                    guest.rename(path, "mine"),
                    guest.rename("dir", path),
                    guest.link(0, "own", path),
                    guest.symlink("x", path),
                ];
                assert!(calls.iter().all(|&number| number != 0), "{path}: {calls:?}");
            }
        }
        assert_eq!(names(&task), before);
        assert!(task.symlink_metadata("/jail/absolute").unwrap().is_symlink());
    }
}

#[test]
fn absolute_targets_are_neither_made_nor_told() {
    let tree = Tree::memory();
    let task = Arc::new(tree_with_jail(&tree));
    for mut guest in Puppet::both(|| jail(&task, Access::ReadWrite)) {
        assert_eq!(guest.symlink("/outside", "mine"), PERM);
        assert_eq!(guest.read_link("absolute"), Err(PERM));
        assert_eq!(guest.read_link("relative").unwrap(), "../outside");
        // A link that leads out can be made, as on other hosts, but leads nowhere.
        assert_eq!(guest.symlink("../outside/file", "mine"), 0);
        assert_eq!(guest.stat(FOLLOW, "mine"), Err(PERM));
        assert_eq!(guest.unlink(ROOT, "mine"), 0);
    }
}

#[test]
fn a_directory_that_moves_away_is_still_its_own() {
    let tree = Tree::memory();
    let task = Arc::new(tree_with_jail(&tree));
    for mut guest in Puppet::both(|| jail(&task, Access::ReadWrite)) {
        let dir = guest.open("dir", DIRECTORY, READ).unwrap();
        task.rename("/jail/dir", "/outside/moved").unwrap();
        assert_eq!(guest.open_at(dir, FOLLOW, "../file", 0, READ, 0), Err(PERM));
        assert_eq!(guest.open_at(dir, FOLLOW, "new", CREAT, WRITE, 0).map(|_| ()), Ok(()));
        task.remove_file("/outside/moved/new").unwrap();
        task.rename("/outside/moved", "/jail/dir").unwrap();
    }
}

#[test]
fn who_may_only_read_changes_nothing() {
    let tree = Tree::memory();
    let task = Arc::new(tree.task());
    task.create_dir_all("/jail/dir").unwrap();
    task.write("/jail/file", "contents").unwrap();
    for mut guest in Puppet::both(|| jail(&task, Access::ReadOnly)) {
        let fd = guest.open("file", 0, READ).unwrap();
        assert_eq!(guest.read(fd, 8).unwrap(), b"contents");
        for (oflags, rights) in [(0, WRITE), (CREAT, READ), (TRUNC, READ)] {
            assert_eq!(guest.open("file", oflags, rights), Err(ROFS));
        }
        let calls = [
            guest.make_dir(ROOT, "new"),
            guest.remove_dir(ROOT, "dir"),
            guest.unlink(ROOT, "file"),
            guest.rename("file", "new"),
            guest.link(0, "file", "new"),
            guest.symlink("file", "new"),
            guest.call("fd_filestat_set_size", &[fd.into(), 0]),
            guest.call("fd_filestat_set_times", &[fd.into(), 1, 1, 0b101]),
        ];
        assert_eq!(calls, [ROFS; 8]);
        assert_eq!(guest.stat(0, "new"), Err(NOENT));
    }
    assert_eq!(task.read("/jail/file").unwrap(), b"contents");
}
