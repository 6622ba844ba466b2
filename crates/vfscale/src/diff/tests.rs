//! Comparisons by blocks against walks of both trees.

use std::path::{Path, PathBuf};

use vfscale_sync::random::{Random, seed};

use super::{Changes, Compared, Diff, Difference, DifferenceKind, Edges, by_blocks};
use crate::posix::{At, OFlags, RenameFlags};
use crate::{ForkOptions, Mode, Pool, Task};

/// Directories of the random trees; each is made again when it has gone.
const DIRS: [&str; 5] = ["/", "/a", "/a/b", "/c", "/c/d"];

fn any(random: &mut Random) -> PathBuf {
    PathBuf::from(random.one(&DIRS)).join(format!("f{}", random.below(9)))
}

/// Makes a random change. Calls that fail change nothing.
fn change(task: &Task, random: &mut Random) {
    let (file, other) = (any(random), any(random));
    let dir = DIRS[1 + random.below(4) as usize];
    let (calls, size) = (task.posix(), random.one(&[0, 9, 3000, 50_000]));
    let bytes = vec![random.below(250) as u8; size];
    let _ = match random.below(20) {
        0..=3 => task.write(&file, bytes),
        4 => task.create_dir(dir),
        5 => task.create_dir(&file),
        6 => task.symlink("f1".repeat(1 + size / 30), &file),
        7 => task.hard_link(&file, &other),
        8 | 9 => task.remove_file(&file),
        10 => task.remove_dir_all(dir),
        11 | 12 => task.rename(&file, &other),
        13 => task.rename(dir, &other),
        14 => task.rename(&file, dir),
        15 => calls.renameat2(At::Cwd, &file, At::Cwd, &other, RenameFlags::EXCHANGE),
        16 => task.set_permissions(&file, 0o600 + random.below(4) as u32),
        17 => task.set_xattr(&file, "user.a", vec![7; 1 + size / 20]),
        18 => calls.truncate(&file, random.below(9000)),
        _ => calls
            .open(&file, OFlags::WRONLY | OFlags::NOFOLLOW, Mode::empty())
            .and_then(|file| file.write_at(&bytes[..size.min(20)], random.below(6000)).map(drop)),
    };
}

/// Compares two branches by their blocks, if those tell what differs, and by a walk.
fn both(pool: &Pool, one: &str, other: &str) -> (Option<Vec<Difference>>, Vec<Difference>) {
    let (one, other) = (pool.shared.snapshot(one).unwrap(), pool.shared.snapshot(other).unwrap());
    let (one, other) = (one.side(), other.side());
    let differences = |(told, _): Compared| told.into_iter().map(|it| it.difference).collect();
    let walked = Diff::told(Edges::walk(one, other).unwrap()).unwrap();
    (by_blocks(one, other).ok().map(differences), differences(walked))
}

/// Random histories, as many as `VFSCALE_DIFFS` says, or few: branches that are open or closed, and
/// what a power cut would leave of them.
#[test]
fn a_comparison_by_blocks_is_that_of_a_walk() {
    let rounds = std::env::var("VFSCALE_DIFFS").map_or(128, |text| text.parse().unwrap());
    let mut random = Random::new(seed());
    let (mut clear, mut all, mut differences) = (0, 0, 0);
    for _ in 0..rounds / 8 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.vfs");
        let volume = crate::volume(&path).create(64 << 20).open().unwrap();
        let fill = random.below(300);
        (0..fill).for_each(|_| change(&volume.task(), &mut random));
        volume.close().unwrap();
        let pool = crate::pool(&path).convert(true).open().unwrap();
        pool.fork("main", "base").unwrap();
        for round in 0..8 {
            let main = pool.open("main").unwrap();
            let (before, behind) = (random.below(30), random.below(10));
            (0..before).for_each(|_| change(&main.task(), &mut random));
            if random.below(3) == 0 {
                main.sync().unwrap();
            }
            (0..behind).for_each(|_| change(&main.task(), &mut random));
            let crashed = format!("crashed {round}");
            let options = ForkOptions::new().as_synced(true).read_only(random.below(2) == 0);
            pool.fork_with("main", &crashed, options).unwrap();
            let mut pairs = vec![("base", "main"), ("main", &*crashed), ("base", &*crashed)];
            if random.below(2) == 0 {
                main.close().unwrap();
                pairs.push(("main", "base"));
            }
            for (one, other) in pairs {
                let (found, expected) = both(&pool, one, other);
                all += 1;
                differences += expected.len();
                if let Some(found) = found {
                    clear += 1;
                    assert_eq!(found, expected, "{one} {other}");
                }
            }
            if random.below(3) == 0 {
                pool.fork(random.one(&["base", "main"]), &format!("new {round}")).unwrap();
            }
        }
        drop(pool);
    }
    println!("{all} comparisons, {clear} by blocks, {differences} differences");
    assert!(clear * 100 >= all * 99, "{clear} of {all} are clear");
    assert!(differences > 1000, "{differences}");
}

/// Makes a pool with a branch `trial`, of a volume that `fill` fills.
fn pool_of(dir: &Path, fill: impl FnOnce(&Task)) -> Pool {
    let path = dir.join("disk.vfs");
    let volume = crate::volume(&path).create(64 << 20).open().unwrap();
    fill(&volume.task());
    volume.close().unwrap();
    let pool = crate::pool(&path).convert(true).open().unwrap();
    pool.fork("main", "trial").unwrap();
    pool
}

/// A power cut may leave data that were written, and an inode that does not say so.
#[test]
fn data_that_changed_without_their_inode_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (vec![0xa7; 4096], vec![0xb8; 4096]);
    let pool = pool_of(dir.path(), |task| {
        task.write("/file", &old).unwrap();
        task.write("/other", "small").unwrap();
    });
    let device = pool.device("trial").unwrap();
    let mut block = vec![0; 4096];
    let at = (0..device.size()).step_by(4096).find(|at| {
        device.read_at(*at, &mut block).unwrap();
        block == old
    });
    device.write_at(at.unwrap(), &new).unwrap();
    device.flush().unwrap();
    drop(device);
    let (by_blocks, walked) = both(&pool, "main", "trial");
    assert_eq!(by_blocks, None, "the blocks do not tell whose they are");
    let found = pool.diff("main", "trial").unwrap();
    let content = Changes { content: true, ..Changes::default() };
    assert_eq!(found, walked);
    assert_eq!(found[0].path.to_str(), Some("/file"));
    assert_eq!(found[0].kind, DifferenceKind::Changed(content));
    assert_eq!(found.len(), 1);
}

/// Two renames within one tick of the clock leave equal records: only a block of names differs.
#[test]
fn names_that_changed_without_their_inode_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool_of(dir.path(), |task| {
        task.create_dir("/d").unwrap();
        (0..200).for_each(|number| task.write(format!("/d/a{number}"), "").unwrap());
    });
    let trial = pool.open("trial").unwrap();
    for number in 0..20 {
        let [a, b, c] = ["a", "b", "c"].map(|letter| format!("/d/{letter}{number}"));
        trial.task().rename(&a, &b).unwrap();
        let base = format!("base {number}");
        pool.fork("trial", &base).unwrap();
        trial.task().rename(&b, &c).unwrap();
        let (by_blocks, walked) = both(&pool, &base, "trial");
        assert_eq!(walked[0].path, PathBuf::from(c));
        assert_eq!(walked[0].kind, DifferenceKind::Moved { from: b.into() });
        assert_eq!(by_blocks, Some(walked));
    }
}

/// Files that were moved away from where they were made, some with several names.
#[test]
fn files_far_from_their_directories_are_found() {
    let mut random = Random::new(seed());
    let dir = tempfile::tempdir().unwrap();
    let (dirs, files) = (30, 50);
    let path = |number: u64| format!("/d{}/f{number}", number / files);
    let mut moved = |number| format!("/d{}/m{number}", random.below(dirs));
    let pool = pool_of(dir.path(), |task| {
        for number in 0..dirs * files {
            if number % files == 0 {
                task.create_dir(format!("/d{}", number / files)).unwrap();
            }
            task.write(path(number), "contents").unwrap();
        }
        for number in (0..dirs * files).step_by(3) {
            task.rename(path(number), moved(number)).unwrap();
        }
        for number in (1..dirs * files).step_by(9) {
            task.hard_link(path(number), moved(number)).unwrap();
        }
    });
    let trial = pool.open("trial").unwrap();
    let mut changed = 0;
    for number in 0..dirs {
        for entry in trial.task().read_dir(format!("/d{number}")).unwrap() {
            if random.below(20) == 0 {
                trial.task().write(entry.unwrap().path(), "changed").unwrap();
                changed += 1;
            }
        }
    }
    trial.close().unwrap();
    let (by_blocks, walked) = both(&pool, "main", "trial");
    assert!(changed > 20 && walked.len() >= changed, "{changed} {}", walked.len());
    assert_eq!(by_blocks, Some(walked));
}
