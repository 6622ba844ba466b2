use vfscale::Mode;
use vfscale::posix::{OFlags, RenameFlags, StatMask, Whence, XattrFlags};

use super::*;

const MODE: Mode = Mode::from_bits_retain(0o644);

fn by(process: u8, op: Op) -> Call {
    Call { process, op }
}

fn open(path: &str, flags: OFlags, slot: u8) -> Op {
    Op::Open { path: path.into(), flags: flags | OFlags::RDWR, mode: MODE, slot }
}

fn create(path: &str, slot: u8) -> Op {
    open(path, OFlags::CREATE, slot)
}

fn stat(path: &str) -> Op {
    Op::Stat { path: path.into(), follow: true }
}

fn statx(path: &str, mask: StatMask) -> Op {
    Op::Statx { path: path.into(), mask }
}

fn link(old: &str, new: &str) -> Op {
    Op::Link { old: old.into(), new: new.into() }
}

fn rename(old: &str, new: &str) -> Op {
    Op::Rename { old: old.into(), new: new.into(), flags: RenameFlags::empty() }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir { path: path.into(), mode: Mode::from(0o755) }
}

fn pwrite(slot: u8, page: u64, byte: u8) -> Op {
    Op::Pwrite { slot, len: PAGE as usize, byte, offset: page * PAGE }
}

/// Returns the state after calls of process 0 that all succeed.
fn after<const N: usize>(ops: [Op; N]) -> State {
    let mut state = State::new();
    for op in ops {
        let outcome = state.call(&by(0, op.clone()));
        assert!(!matches!(outcome, Outcome::Error(_)), "{op:?} gives {outcome:?}");
    }
    state
}

/// Returns whether two calls of two processes commute.
fn commutes(state: &State, first: Op, second: Op) -> bool {
    let (first, second) = (by(0, first), by(1, second));
    let one = commute(state, &first, &second).is_some();
    assert_eq!(one, commute(state, &second, &first).is_some());
    one
}

#[test]
fn names_that_differ_can_be_made_in_any_order() {
    let state = after([mkdir("d")]);
    assert!(commutes(&state, create("d/a", 0), create("d/b", 0)));
    // The second call opens the file that the first one made, and no call can detect which was
    // first.
    assert!(commutes(&state, create("d/a", 0), create("d/a", 0)));
    assert!(!commutes(&state, open("d/a", OFlags::CREATE | OFlags::EXCL, 0), create("d/a", 0)));
    assert!(!commutes(&state, create("d/a", 0), stat("d/a")));
    assert!(!commutes(&state, create("d/a", 0), Op::Rmdir { path: "d".into() }));
}

#[test]
fn the_number_of_links_is_seen_by_stat_only() {
    let state = after([create("a", 0)]);
    assert!(!commutes(&state, link("a", "b"), stat("a")));
    let fstat = by(0, Op::Fstat { slot: 0 });
    assert!(commute(&state, &by(1, link("a", "b")), &fstat).is_none());
    assert!(commutes(&state, link("a", "b"), link("a", "c")));
    assert!(commutes(&state, link("a", "b"), Op::Lookup { path: "a".into() }));
    // Both fail, in either order.
    let linked = after([create("a", 0), link("a", "b")]);
    assert!(commutes(&linked, link("a", "b"), stat("a")));
}

#[test]
fn reads_of_times_do_not_commute_with_changes_of_them() {
    let state = after([mkdir("d"), create("d/a", 0), create("d/b", 1), link("d/b", "d/c")]);
    let chmod = |path: &str| Op::Chmod { path: path.into(), mode: Mode::from(0o600) };
    let rest = StatMask::MODE | StatMask::UID | StatMask::GID;
    for (path, change) in [
        ("d", create("d/new", 2)),
        ("d", Op::Unlink { path: "d/c".into() }),
        ("d", rename("d/a", "d/x")),
        ("d/b", Op::Unlink { path: "d/c".into() }),
        ("d/a", Op::Truncate { path: "d/a".into(), size: PAGE }),
    ] {
        assert!(!commutes(&state, stat(path), change.clone()), "stat({path}) and {change}");
        let same = commutes(&state, statx(path, rest), change.clone());
        assert!(same, "statx({path}) and {change}");
    }
    // `statx` always reports the mode. A call that fails sets no time. No call can detect which of
    // two changes set the time last.
    assert!(!commutes(&state, statx("d/a", rest), chmod("d/a")));
    assert!(commutes(&state, stat("d"), mkdir("d/a")));
    assert!(commutes(&state, create("d/x", 2), create("d/y", 2)));
    assert!(commutes(&state, chmod("d/a"), chmod("d/a")));
}

#[test]
fn pages_are_written_in_any_order_unless_both_write_one() {
    let mut state = after([create("a", 0), pwrite(0, 0, 7), pwrite(0, 1, 7)]);
    assert_eq!(state.call(&by(0, Op::Pass { slot: 0 })), Outcome::Done);
    assert!(commutes(&state, pwrite(0, 0, 1), pwrite(0, 1, 2)));
    assert!(!commutes(&state, pwrite(0, 0, 1), pwrite(0, 0, 2)));
    assert!(commutes(&state, pwrite(0, 0, 1), pwrite(0, 0, 1)));
    // Both are beyond the end: in both orders the size is the greater one.
    assert!(commutes(&state, pwrite(0, 3, 1), pwrite(0, 5, 2)));
    assert!(!commutes(&state, pwrite(0, 3, 1), stat("a")));
    // Not even a write that leaves the size, unless the other call does not read the times.
    assert!(!commutes(&state, pwrite(0, 1, 1), stat("a")));
    assert!(commutes(&state, pwrite(0, 1, 1), statx("a", StatMask::NO_TIMES)));
    let read = |page| Op::Pread { slot: 0, len: PAGE as usize, offset: page * PAGE };
    assert!(commutes(&state, pwrite(0, 1, 1), read(0)));
    assert!(!commutes(&state, pwrite(0, 1, 1), read(1)));
    // A write of equal data commutes with a read.
    assert!(commutes(&state, pwrite(0, 1, 7), read(1)));
    let end = Op::Lseek { slot: 0, to: Whence::End(0) };
    assert!(!commutes(&state, end.clone(), Op::Truncate { path: "a".into(), size: 0 }));
    assert!(commutes(&state, end.clone(), end));
}

#[test]
fn the_state_left_decides_whether_calls_commute() {
    let mut state = after([create("a", 0), create("b", 1), mkdir("d"), mkdir("e")]);
    assert_eq!(state.call(&by(0, Op::Pass { slot: 0 })), Outcome::Done);
    let seek = |page| Op::Lseek { slot: 0, to: Whence::Set(page * PAGE) };
    assert!(!commutes(&state, seek(0), seek(1)));
    assert!(commutes(&state, seek(1), seek(1)));
    let chdir = |path: &str| by(0, Op::Chdir { path: path.into() });
    assert!(commute(&state, &chdir("d"), &chdir("e")).is_none());
    let chmod = |mode| Op::Chmod { path: "a".into(), mode: Mode::from_bits_retain(mode) };
    assert!(!commutes(&state, chmod(0o600), chmod(0o640)));
    // They differ in the name that remains, and in the links of the replaced file.
    assert!(!commutes(&state, rename("a", "c"), rename("b", "c")));
    assert!(!commutes(&state, rename("a", "c"), link("b", "c")));
    let removed = |slot| by(0, Op::DPath { slot });
    assert!(commute(&state, &removed(0), &by(1, rename("b", "c"))).is_some());
    assert!(commute(&state, &removed(1), &by(1, rename("b", "c"))).is_none());
}

#[test]
fn a_hole_that_is_filled_shows_in_the_blocks() {
    let mut state = after([create("a", 0), pwrite(0, 2, 7)]);
    let Outcome::Attributes(before) = state.call(&by(0, stat("a"))) else { panic!() };
    assert_eq!((before.size, before.blocks), (3 * PAGE, 8));
    let seek = |to| Op::Lseek { slot: 0, to };
    assert_eq!(state.call(&by(0, seek(Whence::Data(0)))), Outcome::Number(2 * PAGE));
    assert_eq!(state.call(&by(0, seek(Whence::Hole(0)))), Outcome::Number(0));
    assert_eq!(state.call(&by(0, seek(Whence::Data(3 * PAGE)))), Outcome::Error(Errno::NXIO));
    assert!(!commutes(&state, pwrite(0, 0, 0), stat("a")));
}

#[test]
fn a_name_that_is_moved_takes_its_open_files_along() {
    let mut state = after([mkdir("d"), create("d/a", 0), create("b", 1)]);
    assert_eq!(state.call(&by(0, rename("d/a", "b"))), Outcome::Done);
    let path = |slot| by(0, Op::DPath { slot });
    assert_eq!(state.call(&path(0)), Outcome::Text("/b".into()));
    assert_eq!(state.call(&path(1)), Outcome::Text("/b (deleted)".into()));
    // Two links of one file: nothing happens.
    assert_eq!(state.call(&by(0, link("b", "c"))), Outcome::Done);
    assert_eq!(state.call(&by(0, rename("b", "c"))), Outcome::Done);
    assert_eq!(state.call(&path(0)), Outcome::Text("/b".into()));
}

#[test]
fn directories_count_the_directories_in_them() {
    let mut state = after([mkdir("d"), mkdir("e"), mkdir("d/x"), create("f", 0)]);
    let mut nlink = |path: &str| match state.call(&by(0, stat(path))) {
        Outcome::Attributes(attributes) => attributes.nlink,
        other => panic!("{other:?}"),
    };
    assert_eq!((nlink("d"), nlink("e"), nlink("d/x")), (3, 2, 2));
    let swap = Op::Rename { old: "d/x".into(), new: "f".into(), flags: RenameFlags::EXCHANGE };
    assert_eq!(state.call(&by(0, swap)), Outcome::Done);
    let mut nlink = |path: &str| match state.call(&by(0, stat(path))) {
        Outcome::Attributes(attributes) => (attributes.nlink, attributes.file_type),
        other => panic!("{other:?}"),
    };
    assert_eq!(nlink("d").0, 2);
    assert_eq!(nlink("."), nlink("/"));
    assert_eq!(nlink("/").0, 5);
    assert_eq!(nlink("d/x"), (1, vfscale::FileType::RegularFile));
    assert_eq!(state.call(&by(0, rename("d", "d/y"))), Outcome::Error(Errno::INVAL));
    assert_eq!(state.call(&by(0, rename("d/x", "d"))), Outcome::Error(Errno::NOTEMPTY));
    assert_eq!(state.call(&by(0, rename("e", "d"))), Outcome::Error(Errno::NOTEMPTY));
    assert_eq!(state.call(&by(0, rename("f", "d/x"))), Outcome::Error(Errno::NOTDIR));
}

#[test]
fn attributes_have_rules_of_their_own() {
    let mut state = after([create("a", 0), mkdir("m"), Op::Mount { path: "m".into() }]);
    let set =
        |how, byte| Op::Setxattr { path: "a".into(), name: "user.k".into(), len: 2, byte, how };
    let get = Op::Getxattr { path: "a".into(), name: "user.k".into() };
    assert_eq!(state.call(&by(0, get.clone())), Outcome::Error(Errno::NODATA));
    let replace = set(XattrFlags::REPLACE, 1);
    assert_eq!(state.call(&by(0, replace)), Outcome::Error(Errno::NODATA));
    assert!(!commutes(&state, set(XattrFlags::empty(), 1), set(XattrFlags::empty(), 2)));
    assert!(!commutes(&state, set(XattrFlags::CREATE, 1), set(XattrFlags::CREATE, 1)));
    assert_eq!(state.call(&by(0, set(XattrFlags::CREATE, 1))), Outcome::Done);
    assert_eq!(state.call(&by(1, get)), Outcome::Bytes(vec![1, 1]));
    let lookup = |path: &str| by(0, Op::Lookup { path: path.into() });
    assert_eq!(state.call(&lookup("m")), Outcome::Mount { device: 1, is_root: true });
    assert_eq!(state.call(&lookup("m/..")), Outcome::Mount { device: 0, is_root: true });
    assert_eq!(state.call(&lookup("a")), Outcome::Mount { device: 0, is_root: false });
    assert_eq!(state.call(&by(0, link("a", "m/a"))), Outcome::Error(Errno::XDEV));
    assert_eq!(state.call(&by(0, Op::Rmdir { path: "m".into() })), Outcome::Error(Errno::BUSY));
}

#[test]
fn three_calls_commute_only_if_every_two_do_and_the_third_changes_nothing_for_them() {
    let state = after([mkdir("d")]);
    let [a, b, c] =
        [("d/a", 0), ("d/b", 1), ("d/c", 2)].map(|(path, slot)| by(0, create(path, slot)));
    assert!(commute_three(&state, [&a, &b, &c]));
    assert!(!commute_three(&state, [&a, &b, &by(1, stat("d/a"))]));
    let other = by(1, Op::Rmdir { path: "d".into() });
    assert!(!commute_three(&state, [&a, &b, &other]));
    // `d/a` can't be made twice, but once it exists, every such call fails equally.
    let exclusive = |slot| by(0, open("d/a", OFlags::CREATE | OFlags::EXCL, slot));
    let made = after([mkdir("d"), create("d/a", 0)]);
    assert!(commute_three(&made, [&exclusive(1), &exclusive(2), &exclusive(3)]));
    assert!(!commute_three(&state, [&exclusive(1), &exclusive(2), &exclusive(3)]));
}

#[test]
fn pipes_are_queues_with_two_ends() {
    let mut state = after([Op::Pipe { reader: 0, writer: 1 }]);
    let write = |byte| by(0, Op::Write { slot: 1, len: PAGE as usize, byte });
    let read = by(0, Op::Read { slot: 0, len: PAGE as usize });
    assert_eq!(state.call(&read), Outcome::Error(Errno::AGAIN));
    assert!(commute(&state, &write(1), &read).is_none());
    assert_eq!(state.call(&write(1)), Outcome::Number(PAGE));
    // A non-empty queue can be written at one end and read at the other.
    assert!(commute(&state, &write(2), &read).is_some());
    assert!(commute(&state, &write(2), &write(3)).is_none());
    assert_eq!(state.call(&by(0, Op::Close { slot: 0 })), Outcome::Done);
    assert_eq!(state.call(&write(1)), Outcome::Error(Errno::PIPE));
}

#[test]
fn a_piece_of_a_page_is_refused() {
    let mut state = after([create("a", 0)]);
    let write = Op::Pwrite { slot: 0, len: 10, byte: 1, offset: 0 };
    assert_eq!(state.call(&by(0, write)), Outcome::Error(Errno::INVAL));
    let write = Op::Pwrite { slot: 0, len: PAGE as usize, byte: 1, offset: 1 };
    assert_eq!(state.call(&by(0, write)), Outcome::Error(Errno::INVAL));
}
