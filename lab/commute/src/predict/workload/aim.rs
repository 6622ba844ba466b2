//! AIM7's short mix: one job of each of its 17 kinds, as `aim-short` of the bench has them.

use vfscale::posix::{OFlags, RenameFlags};

use super::build::{PAGE, Workload, file_of, mkdir, new, open, opened};
use crate::case::Op;

/// Files that all users read.
const ACCOUNTS: [&str; 2] = ["/all/passwd", "/all/group"];
const ACCOUNTS_BYTES: usize = 2_000;
/// Search path for programs; only the last one exists.
const PROGRAMS: [&str; 4] =
    ["/all/bin0/prog", "/all/bin1/prog", "/all/bin2/prog", "/all/bin3/prog"];
/// Size of a program and of a user's file.
const DATA_BYTES: usize = 16 << 10;
const UNIT: usize = 1 << 10;
const LISTED: u8 = 20;
const JOBS: u32 = 17;

pub(super) fn short() -> Workload {
    new("aim-short", JOBS, setup, |user| {
        [disks(user), names(user), programs(user), accounts()].concat()
    })
}

fn setup(user: u8) -> Vec<Op> {
    let mut ops = Vec::new();
    if user == 0 {
        ops.extend(ACCOUNTS.iter().flat_map(|path| file_of(path, ACCOUNTS_BYTES)));
        ops.extend(PROGRAMS.iter().map(|path| mkdir(path.trim_end_matches("/prog"))));
        ops.extend(file_of(PROGRAMS[3], DATA_BYTES));
    }
    ops.push(mkdir(&own(user, "list")));
    ops.extend((0..LISTED).flat_map(|n| file_of(&listed(user, n), 0)));
    ops.extend(["data", "copy"].iter().flat_map(|name| file_of(&own(user, name), DATA_BYTES)));
    ops
}

fn own(user: u8, name: &str) -> String {
    format!("/w{user}/{name}")
}

fn listed(user: u8, n: u8) -> String {
    own(user, &format!("list/l{n}"))
}

/// Reads or writes a file in units.
fn pieces(path: &str, flags: OFlags, write: bool, sync: bool) -> Vec<Op> {
    let piece = |offset: usize| match (write, offset as u64) {
        (true, offset) => Op::Pwrite { slot: 0, len: UNIT, byte: 1, offset },
        (false, offset) => Op::Pread { slot: 0, len: UNIT, offset },
    };
    let sync = sync.then_some(Op::Fsync { slot: 0 });
    opened(path, flags, (0..DATA_BYTES).step_by(UNIT).map(piece).chain(sync))
}

/// Lists the calls of `disk_rr`, `disk_rw`, `sync_disk_rw`, `disk_rd`, `disk_wrt`, `sync_disk_wrt`,
/// `disk_cp`, `sync_disk_cp` and `disk_src`.
fn disks(user: u8) -> Vec<Op> {
    let [data, copy] = ["data", "copy"].map(|name| own(user, name));
    let mut ops = pieces(&data, OFlags::RDWR, false, false);
    for sync in [false, true] {
        ops.extend(pieces(&data, OFlags::RDWR, true, sync));
        ops.extend(pieces(&data, OFlags::WRONLY, true, sync));
        ops.extend(pieces(&data, OFlags::RDONLY, false, false));
        ops.extend(pieces(&copy, OFlags::WRONLY | OFlags::TRUNC, true, sync));
    }
    ops.extend(pieces(&data, OFlags::RDONLY, false, false));
    ops.extend((0..LISTED).map(|n| Op::Stat { path: listed(user, n), follow: true }));
    ops
}

/// Lists the calls of `creat-clo`, `link_test` and `shell_rtns_3`.
fn names(user: u8) -> Vec<Op> {
    let [data, free, dir, inner] = ["data", "x", "z", "z/in"].map(|name| own(user, name));
    let unlink = |path: &str| Op::Unlink { path: path.into() };
    let mut ops = Vec::new();
    for _ in 0..10 {
        ops.extend(opened(&free, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, []));
        ops.push(unlink(&free));
    }
    for _ in 0..10 {
        ops.extend([Op::Link { old: data.clone(), new: free.clone() }, unlink(&free)]);
    }
    ops.push(mkdir(&dir));
    ops.extend(file_of(&inner, PAGE));
    ops.extend([unlink(&inner), Op::Rmdir { path: dir }]);
    ops
}

/// Lists the calls of `dir_rtns_1`, `exec_test`, `shell_rtns_1` and `shell_rtns_2`.
fn programs(user: u8) -> Vec<Op> {
    let [list, script, renamed] = ["list", "x", "y"].map(|name| own(user, name));
    let listed = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        (0..5).flat_map(move |_| opened(&list.clone(), flags, [Op::Readdir { slot: 0 }]))
    };
    let mut ops: Vec<Op> = listed().collect();
    for _ in 0..3 {
        // The directory exists, but the program is not in it.
        ops.extend(PROGRAMS.map(|path| {
            let dir = path.trim_end_matches("/prog");
            Op::Stat { path: if path == PROGRAMS[3] { path } else { dir }.into(), follow: true }
        }));
        ops.extend(pieces(PROGRAMS[3], OFlags::RDONLY, false, false));
    }
    ops.extend(file_of(&script, PAGE));
    ops.push(Op::Rename { old: script, new: renamed.clone(), flags: RenameFlags::empty() });
    ops.push(Op::Unlink { path: renamed });
    ops
}

/// Lists the calls of `misc_rtns_1`: lookups of users and groups.
fn accounts() -> Vec<Op> {
    let read = |path: &&str| {
        vec![
            open((*path).into(), OFlags::RDONLY, 0),
            Op::Pread { slot: 0, len: UNIT, offset: 0 },
            Op::Pread { slot: 0, len: UNIT, offset: UNIT as u64 },
            Op::Close { slot: 0 },
        ]
    };
    let three = [ACCOUNTS[0], ACCOUNTS[0], ACCOUNTS[1]];
    (0..3).flat_map(|_| three.iter().flat_map(read)).collect()
}
