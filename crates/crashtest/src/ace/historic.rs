//! Workloads in which other file systems once lost something: those of CrashMonkey's list of new
//! bugs (N1 to N10), and of the bugs that it found again, by the numbers of xfstests.
//!
//! Direct writes and mappings (generic/325, ext4's size after a direct write) are left out: see the
//! [module above](super).

use vfscale::FileType;
use vfscale::posix::RenameFlags;
use vfscale_testkit::calls::compound::{Compound as C, Space};

use crate::script::Script;

fn rename(old: &str, new: &str) -> C {
    C::rename(old, new, RenameFlags::empty().bits())
}

/// Returns a file with 16 KiB.
fn file(path: &str, tag: u32) -> [C; 2] {
    [C::create(path), C::write(path, 0, 16_384, tag)]
}

fn ops(parts: impl IntoIterator<Item = Vec<C>>) -> Vec<C> {
    parts.into_iter().flatten().collect()
}

/// Returns the workloads, on a tree with the directories `/A` and `/B`. The power is cut in each of
/// their calls.
pub fn historic() -> Vec<Script> {
    let all = [names(), directories(), links(), data()].into_iter().flatten();
    let script = |(name, ops): (&str, Vec<C>)| Script { name: name.into(), ops, first: 0 };
    all.map(script).collect()
}

type Row = (&'static str, Vec<C>);

fn names() -> Vec<Row> {
    let fifo = FileType::Fifo.as_raw_mode() | 0o600;
    let both = || ops([file("/A/bar", 1).into(), vec![C::fsync("/A/bar")]]);
    vec![
        ("btrfs N1: a file is lost by a rename over it", {
            let replaced = ops([file("/B/bar", 2).into(), vec![rename("/B/bar", "/A/bar")]]);
            let synced = [C::create("/A/foo"), C::fsync("/A/foo"), C::fsync_dir("/A")];
            ops([both(), replaced, synced.into()])
        }),
        ("btrfs generic/321: a renamed file is in both directories", {
            let moved = [rename("/A/bar", "/B/bar"), C::fsync_dir("/B"), C::fsync("/B/bar")];
            ops([both(), moved.into()])
        }),
        ("btrfs generic/322: a written and renamed file is lost", {
            let moved = [C::append("/A/bar", 3_000, 3), rename("/A/bar", "/A/foo")];
            ops([both(), moved.into(), vec![C::fsync("/A/foo")]])
        }),
        ("btrfs generic/335: a moved file is lost if its old parent is synced", {
            let moved = [C::sync(), rename("/A/bar", "/B/bar"), C::create("/A/foo")];
            ops([both(), moved.into(), vec![C::fsync_dir("/A")]])
        }),
        ("btrfs generic/336: a moved file is lost if its parent was synced", {
            let before = vec![C::create("/A/foo"), C::fsync_dir("/A")];
            let moved = vec![rename("/A/bar", "/B/bar"), C::fsync("/A/foo")];
            ops([both(), before, moved])
        }),
        ("F2FS, btrfs generic/342: a renamed file is lost if its old name is used again", {
            let again = vec![rename("/A/bar", "/A/old"), C::create("/A/bar"), C::fsync("/A/bar")];
            ops([both(), again])
        }),
        ("btrfs generic/376: a new file with the old name of a renamed one is lost", {
            let again = vec![rename("/A/bar", "/A/old"), C::create("/A/bar"), C::fsync("/A/old")];
            ops([both(), again])
        }),
        ("btrfs generic/348: a synced symbolic link is empty", {
            vec![C::symlink("somewhere", "/A/link"), C::fsync_dir("/A")]
        }),
        ("btrfs: a link with the old name of a renamed special file can't be replayed", {
            let renamed = [C::mknod("/A/foo", fifo, 0), C::sync(), rename("/A/foo", "/A/old")];
            ops([both(), renamed.into(), vec![C::link("/A/bar", "/A/foo"), C::fsync("/A/bar")]])
        }),
        ("btrfs: a number is used twice after the log was replayed", {
            ops([both(), vec![C::create("/A/foo"), C::fsync("/A/foo"), C::create("/B/foo")]])
        }),
    ]
}

fn directories() -> Vec<Row> {
    vec![
        ("btrfs N2: a renamed file is in both directories", {
            let nested = [C::mkdir("/A/C"), C::rmdir("/B"), rename("/A/C", "/B")];
            let made = [C::create("/B/bar"), C::fsync("/B/bar"), rename("/B/bar", "/A/bar")];
            let replaced = [rename("/A", "/B"), C::fsync("/B/bar")];
            ops([nested.into(), made.into(), replaced.into()])
        }),
        ("btrfs N3: names are not durable after fsync of their directory", {
            let made = [C::mkdir("/A/C"), C::create("/B/foo"), C::fsync("/B/foo")];
            ops([made.into(), vec![C::link("/B/foo", "/A/C/foo"), C::fsync_dir("/A")]])
        }),
        ("btrfs N4, F2FS N10: a rename is not durable after fsync of a child", {
            let renamed = [C::rmdir("/B"), C::sync(), rename("/A", "/B"), C::create("/B/foo")];
            ops([renamed.into(), vec![C::fsync("/B/foo"), C::fsync_dir("/B")]])
        }),
        ("btrfs N6: fsync of a directory loses its files", {
            let made = [C::mkdir("/A/C"), C::create("/A/foo"), C::create("/A/C/foo")];
            ops([made.into(), vec![C::fsync("/A/C/foo"), C::fsync_dir("/A")]])
        }),
        ("btrfs generic/034: a directory can't be removed after fsync", {
            vec![C::create("/A/foo"), C::sync(), C::create("/A/bar"), C::fsync_dir("/A")]
        }),
        ("btrfs generic/341: files of a renamed directory are lost", {
            let made = ops([vec![C::mkdir("/A/C")], file("/A/C/foo", 1).into(), vec![C::sync()]]);
            let again = vec![rename("/A/C", "/A/D"), C::mkdir("/A/C"), C::fsync_dir("/A/C")];
            ops([made, again])
        }),
        ("btrfs generic/343: a moved directory is in both parents", {
            let made =
                vec![C::mkdir("/A/C"), C::create("/B/foo"), C::create("/A/C/foo"), C::sync()];
            let moved =
                vec![C::link("/B/foo", "/B/bar"), rename("/A/C", "/B/C"), C::fsync("/B/foo")];
            ops([made, moved])
        }),
    ]
}

fn links() -> Vec<Row> {
    let linked = || ops([file("/A/foo", 1).into(), vec![C::link("/A/foo", "/A/bar"), C::sync()]]);
    let many = (0..60).map(|n| C::link("/A/foo", format!("/A/a long name of a link {n}")));
    vec![
        ("btrfs N5: a link is not durable after fsync of the file by it", {
            let made = [C::create("/A/foo"), C::link("/A/foo", "/B/foo")];
            ops([made.into(), vec![C::fsync("/A/foo"), C::fsync("/B/foo")]])
        }),
        ("btrfs N7: fsync of a file makes not all its names durable", {
            vec![C::create("/A/foo"), C::link("/A/foo", "/B/bar"), C::fsync("/A/foo")]
        }),
        ("btrfs generic/039, 106: a directory can't be removed after a link was", {
            ops([linked(), vec![C::unlink("/A/bar"), C::fsync("/A/foo")]])
        }),
        ("btrfs generic/107: the same with a link in another directory", {
            let links = vec![C::link("/A/foo", "/B/bar"), C::sync(), C::unlink("/B/bar")];
            ops([linked(), links, vec![C::fsync("/A/foo")]])
        }),
        ("btrfs generic/041: a file of many links can't be replayed", {
            let again = vec![C::unlink("/A/bar"), C::link("/A/foo", "/A/bar"), C::fsync("/A/foo")];
            ops([linked(), many.collect(), again])
        }),
        ("btrfs generic/056: a link loses the data of a file", {
            let written = vec![C::fsync("/A/foo"), C::link("/A/foo", "/A/bar")];
            let other = vec![C::create("/B/foo"), C::fsync("/B/foo")];
            ops([file("/A/foo", 1).into(), written, other])
        }),
        ("btrfs generic/090: appended data are lost after a link", {
            let append = |tag| C::append("/A/foo", 8_192, tag);
            ops([linked(), vec![append(2), C::sync(), append(3), C::fsync("/A/foo")]])
        }),
        ("btrfs generic/104: a directory can't be removed if one of two links was synced", {
            let two = vec![C::create("/A/one"), C::create("/A/two"), C::sync()];
            let links = vec![C::link("/A/one", "/A/one2"), C::link("/A/two", "/A/two2")];
            ops([two, links, vec![C::fsync("/A/two")]])
        }),
        ("btrfs: a new file with the name of a removed link can't be replayed", {
            ops([linked(), vec![C::unlink("/A/bar"), C::create("/A/bar"), C::fsync("/A/bar")]])
        }),
    ]
}

fn data() -> Vec<Row> {
    let synced = || ops([file("/A/foo", 1).into(), vec![C::fsync("/A/foo")]]);
    let space = |space, offset, length| C::fallocate("/A/foo", space, offset, length);
    let (fsync, fdatasync) = (C::fsync("/A/foo"), C::fdatasync("/A/foo"));
    let rows: [(&str, Vec<C>); 6] = [
        ("btrfs N8: blocks behind the end are lost after fsync", {
            vec![space(Space::Keep, 16_384, 4_096), fsync.clone()]
        }),
        ("F2FS N9: a zeroed range behind the end makes a wrong size", {
            vec![space(Space::ZeroKeep, 16_384, 4_096), fdatasync.clone()]
        }),
        ("ext4, F2FS generic/468: blocks behind the end are lost after fdatasync", {
            vec![space(Space::Keep, 16_384, 16_384), fdatasync]
        }),
        ("btrfs generic/059: a hole in a page is not durable", {
            vec![space(Space::Punch, 8_000, 100), fsync.clone()]
        }),
        ("btrfs generic/177: overlapping holes are not durable", {
            let holes = [space(Space::Punch, 2_000, 9_000), space(Space::Punch, 6_000, 9_000)];
            ops([vec![C::sync()], holes.into(), vec![fsync.clone()]])
        }),
        ("btrfs generic/066: a removed attribute comes back", {
            let set = vec![C::setxattr("/A/foo", "user.a", vec![b'a'; 20]), C::sync()];
            ops([set, vec![C::removexattr("/A/foo", "user.a"), fsync]])
        }),
    ];
    rows.into_iter().map(|(name, after)| (name, ops([synced(), after]))).collect()
}
