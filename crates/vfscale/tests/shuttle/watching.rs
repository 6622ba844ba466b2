//! Random schedules of changes that a watcher reports:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle watching::`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{MODE, check, memory, rename, spawn};
use shuttle::thread;
use vfscale::posix::{At, RenameFlags};
use vfscale::{FileChange, Task, WatchEvent, Watcher};

/// Renames, if it can.
fn moved(task: &Task, from: &str, to: &str) {
    let _ = rename(task, from, to, RenameFlags::empty());
}

/// Applies an event to a set of names.
fn apply(event: WatchEvent, names: &mut BTreeSet<PathBuf>) {
    match event.change {
        FileChange::Created => assert!(names.insert(event.path)),
        FileChange::Removed => assert!(names.remove(&event.path)),
        FileChange::Renamed { from } => {
            assert!(names.remove(&from));
            names.insert(event.path);
        }
        FileChange::Exchanged { with } => {
            assert!(names.contains(&with) && names.contains(&event.path));
        }
        other => panic!("{other:?}"),
    }
}

fn names(task: &Task, dir: &str) -> BTreeSet<PathBuf> {
    let entries = task.read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| PathBuf::from(entry.file_name())).collect()
}

/// A name is made, removed and replaced by three threads while a fourth takes the events out of
/// the queue. Each event fits the names that the events before it have made, and all of them make
/// the names of the directory.
///
/// Race: Events about a name that several threads change.
/// Seam: the change of a name and its report; parties: two writers, a rename, a reader of events.
#[test]
fn the_events_of_a_name_are_in_the_order_of_its_changes() {
    check(|| {
        let task = Arc::new(memory().task());
        task.posix().mkdirat(At::Cwd, "/b", MODE).unwrap();
        let watcher = Watcher::new();
        watcher.watch_tree(&task, "/").unwrap();
        let others = [
            spawn(&task, |task| {
                let _ = task.create_dir("/a");
                let _ = task.remove_dir("/a");
            }),
            spawn(&task, |task| {
                moved(task, "/a", "/b");
                moved(task, "/b", "/a");
            }),
            spawn(&task, |task| {
                let _ = task.create_dir("/a");
                rename(task, "/a", "/b", RenameFlags::EXCHANGE);
            }),
        ];
        let mut seen = BTreeSet::from([PathBuf::from("b")]);
        for _ in 0..2 {
            while let Some(event) = watcher.try_next() {
                apply(event, &mut seen);
            }
            thread::yield_now();
        }
        others.into_iter().for_each(|thread| thread.join().unwrap());
        while let Some(event) = watcher.try_next() {
            apply(event, &mut seen);
        }
        assert_eq!(seen, names(&task, "/"));
    });
}

/// Two directories move into each other's places while names change below them, so each report
/// climbs through a directory that may be moving. No report waits for another for ever, and each
/// has a path that the file had.
///
/// Race: A report that climbs through a directory that moves.
/// Seam: the section of a move and the climb of a report; parties: two moves, a change below.
#[test]
fn reports_climb_through_moving_directories() {
    check(|| {
        let task = Arc::new(memory().task());
        for dir in ["/x", "/y", "/x/p", "/y/q"] {
            task.posix().mkdirat(At::Cwd, dir, MODE).unwrap();
        }
        let watcher = Watcher::new();
        watcher.watch_tree(&task, "/").unwrap();
        let others = [
            spawn(&task, |task| moved(task, "/x/p", "/y/p")),
            spawn(&task, |task| moved(task, "/y/q", "/x/q")),
            spawn(&task, |task| drop(task.create_dir("/x/p/new"))),
        ];
        rename(&task, "/x", "/z", RenameFlags::empty());
        others.into_iter().for_each(|thread| thread.join().unwrap());
        while let Some(event) = watcher.try_next() {
            let path = event.path.to_str().unwrap();
            let is_one = match event.change {
                FileChange::Created => ["x/p/new", "z/p/new", "y/p/new"].contains(&path),
                FileChange::Renamed { .. } => ["z", "y/p", "x/q", "z/q"].contains(&path),
                _ => false,
            };
            assert!(is_one, "{event:?}");
        }
    });
}

/// A watch ends while threads change what it watches: reports reach the queue or not, and nothing
/// reads a mark that is gone.
///
/// Race: A watch that ends during a report.
/// Seam: the end of a watch and a report; parties: the end of one, two changes, another watch.
#[test]
fn a_watch_ends_during_reports() {
    check(|| {
        let task = Arc::new(memory().task());
        task.posix().mkdirat(At::Cwd, "/d", MODE).unwrap();
        let (first, second) = (Watcher::new(), Watcher::new());
        let id = first.watch(&task, "/d").unwrap();
        second.watch_tree(&task, "/").unwrap();
        let others = ["/d/a", "/d/b"]
            .map(|path| spawn(&task, move |task| drop(task.posix().mkdirat(At::Cwd, path, MODE))));
        assert!(first.unwatch(id));
        others.into_iter().for_each(|thread| thread.join().unwrap());
        let count = |watcher: &Watcher| std::iter::from_fn(|| watcher.try_next()).count();
        assert!(count(&first) <= 2);
        assert_eq!(count(&second), 2);
        task.remove_dir("/d/a").unwrap();
        assert_eq!((count(&first), count(&second)), (0, 1));
    });
}
