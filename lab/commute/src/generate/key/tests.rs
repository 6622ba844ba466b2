use vfscale::Mode;
use vfscale::posix::OFlags;

use super::*;
use crate::case::Op;

fn by(process: u8, op: Op) -> Call {
    Call { process, op }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir { path: path.into(), mode: Mode::from(0o755) }
}

fn create(path: &str, slot: u8) -> Op {
    let mode = Mode::from(0o644);
    Op::Open { path: path.into(), flags: OFlags::CREATE | OFlags::RDWR, mode, slot }
}

fn unlink(path: &str) -> Op {
    Op::Unlink { path: path.into() }
}

fn after(ops: &[Op]) -> State {
    let mut state = State::new();
    for op in ops {
        let _ = state.call(&by(0, op.clone()));
    }
    state
}

#[test]
fn cases_that_differ_in_names_and_order_have_one_key() {
    let one = after(&[mkdir("d0"), mkdir("d1"), create("d0/a", 0), mkdir("d1/a")]);
    let other = after(&[mkdir("d0"), mkdir("d1"), create("d1/a", 1), mkdir("d0/a")]);
    let key = |state, first, second| of(state, &by(0, unlink(first)), &by(1, unlink(second)));
    // Process 0's file belongs to the first call in one case, and to the second call in the other.
    assert_ne!(key(&one, "d0/a", "d1/a"), key(&other, "d0/a", "d1/a"));
    let swapped = other.clone().turned(true, true);
    assert_eq!(key(&one, "d0/a", "d1/a"), key(&swapped, "d0/a", "d1/a"));
    assert_ne!(key(&one, "d0/a", "d0/a"), key(&swapped, "d0/a", "d0/a"));
}

#[test]
fn slots_are_numbered_as_they_appear() {
    let state =
        after(&[create("f0", 0), create("f1", 1), Op::Truncate { path: "f1".into(), size: 4096 }]);
    let fstat = |slot| by(0, Op::Fstat { slot });
    let key = of(&state, &fstat(0), &fstat(1));
    assert_ne!(key, of(&state, &fstat(0), &fstat(0)));
    let turned = state.clone().turned(false, true);
    assert_eq!(key, of(&turned, &fstat(0), &fstat(1)));
}
