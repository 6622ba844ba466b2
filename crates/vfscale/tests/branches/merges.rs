//! `merge`: each rule by an example.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfscale::posix::{At, AtFlags, InodeFlags, OFlags, RenameFlags, SetTime};
use vfscale::{
    ConflictKind, Errno, FileType, ForkOptions, MergeOptions, Merged, Mode, Pool, PoolError,
    Strategy, Task, Timestamp,
};
use vfscale_diskfs::mkfs::{self, MkfsOptions};

use crate::common::{image, read, within};
use crate::counted::counted;
use crate::tree_common::{Tree, read_contents, unequal};

type Fill = fn(&Task);

/// Makes a pool whose branches `into` and `from` come from one state, `base`.
fn pool(base: Fill, into: Fill, from: Fill) -> (tempfile::TempDir, Pool) {
    let dir = tempfile::tempdir().unwrap();
    let pool = vfscale::pool(image(dir.path(), base)).convert(true).open().unwrap();
    for (name, fill) in [("into", into), ("from", from)] {
        pool.fork("main", name).unwrap();
        within(&pool, name, fill);
    }
    (dir, pool)
}

/// Merges, and checks what is true of all merges. Returns the result and the tree.
fn merged((base, into, from): (Fill, Fill, Fill), strategy: Strategy) -> (Merged, Tree) {
    let (_dir, pool) = pool(base, into, from);
    let options = MergeOptions::new().strategy(strategy);
    pool.fork("into", "into 2").unwrap();
    pool.fork("from", "from 2").unwrap();
    let planned = pool.merge("from", "into", options.dry_run(true)).unwrap();
    let before = within(&pool, "into", read_contents);
    let done = pool.merge("from", "into", options).unwrap();
    assert_eq!(Merged { is_done: done.is_done, ..planned }, done);
    let after = within(&pool, "into", read_contents);
    assert_eq!(done.is_done, before != after, "{done:?}");
    let again = pool.merge("from", "into", options).unwrap();
    same(&within(&pool, "into", read_contents), &after, &format!("a second merge: {again:?}"));
    if done.conflicts.is_empty() {
        pool.merge("into 2", "from 2", options).unwrap();
        same(&within(&pool, "from 2", read_contents), &after, "the other way round");
    }
    assert_eq!(pool.branches().len(), 5);
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
    (done, after)
}

fn same(one: &Tree, other: &Tree, context: &str) {
    let found = unequal(one, other);
    assert!(found.is_empty(), "{context}: {found:#?}");
}

fn text(tree: &Tree, path: &str) -> Option<String> {
    tree.get(Path::new(path)).map(|known| String::from_utf8(known.content.clone()).unwrap())
}

fn kinds(merged: &Merged) -> Vec<(&str, ConflictKind, Option<&str>)> {
    let of = |path: &'_ PathBuf| -> &'static str { path.to_str().unwrap().to_owned().leak() };
    merged.conflicts.iter().map(|it| (of(&it.path), it.kind, it.beside.as_ref().map(of))).collect()
}

/// Writes a file as editors do: another one that takes the place.
fn replace(task: &Task, path: &str, text: &str) {
    task.write("/temporary", text).unwrap();
    task.rename("/temporary", path).unwrap();
}

const LINES: &str = "one\ntwo\nthree\nfour\nfive\n";

#[test]
fn what_one_side_has_changed_is_taken() {
    let (merged, tree) = merged(
        (
            |task| {
                task.create_dir("/d").unwrap();
                task.write("/d/f", "f").unwrap();
                task.write("/gone", "gone").unwrap();
                task.write("/moved", "moved").unwrap();
                task.create_dir("/empty").unwrap();
            },
            |task| {
                task.write("/ours", "ours").unwrap();
                task.rename("/d", "/e").unwrap();
            },
            |task| {
                task.write("/d/f", "changed").unwrap();
                task.remove_file("/gone").unwrap();
                task.remove_dir("/empty").unwrap();
                task.create_dir_all("/d/new/deep").unwrap();
                task.write("/d/new/deep/g", vec![7; 100_000]).unwrap();
                task.rename("/moved", "/d/new/m").unwrap();
                task.symlink("target", "/d/link").unwrap();
                task.hard_link("/d/f", "/linked").unwrap();
                let calls = task.posix();
                let mode = Mode::from(0o640);
                calls.mknodat(At::Cwd, "/null", FileType::CharacterDevice, mode, 0x103).unwrap();
                calls.mknodat(At::Cwd, "/fifo", FileType::Fifo, mode, 0).unwrap();
            },
        ),
        Strategy::Both,
    );
    assert_eq!(kinds(&merged), []);
    assert_eq!((merged.added, merged.removed, merged.moved, merged.changed), (6, 2, 2, 1));
    assert_eq!(text(&tree, "/e/f").as_deref(), Some("changed"));
    assert_eq!(tree[Path::new("/linked")].first, Path::new("/e/f"));
    assert_eq!(text(&tree, "/e/new/m").as_deref(), Some("moved"));
    assert_eq!(tree[Path::new("/null")].attributes.3, 0x103);
    assert!(!tree.contains_key(Path::new("/gone")) && !tree.contains_key(Path::new("/empty")));
}

#[test]
fn texts_are_merged_by_lines_also_if_a_side_has_replaced_the_file() {
    const SIDES: [fn(&Task, &str, &str); 2] =
        [|task, path, text| task.write(path, text).unwrap(), replace];
    let base: Fill = |task| task.write("/f", LINES).unwrap();
    let cases: [(Fill, Fill); 3] = [
        (
            |task| SIDES[0](task, "/f", &LINES.replace("one", "ONE")),
            |task| SIDES[0](task, "/f", &LINES.replace("five", "FIVE")),
        ),
        (
            |task| SIDES[0](task, "/f", &LINES.replace("one", "ONE")),
            |task| SIDES[1](task, "/f", &LINES.replace("five", "FIVE")),
        ),
        (
            |task| SIDES[1](task, "/f", &LINES.replace("one", "ONE")),
            |task| SIDES[1](task, "/f", &LINES.replace("five", "FIVE")),
        ),
    ];
    for (into, from) in cases {
        let (merged, tree) = merged((base, into, from), Strategy::Both);
        assert_eq!((kinds(&merged), merged.texts), (vec![], 1));
        assert_eq!(text(&tree, "/f").as_deref(), Some("ONE\ntwo\nthree\nfour\nFIVE\n"));
    }
}

#[test]
fn contents_that_both_have_changed_stand_beside() {
    let sides: (Fill, Fill, Fill) = (
        |task| {
            task.write("/f", LINES).unwrap();
            task.write("/binary", b"a\0b\nc\nd\n").unwrap();
        },
        |task| {
            task.write("/f", "ours\n").unwrap();
            task.write("/binary", b"A\0b\nc\nd\n").unwrap();
        },
        |task| {
            replace(task, "/f", "theirs\n");
            task.write("/binary", b"a\0b\nc\nD\n").unwrap();
        },
    );
    let content = ConflictKind::Content;
    let (done, tree) = merged(sides, Strategy::Both);
    assert_eq!(
        kinds(&done),
        [("/binary", content, Some("/binary.from")), ("/f", content, Some("/f.from"))]
    );
    assert_eq!(text(&tree, "/f").as_deref(), Some("ours\n"));
    assert_eq!(text(&tree, "/f.from").as_deref(), Some("theirs\n"));
    for (strategy, expected) in
        [(Strategy::Ours, "ours\n"), (Strategy::Theirs, "theirs\n"), (Strategy::Fail, "ours\n")]
    {
        let (done, tree) = merged(sides, strategy);
        assert_eq!(kinds(&done), [("/binary", content, None), ("/f", content, None)]);
        assert_eq!(text(&tree, "/f").as_deref(), Some(expected));
        assert!(!tree.contains_key(Path::new("/f.from")));
        assert_eq!(done.is_done, strategy != Strategy::Fail);
    }
}

#[test]
fn what_one_has_removed_and_the_other_changed_stays() {
    let base: Fill = |task| {
        task.create_dir_all("/d/below").unwrap();
        task.write("/d/below/f", "f").unwrap();
        task.write("/d/other", "other").unwrap();
    };
    let change: Fill = |task| task.write("/d/below/f", "changed").unwrap();
    let remove: Fill = |task| task.remove_dir_all("/d").unwrap();
    let removed = [("/d/below/f", ConflictKind::Removed, None)];
    for (into, from) in [(change, remove), (remove, change)] {
        let (done, tree) = merged((base, into, from), Strategy::Both);
        assert_eq!(kinds(&done), removed);
        assert_eq!(text(&tree, "/d/below/f").as_deref(), Some("changed"));
        assert!(!tree.contains_key(Path::new("/d/other")));
    }
    let (done, tree) = merged((base, remove, change), Strategy::Ours);
    assert_eq!((kinds(&done), tree.len()), (removed.to_vec(), 1));
    let (done, tree) = merged((base, change, remove), Strategy::Theirs);
    assert_eq!((kinds(&done), tree.len()), (removed.to_vec(), 1));
    // A directory stays for what was added in it, without a conflict.
    let add: Fill = |task| task.write("/d/below/new", "new").unwrap();
    for (into, from) in [(add, remove), (remove, add)] {
        let (done, tree) = merged((base, into, from), Strategy::Both);
        assert_eq!(kinds(&done), []);
        let names: Vec<_> = tree.keys().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(names, ["/", "/d", "/d/below", "/d/below/new"]);
    }
}

#[test]
fn names_are_edges_between_objects() {
    let base: Fill = |task| {
        task.write("/a", "a").unwrap();
        task.write("/b", "b").unwrap();
        for dir in ["/p", "/q", "/r"] {
            task.create_dir(dir).unwrap();
        }
    };
    // Names that are exchanged, links of both, and a change of what the other one has renamed.
    let (done, tree) = merged(
        (
            base,
            |task| {
                let calls = task.posix();
                calls.renameat2(At::Cwd, "/a", At::Cwd, "/b", RenameFlags::EXCHANGE).unwrap();
                task.hard_link("/a", "/link1").unwrap();
            },
            |task| {
                task.write("/a", "changed").unwrap();
                task.hard_link("/b", "/r/link2").unwrap();
            },
        ),
        Strategy::Both,
    );
    assert_eq!(kinds(&done), []);
    assert_eq!(text(&tree, "/b").as_deref(), Some("changed"));
    assert!(["/link1", "/r/link2"].iter().all(|it| tree[Path::new(it)].first == Path::new("/a")));
    // Two new names, and a loop of two directories.
    let sides: (Fill, Fill, Fill) = (
        base,
        |task| {
            task.rename("/a", "/ours").unwrap();
            task.rename("/p", "/q/p").unwrap();
        },
        |task| {
            task.rename("/a", "/theirs").unwrap();
            task.rename("/q", "/p/q").unwrap();
        },
    );
    let (done, tree) = merged(sides, Strategy::Both);
    let expected = [("/ours", ConflictKind::Renamed, None), ("/q", ConflictKind::Loop, None)];
    assert_eq!(kinds(&done), expected);
    assert!(["/ours", "/q/p"].iter().all(|it| tree.contains_key(Path::new(it))));
    assert!(!tree.contains_key(Path::new("/theirs")));
    let (_, tree) = merged(sides, Strategy::Theirs);
    assert!(["/theirs", "/q/p"].iter().all(|it| tree.contains_key(Path::new(it))));
}

#[test]
fn two_objects_under_one_name() {
    let sides: (Fill, Fill, Fill) = (
        |task| task.write("/moved", "moved").unwrap(),
        |task| {
            task.create_dir("/dir").unwrap();
            task.write("/dir/1", "1").unwrap();
            task.write("/same", "same").unwrap();
            task.write("/f", "ours").unwrap();
            task.write("/m", "ours").unwrap();
            task.create_dir("/kind").unwrap();
        },
        |task| {
            task.create_dir("/dir").unwrap();
            task.write("/dir/2", "2").unwrap();
            task.write("/same", "same").unwrap();
            task.write("/f", "theirs").unwrap();
            task.rename("/moved", "/m").unwrap();
            task.symlink("x", "/kind").unwrap();
        },
    );
    let (done, tree) = merged(sides, Strategy::Both);
    let name = ConflictKind::Name;
    assert_eq!(
        kinds(&done),
        [
            ("/f", name, Some("/f.from")),
            ("/kind", name, Some("/kind.from")),
            ("/m", name, Some("/m.from"))
        ]
    );
    let names: Vec<_> = tree.keys().map(|path| path.to_str().unwrap()).collect();
    let expected = "/ /dir /dir/1 /dir/2 /f /f.from /kind /kind.from /m /m.from /same";
    assert_eq!(names.join(" "), expected);
    let (_, tree) = merged(sides, Strategy::Ours);
    assert_eq!(text(&tree, "/m.from").as_deref(), Some("moved"));
    assert!(!tree.contains_key(Path::new("/f.from")));
    let (_, tree) = merged(sides, Strategy::Theirs);
    assert_eq!(text(&tree, "/f").as_deref(), Some("theirs"));
    assert_eq!(text(&tree, "/m").as_deref(), Some("moved"));
    assert!(tree.contains_key(Path::new("/kind.into")));
}

fn set_mtime(task: &Task, path: &str, seconds: i64) {
    let times = [SetTime::Omit, SetTime::At(Timestamp::new(seconds, 0))];
    task.posix().utimensat(At::Cwd, path, times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn attributes_are_merged_each_by_itself() {
    let (done, tree) = merged(
        (
            |task| {
                task.write("/f", "f").unwrap();
                task.set_xattr("/f", "user.both", "base").unwrap();
                task.set_xattr("/f", "user.gone", "base").unwrap();
                task.create_dir("/d").unwrap();
            },
            |task| {
                task.set_permissions("/f", 0o600).unwrap();
                task.set_xattr("/f", "user.ours", "ours").unwrap();
                set_mtime(task, "/f", 2_000_000_000);
            },
            |task| {
                task.write("/f", "content").unwrap();
                task.posix().fchownat(At::Cwd, "/f", Some(5), None, AtFlags::empty()).unwrap();
                task.set_xattr("/f", "user.theirs", "theirs").unwrap();
                task.remove_xattr("/f", "user.gone").unwrap();
                set_mtime(task, "/f", 1_900_000_000);
                task.set_permissions("/d", 0o1777).unwrap();
            },
        ),
        Strategy::Both,
    );
    assert_eq!(kinds(&done), []);
    let known = &tree[Path::new("/f")];
    assert_eq!((known.attributes.0 & 0o7777, known.attributes.1), (0o600, 5));
    let names: Vec<_> = known.xattrs.iter().map(|it| it.0.to_str().unwrap()).collect();
    assert_eq!(names, ["user.both", "user.ours", "user.theirs"]);
    assert_eq!(tree[Path::new("/d")].attributes.0 & 0o7777, 0o1777);

    let (done, _) = merged(
        (
            |task| {
                task.write("/f", "f").unwrap();
                task.set_xattr("/f", "user.both", "base").unwrap();
            },
            |task| {
                task.set_permissions("/f", 0o600).unwrap();
                task.set_xattr("/f", "user.both", "ours").unwrap();
            },
            |task| {
                task.set_permissions("/f", 0o755).unwrap();
                task.set_xattr("/f", "user.both", "theirs").unwrap();
            },
        ),
        Strategy::Both,
    );
    let expected = [("/f", ConflictKind::Attributes, None), ("/f", ConflictKind::Xattrs, None)];
    assert_eq!(kinds(&done), expected);
}

fn guard(task: &Task, path: &str, flags: InodeFlags) {
    let file = task.posix().open(path, OFlags::RDONLY, Mode::empty()).unwrap();
    task.posix().ioctl_setflags(&file, flags).unwrap();
}

/// Immutable files and directories take part, and are immutable afterwards.
#[test]
fn immutable_files_are_merged() {
    let (_dir, pool) = pool(
        |task| {
            task.create_dir("/d").unwrap();
            task.write("/d/f", LINES).unwrap();
            guard(task, "/d/f", InodeFlags::IMMUTABLE);
            guard(task, "/d", InodeFlags::IMMUTABLE);
        },
        |task| task.write("/ours", "ours").unwrap(),
        |task| {
            guard(task, "/d/f", InodeFlags::empty());
            task.write("/d/f", "theirs").unwrap();
            guard(task, "/d/f", InodeFlags::APPEND);
            guard(task, "/d", InodeFlags::empty());
            task.write("/d/new", "new").unwrap();
            guard(task, "/d/new", InodeFlags::IMMUTABLE);
            guard(task, "/d", InodeFlags::IMMUTABLE);
        },
    );
    let done = pool.merge("from", "into", MergeOptions::new()).unwrap();
    assert_eq!((kinds(&done), done.added, done.changed), (vec![], 1, 1));
    within(&pool, "into", |task| {
        assert_eq!(task.read_to_string("/d/f").unwrap(), "theirs");
        for path in ["/d/new", "/d/f", "/d"] {
            assert_eq!(task.remove_file(path).unwrap_err().errno(), Errno::PERM, "{path}");
        }
    });
    pool.close().unwrap();
}

/// INTO has to be closed, and FROM need not be; whatever is refused leaves no branch.
#[test]
fn what_can_not_be_merged_is_refused() {
    let (_dir, pool) = pool(|_| (), |_| (), |_| ());
    let from = pool.open("from").unwrap();
    from.task().write("/new", "not synced").unwrap();
    let into = pool.open("into").unwrap();
    let options = MergeOptions::new();
    let refused = pool.merge("from", "into", options).unwrap_err();
    assert!(matches!(refused, PoolError::MergeInUse { .. }), "{refused}");
    assert!(refused.to_string().contains("close it"), "{refused}");
    assert_eq!(pool.merge("from", "into", options.dry_run(true)).unwrap().added, 1);
    into.close().unwrap();
    assert!(pool.merge("from", "into", options).unwrap().is_done);
    assert_eq!(read(&pool, "into", "/new").as_deref(), Some("not synced"));
    from.close().unwrap();
    pool.fork_with("main", "kept", ForkOptions::new().read_only(true)).unwrap();
    for (from, into) in [("none", "into"), ("from", "none"), ("into", "into"), ("from", "kept")] {
        assert!(pool.merge(from, into, options).is_err(), "{from} {into}");
    }
    assert_eq!(pool.branches().len(), 4);
    // A branch that can only be read is merged, and one into that which it comes from.
    assert!(!pool.merge("kept", "into", options).unwrap().is_done);
    assert!(pool.merge("into", "main", options).unwrap().is_done);
    assert_eq!(read(&pool, "main", "/new").as_deref(), Some("not synced"));
    pool.close().unwrap();
}

/// The next merge compares with what was merged: what was decided is not asked again, and a parent
/// whose state was merged is one that the child comes from.
#[test]
fn what_was_merged_is_the_base_of_the_next_merge() {
    let into: Fill = |task| {
        task.write("/new", "replaced").unwrap();
        task.rename("/new", "/f").unwrap();
        task.write("/both", "into").unwrap();
    };
    let from: Fill = |task| {
        task.rename("/f", "/g").unwrap();
        task.write("/both", "from").unwrap();
    };
    let base: Fill =
        |task| ["/f", "/both"].iter().for_each(|path| task.write(path, "base").unwrap());
    let (_dir, pool) = pool(base, into, from);
    let options = MergeOptions::new();
    assert_eq!(pool.merge("from", "into", options).unwrap().conflicts.len(), 1);
    let after = within(&pool, "into", read_contents);
    assert_eq!(pool.merge("from", "into", options).unwrap(), Merged::default());
    within(&pool, "into", |task| task.remove_file("/both.from").unwrap());
    within(&pool, "from", |task| task.write("/later", "later").unwrap());
    let merged = pool.merge("from", "into", options).unwrap();
    assert_eq!((merged.added, merged.conflicts.len()), (1, 0));
    let tree = within(&pool, "into", read_contents);
    assert_eq!(tree.len(), after.len());
    assert_eq!(text(&tree, "/both").as_deref(), Some("into"));
    // A change that both have made alike is noted as well.
    for name in ["from", "into"] {
        within(&pool, name, |task| task.write("/same", "same").unwrap());
    }
    assert!(!pool.merge("from", "into", options).unwrap().is_done);
    within(&pool, "from", |task| task.rename("/same", "/moved").unwrap());
    within(&pool, "into", |task| task.write("/same", "other").unwrap());
    assert_eq!(pool.merge("from", "into", options).unwrap().conflicts, []);
    assert_eq!(text(&within(&pool, "into", read_contents), "/moved").as_deref(), Some("other"));
    // Both have changed: the child takes over what the parent has, and is its child again.
    within(&pool, "main", |task| task.write("/main", "main").unwrap());
    assert!(matches!(pool.adopt("main", "into"), Err(PoolError::HasChanged { .. })));
    pool.merge("main", "into", options).unwrap();
    pool.adopt("main", "into").unwrap();
    let tree = within(&pool, "main", read_contents);
    assert_eq!(
        text(&tree, "/later").zip(text(&tree, "/main")),
        Some(("later".into(), "main".into()))
    );
    pool.close().unwrap();
}

/// Makes a tree of directories with 20 files each, changes five files and makes three in each of
/// two branches, and merges them. Returns how often the device was read for that.
fn reads_of_a_merge(dirs: u64) -> u64 {
    let device = Arc::new(counted(256 << 20));
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    let volume = vfscale::volume_on(device.clone()).open().unwrap();
    let task = volume.task();
    for file in 0..dirs * 20 {
        if file % 20 == 0 {
            task.create_dir(format!("/d{}", file / 20)).unwrap();
        }
        task.write(format!("/d{}/f{file}", file / 20), "contents").unwrap();
    }
    drop(task);
    volume.close().unwrap();
    let pool = vfscale::pool_on(device.clone()).convert(true).open().unwrap();
    for (number, name) in [(0, "into"), (1, "from")] {
        pool.fork("main", name).unwrap();
        within(&pool, name, |task| {
            for file in (0..5).map(|file| 40 * file + number) {
                task.write(format!("/d{}/f{file}", file / 20), "changed").unwrap();
            }
            (0..3).for_each(|file| task.write(format!("/d1/{name}{file}"), "new").unwrap());
        });
    }
    device.state.take_reads();
    let merged = pool.merge("from", "into", MergeOptions::new()).unwrap();
    let reads = device.state.take_reads();
    assert_eq!((merged.added, merged.changed, merged.conflicts.len()), (3, 5, 0));
    pool.close().unwrap();
    reads
}

/// Files that no branch has changed are not read.
#[test]
fn a_merge_reads_what_differs() {
    let (small, large) = (reads_of_a_merge(20), reads_of_a_merge(400));
    println!("{small} reads, {large} with twenty times as many files");
    assert!(large < small * 3 / 2, "{small} reads, and {large} of a large tree");
}
