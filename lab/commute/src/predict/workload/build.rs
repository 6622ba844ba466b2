//! Building blocks of workloads.

use vfscale::Mode;
use vfscale::posix::OFlags;

use crate::case::{Call, Op};

/// A workload of two workers.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name in `vfscale bench`.
    pub name: &'static str,
    /// Number of operations, in the workload's unit, that the calls of a worker make.
    pub operations: u32,
    /// Calls that make the starting state.
    pub setup: Vec<Call>,
    /// Calls of each worker.
    pub workers: [Vec<Call>; 2],
    /// Calls that revert the calls of each worker.
    pub undo: [Vec<Call>; 2],
}

impl Workload {
    /// Iterates over the calls of both workers, each followed by its undo calls.
    pub fn once(&self) -> impl Iterator<Item = &Call> {
        self.workers.iter().zip(&self.undo).flat_map(|(calls, undo)| calls.iter().chain(undo))
    }
}

/// Number of workers whose names fill the shared directories: a directory grows with its names.
const WORKERS: u32 = 64;
/// Size of the workloads' files: a page.
pub(super) const PAGE: usize = 4096;
/// Makes a workload whose calls leave the state as it was.
pub(super) fn new(
    name: &'static str,
    operations: u32,
    setup: impl Fn(u8) -> Vec<Op>,
    calls: impl Fn(u8) -> Vec<Op>,
) -> Workload {
    new_with_undo(name, operations, setup, calls, |_| Vec::new())
}

/// Makes a workload whose undo calls revert its calls.
pub(super) fn new_with_undo(
    name: &'static str,
    operations: u32,
    setup: impl Fn(u8) -> Vec<Op>,
    calls: impl Fn(u8) -> Vec<Op>,
    undo: impl Fn(u8) -> Vec<Op>,
) -> Workload {
    let by = |process: u8, ops: Vec<Op>| -> Vec<Call> {
        ops.into_iter().map(|op| Call { process, op }).collect()
    };
    let shared = ["/all", "/more", "/w0", "/w1", "/v0", "/v1"].map(mkdir);
    let mut before = by(0, shared.into());
    for worker in 2..WORKERS {
        let names = ["/all", "/more"].map(|dir| format!("{dir}/other{worker}"));
        let create = |path| open(path, OFlags::CREATE | OFlags::WRONLY, 1);
        before.extend(by(0, names.map(create).into()));
    }
    before.extend(by(0, vec![Op::Close { slot: 1 }]));
    for worker in [0, 1] {
        before.extend(by(worker, setup(worker)));
    }
    let (workers, undo) = ([0, 1].map(|w| by(w, calls(w))), [0, 1].map(|w| by(w, undo(w))));
    Workload { name, operations, setup: before, workers, undo }
}

/// Returns the call that makes a directory.
pub(super) fn mkdir(path: &str) -> Op {
    Op::Mkdir { path: path.into(), mode: Mode::from(0o755) }
}

/// Returns the call that opens a file.
pub(super) fn open(path: String, flags: OFlags, slot: u8) -> Op {
    Op::Open { path, flags, mode: Mode::from(0o644), slot }
}

/// Opens a file in slot 0, makes `ops` and closes it.
pub(super) fn opened(path: &str, flags: OFlags, ops: impl IntoIterator<Item = Op>) -> Vec<Op> {
    let mut all = vec![open(path.into(), flags, 0)];
    all.extend(ops);
    all.push(Op::Close { slot: 0 });
    all
}

/// Creates a file of `len` bytes and closes it.
pub(super) fn file_of(path: &str, len: usize) -> Vec<Op> {
    let write = Op::Pwrite { slot: 0, len, byte: 1, offset: 0 };
    opened(path, OFlags::CREATE | OFlags::RDWR, [write])
}

/// Creates a file of a page and closes it.
pub(super) fn file(path: &str) -> Vec<Op> {
    file_of(path, PAGE)
}
