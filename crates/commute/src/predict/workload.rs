//! The workloads of `vfscale bench`, as calls of two workers.
//!
//! Each worker's calls begin and end in the same state, so that they can be repeated for ever. They are made
//! once before they are recorded, since what happens only the first time is no part of a workload.
//!
//! Left out is what is no short list of calls: `aim-short`, whose 17 kinds of jobs are the others of this
//! list in a mix, the walks over whole trees, and `cat-maps`, which asks for what processes have
//! mapped.

use vfscale::{Mode, OFlags, RenameFlags};

use crate::case::{Call, Op};

/// A workload as two workers make it.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name in `vfscale bench`.
    pub name: &'static str,
    /// The operations, in its unit, that the calls of a worker are.
    pub operations: u32,
    /// What is there before.
    pub setup: Vec<Call>,
    /// The calls of each worker, which it repeats.
    pub workers: [Vec<Call>; 2],
}

/// The workers whose names are in the directories that all use: a directory grows with them.
const WORKERS: u32 = 64;
/// A page, which files of the workloads have.
const PAGE: usize = 4096;

/// All workloads that are here.
#[must_use]
pub fn all() -> Vec<Workload> {
    let same_dir = |worker: u8| (format!("/all/f{worker}"), "/all".to_owned());
    let own_dir = |worker: u8| (format!("/w{worker}/f"), format!("/w{worker}"));
    let one_file = |_| ("/all/f".to_owned(), "/all".to_owned());
    vec![
        open_close("open-close-same-dir", same_dir),
        open_close("open-close-own-dir", own_dir),
        open_close("open-close-one-file", one_file),
        create_unlink("create-unlink-same-dir", same_dir),
        create_unlink("create-unlink-own-dir", own_dir),
        stat_deep(),
        rename("rename-same-dir", |w| [format!("/all/f{w}"), format!("/all/g{w}")]),
        rename("rename-own-dir", |w| [format!("/w{w}/f"), format!("/v{w}/f")]),
        rename("rename-cross-dir", |w| [format!("/all/f{w}"), format!("/more/f{w}")]),
        close_many(),
        d_path(),
        orphan_truncate(),
    ]
}

/// The permissions of a file of the worker's own, in a directory of its own, set again and again:
/// on a volume a transaction of one inode, which is in the log's list already.
#[must_use]
pub fn chmod_own_dir() -> Workload {
    let path = |worker| format!("/w{worker}/f");
    let chmod =
        move |worker| vec![Op::Chmod { path: path(worker), mode: Mode::from_bits_retain(0o640) }];
    new("chmod-own-dir", 1, move |worker| file(&path(worker)), chmod)
}

fn new(
    name: &'static str,
    operations: u32,
    setup: impl Fn(u8) -> Vec<Op>,
    calls: impl Fn(u8) -> Vec<Op>,
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
        before.extend(by(worker, calls(worker)));
    }
    Workload { name, operations, setup: before, workers: [0, 1].map(|w| by(w, calls(w))) }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir { path: path.into(), mode: Mode::from_bits_retain(0o755) }
}

fn open(path: String, flags: OFlags, slot: u8) -> Op {
    Op::Open { path, flags, mode: Mode::from_bits_retain(0o644), slot }
}

/// A new file of a page, closed again.
fn file(path: &str) -> Vec<Op> {
    vec![
        open(path.into(), OFlags::CREATE | OFlags::RDWR, 1),
        Op::Pwrite { slot: 1, len: PAGE, byte: 1, offset: 0 },
        Op::Close { slot: 1 },
    ]
}

/// The path of a worker's file, and its directory.
type Place = fn(u8) -> (String, String);

fn open_close(name: &'static str, place: Place) -> Workload {
    let setup = move |worker| {
        let (path, dir) = place(worker);
        let mut ops = file(&path);
        ops.push(Op::Chdir { path: dir });
        ops
    };
    new(name, 1, setup, move |worker| {
        let (path, _) = place(worker);
        vec![open(base_name(&path), OFlags::RDONLY, 0), Op::Close { slot: 0 }]
    })
}

fn create_unlink(name: &'static str, place: Place) -> Workload {
    let setup = move |worker| vec![Op::Chdir { path: place(worker).1 }];
    new(name, 1, setup, move |worker| {
        let name = base_name(&place(worker).0);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        vec![open(name.clone(), flags, 0), Op::Close { slot: 0 }, Op::Unlink { path: name }]
    })
}

fn base_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).into()
}

fn stat_deep() -> Workload {
    let setup = |worker| {
        if worker > 0 {
            return Vec::new();
        }
        let dirs = ["/all/1", "/all/1/2", "/all/1/2/3", "/all/1/2/3/4", "/all/1/2/3/4/5"];
        dirs.map(mkdir).into_iter().chain(file("/all/1/2/3/4/5/f")).collect()
    };
    let path = "/all/1/2/3/4/5/f";
    new("stat-deep", 1, setup, move |_| vec![Op::Stat { path: path.into(), follow: true }])
}

fn rename(name: &'static str, names: fn(u8) -> [String; 2]) -> Workload {
    new(
        name,
        2,
        move |worker| file(&names(worker)[0]),
        move |worker| {
            let [old, new] = names(worker);
            let rename = |old: &str, new: &str| Op::Rename {
                old: old.into(),
                new: new.into(),
                flags: RenameFlags::empty(),
            };
            vec![rename(&old, &new), rename(&new, &old)]
        },
    )
}

fn close_many() -> Workload {
    new(
        "close-many",
        2,
        |_| Vec::new(),
        |_| vec![Op::Pipe { reader: 0, writer: 1 }, Op::Close { slot: 0 }, Op::Close { slot: 1 }],
    )
}

fn d_path() -> Workload {
    let path = "/all/1/2/3/4/5/6/7/f";
    let setup = move |worker| {
        let mut ops = Vec::new();
        if worker == 0 {
            for end in (1..8).map(|depth| "/all".len() + 2 * depth) {
                ops.push(mkdir(&path[..end]));
            }
            ops.extend(file(path));
            ops.push(open(path.into(), OFlags::RDONLY, 0));
            ops.push(Op::Pass { slot: 0 });
        }
        ops
    };
    new("d-path", 1, setup, |_| vec![Op::DPath { slot: 0 }])
}

fn orphan_truncate() -> Workload {
    let setup = |worker: u8| {
        let path = format!("/all/f{worker}");
        let mut ops = file(&path);
        ops.extend([open(path.clone(), OFlags::RDWR, 0), Op::Unlink { path }]);
        ops
    };
    new("orphan-truncate", 2, setup, |_| {
        vec![
            Op::Ftruncate { slot: 0, size: PAGE as u64 - 1 },
            Op::Ftruncate { slot: 0, size: PAGE as u64 },
        ]
    })
}

#[cfg(test)]
mod tests;
