//! The rules of inode flags (`chattr`) against those of tmpfs: the same calls with each flag.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfscale_difftest::campaign::Pairing;
use vfscale_difftest::campaign::lockstep;
use vfscale_difftest::campaign::pairing::{TmpfsAndVfscale, TmpfsAndVolume, TmpfsTwice};
use vfscale_testkit::calls::op::{CWD, Data, Op, PathArg, Probe, Step, Time};
use vfscale_testkit::calls::outcome::Outcome;

use crate::common::permitted;

const SYNC: u32 = 0x8;
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const NODUMP: u32 = 0x40;
const NOATIME: u32 = 0x80;

const RDONLY: i32 = libc::O_RDONLY;
const WRONLY: i32 = libc::O_WRONLY;
const RDWR: i32 = libc::O_RDWR;

fn path(text: &str) -> PathArg {
    PathArg::from(text)
}

fn open(name: &str, flags: i32) -> Op {
    let flags = (flags | libc::O_NONBLOCK | libc::O_CLOEXEC) as u32;
    Op::Open { at: CWD, path: path(name), flags, mode: 0o644 }
}

fn mkdir(name: &str) -> Op {
    Op::Mkdir { at: CWD, path: path(name), mode: 0o755 }
}

fn stat(name: &str) -> Op {
    Op::Stat { at: CWD, path: path(name), flags: 0 }
}

fn unlink(name: &str, flags: i32) -> Op {
    Op::Unlink { at: CWD, path: path(name), flags: flags as u32 }
}

fn rename(old: &str, new: &str, flags: u32) -> Op {
    Op::Rename { at: CWD, path: path(old), to_at: CWD, to: path(new), flags }
}

fn link(old: &str, new: &str) -> Op {
    Op::Link { at: CWD, path: path(old), to_at: CWD, to: path(new), flags: 0 }
}

fn times(name: &str, atime: Time, mtime: Time) -> Op {
    Op::Utimens { at: CWD, path: path(name), atime, mtime, flags: 0 }
}

fn pwrite(fd: i32, off: u64) -> Op {
    Op::Pwrite { fd, data: Data::Run { seed: 9, len: 10 }, off }
}

/// Descriptors that the calls below use: of the file, opened for writing and for appending, and of
/// the directory.
const WRITER: i32 = 0;
const APPENDER: i32 = 1;
const DIR: i32 = 2;
/// The next descriptor, of whatever a call opens.
const NEXT: i32 = 3;

/// Makes the files, before there are flags.
fn prepare() -> Vec<Op> {
    let create = libc::O_CREAT;
    vec![
        open("/f", create | RDWR),
        pwrite(WRITER, 0),
        open("/f", WRONLY | libc::O_APPEND),
        mkdir("/d"),
        mkdir("/d/sub"),
        mkdir("/e"),
        open("/d/old", create | WRONLY),
        Op::Close { fd: 2 },
        open("/d", libc::O_DIRECTORY),
    ]
}

/// Opens the file in each way, and closes it again.
fn opens() -> Vec<Op> {
    let ways = [
        RDONLY,
        WRONLY,
        RDWR,
        RDONLY | libc::O_TRUNC,
        WRONLY | libc::O_APPEND,
        RDWR | libc::O_APPEND,
        WRONLY | libc::O_APPEND | libc::O_TRUNC,
        RDWR | libc::O_CREAT,
        RDWR | libc::O_CREAT | libc::O_EXCL,
        RDONLY | libc::O_NOATIME,
        libc::O_PATH,
        3,
        3 | libc::O_APPEND,
    ];
    ways.into_iter().flat_map(|way| [open("/f", way), Op::Close { fd: NEXT }]).collect()
}

/// Uses the descriptors that were opened before.
fn uses() -> Vec<Op> {
    let fallocate = |mode| Op::Fallocate { fd: WRITER, mode, off: 0, len: 5000 };
    let appends = (libc::O_APPEND | libc::O_NONBLOCK) as u32;
    vec![
        pwrite(WRITER, 3),
        Op::Write { fd: APPENDER, data: Data::Run { seed: 1, len: 7 } },
        Op::Ftruncate { fd: WRITER, len: 20 },
        Op::Ftruncate { fd: APPENDER, len: 30 },
        fallocate(0),
        fallocate(libc::FALLOC_FL_KEEP_SIZE as u32),
        fallocate((libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32),
        Op::CopyRange { from: WRITER, off_in: Some(0), to: WRITER, off_out: Some(50), len: 5 },
        Op::SetFlags { fd: APPENDER, flags: libc::O_NONBLOCK as u32 },
        Op::GetFlags { fd: APPENDER },
        Op::SetFlags { fd: APPENDER, flags: appends },
        Op::SetFlags { fd: WRITER, flags: appends },
        Op::SetFlags { fd: WRITER, flags: libc::O_NONBLOCK as u32 },
        Op::Fsync { fd: WRITER, data_only: false },
        Op::Pread { fd: WRITER, len: 10, off: 0 },
        Op::Truncate { path: path("/f"), len: 4 },
        Op::Truncate { path: path("/f"), len: 0 },
    ]
}

/// Changes attributes of a file or directory.
fn attributes(name: &str) -> Vec<Op> {
    let set = |how: i32| Op::Setxattr {
        at: CWD,
        path: path(name),
        name: path("user.x"),
        value: b"value".to_vec(),
        how: how as u32,
        flags: 0,
    };
    let remove = |attr| Op::Removexattr { at: CWD, path: path(name), name: path(attr), flags: 0 };
    let chown = |uid, gid| Op::Chown { at: CWD, path: path(name), uid, gid, flags: 0 };
    let access = |mode| Op::Access { at: CWD, path: path(name), mode, flags: 0 };
    vec![
        Op::Chmod { at: CWD, path: path(name), mode: 0o700, flags: 0 },
        Op::Chmod { at: CWD, path: path(name), mode: 0o755, flags: 0 },
        chown(Some(0), None),
        chown(None, Some(5)),
        chown(None, None),
        times(name, Time::Now, Time::Now),
        times(name, Time::Now, Time::Omit),
        times(name, Time::At(5, 6), Time::At(7, 8)),
        times(name, Time::Omit, Time::Omit),
        set(0),
        set(libc::XATTR_REPLACE),
        remove("user.x"),
        remove("user.none"),
        remove("system.posix_acl_access"),
        access(libc::W_OK as u32),
        access(libc::R_OK as u32),
        stat(name),
    ]
}

/// Changes names of the file, and in the directory.
fn names() -> Vec<Op> {
    let exchange = libc::RENAME_EXCHANGE;
    let dir = libc::AT_REMOVEDIR;
    vec![
        link("/f", "/g"),
        link("/f", "/d/link"),
        unlink("/g", 0),
        rename("/f", "/h", 0),
        rename("/h", "/f", 0),
        rename("/f", "/e", exchange),
        rename("/e", "/f", exchange),
        open("/d/new", libc::O_CREAT | WRONLY),
        Op::Close { fd: NEXT },
        open("/d", libc::O_TMPFILE | RDWR),
        Op::Close { fd: NEXT },
        mkdir("/d/made"),
        Op::Mknod { at: CWD, path: path("/d/fifo"), mode: libc::S_IFIFO | 0o644, rdev: 0 },
        Op::Symlink { target: path("t"), at: CWD, path: path("/d/symlink") },
        Op::ReadDir { fd: DIR },
        rename("/d/old", "/d/other", 0),
        rename("/d/other", "/d/old", 0),
        rename("/d/old", "/d/new", 0),
        rename("/d/sub", "/moved", 0),
        rename("/moved", "/d/sub", 0),
        rename("/d", "/dd", 0),
        rename("/dd", "/d", 0),
        rename("/d", "/e", 0),
        rename("/e", "/d", 0),
        unlink("/d/new", 0),
        unlink("/d/fifo", 0),
        unlink("/d/symlink", 0),
        unlink("/d/link", 0),
        unlink("/d/made", dir),
        unlink("/d", dir),
        Op::ReadDir { fd: DIR },
    ]
}

/// Looks at the flags, sets others, and looks at those that new files have.
fn flag_calls(flags: u32) -> Vec<Op> {
    let mut ops = Vec::new();
    for fd in [WRITER, DIR, NEXT, 77] {
        ops.push(Op::GetInodeFlags { fd });
    }
    for name in ["/d/inherits", "/d/dir"] {
        let make = if name.ends_with("dir") { mkdir(name) } else { open(name, libc::O_CREAT) };
        ops.extend([make, Op::Close { fd: NEXT }, open(name, RDONLY)]);
        ops.extend([Op::GetInodeFlags { fd: NEXT }, Op::Close { fd: NEXT }]);
    }
    // Owner and user 0 without capabilities, and others.
    for user in [1, 4, 7, 0] {
        ops.push(Op::SetUser { user });
        for fd in [WRITER, DIR] {
            ops.push(Op::SetInodeFlags { fd, flags });
            ops.push(Op::SetInodeFlags { fd, flags: flags ^ NODUMP });
            ops.push(Op::SetInodeFlags { fd, flags });
            ops.push(Op::SetInodeFlags { fd, flags: flags ^ IMMUTABLE });
            ops.push(Op::SetInodeFlags { fd, flags: flags | 0x4 });
            ops.push(Op::SetInodeFlags { fd, flags });
            ops.push(Op::GetInodeFlags { fd });
        }
    }
    ops.extend([open("/f", libc::O_PATH), Op::GetInodeFlags { fd: NEXT }]);
    ops.extend([Op::SetInodeFlags { fd: NEXT, flags }, Op::Close { fd: NEXT }]);
    ops.extend([Op::Mknod { at: CWD, path: path("/p"), mode: libc::S_IFIFO | 0o644, rdev: 0 }]);
    ops.extend([open("/p", RDWR), Op::GetInodeFlags { fd: NEXT }]);
    ops.extend([Op::SetInodeFlags { fd: NEXT, flags: 0 }, Op::Close { fd: NEXT }]);
    ops
}

/// Returns the calls with `flags` on the file and the directory.
fn script(flags: u32) -> Arc<Vec<Step>> {
    let set = |flags| [WRITER, DIR].map(|fd| Op::SetInodeFlags { fd, flags });
    let mut ops = prepare();
    ops.extend(set(flags));
    ops.extend(flag_calls(flags));
    ops.extend(opens());
    ops.extend(uses());
    for name in ["/f", "/d", "/d/old"] {
        ops.extend(attributes(name));
    }
    ops.extend(names());
    // An ordinary user gets the errors of rights after those of flags.
    ops.push(Op::SetUser { user: 2 });
    ops.extend([open("/f", WRONLY), open("/f", RDONLY), Op::Close { fd: NEXT }]);
    ops.extend([unlink("/f", 0), mkdir("/d/theirs"), unlink("/d/old", 0)]);
    ops.extend(attributes("/f"));
    ops.push(Op::SetUser { user: 0 });
    ops.extend(set(0));
    ops.extend(names());
    // A probe sets the times of all files, which those flags forbid.
    let may_probe = flags & (IMMUTABLE | APPEND) == 0;
    let step = |op: Op| {
        let reads = matches!(op, Op::Pread { .. } | Op::ReadDir { .. });
        Step { task: 0, probe: (may_probe && reads).then_some(Probe::Past), op }
    };
    Arc::new(ops.into_iter().map(step).collect())
}

/// Plays the calls with each set of flags. Returns how often each call had each outcome.
fn compare(pairing: &impl Pairing, all: &[u32]) -> BTreeMap<(&'static str, String), u32> {
    let mut seen = BTreeMap::new();
    for &flags in all {
        let (mut oracle, mut subject) = pairing.fresh().unwrap();
        let played = lockstep::play(&mut oracle, &mut subject, &script(flags));
        let (_, log) = played.unwrap_or_else(|found| panic!("with flags {flags:#x}:\n{found}"));
        for (step, outcome) in log {
            let kind = match outcome {
                Outcome::Ok(_) => "ok".to_owned(),
                other => format!("{other:?}"),
            };
            *seen.entry((step.op.name(), kind)).or_default() += 1;
        }
    }
    seen
}

/// The flags that tmpfs has, and some together.
const OF_TMPFS: [u32; 7] =
    [0, IMMUTABLE, APPEND, NODUMP, NOATIME, IMMUTABLE | APPEND, APPEND | NODUMP | NOATIME];

#[test]
fn flags_have_the_rules_of_tmpfs() {
    if !permitted() {
        return;
    }
    compare(&TmpfsTwice::default(), &OF_TMPFS);
    let seen = compare(&TmpfsAndVfscale::default(), &[&OF_TMPFS[..], &[SYNC, 0x4]].concat());
    let refused: Vec<_> = seen.keys().filter(|(_, kind)| kind.contains("EPERM")).collect();
    let calls: Vec<_> = refused.iter().map(|(name, _)| *name).collect();
    for call in [
        "copy_file_range",
        "faccessat",
        "fallocate",
        "fchmodat",
        "fchownat",
        "ftruncate",
        "linkat",
        "mkdirat",
        "mknodat",
        "openat",
        "removexattr",
        "renameat2",
        "setfl",
        "setflags",
        "setxattr",
        "symlinkat",
        "truncate",
        "unlinkat",
        "utimensat",
    ] {
        assert!(calls.contains(&call), "{call} was never refused: {seen:?}");
    }
}

#[test]
fn flags_on_a_volume_have_the_rules_of_tmpfs() {
    if permitted() {
        compare(&TmpfsAndVolume::default(), &OF_TMPFS);
    }
}
