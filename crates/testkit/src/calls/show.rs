//! Formatting of calls: one short line each, flags by name.

use std::fmt;

use crate::calls::op::{CWD, Data, LockKind, LockRange, Op, PathArg, Seek, Step, Time};
use crate::calls::table::every_call;
use crate::calls::users::USERS;

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
struct Open(u64);

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

macro_rules! display {
    ($($call:ident $name:literal { $($arg:ident: $kind:ident),* })*) => {
        impl fmt::Display for Op {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let args: Vec<String> = match self {
                    $(Op::$call { $($arg),* } => vec![$(text::$kind(stringify!($arg), $arg)),*]),*
                };
                write!(f, "{}({})", self.name(), args.join(", "))
            }
        }
    };
}

every_call!(display);

/// The texts of arguments, by kind.
mod text {
    use super::*;

    /// Makes functions that print an argument, given its name, by an expression.
    macro_rules! texts {
        ($($kind:ident($name:pat, $arg:ident: $type:ty) = $text:expr;)*) => {
            $(pub(super) fn $kind($name: &str, $arg: &$type) -> String { $text.to_string() })*
        };
    }

    texts! {
        at(_, fd: i32) = At(*fd);
        fd(_, fd: i32) = fd;
        int(_, number: i32) = number;
        count(_, number: u32) = number;
        size(_, number: u64) = number;
        distance(_, number: i64) = number;
        path(_, path: PathArg) = path;
        text(_, text: PathArg) = text;
        open(_, flags: u32) = Open((*flags).into());
        open64(_, flags: u64) = Open(*flags);
        octal(_, mode: u32) = format!("{mode:#o}");
        octal64(_, mode: u64) = format!("{mode:#o}");
        hex(_, bits: u32) = format!("{bits:#x}");
        hex64(_, bits: u64) = format!("{bits:#x}");
        resolve(_, flags: u64) = Bits(*flags, RESOLVE);
        walk(_, flags: u32) = Bits((*flags).into(), AT);
        rename(_, flags: u32) = Bits((*flags).into(), RENAME);
        space(_, flags: u32) = Bits((*flags).into(), FALLOC);
        mount(_, flags: u32) = Bits((*flags).into(), MOUNT);
        umount(_, flags: u32) = Bits((*flags).into(), UMOUNT);
        propagation(_, flags: u32) = Bits((*flags).into(), PROPAGATION);
        xattr(_, flags: u32) = Bits((*flags).into(), &[(1, "CREATE"), (2, "REPLACE")]);
        flag(name, is_on: bool) = format!("{name}={is_on}");
        off(_, off: u64) = format!("@{off}");
        position(_, off: Option<u64>) = off.map_or("@pos".into(), |off| format!("@{off}"));
        data(_, data: Data) = data;
        parts(_, parts: [Data]) = format!("{:?}", Vec::from_iter(parts.iter().map(Data::to_string)));
        counts(_, counts: [u32]) = format!("{counts:?}");
        whence(_, whence: Seek) = format!("{whence:?}").to_uppercase();
        lock(_, kind: LockKind) = format!("{kind:?}");
        range(_, range: LockRange) = format!("{}+{}", range.start, range.len);
        time(_, time: Time) = time;
        id(_, id: Option<u32>) = id.map_or("-1".into(), |id| id.to_string());
        user(_, user: usize) = USERS[*user].name;
        task(_, task: usize) = format!("as t{task}");
        slot(_, slot: usize) = format!("h{slot}");
    }

    pub(super) fn value(_: &str, value: &[u8]) -> String {
        format!("{}x[{}]", value.len(), value[..value.len().min(64)].escape_ascii())
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
