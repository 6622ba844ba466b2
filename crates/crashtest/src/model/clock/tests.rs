//! Tests of the times that a clock accepts.

use super::*;
use crate::script::setup;

fn times(mtime: i64) -> Times {
    Times { atime: 1, mtime, ctime: mtime, btime: 1 }
}

/// Returns a history, and a clock with time 10 of the file at first, and 20, 30 ... after the calls
/// on it.
fn clock(ops: &[Op]) -> (History, Clock, u64) {
    let history = History::of(&setup(), ops).unwrap();
    let file = history.trees[0].find("/d/f").unwrap();
    let mut noted = vec![(0, times(10))];
    for (call, op) in ops.iter().enumerate() {
        if op.paths().contains(&"/d/f") {
            noted.push((call + 1, times(10 * (call as i64 + 2))));
        }
    }
    (history, Clock { noted: BTreeMap::from([(file, noted)]), keeps_all: true }, file)
}

/// Returns the modification times that are accepted.
fn possible(ops: &[Op], (done, ceiling, prefix): (usize, usize, usize)) -> Vec<i64> {
    let (history, clock, file) = clock(ops);
    let may_be =
        |time: &i64| clock.judge(&history, (done, ceiling, prefix), file, &times(*time)).is_ok();
    (0..100).filter(may_be).collect()
}

fn write() -> Op {
    Op::Write { path: "/d/f".into(), offset: 0, len: 10, tag: 1 }
}

#[test]
fn times_since_the_last_sync_may_be_there() {
    let ops = [write(), Op::Fsync("/d/f".into()), Op::Fdatasync("/d/f".into()), Op::Sync];
    // Before the file is synced, all times are possible, and the intermediate ones of a write.
    assert_eq!(possible(&ops, (1, 2, 2)), (10..=20).chain([30]).collect::<Vec<_>>());
    assert_eq!(possible(&ops, (2, 3, 3)), [30, 40]);
    assert_eq!(possible(&ops, (3, 4, 4)), [30, 40]);
    assert_eq!(possible(&ops, (4, 4, 4)), [40]);
}

#[test]
fn other_files_promise_nothing() {
    let ops = [write(), Op::Fsync("/d/s".into()), Op::FsyncDir("/d".into())];
    assert_eq!(possible(&ops, (3, 3, 3)), (10..=20).collect::<Vec<_>>());
}

/// A name that came and went leaves no change of its directory; two changes of attributes do.
#[test]
fn entries_that_came_and_went_may_leave_no_times() {
    let possible = |ops: &[Op]| {
        let history = History::of(&setup(), ops).unwrap();
        let dir = history.trees[0].find("/d").unwrap();
        let noted = (0..=ops.len()).map(|calls| (calls, times(calls as i64))).collect();
        let clock = Clock { noted: BTreeMap::from([(dir, noted)]), keeps_all: true };
        let prefix = ops.len();
        let may_be =
            |at: &i64| clock.judge(&history, (prefix, prefix, prefix), dir, &times(*at)).is_ok();
        (0..10).filter(may_be).collect::<Vec<_>>()
    };
    let create = || Op::Create("/d/x".into());
    let unlink = || Op::Unlink("/d/x".into());
    assert_eq!(possible(&[create(), unlink()]), [0, 1, 2]);
    assert_eq!(possible(&[create(), unlink(), create()]), [3]);
    assert_eq!(possible(&[create(), unlink(), Op::Sync, create(), unlink()]), [3, 4, 5]);
    let chmod = |mode| Op::Chmod("/d".into(), mode);
    let mode = 0o755;
    assert_eq!(possible(&[chmod(0o700), chmod(mode)]), [2]);
    assert_eq!(possible(&[create(), chmod(0o700), unlink(), chmod(mode)]), [4]);
}

/// Recovered changes of names and attributes, and times set explicitly, have their times.
#[test]
fn changes_come_with_their_times() {
    let ops = [Op::Chmod("/d/f".into(), 0o600), Op::Times("/d/f".into(), 7)];
    assert_eq!(possible(&ops, (0, 2, 0)), [10, 20, 30]);
    assert_eq!(possible(&ops, (0, 2, 1)), [20, 30]);
    assert_eq!(possible(&ops, (0, 2, 2)), [30]);
    assert_eq!(possible(&ops, (0, 1, 0)), [10, 20]);
}
