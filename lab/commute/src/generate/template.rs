//! The calls of each kind, without paths and slots.

use vfscale::Mode;
use vfscale::posix::{OFlags, RenameFlags, StatMask, Whence, XattrFlags};

use crate::case::{CallKind, Op};
use crate::model::PAGE;

/// Byte that fills the pages and attributes of a starting state.
pub(super) const OLD: u8 = 7;

/// Mode of new files; the umask does not change it.
pub(super) const FILE_MODE: Mode = Mode::from_bits_retain(0o644);
/// Mode of new directories; the umask does not change it.
pub(super) const DIR_MODE: Mode = Mode::from_bits_retain(0o755);

/// Name of the attribute that files of a starting state may have.
pub(super) const XATTR: &str = "user.k";
/// Length of an attribute's value in bytes.
pub(super) const XATTR_BYTES: usize = 8;

/// Bytes that the two calls may write: the second call the first call's byte, another one, or the
/// present one.
const FIRST_BYTES: [u8; 2] = [1, OLD];
const BYTES: [u8; 3] = [1, 2, OLD];

/// Properties that two kinds of calls can observe. Starting states that differ only in other
/// properties are not made.
#[derive(Clone, Copy, Default)]
pub(super) struct Sees {
    pub(super) sizes: bool,
    pub(super) positions: bool,
    pub(super) access: bool,
    pub(super) xattrs: bool,
    pub(super) cwd: bool,
}

impl Sees {
    pub(super) fn of(kinds: [CallKind; 2]) -> Sees {
        use CallKind::{
            Chdir, Fstat, Getcwd, Getxattr, Lseek, Open, Pread, Pwrite, Read, Setxattr, Stat,
            Statx, Truncate, Write,
        };
        let any = |of: &[CallKind]| kinds.iter().any(|kind| of.contains(kind));
        Sees {
            sizes: any(&[Open, Stat, Statx, Fstat, Truncate, Pread, Pwrite, Read, Write, Lseek]),
            positions: any(&[Read, Write, Lseek]),
            access: any(&[Pread, Pwrite, Read, Write]),
            xattrs: any(&[Setxattr, Getxattr]),
            cwd: any(&[Getcwd, Chdir]),
        }
    }
}

/// Returns all calls of a kind. The first of two calls needs fewer values, since they are numbered
/// by appearance.
pub(super) fn templates(kind: CallKind, is_first: bool) -> Vec<Op> {
    let bytes = if is_first { &FIRST_BYTES[..] } else { &BYTES };
    match kind {
        CallKind::Open => open_flags().into_iter().map(open).collect(),
        CallKind::Tmpfile => vec![open(OFlags::TMPFILE | OFlags::RDWR)],
        CallKind::Stat => [true, false].map(|follow| Op::Stat { path: path(), follow }).into(),
        CallKind::Statx => {
            // Without times, and without all attributes that change with names and data.
            let masks = [StatMask::NO_TIMES, StatMask::MODE | StatMask::UID | StatMask::GID];
            masks.map(|mask| Op::Statx { path: path(), mask }).into()
        }
        CallKind::Rename => {
            let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
            flags.map(|flags| Op::Rename { old: path(), new: path(), flags }).into()
        }
        CallKind::Truncate => {
            (0..4).map(|pages| Op::Truncate { path: path(), size: pages * PAGE }).collect()
        }
        CallKind::Write => bytes.iter().map(|&byte| write(byte)).collect(),
        CallKind::Pread => (0..3)
            .map(|page| Op::Pread { slot: 0, len: PAGE as usize, offset: page * PAGE })
            .collect(),
        CallKind::Pwrite => {
            (0..3).flat_map(|page| bytes.iter().map(move |&byte| pwrite(page, byte))).collect()
        }
        CallKind::Lseek => seeks().into_iter().map(|to| Op::Lseek { slot: 0, to }).collect(),
        CallKind::Setxattr => setxattrs(bytes, is_first),
        CallKind::Getxattr => xattr_names(is_first)
            .iter()
            .map(|&name| Op::Getxattr { path: path(), name: name.into() })
            .collect(),
        CallKind::Chmod => {
            let modes = if is_first { &[0o600, 0o644][..] } else { &[0o600, 0o640, 0o644] };
            let chmod = |&mode| Op::Chmod { path: path(), mode: Mode::from_bits_retain(mode) };
            modes.iter().map(chmod).collect()
        }
        other => vec![simple(other)],
    }
}

/// Returns a placeholder for a path.
fn path() -> String {
    String::new()
}

fn open(flags: OFlags) -> Op {
    Op::Open { path: path(), flags, mode: FILE_MODE, slot: 0 }
}

fn open_flags() -> [OFlags; 9] {
    let create = OFlags::CREATE | OFlags::RDWR;
    [
        OFlags::RDONLY,
        OFlags::RDWR,
        OFlags::WRONLY | OFlags::APPEND,
        create,
        create | OFlags::EXCL,
        create | OFlags::TRUNC,
        OFlags::RDWR | OFlags::TRUNC,
        OFlags::DIRECTORY,
        OFlags::NOFOLLOW,
    ]
}

fn write(byte: u8) -> Op {
    Op::Write { slot: 0, len: PAGE as usize, byte }
}

pub(super) fn pwrite(page: u64, byte: u8) -> Op {
    Op::Pwrite { slot: 0, len: PAGE as usize, byte, offset: page * PAGE }
}

fn seeks() -> [Whence; 8] {
    [
        Whence::Set(0),
        Whence::Set(PAGE),
        Whence::Current(0),
        Whence::Current(PAGE as i64),
        Whence::Current(-(PAGE as i64)),
        Whence::End(0),
        Whence::Data(0),
        Whence::Hole(0),
    ]
}

fn xattr_names(is_first: bool) -> &'static [&'static str] {
    if is_first { &[XATTR] } else { &[XATTR, "user.m"] }
}

fn setxattrs(bytes: &[u8], is_first: bool) -> Vec<Op> {
    let mut found = Vec::new();
    for name in xattr_names(is_first) {
        for &byte in bytes {
            for how in [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE] {
                found.push(setxattr(path(), name, byte, how));
            }
        }
    }
    found
}

pub(super) fn setxattr(path: String, name: &str, byte: u8, how: XattrFlags) -> Op {
    Op::Setxattr { path, name: name.into(), len: XATTR_BYTES, byte, how }
}

/// Returns the call of a kind that has only one.
fn simple(kind: CallKind) -> Op {
    match kind {
        CallKind::Link => Op::Link { old: path(), new: path() },
        CallKind::Unlink => Op::Unlink { path: path() },
        CallKind::Mkdir => Op::Mkdir { path: path(), mode: DIR_MODE },
        CallKind::Rmdir => Op::Rmdir { path: path() },
        CallKind::Symlink => Op::Symlink { target: "nowhere".into(), path: path() },
        CallKind::Readlink => Op::Readlink { path: path() },
        CallKind::Chdir => Op::Chdir { path: path() },
        CallKind::Lookup => Op::Lookup { path: path() },
        CallKind::Close => Op::Close { slot: 0 },
        CallKind::Fstat => Op::Fstat { slot: 0 },
        CallKind::Read => Op::Read { slot: 0, len: PAGE as usize },
        CallKind::Pipe => Op::Pipe { reader: 0, writer: 0 },
        CallKind::Readdir => Op::Readdir { slot: 0 },
        CallKind::DPath => Op::DPath { slot: 0 },
        CallKind::Fsync => Op::Fsync { slot: 0 },
        _ => Op::Getcwd {},
    }
}
