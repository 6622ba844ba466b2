//! Generation of scripts: every pair of kinds of calls, and random scripts.
//!
//! All scripts begin with the tree of [`setup`], which is durable, and end with `sync` and the end
//! of the file system. The first call of a pair moves the *focus*: the second call is made once on
//! the files that the first one made or changed, and once on others.

use vfscale::FileType;
use vfscale::posix::{InodeFlags, RenameFlags};
use vfscale_sync::random::Random;
use vfscale_testkit::calls::compound::{Compound, Space};
use vfscale_testkit::generate::compounds::Compounds;

/// A named list of calls.
#[derive(Clone, Debug)]
pub struct Script {
    /// Readable name.
    pub name: String,
    /// The calls; the last one is a sync.
    pub ops: Vec<Compound>,
    /// Number of the first call whose crashes are looked at.
    pub first: usize,
}

impl Script {
    fn new(name: String, mut ops: Vec<Compound>) -> Self {
        ops.push(Compound::sync());
        Self { name, ops, first: 0 }
    }
}

/// Number of names in the large directory at first: more than fit into an inode.
const MANY: usize = 60;

/// Returns the calls that make the initial tree. The tags of their writes are above a thousand.
pub fn setup() -> Vec<Compound> {
    let mut ops: Vec<Compound> = ["/d", "/e", "/e/empty", "/many"].map(Compound::mkdir).into();
    let files = [("/d/f", 10_000), ("/d/s", 100), ("/e/big", 300_000), ("/e/g", 5_000)];
    for ((path, len), tag) in files.into_iter().zip(1001..) {
        ops.push(Compound::create(path));
        ops.push(Compound::write(path, 0, len, tag));
    }
    ops.push(Compound::link("/e/g", "/d/h"));
    ops.push(Compound::symlink("f", "/d/l"));
    ops.push(Compound::setxattr("/d/f", "user.old", vec![b'o'; 20]));
    ops.extend((0..MANY).map(|n| Compound::create(format!("/many/name number {n}"))));
    ops
}

/// The number of a device that no driver serves.
const DEVICE: u64 = 511 << 8 | 7;

/// An access ACL: for the owner, a user, the group, the mask, and all others.
const ACL: &[u8] = &[
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 232, 3, 0, 0, 4, 0, 4, 0, 255, 255,
    255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

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

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// A kind of call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is the call of its name")]
        pub enum Kind {
            $($kind),*
        }

        /// All kinds.
        pub const KINDS: &[Kind] = &[$(Kind::$kind),*];
    };
}

kinds! {
    Create Mkdir Mkfifo Link Symlink LongSymlink Rename RenameOver RenameDir Exchange
    NoReplace Unlink Rmdir Write WriteFar Append AppendMuch Publish Shrink Grow Allocate
    AllocateKeep Punch ZeroRange SetXattr SetLongXattr RemoveXattr Chmod Chown Times Fsync
    Fdatasync FsyncDir Sync Trim Whiteout Device Writev CopyRange OpenTruncate AccessAcl
    SetFlags
}

impl Kind {
    /// Returns the call on the files of `focus`; `tag` identifies its writes.
    fn op(self, focus: &Focus, tag: u32) -> Compound {
        use Compound as C;
        let Focus { file, dir, empty, fresh, other } = focus;
        let rename = |old, new, flags: RenameFlags| C::rename(old, new, flags.bits());
        let node = |kind: FileType, rdev| C::mknod(fresh, kind.as_raw_mode() | 0o600, rdev);
        match self {
            Kind::Create => C::create(fresh),
            Kind::Mkdir => C::mkdir(fresh),
            Kind::Mkfifo => node(FileType::Fifo, 0),
            Kind::Device => node(FileType::CharacterDevice, DEVICE),
            Kind::Link => C::link(file, fresh),
            Kind::Symlink => C::symlink("some/where", fresh),
            Kind::LongSymlink => C::symlink("somewhere/".repeat(90), fresh),
            Kind::Rename => rename(file, fresh, RenameFlags::empty()),
            Kind::RenameOver => rename(file, other, RenameFlags::empty()),
            Kind::RenameDir => rename(empty, fresh, RenameFlags::empty()),
            Kind::Exchange => rename(file, empty, RenameFlags::EXCHANGE),
            Kind::NoReplace => rename(other, fresh, RenameFlags::NOREPLACE),
            Kind::Whiteout => rename(file, fresh, RenameFlags::WHITEOUT),
            Kind::Unlink => C::unlink(file),
            Kind::Rmdir => C::rmdir(empty),
            Kind::Write => C::write(file, 1000, 6000, tag),
            Kind::WriteFar => C::write(file, 500_000, 5000, tag),
            Kind::Writev => C::pwritev(file, &[3_000, 9_000], 700, tag),
            Kind::CopyRange => C::copy_range(file, 0, 20_000, 90),
            Kind::Append => C::append(file, 700, tag),
            Kind::AppendMuch => C::append(file, 70_000, tag),
            Kind::Publish => C::publish(fresh, 9000, tag),
            Kind::Shrink => C::truncate(file, 50),
            Kind::Grow => C::truncate(file, 400_000),
            Kind::OpenTruncate => C::empty(file),
            Kind::Allocate => C::fallocate(file, Space::Take, 8_000, 100_000),
            Kind::AllocateKeep => C::fallocate(file, Space::Keep, 4096, 65_536),
            Kind::Punch => C::fallocate(file, Space::Punch, 100, 9_000),
            Kind::ZeroRange => C::fallocate(file, Space::Zero, 3000, 12_000),
            Kind::SetXattr => C::setxattr(file, "user.new", vec![b'n'; 30]),
            Kind::SetLongXattr => C::setxattr(file, "user.long", vec![b'l'; 9_000]),
            Kind::RemoveXattr => C::removexattr(file, "user.old"),
            Kind::AccessAcl => C::setxattr(file, "system.posix_acl_access", ACL.into()),
            Kind::SetFlags => C::setflags(file, InodeFlags::NODUMP.bits()),
            Kind::Chmod => C::chmod(file, 0o640),
            Kind::Chown => C::chown(file, 77),
            Kind::Times => C::utimens(file, 1_000_000 + 10 * tag),
            Kind::Fsync => C::fsync(file),
            Kind::Fdatasync => C::fdatasync(file),
            Kind::FsyncDir => C::fsync_dir(dir),
            Kind::Sync => C::sync(),
            Kind::Trim => C::trim(),
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
            Kind::Whiteout => Focus { other: file, file: fresh, fresh: beside, dir, empty },
            Kind::Mkfifo | Kind::Device | Kind::Symlink | Kind::LongSymlink => {
                Focus { other: fresh, fresh: beside, file, dir, empty }
            }
            _ => Focus { file, dir, empty, fresh, other },
        }
    }
}

/// Returns every pair of kinds, on related files and on unrelated ones.
pub fn pairs() -> Vec<Script> {
    let mut scripts = Vec::new();
    for &first in KINDS {
        for &second in KINDS {
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
pub fn removals() -> Vec<Script> {
    let large = |path: &str| Compound::setxattr(path, "user.large", vec![b'l'; 60_000]);
    let path = |n: usize| format!("/d/number {n}");
    let removed = |make: &dyn Fn(usize) -> Compound| -> Vec<Compound> {
        let made = (0..LARGE).flat_map(|n| [make(n), large(&path(n)), Compound::sync()]);
        made.chain((0..LARGE).map(|n| Compound::unlink(path(n)))).collect()
    };
    let name = |n| format!("/d/dir/name number {n}");
    let directory = [Compound::mkdir("/d/dir"), large("/d/dir")]
        .into_iter()
        .chain((0..MANY).map(|n| Compound::create(name(n))))
        .chain((0..MANY).map(|n| Compound::unlink(name(n))))
        .chain([Compound::sync(), Compound::rmdir("/d/dir")]);
    let piece = |n: u32| Compound::write("/d/f", u64::from(n) * 20_000, 5000, n + 1);
    let cut = (0..60).map(piece).chain([Compound::sync(), Compound::truncate("/d/f", 10)]);
    let link = |n| Compound::symlink("somewhere/".repeat(400), path(n));
    vec![
        Script::new("large files".into(), removed(&|n| Compound::create(path(n)))),
        Script::new("large links".into(), removed(&link)),
        Script::new("a large directory".into(), directory.collect()),
        Script::new("a file of many pieces".into(), cut.collect()),
    ]
}

/// Returns a random script of `length` calls, half of which are any of the differential test.
#[must_use]
pub fn any(random: &mut Random, length: usize) -> Script {
    let mut script = self::random(random, length);
    let mut compounds = Compounds::new(random.number());
    for (op, tag) in script.ops.iter_mut().take(length).zip(1..) {
        if random.below(2) == 0 {
            *op = compounds.next(tag);
        }
    }
    script.name = "any calls".into();
    script
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
        let kind = random.one(KINDS);
        ops.push(kind.op(&focus, tag));
        focus = kind.moves(focus);
        name.push(format!("{kind:?}"));
    }
    Script::new(name.join(" "), ops)
}

#[cfg(test)]
mod tests;
