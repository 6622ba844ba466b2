//! Formatting of calls: one short line each, flags by name.

use std::fmt;

use crate::calls::op::{CWD, Data, LockRange, Op, PathArg, Seek, Step, Time};

/// Names of `O_*` bits, without the access mode.
const OPEN: &[(u64, &str)] = &[
    (libc::O_CREAT as u64, "CREAT"),
    (libc::O_EXCL as u64, "EXCL"),
    (libc::O_NOCTTY as u64, "NOCTTY"),
    (libc::O_TRUNC as u64, "TRUNC"),
    (libc::O_APPEND as u64, "APPEND"),
    (libc::O_NONBLOCK as u64, "NONBLOCK"),
    (libc::O_TMPFILE as u64, "TMPFILE"),
    (libc::O_SYNC as u64, "SYNC"),
    (libc::O_DSYNC as u64, "DSYNC"),
    (libc::O_DIRECT as u64, "DIRECT"),
    (libc::O_DIRECTORY as u64, "DIRECTORY"),
    (libc::O_NOFOLLOW as u64, "NOFOLLOW"),
    (libc::O_NOATIME as u64, "NOATIME"),
    (libc::O_CLOEXEC as u64, "CLOEXEC"),
    (libc::O_PATH as u64, "PATH"),
];

const AT: &[(u64, &str)] = &[
    (libc::AT_SYMLINK_NOFOLLOW as u64, "NOFOLLOW"),
    (libc::AT_REMOVEDIR as u64, "REMOVEDIR|EACCESS"),
    (libc::AT_SYMLINK_FOLLOW as u64, "FOLLOW"),
    (libc::AT_NO_AUTOMOUNT as u64, "NO_AUTOMOUNT"),
    (libc::AT_EMPTY_PATH as u64, "EMPTY_PATH"),
];

const RESOLVE: &[(u64, &str)] = &[
    (1, "NO_XDEV"),
    (2, "NO_MAGICLINKS"),
    (4, "NO_SYMLINKS"),
    (8, "BENEATH"),
    (16, "IN_ROOT"),
    (32, "CACHED"),
];

const RENAME: &[(u64, &str)] = &[(1, "NOREPLACE"), (2, "EXCHANGE"), (4, "WHITEOUT")];

const FALLOC: &[(u64, &str)] = &[
    (1, "KEEP_SIZE"),
    (2, "PUNCH_HOLE"),
    (8, "COLLAPSE_RANGE"),
    (16, "ZERO_RANGE"),
    (32, "INSERT_RANGE"),
    (64, "UNSHARE_RANGE"),
];

const MOUNT: &[(u64, &str)] = &[
    (1, "RDONLY"),
    (2, "NOSUID"),
    (4, "NODEV"),
    (8, "NOEXEC"),
    (256, "NOSYMFOLLOW"),
    (1024, "NOATIME"),
    (2048, "NODIRATIME"),
    (1 << 21, "RELATIME"),
    (1 << 24, "STRICTATIME"),
];

const PROPAGATION: &[(u64, &str)] = &[
    (libc::MS_UNBINDABLE, "UNBINDABLE"),
    (libc::MS_PRIVATE, "PRIVATE"),
    (libc::MS_SLAVE, "SLAVE"),
    (libc::MS_SHARED, "SHARED"),
    (libc::MS_REC, "REC"),
];

const UMOUNT: &[(u64, &str)] = &[(1, "FORCE"), (2, "DETACH"), (4, "EXPIRE"), (8, "NOFOLLOW")];

/// A bitmap, formatted as names, with unknown bits in hexadecimal.
struct Bits(u64, &'static [(u64, &'static str)]);

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut first = true;
        // Names of several bits are matched first, so their parts are not named too.
        let mut table: Vec<_> = self.1.to_vec();
        table.sort_by_key(|(bits, _)| std::cmp::Reverse(bits.count_ones()));
        for (bits, name) in table {
            if rest & bits == bits {
                rest &= !bits;
                write!(f, "{}{name}", if first { "" } else { "|" })?;
                first = false;
            }
        }
        match (rest, first) {
            (0, false) => Ok(()),
            (0, true) => f.write_str("0"),
            (_, true) => write!(f, "{rest:#x}"),
            (_, false) => write!(f, "|{rest:#x}"),
        }
    }
}

/// Open flags with the access mode.
pub(crate) struct Open(pub u64);

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["RDONLY", "WRONLY", "RDWR", "ACC3"][(self.0 & 3) as usize])?;
        let rest = self.0 & !3;
        if rest != 0 { write!(f, "|{}", Bits(rest, OPEN)) } else { Ok(()) }
    }
}

struct At(i32);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == CWD { f.write_str("CWD") } else { write!(f, "{}", self.0) }
    }
}

impl fmt::Debug for PathArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for PathArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        let mut rest = self.0.as_slice();
        // A long run of one byte or of "./" is shortened, for long names and long paths.
        while let Some(&byte) = rest.first() {
            let run = rest.iter().take_while(|&&b| b == byte).count();
            let dots = rest.chunks(2).take_while(|c| *c == b"./").count();
            if run > 20 {
                write!(f, "{}*{run}", [byte].escape_ascii())?;
                rest = &rest[run..];
            } else if dots > 20 {
                write!(f, "(./)*{dots}")?;
                rest = &rest[dots * 2..];
            } else {
                write!(f, "{}", [byte].escape_ascii())?;
                rest = &rest[1..];
            }
        }
        f.write_str("\"")
    }
}

struct Off(Option<u64>);

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(off) => write!(f, "@{off}"),
            None => f.write_str("@pos"),
        }
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Run { seed, len } => write!(f, "{seed}x{len}"),
            Data::Tagged { tag, at, len } => write!(f, "tag {tag}[{at}]x{len}"),
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Time::Omit => f.write_str("omit"),
            Time::Now => f.write_str("now"),
            Time::At(secs, nanos) => write!(f, "{secs}.{nanos:09}"),
        }
    }
}

struct Id(Option<u32>);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => write!(f, "{id}"),
            None => f.write_str("-1"),
        }
    }
}

impl fmt::Display for LockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start, self.len)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name())?;
        match self {
            Op::Open { at, path, flags, mode } => {
                write!(f, "{}, {path}, {}, {mode:#o}", At(*at), Open((*flags).into()))
            }
            Op::Openat2 { at, path, flags, mode, resolve } => {
                let resolve = Bits(*resolve, RESOLVE);
                write!(f, "{}, {path}, {}, {mode:#o}, {resolve}", At(*at), Open(*flags))
            }
            Op::Reopen { fd, flags } | Op::SetFlags { fd, flags } => {
                write!(f, "{fd}, {}", Open((*flags).into()))
            }
            Op::SetInodeFlags { fd, flags } => write!(f, "{fd}, {flags:#x}"),
            Op::Dup2 { fd, to } => write!(f, "{fd}, {to}"),
            Op::Dup3 { fd, to, flags } => write!(f, "{fd}, {to}, {}", Open((*flags).into())),
            Op::Close { fd }
            | Op::Dup { fd }
            | Op::GetFlags { fd }
            | Op::GetInodeFlags { fd }
            | Op::GetCloexec { fd }
            | Op::ReadDir { fd }
            | Op::Syncfs { fd }
            | Op::Fchdir { fd }
            | Op::PathOf { fd } => write!(f, "{fd}"),
            Op::DupFrom { fd, min, cloexec } => write!(f, "{fd}, {min}, cloexec={cloexec}"),
            Op::SetCloexec { fd, on } => write!(f, "{fd}, {on}"),
            Op::Umask { mode } => write!(f, "{mode:#o}"),
            Op::SetUser { user } => write!(f, "{}", crate::calls::users::USERS[*user].name),
            Op::Fork { into } => write!(f, "as t{into}"),
            Op::Chdir { path } | Op::Chroot { path } => write!(f, "{path}"),
            Op::Getcwd | Op::Trim => Ok(()),
            _ => show_data(self, f),
        }?;
        f.write_str(")")
    }
}

fn show_data(op: &Op, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match op {
        Op::Read { fd, len } => write!(f, "{fd}, {len}"),
        Op::Write { fd, data } => write!(f, "{fd}, {data}"),
        Op::Pread { fd, len, off } => write!(f, "{fd}, {len}, @{off}"),
        Op::Pwrite { fd, data, off } => write!(f, "{fd}, {data}, @{off}"),
        Op::Readv { fd, lens, off } => write!(f, "{fd}, {lens:?}, {}", Off(*off)),
        Op::Writev { fd, parts, off } => {
            write!(f, "{fd}, [")?;
            for part in parts {
                write!(f, "{part} ")?;
            }
            write!(f, "], {}", Off(*off))
        }
        Op::Lseek { fd, whence, off } => {
            let name = match whence {
                Seek::Set => "SET",
                Seek::Cur => "CUR",
                Seek::End => "END",
                Seek::Data => "DATA",
                Seek::Hole => "HOLE",
            };
            write!(f, "{fd}, {name}, {off}")
        }
        Op::Ftruncate { fd, len } => write!(f, "{fd}, {len}"),
        Op::Truncate { path, len } => write!(f, "{path}, {len}"),
        Op::Fallocate { fd, mode, off, len } => {
            write!(f, "{fd}, {}, @{off}, {len}", Bits((*mode).into(), FALLOC))
        }
        Op::CopyRange { from, off_in, to, off_out, len } => {
            write!(f, "{from}, {}, {to}, {}, {len}", Off(*off_in), Off(*off_out))
        }
        Op::Fsync { fd, data_only } => write!(f, "{fd}, data_only={data_only}"),
        Op::Flock { fd, kind } => write!(f, "{fd}, {kind:?}"),
        Op::Lock { fd, ofd, kind, range } | Op::GetLock { fd, ofd, kind, range } => {
            write!(f, "{fd}, {}, {kind:?}, {range}", if *ofd { "OFD" } else { "POSIX" })
        }
        Op::OpenHandle { mount, slot, flags } => {
            write!(f, "{mount}, h{slot}, {}", Open((*flags).into()))
        }
        _ => show_names(op, f),
    }
}

fn show_names(op: &Op, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let bits = |flags: &u32| Bits((*flags).into(), AT);
    match op {
        Op::Stat { at, path, flags } | Op::Listxattr { at, path, flags } => {
            write!(f, "{}, {path}, {}", At(*at), bits(flags))
        }
        Op::Unlink { at, path, flags } => write!(f, "{}, {path}, {}", At(*at), bits(flags)),
        Op::Access { at, path, mode, flags } => {
            write!(f, "{}, {path}, {mode}, {}", At(*at), bits(flags))
        }
        Op::Mkdir { at, path, mode } => write!(f, "{}, {path}, {mode:#o}", At(*at)),
        Op::Mknod { at, path, mode, rdev } => {
            write!(f, "{}, {path}, {mode:#o}, {rdev:#x}", At(*at))
        }
        Op::Link { at, path, to_at, to, flags } => {
            write!(f, "{}, {path}, {}, {to}, {}", At(*at), At(*to_at), bits(flags))
        }
        Op::Symlink { target, at, path } => write!(f, "{target}, {}, {path}", At(*at)),
        Op::Readlink { at, path } | Op::Statfs { at, path } => write!(f, "{}, {path}", At(*at)),
        Op::Rename { at, path, to_at, to, flags } => {
            let flags = Bits((*flags).into(), RENAME);
            write!(f, "{}, {path}, {}, {to}, {flags}", At(*at), At(*to_at))
        }
        Op::Chmod { at, path, mode, flags } => {
            write!(f, "{}, {path}, {mode:#o}, {}", At(*at), bits(flags))
        }
        Op::Chown { at, path, uid, gid, flags } => {
            write!(f, "{}, {path}, {}, {}, {}", At(*at), Id(*uid), Id(*gid), bits(flags))
        }
        Op::Utimens { at, path, atime, mtime, flags } => {
            write!(f, "{}, {path}, {atime}, {mtime}, {}", At(*at), bits(flags))
        }
        Op::SaveHandle { at, path, flags, slot } => {
            write!(f, "{}, {path}, {}, h{slot}", At(*at), bits(flags))
        }
        _ => show_rest(op, f),
    }
}

fn show_rest(op: &Op, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let bits = |flags: &u32| Bits((*flags).into(), AT);
    match op {
        Op::Getxattr { at, path, name, flags } | Op::Removexattr { at, path, name, flags } => {
            write!(f, "{}, {path}, {name}, {}", At(*at), bits(flags))
        }
        Op::Setxattr { at, path, name, value, how, flags } => {
            let how = Bits((*how).into(), &[(1, "CREATE"), (2, "REPLACE")]);
            let head = &value[..value.len().min(64)];
            write!(f, "{}, {path}, {name}, {}x", At(*at), value.len())?;
            write!(f, "[{}], {how}, {}", head.escape_ascii(), bits(flags))
        }
        Op::SetPropagation { path, flags } => {
            write!(f, "{path}, {}", Bits((*flags).into(), PROPAGATION))
        }
        Op::Unshare { into } => write!(f, "as t{into}"),
        Op::Mounts => Ok(()),
        Op::Mount { path, flags } | Op::Remount { path, flags } => {
            write!(f, "{path}, {}", Bits((*flags).into(), MOUNT))
        }
        Op::RemountBind { path, flags } => write!(f, "{path}, {}", Bits((*flags).into(), MOUNT)),
        Op::Bind { source, target, recursive } => {
            write!(f, "{source}, {target}, recursive={recursive}")
        }
        Op::MoveMount { source, target } => write!(f, "{source}, {target}"),
        Op::Umount { path, flags } => write!(f, "{path}, {}", Bits((*flags).into(), UMOUNT)),
        other => write!(f, "{other:?}"),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{} {}", self.task, self.op)?;
        match self.probe {
            Some(probe) => write!(f, "  [probe {probe:?}]"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
