//! Cases of two branches of one volume: one process works in each.
//!
//! Branches are file systems of their own, so every two calls commute, also on equal names. Each
//! call is made in one branch beside each in the other, in both orders, from one starting state:
//! both branches were forked from a volume with a few files ([`base`]), and share their blocks.

use vfscale::Mode;
use vfscale::posix::{OFlags, RenameFlags, StatMask, Whence, XattrFlags};

use crate::case::{Call, Case, Op};
use crate::model::PAGE;

/// Pages of each file.
const PAGES: u64 = 4;

/// Slot of the file that calls read and write.
const FILE: u8 = 0;
/// Slot of its directory.
const DIR: u8 = 1;
/// Slot of another open file, which has no pages in memory.
const OTHER: u8 = 2;
/// Slot that is filled.
const NEW: u8 = 3;

/// Returns the calls that make the files of the volume, before the branches are forked from it.
#[must_use]
pub fn base() -> Vec<Call> {
    let mut ops = vec![mkdir("d"), mkdir("d/empty"), mkdir("e")];
    for path in ["d/a", "d/b", "d/c"] {
        ops.push(open(path, OFlags::CREATE | OFlags::RDWR, FILE));
        ops.push(pwrite(PAGES as usize * PAGE as usize, 0));
        ops.push(Op::Close { slot: FILE });
    }
    ops.push(Op::Symlink { target: "a".into(), path: "d/link".into() });
    ops.push(Op::Setxattr {
        path: "d/a".into(),
        name: "user.k".into(),
        len: 8,
        byte: 7,
        how: XattrFlags::empty(),
    });
    ops.into_iter().map(|op| Call { process: 0, op }).collect()
}

/// Returns every call of `calls` in one branch beside each in the other.
#[must_use]
pub fn all() -> Vec<Case> {
    let calls = calls();
    let cases = calls.iter().flat_map(|first| calls.iter().map(move |second| case(first, second)));
    cases.collect()
}

/// Returns at most `count` of all cases, as many with each first call.
#[must_use]
pub fn sample(count: usize) -> Vec<Case> {
    let all = all();
    let step = all.len().div_ceil(count.max(1)).max(1);
    // Of the diagonal order, each has other first and second calls than its neighbour.
    let calls = calls().len();
    let at = |number: usize| (number % calls) * calls + (number / calls + number) % calls;
    (0..all.len()).step_by(step).map(|number| all[at(number)].clone()).collect()
}

fn case(first: &Op, second: &Op) -> Case {
    let setup = [(0, first), (1, second)].into_iter().flat_map(|(process, op)| setup(process, op));
    let name = format!("{first} in one branch || {second} in the other");
    let [first, second] =
        [(0, first), (1, second)].map(|(process, op)| Call { process, op: op.clone() });
    Case::new(name, setup.collect(), first, second)
}

/// Returns the calls that a process makes before it makes a call. A branch reads each block of
/// metadata from the device once, and both have the same ones there: so names were made before, and
/// the file was read. None was removed, for the next file would get its inode.
fn setup(process: u8, op: &Op) -> Vec<Call> {
    let mut before = Vec::new();
    for dir in ["d", "e"] {
        before.push(open(&format!("{dir}/before"), OFlags::CREATE | OFlags::RDWR, NEW));
        before.extend([Op::Close { slot: NEW }, mkdir(&format!("{dir}/also"))]);
    }
    before.extend([
        open("d/a", OFlags::RDWR, FILE),
        Op::Pread { slot: FILE, len: 1, offset: 0 },
        open("d", OFlags::DIRECTORY, DIR),
        open("d/b", OFlags::RDWR, OTHER),
    ]);
    if let Op::Fsync { slot } = *op {
        let write = Op::Pwrite { slot, len: 1, byte: 1, offset: 0 };
        // The first flush of a branch begins its log, which needs the pool.
        let first = [write.clone(), Op::Fsync { slot }];
        before.extend(first.into_iter().filter(|_| slot != OTHER));
        before.push(write);
    }
    before.into_iter().map(|op| Call { process, op }).collect()
}

/// Returns the calls that are made in each branch.
fn calls() -> Vec<Op> {
    let mut calls = names();
    calls.extend(looks());
    calls.extend(data());
    calls
}

/// Returns calls that change names.
fn names() -> Vec<Op> {
    let rename = |old: &str, new: &str| Op::Rename {
        old: old.into(),
        new: new.into(),
        flags: RenameFlags::empty(),
    };
    vec![
        open("d/new", OFlags::CREATE | OFlags::RDWR, NEW),
        open("d", OFlags::TMPFILE | OFlags::RDWR, NEW),
        Op::Unlink { path: "d/c".into() },
        rename("d/c", "d/new"),
        rename("d/c", "e/c"),
        rename("d/c", "d/b"),
        mkdir("d/new"),
        Op::Rmdir { path: "d/empty".into() },
        Op::Link { old: "d/a".into(), new: "d/new".into() },
        Op::Symlink { target: "a".into(), path: "d/new".into() },
    ]
}

/// Returns calls that look at files and change their attributes.
fn looks() -> Vec<Op> {
    let (path, name) = (|| "d/a".to_owned(), || "user.k".to_owned());
    vec![
        open("d/a", OFlags::RDWR, NEW),
        Op::Close { slot: OTHER },
        Op::Stat { path: path(), follow: true },
        Op::Statx { path: path(), mask: StatMask::UID | StatMask::GID },
        Op::Lookup { path: path() },
        Op::Lookup { path: "d/none".into() },
        Op::Fstat { slot: FILE },
        Op::Readlink { path: "d/link".into() },
        Op::Readdir { slot: DIR },
        Op::Getxattr { path: path(), name: name() },
        Op::Setxattr { path: path(), name: name(), len: 8, byte: 1, how: XattrFlags::empty() },
        Op::Chmod { path: path(), mode: Mode::RUSR },
    ]
}

/// Returns calls on the data of a file. The `fsync` of [`OTHER`] is the first of its branch.
fn data() -> Vec<Op> {
    let page = PAGE as usize;
    vec![
        Op::Write { slot: FILE, len: page, byte: 1 },
        pwrite(page, PAGE),
        pwrite(page, PAGES * PAGE),
        Op::Pwrite { slot: OTHER, len: page, byte: 1, offset: 0 },
        Op::Read { slot: FILE, len: page },
        Op::Pread { slot: FILE, len: page, offset: PAGE },
        Op::Lseek { slot: FILE, to: Whence::Set(5) },
        Op::Truncate { path: "d/a".into(), size: 0 },
        Op::Truncate { path: "d/a".into(), size: 2 * PAGES * PAGE },
        Op::Fsync { slot: FILE },
        Op::Fsync { slot: OTHER },
    ]
}

fn open(path: &str, flags: OFlags, slot: u8) -> Op {
    Op::Open { path: path.into(), flags, mode: Mode::RUSR | Mode::WUSR, slot }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir { path: path.into(), mode: Mode::RWXU }
}

fn pwrite(len: usize, offset: u64) -> Op {
    Op::Pwrite { slot: FILE, len, byte: 1, offset }
}
