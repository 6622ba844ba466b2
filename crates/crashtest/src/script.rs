//! Generation of scripts: every pair of kinds of calls, and random scripts.
//!
//! All scripts begin with the tree of [`setup`], which is durable, and end with `sync` and the end
//! of the file system. The first call of a pair moves the *focus*: the second call is made once on
//! the files that the first one made or changed, and once on others.

pub mod op;
pub mod pattern;

use vfscale::posix::RenameFlags;
use vfscale_sync::random::Random;

use crate::script::op::{Op, Space};

/// A named list of calls.
#[derive(Clone, Debug)]
pub struct Script {
    /// Readable name.
    pub name: String,
    /// The calls; the last one is [`Op::Close`].
    pub ops: Vec<Op>,
}

impl Script {
    fn new(name: String, mut ops: Vec<Op>) -> Self {
        ops.extend([Op::Sync, Op::Close]);
        Self { name, ops }
    }
}

/// Number of names in the large directory at first: more than fit into an inode.
const MANY: usize = 60;

/// Returns the calls that make the initial tree. The tags of their writes are above a thousand.
#[must_use]
pub fn setup() -> Vec<Op> {
    let mut ops: Vec<Op> = ["/d", "/e", "/e/empty", "/many"].map(|p| Op::Mkdir(p.into())).into();
    let files = [("/d/f", 10_000), ("/d/s", 100), ("/e/big", 300_000), ("/e/g", 5_000)];
    for ((path, len), tag) in files.into_iter().zip(1001..) {
        ops.push(Op::Create(path.into()));
        ops.push(Op::Write { path: path.into(), offset: 0, len, tag });
    }
    ops.push(Op::Link("/e/g".into(), "/d/h".into()));
    ops.push(Op::Symlink("f".into(), "/d/l".into()));
    ops.push(Op::SetXattr("/d/f".into(), "user.old", 20, b'o'));
    ops.extend((0..MANY).map(|n| Op::Create(format!("/many/name number {n}"))));
    ops
}

/// Number of inodes with large attributes to remove: more than fit into a small log.
const LARGE: usize = 16;

/// The files that a call uses.
#[derive(Clone, Debug)]
struct Focus {
    /// A regular file.
    file: String,
    /// A directory.
    dir: String,
    /// An empty directory that is not an ancestor of any other of these files.
    empty: String,
    /// A free name.
    fresh: String,
    /// Another regular file.
    other: String,
}

impl Focus {
    fn first() -> Self {
        let [file, dir, empty, fresh, other] =
            ["/d/f", "/d", "/e/empty", "/d/n", "/d/s"].map(String::from);
        Self { file, dir, empty, fresh, other }
    }

    /// Returns files that are unrelated to those of the first call.
    fn elsewhere() -> Self {
        let [file, dir, empty, fresh, other] =
            ["/e/big", "/many", "/e/empty", "/many/fresh", "/e/g"].map(String::from);
        Self { file, dir, empty, fresh, other }
    }
}

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the call of its name")]
pub enum Kind {
    Create,
    Mkdir,
    Mkfifo,
    Link,
    Symlink,
    LongSymlink,
    Rename,
    RenameOver,
    RenameDir,
    Exchange,
    NoReplace,
    Unlink,
    Rmdir,
    Write,
    WriteFar,
    Append,
    AppendMuch,
    Publish,
    Shrink,
    Grow,
    Allocate,
    AllocateKeep,
    Punch,
    ZeroRange,
    SetXattr,
    SetLongXattr,
    RemoveXattr,
    Chmod,
    Chown,
    Times,
    Fsync,
    Fdatasync,
    FsyncDir,
    Sync,
    Trim,
}

/// All kinds.
pub const KINDS: [Kind; 35] = {
    use Kind::*;
    [
        Create,
        Mkdir,
        Mkfifo,
        Link,
        Symlink,
        LongSymlink,
        Rename,
        RenameOver,
        RenameDir,
        Exchange,
        NoReplace,
        Unlink,
        Rmdir,
        Write,
        WriteFar,
        Append,
        AppendMuch,
        Publish,
        Shrink,
        Grow,
        Allocate,
        AllocateKeep,
        Punch,
        ZeroRange,
        SetXattr,
        SetLongXattr,
        RemoveXattr,
        Chmod,
        Chown,
        Times,
        Fsync,
        Fdatasync,
        FsyncDir,
        Sync,
        Trim,
    ]
};

impl Kind {
    /// Returns the call on the files of `focus`; `tag` identifies its writes.
    fn op(self, focus: &Focus, tag: u32) -> Op {
        let Focus { file, dir, empty, fresh, other } = focus.clone();
        let plain = RenameFlags::empty();
        let write = |offset, len| Op::Write { path: file.clone(), offset, len, tag };
        match self {
            Kind::Create => Op::Create(fresh),
            Kind::Mkdir => Op::Mkdir(fresh),
            Kind::Mkfifo => Op::Mkfifo(fresh),
            Kind::Link => Op::Link(file, fresh),
            Kind::Symlink => Op::Symlink("some/where".into(), fresh),
            Kind::LongSymlink => Op::Symlink("somewhere/".repeat(90), fresh),
            Kind::Rename => Op::Rename(file, fresh, plain),
            Kind::RenameOver => Op::Rename(file, other, plain),
            Kind::RenameDir => Op::Rename(empty, fresh, plain),
            Kind::Exchange => Op::Rename(file, empty, RenameFlags::EXCHANGE),
            Kind::NoReplace => Op::Rename(other, fresh, RenameFlags::NOREPLACE),
            Kind::Unlink => Op::Unlink(file),
            Kind::Rmdir => Op::Rmdir(empty),
            Kind::Write => write(1000, 6000),
            Kind::WriteFar => write(500_000, 5000),
            Kind::Append => Op::Append { path: file, len: 700, tag },
            Kind::AppendMuch => Op::Append { path: file, len: 70_000, tag },
            Kind::Publish => Op::Publish { path: fresh, len: 9000, tag },
            Kind::Shrink => Op::Truncate(file, 50),
            Kind::Grow => Op::Truncate(file, 400_000),
            Kind::Allocate => Op::Fallocate(file, Space::Take, 8_000, 100_000),
            Kind::AllocateKeep => Op::Fallocate(file, Space::Keep, 4096, 65_536),
            Kind::Punch => Op::Fallocate(file, Space::Punch, 100, 9_000),
            Kind::ZeroRange => Op::Fallocate(file, Space::Zero, 3000, 12_000),
            Kind::SetXattr => Op::SetXattr(file, "user.new", 30, b'n'),
            Kind::SetLongXattr => Op::SetXattr(file, "user.long", 9_000, b'l'),
            Kind::RemoveXattr => Op::RemoveXattr(file, "user.old"),
            Kind::Chmod => Op::Chmod(file, 0o640),
            Kind::Chown => Op::Chown(file, 77),
            Kind::Times => Op::Times(file, 1_000_000 + 10 * tag),
            Kind::Fsync => Op::Fsync(file),
            Kind::Fdatasync => Op::Fdatasync(file),
            Kind::FsyncDir => Op::FsyncDir(dir),
            Kind::Sync => Op::Sync,
            Kind::Trim => Op::Trim,
        }
    }

    /// Returns the focus of a call that follows this one on related files.
    fn moves(self, focus: Focus) -> Focus {
        let beside = format!("{}2", focus.fresh);
        let Focus { file, dir, empty, fresh, other } = focus;
        match self {
            Kind::Create | Kind::Link | Kind::Publish => {
                Focus { file: fresh, fresh: beside, dir, empty, other }
            }
            Kind::Mkdir => Focus { empty: fresh.clone(), fresh: beside, dir: fresh, file, other },
            Kind::Rename => Focus { file: fresh, fresh: file, dir, empty, other },
            Kind::RenameOver => {
                Focus { file: other, fresh: file, dir, empty, other: "/e/g".into() }
            }
            Kind::RenameDir => {
                Focus { fresh: empty, empty: fresh.clone(), dir: fresh, file, other }
            }
            Kind::Exchange => Focus { file: empty, empty: file, dir, fresh, other },
            Kind::NoReplace => Focus { file: fresh, fresh: other.clone(), dir, empty, other },
            Kind::Unlink => Focus { file: other.clone(), fresh: file, dir, empty, other },
            Kind::Rmdir => Focus { fresh: empty.clone(), file, dir, empty, other },
            Kind::Mkfifo | Kind::Symlink | Kind::LongSymlink => {
                Focus { other: fresh, fresh: beside, file, dir, empty }
            }
            _ => Focus { file, dir, empty, fresh, other },
        }
    }
}

/// Returns every pair of kinds, on related files and on unrelated ones.
#[must_use]
pub fn pairs() -> Vec<Script> {
    let mut scripts = Vec::new();
    for first in KINDS {
        for second in KINDS {
            let one = first.op(&Focus::first(), 1);
            let same = second.op(&first.moves(Focus::first()), 2);
            let other = second.op(&Focus::elsewhere(), 2);
            scripts.push(Script::new(format!("{first:?} {second:?}"), vec![one.clone(), same]));
            scripts.push(Script::new(format!("{first:?} {second:?} elsewhere"), vec![one, other]));
        }
    }
    scripts
}

/// Returns removals in several transactions, each of which may be the last before a crash: of
/// attributes, link targets, names and extents. They are too large to fit into a small log at one
/// time.
#[must_use]
pub fn removals() -> Vec<Script> {
    let large = |path: &str| Op::SetXattr(path.into(), "user.large", 60_000, b'l');
    let path = |n: usize| format!("/d/number {n}");
    let removed = |make: &dyn Fn(usize) -> Op| -> Vec<Op> {
        let made = (0..LARGE).flat_map(|n| [make(n), large(&path(n)), Op::Sync]);
        made.chain((0..LARGE).map(|n| Op::Unlink(path(n)))).collect()
    };
    let name = |n| format!("/d/dir/name number {n}");
    let directory = [Op::Mkdir("/d/dir".into()), large("/d/dir")]
        .into_iter()
        .chain((0..MANY).map(|n| Op::Create(name(n))))
        .chain((0..MANY).map(|n| Op::Unlink(name(n))))
        .chain([Op::Sync, Op::Rmdir("/d/dir".into())]);
    let piece = |n: u32| Op::Write {
        path: "/d/f".into(),
        offset: u64::from(n) * 20_000,
        len: 5000,
        tag: n + 1,
    };
    let cut = (0..60).map(piece).chain([Op::Sync, Op::Truncate("/d/f".into(), 10)]);
    let link = |n| Op::Symlink("somewhere/".repeat(400), path(n));
    vec![
        Script::new("large files".into(), removed(&|n| Op::Create(path(n)))),
        Script::new("large links".into(), removed(&link)),
        Script::new("a large directory".into(), directory.collect()),
        Script::new("a file of many pieces".into(), cut.collect()),
    ]
}

/// Returns a random script of `length` calls, which move the focus or switch to unrelated files.
#[must_use]
pub fn random(random: &mut Random, length: usize) -> Script {
    let mut focus = Focus::first();
    let mut ops = Vec::new();
    let mut name = Vec::new();
    for tag in 1..=length as u32 {
        match random.below(4) {
            0 => focus = Focus::first(),
            1 => focus = Focus::elsewhere(),
            _ => {}
        }
        let kind = random.one(&KINDS);
        ops.push(kind.op(&focus, tag));
        focus = kind.moves(focus);
        name.push(format!("{kind:?}"));
    }
    Script::new(name.join(" "), ops)
}

#[cfg(test)]
mod tests;
