//! `diff`, against a comparison that reads everything.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use vfscale::pool::{Changes, Difference, DifferenceKind};
use vfscale::posix::{At, AtFlags, OFlags, RenameFlags, SetTime};
use vfscale::{Mode, Pool, Task};
use vfscale_sync::random::{Random, seed};

use crate::common::{image, within};
use crate::tree_common::{Known, Object, Tree, read_tree};

/// Leads from a path of the first branch to one of the second.
type Way<'w> = &'w dyn Fn(&Path) -> Option<PathBuf>;

fn told(known: &Known, path: &Path, kind: DifferenceKind) -> Difference {
    let (mode, size) = (known.attributes.0, known.content.len() as u64);
    Difference { path: path.into(), kind, mode, size }
}

/// The paths of differences, and their kinds.
fn kinds(found: Vec<Difference>) -> Vec<(PathBuf, DifferenceKind)> {
    found.into_iter().map(|it| (it.path, it.kind)).collect()
}

fn changes(one: &Known, other: &Known) -> Changes {
    let is_later = !one.is_dir() && one.mtime != other.mtime;
    Changes {
        content: one.content != other.content,
        attributes: one.attributes != other.attributes || is_later,
        xattrs: one.xattrs != other.xattrs,
    }
}

/// Compares two trees that were read whole.
fn naive(a: &Tree, b: &Tree) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut compare = |path: &Path, one: &Known, other: &Known| {
        let changes = changes(one, other);
        if changes != Changes::default() {
            found.push(told(other, path, DifferenceKind::Changed(changes)));
        }
    };
    // A name is the same one if it is in the same directory, too.
    let above = |tree: &Tree, path: &Path| {
        path.parent().and_then(|above| tree.get(above)).map(|above| above.object)
    };
    let is_kept = |path: &Path| above(a, path) == above(b, path);
    let mut lost: HashMap<Object, [Vec<PathBuf>; 2]> = HashMap::new();
    for (path, one) in a {
        match b.get(path).filter(|other| other.object == one.object && is_kept(path)) {
            Some(other) => compare(path, one, other),
            None => lost.entry(one.object).or_default()[0].push(path.clone()),
        }
    }
    for (path, other) in b {
        if a.get(path).is_none_or(|one| one.object != other.object || !is_kept(path)) {
            lost.entry(other.object).or_default()[1].push(path.clone());
        }
    }
    let moved: HashMap<PathBuf, PathBuf> = lost
        .values()
        .filter_map(|[gone, come]| Some((gone.first()?.clone(), come.first()?.clone())))
        .filter(|(from, _)| a[from].is_dir())
        .collect();
    let mut pairs: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    let mut only = Vec::new();
    for [mut gone, mut come] in lost.into_values() {
        // First the names that have moved with their directory, then those with the same path.
        let with_above = |from: &Path| Some(moved.get(from.parent()?)?.join(from.file_name()?));
        let ways: [Way<'_>; 2] = [&with_above, &|it| Some(it.into())];
        for to in ways {
            gone.retain(|from| {
                let at = to(from).and_then(|to| come.iter().position(|path| *path == to));
                let path = at.map(|at| come.remove(at));
                path.as_ref().inspect(|path| compare(path, &a[from], &b[*path]));
                path.is_none()
            });
        }
        let both = gone.len().min(come.len());
        only.extend(gone[both..].iter().map(|path| (path.clone(), DifferenceKind::Removed)));
        only.extend(come[both..].iter().map(|path| (path.clone(), DifferenceKind::Added)));
        pairs.extend(gone.into_iter().zip(come));
    }
    for (from, path) in &pairs {
        compare(path, &a[from], &b[path]);
    }
    let twice = |path: &Path| only.iter().filter(|(other, _)| other == path).count() == 2;
    for (path, kind) in &only {
        let kind = match kind {
            DifferenceKind::Added if twice(path) => continue,
            DifferenceKind::Removed if twice(path) => DifferenceKind::Replaced,
            kind => kind.clone(),
        };
        let side = if kind == DifferenceKind::Removed { a } else { b };
        found.push(told(&side[path], path, kind));
    }
    let moved =
        |(from, path): (PathBuf, PathBuf)| told(&b[&path], &path, DifferenceKind::Moved { from });
    found.extend(pairs.into_iter().map(moved));
    found.sort();
    found
}

/// Returns a path of a file, or of a directory.
fn any(task: &Task, random: &mut Random, is_dir: bool) -> Option<PathBuf> {
    let paths: Vec<_> = read_tree(task)
        .unwrap()
        .into_iter()
        .filter(|(path, known)| known.is_dir() == is_dir && (is_dir || path.as_os_str() != "/"))
        .map(|(path, _)| path)
        .collect();
    (!paths.is_empty()).then(|| paths[random.below(paths.len() as u64) as usize].clone())
}

/// Makes a random change. Calls that fail change nothing.
pub(crate) fn change(task: &Task, random: &mut Random) {
    let (Some(dir), Some(other)) = (any(task, random, true), any(task, random, true)) else {
        return;
    };
    let new = dir.join(format!("n{}", random.below(12)));
    let file = any(task, random, false).unwrap_or_else(|| new.clone());
    let calls = task.posix();
    let size = random.one(&[0, 10, 300, 5000, 70_000]) as usize;
    let bytes = vec![random.below(250) as u8; size];
    let _ = match random.below(16) {
        0 | 1 => task.write(&new, bytes),
        2 => task.create_dir(&new),
        3 => task.symlink(format!("to{}", random.below(5)), &new),
        4 => task.hard_link(&file, &new),
        5 => task.remove_file(&file),
        6 => task.remove_dir_all(&dir),
        7 | 8 => task.rename(&file, &new),
        9 => task.rename(&dir, other.join(format!("d{}", random.below(5)))),
        10 => calls.renameat2(At::Cwd, &file, At::Cwd, &dir, RenameFlags::EXCHANGE),
        11 => task.set_permissions(&file, [0o600, 0o644][random.below(2) as usize]),
        12 => task.set_xattr(&file, "user.a", [random.below(3) as u8]),
        13 => task.remove_xattr(&file, "user.a"),
        14 => calls.truncate(&file, random.below(9000)),
        _ => rewrite(task, &file, random),
    };
}

/// Writes a part of a file in place, and sets the times back.
fn rewrite(task: &Task, file: &Path, random: &mut Random) -> vfscale::Result<()> {
    let stat = task.symlink_metadata(file)?;
    let open = task.posix().open(file, OFlags::WRONLY | OFlags::NOFOLLOW, Mode::empty())?;
    open.write_at(&[random.below(250) as u8; 20], random.below(stat.size.max(1)))?;
    drop(open);
    let times = [SetTime::At(stat.atime), SetTime::At(stat.mtime)];
    task.posix().utimensat(At::Cwd, file, times, AtFlags::SYMLINK_NOFOLLOW)
}

fn both(pool: &Pool, a: &str, b: &str) -> (Vec<Difference>, Vec<Difference>) {
    let read = |name| within(pool, name, |task| read_tree(task).unwrap());
    let (one, other) = (read(a), read(b));
    (pool.diff(a, b).unwrap(), naive(&one, &other))
}

#[test]
fn a_diff_is_that_of_everything_read() {
    let mut random = Random::new(seed());
    let mut count = 0;
    for _ in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), |task| {
            for _ in 0..120 {
                change(task, &mut random);
            }
        });
        let pool = vfscale::pool(&path).convert(true).open().unwrap();
        pool.fork("main", "a").unwrap();
        pool.fork("main", "b").unwrap();
        for (name, changes) in [("a", 1 + random.below(40)), ("b", random.below(40))] {
            within(&pool, name, |task| (0..changes).for_each(|_| change(task, &mut random)));
        }
        for (one, other) in [("main", "a"), ("a", "main"), ("a", "b")] {
            let (found, expected) = both(&pool, one, other);
            assert_eq!(found, expected, "{one} {other}");
            count += found.len();
        }
        assert_eq!(pool.diff("a", "a").unwrap(), []);
        pool.close().unwrap();
    }
    assert!(count > 100, "{count}");
}

/// Contents that differ behind equal times, sizes and inodes are found, and blocks that are shared
/// are not read.
#[test]
fn forged_times_hide_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| {
        task.write("/large", vec![1; 8 << 20]).unwrap();
        task.write("/small", "small").unwrap();
    });
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    pool.fork("main", "a").unwrap();
    within(&pool, "a", |task| {
        for path in ["/large", "/small"] {
            let stat = task.symlink_metadata(path).unwrap();
            let file = task.posix().open(path, OFlags::WRONLY, Mode::empty()).unwrap();
            file.write_at(b"x", stat.size - 1).unwrap();
            let times = [SetTime::At(stat.atime), SetTime::At(stat.mtime)];
            task.posix().utimensat(At::Cwd, path, times, AtFlags::empty()).unwrap();
        }
    });
    let content = Changes { content: true, ..Changes::default() };
    let changed = |path: &str| (path.into(), DifferenceKind::Changed(content));
    let found = pool.diff("main", "a").unwrap();
    assert_eq!((found[0].mode, found[0].size), (0o100_644, 8 << 20));
    assert_eq!(kinds(found), [changed("/large"), changed("/small")]);
    pool.close().unwrap();
}

/// An open branch is compared as it is, with what was not synced.
#[test]
fn an_open_branch_is_compared() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.create_dir("/d").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    pool.fork("main", "a").unwrap();
    let (main, a) = (pool.open("main").unwrap(), pool.open("a").unwrap());
    a.task().write("/d/f", "new").unwrap();
    a.task().rename("/d", "/e").unwrap();
    let moved = ("/e".into(), DifferenceKind::Moved { from: "/d".into() });
    let added = ("/e/f".into(), DifferenceKind::Added);
    assert_eq!(kinds(pool.diff("main", "a").unwrap()), [moved, added]);
    assert_eq!(pool.branches().len(), 2);
    a.close().unwrap();
    main.close().unwrap();
    pool.close().unwrap();
}

/// Programs replace a file by writing another one and renaming it.
#[test]
fn a_replaced_file_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| {
        task.write("/index", "old").unwrap();
        task.write("/kept", "old").unwrap();
    });
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    pool.fork("main", "a").unwrap();
    within(&pool, "a", |task| {
        task.write("/index.lock", "new").unwrap();
        task.rename("/index.lock", "/index").unwrap();
        task.rename("/kept", "/kept~").unwrap();
        task.write("/kept", "new").unwrap();
    });
    let told = |path: &str, kind| (path.into(), kind);
    let moved = DifferenceKind::Moved { from: "/kept".into() };
    let expected = [
        told("/index", DifferenceKind::Replaced),
        told("/kept", DifferenceKind::Added),
        told("/kept~", moved),
    ];
    assert_eq!(kinds(pool.diff("main", "a").unwrap()), expected);
    pool.close().unwrap();
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |_| ());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let missing = pool.diff("main", "none").unwrap_err();
    assert_eq!(missing.errno(), vfscale::Errno::NOENT);
    let missing = pool.diff("none", "none").unwrap_err();
    assert_eq!(missing.errno(), vfscale::Errno::NOENT);
    pool.close().unwrap();
}
