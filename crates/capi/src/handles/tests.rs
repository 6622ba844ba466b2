use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;

fn errno<T>(result: Result<T, Failure>) -> Errno {
    match result {
        Err(Failure::Border(errno, _)) => errno,
        _ => panic!("no failure of the border"),
    }
}

#[test]
fn a_handle_names_its_object_until_it_is_freed() {
    static TABLE: Table<&str> = Table::new(Kind::Dir, true);
    let first = TABLE.insert("first").unwrap_or_default();
    let second = TABLE.insert("second").unwrap_or_default();
    assert_eq!((TABLE.get(first).map(|x| *x).ok(), first >> 63), (Some("first"), 1));
    assert!(TABLE.remove(first).is_ok());
    assert_eq!(errno(TABLE.get(first)), Errno::BADF);
    assert_eq!(errno(TABLE.remove(first)), Errno::BADF);
    let third = TABLE.insert("third").unwrap_or_default();
    assert_ne!(third, first, "the place is the same, the handle is not");
    assert_eq!(Number::of(third).map(|n| n.place), Number::of(first).map(|n| n.place));
    assert_eq!(errno(TABLE.get(first)), Errno::BADF);
    assert_eq!(TABLE.get(third).map(|x| *x).ok(), Some("third"));
    assert_eq!(TABLE.get(second).map(|x| *x).ok(), Some("second"));
}

#[test]
fn numbers_that_are_no_handles_of_the_kind_are_refused() {
    static DIRS: Table<u8> = Table::new(Kind::Dir, false);
    static TASKS: Table<u8> = Table::new(Kind::Task, false);
    let dir = DIRS.insert(1).unwrap_or_default();
    let _ = TASKS.insert(1);
    for handle in [0, 1, u64::MAX, 0x7fff_0000_1000, dir, dir + 1] {
        assert_eq!(errno(TASKS.get(handle)), Errno::BADF, "{handle:#x}");
        assert_eq!(errno(TASKS.remove(handle)), Errno::BADF, "{handle:#x}");
    }
    assert!(DIRS.get(dir).is_ok());
}

#[test]
fn the_last_use_drops_a_freed_object() {
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    static TABLE: Table<Counts> = Table::new(Kind::Task, true);
    let drops = Arc::new(AtomicUsize::new(0));
    let handle = TABLE.insert(Counts(drops.clone())).unwrap_or_default();
    let used = TABLE.get(handle);
    assert!(TABLE.remove(handle).is_ok());
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(used);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    let handle = TABLE.insert(Counts(drops.clone())).unwrap_or_default();
    assert!(TABLE.remove(handle).is_ok());
    assert_eq!(drops.load(Ordering::Relaxed), 2, "without a use it is dropped at once");
}

#[test]
fn threads_get_their_own_objects_while_others_come_and_go() {
    static TABLE: Table<u64> = Table::new(Kind::Task, true);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                for turn in 0..500 {
                    let value = thread << 32 | turn;
                    let handle = TABLE.insert(value).unwrap_or_default();
                    assert_eq!(TABLE.get(handle).map(|x| *x).ok(), Some(value));
                    assert!(TABLE.remove(handle).is_ok());
                    assert_eq!(errno(TABLE.get(handle)), Errno::BADF);
                }
            });
        }
    });
}
