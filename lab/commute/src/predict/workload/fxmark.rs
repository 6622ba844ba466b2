//! The microbenchmarks of FxMark (Min et al., ATC 2016), as calls of two workers.
//!
//! Each is the bench's with small numbers: of a tree there are the paths that the workers look up,
//! which share no directory but the root in `MRPM`, as nearly all pairs of 32,768 do; a listed
//! directory has 16 entries of each worker, and two files are created, removed or renamed.

use vfscale::posix::{OFlags, RenameFlags};

use super::build::{PAGE, Workload, file, file_of, mkdir, new, new_with_undo, open, opened};
use crate::case::Op;

/// Bytes from one worker's block of a shared file to the next one's, as in the bench.
const REGION: u64 = 8 << 20;
/// Files of each worker in a listed directory.
const ENTRIES: u64 = 16;
/// Files that a worker creates, removes or renames in one operation: with many, two names of
/// different workers would share a line of the directory by chance.
const FILES: u64 = 2;
/// The file that all workers share.
const DATA: &str = "/all/data";

/// Returns the 19 microbenchmarks.
pub(super) fn all() -> Vec<Workload> {
    let mut all = blocks();
    all.extend(lookups());
    all.extend([create("MWCL", own, 0), create("MWCM", shared, PAGE)]);
    all.extend([unlink("MWUL", own), unlink("MWUM", shared)]);
    all.extend([rename("MWRL", own), rename("MWRM", shared)]);
    all
}

/// Function that returns the path of a worker's file.
type PathOf = fn(u8, u64) -> String;

fn own(worker: u8, n: u64) -> String {
    format!("/w{worker}/m{n}")
}

fn shared(worker: u8, n: u64) -> String {
    format!("/all/m{worker}-{n}")
}

fn read(offset: u64) -> Op {
    Op::Pread { slot: 0, len: PAGE, offset }
}

fn write(offset: u64) -> Op {
    Op::Pwrite { slot: 0, len: PAGE, byte: 1, offset }
}

fn region(worker: u8) -> u64 {
    u64::from(worker) * REGION
}

/// Makes a workload on the open block of a file of each worker's own.
fn on_own(name: &'static str, ops: fn() -> Vec<Op>) -> Workload {
    let setup =
        |worker| [file(&own(worker, 0)), vec![open(own(worker, 0), OFlags::RDWR, 0)]].concat();
    new(name, 1, setup, move |_| ops())
}

/// Makes a workload on one open file, which the first worker fills.
fn on_shared(name: &'static str, op: fn(u8) -> Op) -> Workload {
    let setup = |worker| {
        let fill = opened(DATA, OFlags::CREATE | OFlags::RDWR, [region(0), region(1)].map(write));
        let mut ops = if worker == 0 { fill } else { Vec::new() };
        ops.push(open(DATA.into(), OFlags::RDWR, 0));
        ops
    };
    new(name, 1, setup, move |worker| vec![op(worker)])
}

fn blocks() -> Vec<Workload> {
    let appended = |_| vec![write(PAGE as u64)];
    let cut = |_| vec![Op::Ftruncate { slot: 0, size: PAGE as u64 }];
    let with = |pages: usize| {
        move |worker| {
            let path = own(worker, 0);
            [file_of(&path, pages * PAGE), vec![open(path, OFlags::RDWR, 0)]].concat()
        }
    };
    vec![
        on_own("DRBL", || vec![read(0)]),
        on_shared("DRBM", |worker| read(region(worker))),
        on_shared("DRBH", |_| read(0)),
        on_own("DWOL", || vec![write(0)]),
        on_shared("DWOM", |worker| write(region(worker))),
        new_with_undo("DWAL", 1, with(1), appended, cut),
        new_with_undo("DWTL", 1, with(2), cut, appended),
        on_own("DWSL", || vec![write(0), Op::Fsync { slot: 0 }]),
    ]
}

/// Makes a workload that calls `stat` on a file below three directories of `path`'s.
fn stat(name: &'static str, top: fn(u8) -> String, makes: fn(u8) -> bool) -> Workload {
    let path = move |worker| format!("{}/0/0/0/f", top(worker));
    let setup = move |worker| {
        if !makes(worker) {
            return Vec::new();
        }
        let mut dir = top(worker);
        let mut ops = Vec::new();
        for _ in 0..3 {
            dir += "/0";
            ops.push(mkdir(&dir));
        }
        ops.extend(file(&path(worker)));
        ops
    };
    new(name, 1, setup, move |worker| vec![Op::Stat { path: path(worker), follow: true }])
}

/// Makes a workload that lists a directory, whose entries are its operations.
fn list(name: &'static str, path: PathOf, workers: u64) -> Workload {
    let setup = move |worker| (0..ENTRIES).flat_map(|n| file_of(&path(worker, n), 0)).collect();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let dir = move |worker| path(worker, 0).rsplit_once('/').map(|(dir, _)| dir.to_owned());
    let calls = move |worker| {
        let dir = dir(worker).unwrap_or_default();
        opened(&dir, flags, [Op::Readdir { slot: 0 }])
    };
    new(name, (ENTRIES * workers) as u32, setup, calls)
}

fn lookups() -> Vec<Workload> {
    vec![
        stat("MRPL", |worker| format!("/w{worker}"), |_| true),
        stat("MRPM", |worker| format!("/v{worker}"), |_| true),
        stat("MRPH", |_| "/all".to_owned(), |worker| worker == 0),
        list("MRDL", own, 1),
        list("MRDM", shared, 2),
    ]
}

/// Creates a worker's files of `len` bytes.
fn made(path: PathOf, worker: u8, len: usize) -> Vec<Op> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let content = (len > 0).then(|| write(0));
    (0..FILES).flat_map(|n| opened(&path(worker, n), flags, content.clone())).collect()
}

fn gone(path: PathOf, worker: u8) -> Vec<Op> {
    (0..FILES).map(|n| Op::Unlink { path: path(worker, n) }).collect()
}

fn create(name: &'static str, path: PathOf, len: usize) -> Workload {
    let (make, undo) = (move |worker| made(path, worker, len), move |worker| gone(path, worker));
    new_with_undo(name, FILES as u32, |_| Vec::new(), make, undo)
}

fn unlink(name: &'static str, path: PathOf) -> Workload {
    let make = move |worker| made(path, worker, 0);
    new_with_undo(name, FILES as u32, make, move |worker| gone(path, worker), make)
}

/// Makes a workload that renames each worker's files, in their directory or to the shared one.
fn rename(name: &'static str, to: fn(u8, u64) -> String) -> Workload {
    let (from, to) = (own, move |worker, n| format!("{}-new", to(worker, n)));
    let renamed = move |worker, is_back: bool| {
        let names = (0..FILES).map(|n| (from(worker, n), to(worker, n)));
        let names = names.map(|(old, new)| if is_back { (new, old) } else { (old, new) });
        names.map(|(old, new)| Op::Rename { old, new, flags: RenameFlags::empty() }).collect()
    };
    let (go, back) = (move |worker| renamed(worker, false), move |worker| renamed(worker, true));
    new_with_undo(name, FILES as u32, |worker| made(own, worker, 0), go, back)
}
