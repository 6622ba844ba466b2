//! Tests of the times that a clock accepts.

use vfscale_testkit::calls::compound::Compound;

use super::*;
use crate::script::setup;

fn times(mtime: i64) -> Times {
    Times { atime: 1, mtime, ctime: mtime, btime: 1 }
}

/// Returns a history, and a clock with time 10 of the file at first, and 20, 30 ... after the calls
/// on it.
fn clock(ops: &[Compound]) -> (History, Clock, u64) {
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
fn possible(ops: &[Compound], (done, ceiling, prefix): (usize, usize, usize)) -> Vec<i64> {
    let (history, clock, file) = clock(ops);
    let may_be =
        |time: &i64| clock.judge(&history, (done, ceiling, prefix), file, &times(*time)).is_ok();
    (0..100).filter(may_be).collect()
}

fn write() -> Compound {
    Compound::write("/d/f", 0, 10, 1)
}

#[test]
fn times_since_the_last_sync_may_be_there() {
    let ops = [write(), Compound::fsync("/d/f"), Compound::fdatasync("/d/f"), Compound::sync()];
    // Before the file is synced, all times are possible, and the intermediate ones of a write.
    assert_eq!(possible(&ops, (1, 2, 2)), (10..=20).chain([30]).collect::<Vec<_>>());
    assert_eq!(possible(&ops, (2, 3, 3)), [30, 40]);
    assert_eq!(possible(&ops, (3, 4, 4)), [30, 40]);
    assert_eq!(possible(&ops, (4, 4, 4)), [40]);
}

#[test]
fn other_files_promise_nothing() {
    let ops = [write(), Compound::fsync("/d/s"), Compound::fsync_dir("/d")];
    assert_eq!(possible(&ops, (3, 3, 3)), (10..=20).collect::<Vec<_>>());
}

/// A name that came and went leaves no change of its directory; two changes of attributes do.
#[test]
fn entries_that_came_and_went_may_leave_no_times() {
    let possible = |ops: &[Compound]| {
        let history = History::of(&setup(), ops).unwrap();
        let dir = history.trees[0].find("/d").unwrap();
        let noted = (0..=ops.len()).map(|calls| (calls, times(calls as i64))).collect();
        let clock = Clock { noted: BTreeMap::from([(dir, noted)]), keeps_all: true };
        let prefix = ops.len();
        let may_be =
            |at: &i64| clock.judge(&history, (prefix, prefix, prefix), dir, &times(*at)).is_ok();
        (0..10).filter(may_be).collect::<Vec<_>>()
    };
    let create = || Compound::create("/d/x");
    let unlink = || Compound::unlink("/d/x");
    assert_eq!(possible(&[create(), unlink()]), [0, 1, 2]);
    assert_eq!(possible(&[create(), unlink(), create()]), [3]);
    assert_eq!(possible(&[create(), unlink(), Compound::sync(), create(), unlink()]), [3, 4, 5]);
    let chmod = |mode| Compound::chmod("/d", mode);
    let mode = 0o755;
    assert_eq!(possible(&[chmod(0o700), chmod(mode)]), [2]);
    assert_eq!(possible(&[create(), chmod(0o700), unlink(), chmod(mode)]), [4]);
}

/// Recovered changes of names and attributes, and times set explicitly, have their times.
#[test]
fn changes_come_with_their_times() {
    let ops = [Compound::chmod("/d/f", 0o600), Compound::utimens("/d/f", 7)];
    assert_eq!(possible(&ops, (0, 2, 0)), [10, 20, 30]);
    assert_eq!(possible(&ops, (0, 2, 1)), [20, 30]);
    assert_eq!(possible(&ops, (0, 2, 2)), [30]);
    assert_eq!(possible(&ops, (0, 1, 0)), [10, 20]);
}
