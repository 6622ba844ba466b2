use super::*;
use crate::base::types::{Mode, OFlags};
use crate::mount::namespace::Vfs;
use crate::names_only_tests::names_only;
use vfscale_sync::scaling::Scaling;

const HOUR: i64 = 3600 * 1_000_000_000;

/// Runs `test` with the root directory of a new tree.
fn with_inode(test: impl FnOnce(&Inode)) {
    let task = names_only(Scaling::default()).task();
    let root = task.posix().open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    test(root.inode());
}

/// A thread reads the clock, and loses its CPU for longer than any tick before it stamps.
///
/// Race: A change against a read of its time.
#[test]
fn a_late_stamp_does_not_take_time_back() {
    with_inode(|inode| {
        let late = Timestamp(time::now().0 - HOUR);
        inode.touch();
        let times = (inode.mtime(), inode.ctime());
        inode.touch_at(late);
        inode.changed_at(late);
        assert_eq!((inode.mtime(), inode.ctime()), times);
    });
}

#[test]
fn a_time_in_the_future_ends_with_the_next_change() {
    with_inode(|inode| {
        let _locked = inode.lock();
        for change in [Inode::touch, |inode: &Inode| inode.changed_at(inode.change_time())] {
            for is_seen in [false, true] {
                let future = Timestamp(time::now_fine().0 + HOUR);
                inode.set_times(None, Some(future));
                if is_seen {
                    assert_eq!(inode.shown_times().0, future);
                }
                change(inode);
                assert!(inode.mtime() < future);
                assert!(inode.mtime().0 > time::now().0 - HOUR);
            }
        }
    });
}

#[test]
fn each_change_after_a_look_shows() {
    with_inode(|inode| {
        let changes = [Inode::touch, |inode: &Inode| inode.changed_at(inode.change_time())];
        for round in 0..1_000 {
            let before = inode.shown_times();
            changes[round % 2](inode);
            let after = inode.shown_times();
            assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
        }
    });
}

/// Programs compare times of different files: `make` builds anew what is older than its source.
///
/// Race: A change against a read of its time.
#[test]
fn a_later_change_of_another_inode_has_no_earlier_time() {
    let (one, other) = (names_only(Scaling::default()), names_only(Scaling::default()));
    let root = |vfs: &Vfs| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        vfs.task().posix().open("/", flags, Mode::empty()).unwrap()
    };
    let (one, other) = (root(&one), root(&other));
    for _ in 0..1_000 {
        one.inode().shown_times();
        one.inode().touch();
        other.inode().touch();
        let times = (one.inode().mtime(), other.inode().mtime());
        assert!(times.0 <= times.1, "{times:?}");
        assert!(other.inode().change_time() >= times.1);
    }
}

/// The driver has stored the time of its change, and a reader reads the times before the change is
/// made.
///
/// Race: A change against a read of its time.
#[test]
fn a_change_shows_whose_time_was_taken_before_the_look() {
    with_inode(|inode| {
        for _ in 0..100 {
            let time = inode.change_time();
            inode.touch_at(time);
            let before = inode.shown_times();
            inode.changed_at(time);
            let after = inode.shown_times();
            assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
        }
    });
}

/// As long as no reader reads the times, changes within a tick write nothing.
#[test]
fn changes_that_nobody_looks_at_share_a_tick() {
    with_inode(|inode| {
        let tick = Timestamp(time::now_fine().0);
        assert!(inode.stamp(&inode.data.mtime, MTIME_SEEN, tick));
        for _ in 0..100 {
            assert!(!inode.stamp(&inode.data.mtime, MTIME_SEEN, tick));
        }
        assert_eq!(inode.mtime(), tick);
    });
}

/// A reader costs one change the exact clock, and only in the tick of the change that it saw.
#[test]
fn a_look_is_forgotten_by_the_next_change() {
    with_inode(|inode| {
        let _locked = inode.lock();
        let tick = time::now().0 - HOUR;
        for step in 0..3 {
            inode.set_times(None, Some(Timestamp(tick + step)));
            inode.shown_times();
            let next = Timestamp(tick + step + 1);
            assert!(inode.stamp(&inode.data.mtime, MTIME_SEEN, next));
            assert_eq!(inode.mtime(), next);
            assert!(!inode.stamp(&inode.data.mtime, MTIME_SEEN, next), "an exact stamp");
        }
    });
}
