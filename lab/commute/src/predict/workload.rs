//! The workloads of `vfscale bench`, as calls of two workers.
//!
//! Undo calls, which are not recorded, revert the changes of a worker's calls. So the calls can be
//! repeated.
//!
//! Some workloads are smaller than in the bench, which changes the cost of an operation but not the
//! lines it shares: trees have 64 names, and a file is written and read in chunks of 64 KiB. In
//! `slob` all workers write, while in the bench every other worker only reads: a reader shares
//! nothing with a writer, but writers share lines with each other. `create-many-sync` is left out:
//! it is `create-many` with one sync for thousands of files. So are the workloads of the bench for
//! the slow side of a patch, the mixes of AIM7 but the short one, and those that repeat a call of
//! another one with more of its kind (`close-sockets`, `path-jobs`, `cat-fds`, `orphan-unlink`),
//! and of FxMark's those with a third party (`_bg`) and of filebench.

mod aim;
mod build;
mod fxmark;

pub use build::Workload;

use vfscale::posix::{OFlags, RenameFlags};

use crate::case::Op;
use build::{PAGE, file, file_of, mkdir, new, new_with_undo, open, opened};

/// Bytes of a chunk of a large file.
const PIECE: usize = 64 << 10;
/// Number of files that a worker creates in one operation.
const MANY: u64 = 16;
/// Number of directories of the shared tree, and of files in each.
const TREE: [u8; 2] = [8, 8];
/// Number of names from one file that `git-diff` reads to the next.
const GIT_READS: usize = 50;
/// Size of a block of `slob`'s database.
const BLOCK: usize = 8 << 10;
/// Size of a value of `kv-put`.
const VALUE: usize = 2 << 10;
/// Size of a record of `slob`'s redo log.
const REDO: usize = 2 << 10;

/// Returns all workloads.
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
        aim::short(),
        d_path(),
        find_size(),
        git_diff(),
        slob(),
        orphan_truncate(),
        touch(),
        create_many(),
        remove_many(),
        readdir_stat(),
        write_seq(),
        read_seq(),
        append_sync(),
        kv_put("kv-put", false),
        kv_put("kv-put-sync", true),
        kv_get(),
    ]
}

/// Returns FxMark's microbenchmarks.
#[must_use]
pub fn fxmark() -> Vec<Workload> {
    fxmark::all()
}

/// Returns the workload of a name.
#[must_use]
pub fn find(name: &str) -> Option<Workload> {
    all().into_iter().chain(fxmark()).find(|workload| workload.name == name)
}

fn lstat(path: String) -> Op {
    Op::Stat { path, follow: false }
}

/// Function that returns the path of a worker's file and its directory.
type WorkerFile = fn(u8) -> (String, String);

fn open_close(name: &'static str, place: WorkerFile) -> Workload {
    let setup = move |worker| {
        let (path, dir) = place(worker);
        let mut ops = file(&path);
        ops.push(Op::Chdir { path: dir });
        ops
    };
    new(name, 1, setup, move |worker| opened(&base_name(&place(worker).0), OFlags::RDONLY, []))
}

fn create_unlink(name: &'static str, place: WorkerFile) -> Workload {
    let setup = move |worker| vec![Op::Chdir { path: place(worker).1 }];
    new(name, 1, setup, move |worker| {
        let name = base_name(&place(worker).0);
        let mut ops = opened(&name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, []);
        ops.push(Op::Unlink { path: name });
        ops
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

fn tree_dir(dir: u8) -> String {
    format!("/all/t{dir}")
}

/// Iterates over the paths of all files of the tree.
fn tree_files() -> impl Iterator<Item = String> {
    let [dirs, files] = TREE;
    (0..dirs).flat_map(move |dir| (0..files).map(move |file| format!("{}/f{file}", tree_dir(dir))))
}

/// Makes a workload on the tree, whose operations are counted in names.
fn over_tree(name: &'static str, calls: impl Fn() -> Vec<Op>) -> Workload {
    let setup = |worker| {
        let dirs = (0..TREE[0]).map(|dir| mkdir(&tree_dir(dir)));
        let files = tree_files().flat_map(|path| file(&path));
        dirs.chain(files).filter(|_| worker == 0).collect()
    };
    let names = u32::from(TREE[0]) * u32::from(TREE[1]);
    new(name, names, setup, move |_| calls())
}

/// Reads every directory and stats the files in it.
fn read_and_stat() -> Vec<Op> {
    let (mut ops, mut files) = (Vec::new(), tree_files());
    for dir in 0..TREE[0] {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        ops.extend(opened(&tree_dir(dir), flags, [Op::Readdir { slot: 0 }]));
        ops.extend(files.by_ref().take(usize::from(TREE[1])).map(lstat));
    }
    ops
}

fn find_size() -> Workload {
    over_tree("find-size", read_and_stat)
}

fn readdir_stat() -> Workload {
    over_tree("readdir-stat", read_and_stat)
}

fn git_diff() -> Workload {
    over_tree("git-diff", || {
        let mut ops = Vec::new();
        for (n, path) in tree_files().enumerate() {
            ops.push(lstat(path.clone()));
            if n % GIT_READS == 0 {
                let read = Op::Pread { slot: 0, len: PAGE, offset: 0 };
                ops.extend(opened(&path, OFlags::RDONLY, [read]));
            }
        }
        ops
    })
}

fn slob() -> Workload {
    let (database, redo) = ("/all/db", |worker| format!("/all/redo{worker}"));
    let setup = move |worker| {
        let mut ops = file_of(database, 2 * BLOCK);
        ops.extend(file_of(&redo(worker), REDO));
        ops.extend([open(database.into(), OFlags::RDWR, 0), open(redo(worker), OFlags::RDWR, 1)]);
        ops
    };
    new("slob", 1, setup, |worker| {
        let offset = u64::from(worker) * BLOCK as u64;
        vec![
            Op::DPath { slot: 0 },
            Op::Pread { slot: 0, len: BLOCK, offset },
            Op::Pwrite { slot: 1, len: REDO, byte: 1, offset: 0 },
            Op::Pwrite { slot: 0, len: BLOCK, byte: 1, offset },
        ]
    })
}

/// Makes a workload that cuts a file by a byte, as Kara's program (2014) does from 4 KiB on; it is
/// extended again after two cuts, which does not count. The cut stays in memory until the file is
/// written back: no transaction is committed, and no file becomes an orphan. Without the patch each
/// cut takes a lock to ask whether the file is one.
fn orphan_truncate() -> Workload {
    let setup = |worker: u8| {
        let path = format!("/all/f{worker}");
        let mut ops = file(&path);
        ops.push(open(path, OFlags::RDWR, 0));
        ops
    };
    let cut = |bytes: u64| Op::Ftruncate { slot: 0, size: PAGE as u64 - bytes };
    let (cuts, extend) = (move |_| vec![cut(1), cut(2)], move |_| vec![cut(0)]);
    new_with_undo("orphan-truncate", 2, setup, cuts, extend)
}

/// Makes a workload that, on a volume, commits transactions of one inode that is already in the
/// log's list.
fn touch() -> Workload {
    let setup = |worker| {
        let path = format!("/w{worker}/f");
        file(&path).into_iter().chain([open(path, OFlags::RDWR, 0)]).collect()
    };
    new("touch", 2, setup, |_| [1, 2].map(|mtime| Op::Futimens { slot: 0, mtime }).into())
}

fn many(worker: u8) -> impl Iterator<Item = String> {
    (0..MANY).map(move |n| format!("/w{worker}/m{n}"))
}

fn created(worker: u8) -> Vec<Op> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    many(worker).flat_map(|path| opened(&path, flags, [])).collect()
}

fn removed(worker: u8) -> Vec<Op> {
    many(worker).map(|path| Op::Unlink { path }).collect()
}

fn create_many() -> Workload {
    new_with_undo("create-many", MANY as u32, |_| Vec::new(), created, removed)
}

fn remove_many() -> Workload {
    new_with_undo("remove-many", MANY as u32, created, removed, created)
}

/// Returns a set-up: a file of the worker's own, open in slot 0.
fn own_file(len: usize, flags: OFlags) -> impl Fn(u8) -> Vec<Op> {
    move |worker| {
        let path = format!("/w{worker}/f");
        file_of(&path, len).into_iter().chain([open(path, flags, 0)]).collect()
    }
}

/// Makes a workload that writes one MiB per operation in the bench and a chunk of 64 KiB here.
fn write_seq() -> Workload {
    let write = |_| vec![Op::Pwrite { slot: 0, len: PIECE, byte: 1, offset: 0 }];
    let undo = |_| vec![Op::Ftruncate { slot: 0, size: 0 }];
    new_with_undo("write-seq", 1, own_file(0, OFlags::RDWR), write, undo)
}

/// Makes a workload that reads one MiB per operation in the bench and a chunk of 64 KiB here.
fn read_seq() -> Workload {
    let read = |_| vec![Op::Pread { slot: 0, len: PIECE, offset: 0 }];
    new("read-seq", 1, own_file(PIECE, OFlags::RDONLY), read)
}

fn append_sync() -> Workload {
    let append = |_| vec![Op::Write { slot: 0, len: PAGE, byte: 1 }, Op::Fsync { slot: 0 }];
    let undo = |_| vec![Op::Ftruncate { slot: 0, size: 0 }];
    new_with_undo("append-sync", 1, own_file(0, OFlags::RDWR | OFlags::APPEND), append, undo)
}

fn key(worker: u8) -> String {
    format!("/all/key{worker}")
}

/// Makes a workload whose workers always meet in one directory; in the bench they do so in one of a
/// thousand.
fn kv_put(name: &'static str, is_durable: bool) -> Workload {
    let setup = |worker| file(&key(worker));
    new(name, 1, setup, move |worker| {
        let temporary = format!("{}.new", key(worker));
        let write = Op::Pwrite { slot: 0, len: VALUE, byte: 1, offset: 0 };
        let sync = || is_durable.then_some(Op::Fsync { slot: 0 });
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let mut ops = opened(&temporary, flags, [write].into_iter().chain(sync()));
        ops.push(Op::Rename { old: temporary, new: key(worker), flags: RenameFlags::empty() });
        if is_durable {
            ops.extend(opened("/all", OFlags::RDONLY | OFlags::DIRECTORY, sync()));
        }
        ops
    })
}

fn kv_get() -> Workload {
    let read = Op::Pread { slot: 0, len: PAGE, offset: 0 };
    let setup = |worker| file(&key(worker));
    new("kv-get", 1, setup, move |worker| opened(&key(worker), OFlags::RDONLY, [read.clone()]))
}

#[cfg(test)]
mod tests;
