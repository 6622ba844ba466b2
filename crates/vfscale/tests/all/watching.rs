//! Watching for changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{MODE, errno};
use vfscale::posix::{At, AtFlags, OFlags, RenameFlags, SetTime, WaitToken};
use vfscale::{Errno, FileChange, FileType, Task, Vfs, Watcher};

/// Runs a test in memory, and on a volume.
fn everywhere(test: impl Fn(&Vfs)) {
    test(&vfscale::memory().size(64 << 20).build().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let volume = vfscale::volume(dir.path().join("image")).create(64 << 20).open().unwrap();
    test(volume.vfs());
    volume.close().unwrap();
}

/// Removes all events, as `change path`, and with the watch's number before it if it is not 0.
fn events(watcher: &Watcher) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(event) = watcher.try_next() {
        let path = event.path.to_str().unwrap();
        let text = match &event.change {
            FileChange::Renamed { from } => format!("renamed {} to {path}", from.display()),
            FileChange::Exchanged { with } => format!("exchanged {} and {path}", with.display()),
            other => format!("{} {path}", format!("{other:?}").to_lowercase()),
        };
        texts.push(text.trim_end().to_owned());
    }
    texts
}

fn rename(task: &Task, from: &str, to: &str, flags: RenameFlags) {
    task.posix().renameat2(At::Cwd, from, At::Cwd, to, flags).unwrap();
}

#[test]
fn each_change_is_reported() {
    everywhere(|vfs| {
        let task = vfs.task();
        task.create_dir("/d").unwrap();
        let watcher = Watcher::new();
        watcher.watch(&task, "/d").unwrap();
        let is = |expected: &[&str]| assert_eq!(events(&watcher), expected);

        task.write("/d/f", "text").unwrap();
        is(&["created f", "modified f", "closed f"]);
        task.posix().truncate("/d/f", 2).unwrap();
        is(&["modified f"]);
        let file = task.posix().open("/d/f", OFlags::RDWR, 0).unwrap();
        file.truncate(1).unwrap();
        file.fallocate(vfscale::posix::FallocateFlags::empty(), 0, 9000).unwrap();
        is(&["modified f"]);
        drop(file);
        is(&["closed f"]);
        drop(task.posix().open("/d/f", OFlags::WRONLY | OFlags::TRUNC, 0).unwrap());
        is(&["modified f", "closed f"]);
        drop(task.open("/d/f").unwrap());
        is(&[]);

        task.set_permissions("/d/f", 0o600).unwrap();
        is(&["attributes f"]);
        task.set_permissions("/d/f", 0o600).unwrap();
        is(&["attributes f"]);
        task.chown("/d/f", Some(7), None).unwrap();
        task.posix().utimensat(At::Cwd, "/d/f", [SetTime::Now; 2], AtFlags::empty()).unwrap();
        is(&["attributes f"]);
        task.set_xattr("/d/f", "user.a", b"1").unwrap();
        is(&["attributes f"]);
        task.remove_xattr("/d/f", "user.a").unwrap();
        is(&["attributes f"]);

        task.create_dir("/d/sub").unwrap();
        task.symlink("f", "/d/link").unwrap();
        task.hard_link("/d/f", "/d/g").unwrap();
        is(&["created sub", "created link", "created g"]);
        task.rename("/d/g", "/d/h").unwrap();
        is(&["renamed g to h"]);
        rename(&task, "/d/h", "/d/link", RenameFlags::EXCHANGE);
        is(&["exchanged h and link"]);
        task.rename("/d/h", "/d/link").unwrap();
        is(&["renamed h to link"]);
        task.rename("/d/link", "/moved").unwrap();
        is(&["movedout link"]);
        task.rename("/moved", "/d/back").unwrap();
        is(&["movedin back"]);
        task.remove_file("/d/back").unwrap();
        task.remove_file("/d/f").unwrap();
        task.remove_dir("/d/sub").unwrap();
        is(&["removed back", "removed f", "removed sub"]);
    });
}

#[test]
fn a_failed_call_is_not_reported() {
    everywhere(|vfs| {
        let task = vfs.task();
        task.create_dir_all("/d/sub/full").unwrap();
        let watcher = Watcher::new();
        watcher.watch_tree(&task, "/d").unwrap();
        assert_eq!(errno(task.create_dir("/d/sub")), Errno::EXIST);
        assert_eq!(errno(task.remove_dir("/d/sub")), Errno::NOTEMPTY);
        assert_eq!(errno(task.rename("/d/none", "/d/a")), Errno::NOENT);
        assert_eq!(errno(task.rename("/d/sub", "/d/sub/full/x")), Errno::INVAL);
        task.rename("/d/sub", "/d/sub").unwrap();
        assert_eq!(errno(task.set_permissions("/d/none", 0o600)), Errno::NOENT);
        let file = task.create("/f").unwrap();
        watcher.watch(&task, "/f").unwrap();
        assert_eq!(errno(file.pwrite(b"x", i64::MAX as u64)), Errno::INVAL);
        assert_eq!(file.pwrite(b"", 0).unwrap(), 0);
        drop(file);
        assert_eq!(events(&watcher), [""; 0]);
    });
}

#[test]
fn a_tree_is_watched_with_directories_that_come_later() {
    everywhere(|vfs| {
        let task = vfs.task();
        task.create_dir_all("/src/old").unwrap();
        task.create_dir_all("/other/deep").unwrap();
        let (tree, entries) = (Watcher::new(), Watcher::new());
        tree.watch_tree(&task, "/src").unwrap();
        entries.watch(&task, "/src").unwrap();

        task.create_dir_all("/src/a/b").unwrap();
        task.create_dir("/src/a/b/c").unwrap();
        assert_eq!(events(&tree), ["created a", "created a/b", "created a/b/c"]);
        task.rename("/other", "/src/old/came").unwrap();
        task.create_dir("/src/old/came/deep/x").unwrap();
        assert_eq!(events(&tree), ["movedin old/came", "created old/came/deep/x"]);
        task.rename("/src/old/came/deep", "/src/deep").unwrap();
        task.create_dir("/src/deep/y").unwrap();
        assert_eq!(events(&tree), ["renamed old/came/deep to deep", "created deep/y"]);
        // The place of the tree itself does not matter.
        task.rename("/src", "/elsewhere").unwrap();
        task.remove_dir("/elsewhere/deep/y").unwrap();
        assert_eq!(events(&tree), ["movedout", "removed deep/y"]);
        assert_eq!(events(&entries), ["created a", "movedin deep", "movedout"]);
    });
}

#[test]
fn an_exchange_with_a_place_that_is_not_watched() {
    everywhere(|vfs| {
        let task = vfs.task();
        task.create_dir_all("/in").unwrap();
        task.create_dir("/in/d").unwrap();
        task.write("/out", "").unwrap();
        let watcher = Watcher::new();
        watcher.watch(&task, "/in").unwrap();
        rename(&task, "/out", "/in/d", RenameFlags::EXCHANGE);
        let out = watcher.try_next().unwrap();
        assert_eq!((out.change, out.file_type), (FileChange::MovedOut, FileType::Directory));
        let come = watcher.try_next().unwrap();
        assert_eq!((come.change, come.file_type), (FileChange::MovedIn, FileType::RegularFile));
        assert_eq!(come.path, Path::new("d"));
        assert_eq!(watcher.try_next(), None);
    });
}

#[test]
fn a_watched_file_reports_its_own_end() {
    everywhere(|vfs| {
        let task = vfs.task();
        task.write("/f", "").unwrap();
        task.write("/g", "").unwrap();
        let watcher = Watcher::new();
        watcher.watch(&task, "/f").unwrap();
        let (file, other) = (task.open("/f").unwrap(), task.posix());
        task.hard_link("/f", "/other-name").unwrap();
        task.write("/other-name", "x").unwrap();
        assert_eq!(events(&watcher), ["modified", "closed"]);
        task.rename("/f", "/h").unwrap();
        task.rename("/g", "/h").unwrap();
        task.remove_file("/other-name").unwrap();
        assert_eq!(events(&watcher), ["movedout", "removed"]);
        // The file has no name any more, and changes still.
        let by_handle = At::File(&file);
        other.fchmodat(by_handle, "", 0o600, AtFlags::EMPTY_PATH).unwrap();
        assert_eq!(events(&watcher), ["attributes"]);
    });
}

#[test]
fn repeated_events_are_one_and_lost_ones_are_told() {
    let task = vfscale::memory().build().unwrap().task();
    let watcher = Watcher::with_capacity(3);
    watcher.watch_tree(&task, "/").unwrap();
    let file = task.create("/f").unwrap();
    for _ in 0..1000 {
        file.pwrite(b"x", 0).unwrap();
    }
    for name in ["/a", "/b", "/c"] {
        task.create_dir(name).unwrap();
    }
    assert_eq!(events(&watcher), ["created f", "modified f", "created a", "overflow"]);
    drop(file);
    assert_eq!(events(&watcher), ["closed f"]);
}

#[test]
fn a_watch_ends() {
    everywhere(|vfs| {
        let task = vfs.task();
        task.create_dir_all("/d/e").unwrap();
        let watcher = Watcher::new();
        let ids = ["/d", "/d/e"].map(|dir| watcher.watch(&task, dir).unwrap());
        assert!(watcher.unwatch(ids[0]));
        assert!(!watcher.unwatch(ids[0]));
        task.create_dir("/d/x").unwrap();
        task.create_dir("/d/e/x").unwrap();
        let event = watcher.try_next().unwrap();
        assert_eq!((event.watch, event.path), (ids[1], PathBuf::from("x")));
        assert_eq!(watcher.try_next(), None);
    });
}

#[test]
fn a_watch_needs_the_right_to_read() {
    let vfs = vfscale::memory().build().unwrap();
    let root = vfs.task();
    root.create_dir("/secret").unwrap();
    root.set_permissions("/secret", 0o711).unwrap();
    root.write("/f", "").unwrap();
    let user = vfs.task_in("/", vfscale::Credentials::user(1000, 1000)).unwrap();
    let watcher = Watcher::new();
    assert_eq!(errno(watcher.watch(&user, "/secret")), Errno::ACCESS);
    assert_eq!(errno(watcher.watch_tree(&user, "/f")), Errno::NOTDIR);
    assert_eq!(errno(watcher.watch(&user, "/none")), Errno::NOENT);
}

#[test]
fn a_thread_waits_for_an_event() {
    let task = vfscale::memory().build().unwrap().task();
    let watcher = Watcher::new();
    watcher.watch(&task, "/").unwrap();
    let token = WaitToken::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| watcher.wait(None).unwrap().path);
        task.create_dir("/d").unwrap();
        assert_eq!(waiting.join().unwrap(), Path::new("d"));
        let waiting = scope.spawn(|| errno(watcher.wait(Some(&token))));
        token.cancel();
        assert_eq!(waiting.join().unwrap(), Errno::INTR);
    });
    assert_eq!(errno(watcher.wait_timeout(Duration::from_millis(1))), Errno::TIMEDOUT);
    task.remove_dir("/d").unwrap();
    let event = watcher.wait_timeout(Duration::from_secs(600)).unwrap();
    assert_eq!(event.change, FileChange::Removed);
}

/// Applies events about names to a set of names.
fn replay(watcher: &Watcher, names: &mut BTreeSet<PathBuf>) {
    while let Some(event) = watcher.try_next() {
        match event.change {
            FileChange::Created => assert!(names.insert(event.path.clone()), "{event:?}"),
            FileChange::Removed => assert!(names.remove(&event.path), "{event:?}"),
            FileChange::Renamed { ref from } => {
                assert!(names.remove(from), "{event:?}");
                names.insert(event.path);
            }
            FileChange::Exchanged { ref with } => {
                assert!(names.contains(with) && names.contains(&event.path), "{event:?}");
            }
            other => assert_ne!(other, FileChange::Overflow),
        }
    }
}

/// Race: Events about a name that several threads change. They are queued under the lock of the
/// name, so they are in the order of the changes.
#[test]
fn events_that_are_replayed_make_the_same_tree() {
    everywhere(|vfs| {
        let task = vfs.task();
        task.create_dir("/d").unwrap();
        task.create_dir("/d/e").unwrap();
        let watcher = Watcher::with_capacity(usize::MAX);
        watcher.watch_tree(&task, "/d").unwrap();
        let paths = ["/d/a", "/d/b", "/d/e/a", "/d/e/b"];
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let task = vfs.task();
                scope.spawn(move || {
                    for i in 0..2000 {
                        let (one, two) = (paths[(i + thread) % 4], paths[(i / 3) % 4]);
                        let flags =
                            if i % 7 == 0 { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
                        match (i + thread) % 3 {
                            0 => drop(task.posix().mkdirat(At::Cwd, one, MODE)),
                            1 => drop(task.remove_dir(one)),
                            _ => drop(task.posix().renameat2(At::Cwd, one, At::Cwd, two, flags)),
                        }
                    }
                });
            }
        });
        let mut names = BTreeSet::from([PathBuf::from("e")]);
        replay(&watcher, &mut names);
        let there = task.walk_dir("/d").map(|entry| entry.unwrap());
        let there = there.filter(|entry| entry.depth > 0);
        let there = there.map(|entry| entry.path.strip_prefix("/d").unwrap().to_owned());
        assert_eq!(names, there.collect());
    });
}

/// The calls that the next test makes on a directory of the host and on one of ours.
const CALLS: usize = 13;

fn call_host(dir: &Path, i: usize) -> std::io::Result<()> {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    let at = |name: &str| dir.join(name);
    match i {
        0 => fs::write(at("f"), "text"),
        1 => fs::write(at("f"), "again"),
        2 => fs::OpenOptions::new().write(true).open(at("f"))?.set_len(2),
        3 => fs::set_permissions(at("f"), fs::Permissions::from_mode(0o600)),
        4 => fs::hard_link(at("f"), at("g")),
        5 => fs::rename(at("g"), at("h")),
        6 => symlink("f", at("l")),
        7 => fs::rename(at("f"), at("l")),
        8 => fs::rename(at("l"), at("../out")),
        9 => fs::create_dir(at("sub")),
        10 => fs::rename(at("../out"), at("in")),
        11 => fs::remove_dir(at("sub")),
        _ => fs::remove_file(at("in")),
    }
}

fn call_ours(task: &Task, i: usize) -> vfscale::Result<()> {
    match i {
        0 => task.write("/d/f", "text"),
        1 => task.write("/d/f", "again"),
        2 => task.posix().open("/d/f", OFlags::WRONLY, 0)?.truncate(2),
        3 => task.set_permissions("/d/f", 0o600),
        4 => task.hard_link("/d/f", "/d/g"),
        5 => task.rename("/d/g", "/d/h"),
        6 => task.symlink("f", "/d/l"),
        7 => task.rename("/d/f", "/d/l"),
        8 => task.rename("/d/l", "/out"),
        9 => task.create_dir("/d/sub"),
        10 => task.rename("/out", "/d/in"),
        11 => task.remove_dir("/d/sub"),
        _ => task.remove_file("/d/in"),
    }
}

/// Reads the events of an inotify instance, in the form of [`events`].
fn inotify_events(fd: &rustix::fd::OwnedFd) -> Vec<String> {
    use rustix::fs::inotify::{ReadFlags, Reader};
    let mut buf = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(fd, &mut buf);
    let mut texts: Vec<String> = Vec::new();
    let mut moved = None;
    while let Ok(event) = reader.next() {
        let (what, name) = (event.events(), event.file_name().unwrap_or_default());
        let name = name.to_str().unwrap();
        if what.contains(ReadFlags::MOVED_FROM) {
            moved = Some((event.cookie(), name.to_owned()));
            texts.push(format!("movedout {name}"));
            continue;
        }
        let verbs = [
            (ReadFlags::CREATE, "created"),
            (ReadFlags::DELETE, "removed"),
            (ReadFlags::MODIFY, "modified"),
            (ReadFlags::ATTRIB, "attributes"),
            (ReadFlags::CLOSE_WRITE, "closed"),
            (ReadFlags::MOVED_TO, "movedin"),
        ];
        let verb = verbs.iter().find(|(flag, _)| what.contains(*flag)).unwrap().1;
        match moved.take() {
            Some((cookie, from)) if cookie == event.cookie() => {
                texts.pop();
                texts.push(format!("renamed {from} to {name}"));
            }
            _ => texts.push(format!("{verb} {name}")),
        }
    }
    texts.dedup();
    texts
}

/// Linux reports the same changes of a directory.
#[test]
fn the_events_are_those_of_inotify() {
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    let host = tempfile::tempdir().unwrap();
    let dir = host.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    let inotify = inotify::init(CreateFlags::NONBLOCK).unwrap();
    let all = WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVE;
    inotify::add_watch(&inotify, &dir, all).unwrap();
    everywhere(|vfs| {
        let task = vfs.task();
        task.create_dir("/d").unwrap();
        let watcher = Watcher::new();
        watcher.watch(&task, "/d").unwrap();
        for i in 0..CALLS {
            call_host(&dir, i).unwrap();
            call_ours(&task, i).unwrap();
            assert_eq!(events(&watcher), inotify_events(&inotify), "call {i}");
        }
        std::fs::remove_file(dir.join("h")).unwrap();
        inotify_events(&inotify);
    });
}
