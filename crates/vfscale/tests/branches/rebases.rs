//! `rebase`: a branch goes on from another state, with what it has changed.

use vfscale::pool::LogKind;
use vfscale::{ConflictKind, Errno, MergeOptions, Merged, Pool, Strategy, Task};
use vfscale_sync::random::{Random, seed};

use crate::common::{image, read, within};
use crate::tree_common::{read_contents, unequal};

/// Makes a pool with the branches `branch` and `onto`, which come from one state.
fn pool(base: fn(&Task), branch: fn(&Task), onto: fn(&Task)) -> (tempfile::TempDir, Pool) {
    let dir = tempfile::tempdir().unwrap();
    let pool = vfscale::pool(image(dir.path(), base)).convert(true).open().unwrap();
    for (name, fill) in [("branch", branch), ("onto", onto)] {
        pool.fork("main", name).unwrap();
        within(&pool, name, fill);
    }
    (dir, pool)
}

fn names(pool: &Pool) -> Vec<String> {
    pool.branches().into_iter().map(|info| info.name).collect()
}

#[test]
fn a_branch_goes_on_from_the_new_base_with_its_changes() {
    let (_dir, pool) = pool(
        |task| {
            task.write("/text", "1\n2\n3\n4\n5\n").unwrap();
            task.write("/moved", "moved").unwrap();
        },
        |task| {
            task.write("/text", "one\n2\n3\n4\n5\n").unwrap();
            task.rename("/moved", "/away").unwrap();
            task.write("/own", "own").unwrap();
        },
        |task| {
            task.write("/text", "1\n2\n3\n4\nfive\n").unwrap();
            task.write("/theirs", "theirs").unwrap();
        },
    );
    let [before, onto] = ["branch", "onto"].map(|name| within(&pool, name, read_contents));
    let now = |name: &str| within(&pool, name, read_contents);
    let options = MergeOptions::new();
    let planned = pool.rebase("branch", "onto", options.dry_run(true)).unwrap();
    assert_eq!((now("branch") == before, names(&pool).len()), (true, 3));
    let done = pool.rebase("branch", "onto", options).unwrap();
    assert_eq!(done.kept.as_deref(), Some("branch@1"));
    assert_eq!(Merged { is_done: true, kept: done.kept.clone(), ..planned }, done);
    assert_eq!((done.added, done.moved, done.texts, done.conflicts.len()), (1, 1, 1, 0));
    assert_eq!(read(&pool, "branch", "/text").as_deref(), Some("one\n2\n3\n4\nfive\n"));
    assert_eq!(read(&pool, "branch", "/away").as_deref(), Some("moved"));
    assert_eq!(read(&pool, "branch", "/theirs").as_deref(), Some("theirs"));
    assert_eq!(names(&pool), ["branch", "branch@1", "main", "onto"]);
    // The former state is kept, and the new base stays.
    assert_eq!(pool.diff("branch@1", "main").unwrap().len(), 3);
    assert!(now("onto") == onto && now("branch@1") == before);
    // The history knows the new base: nothing is left to do, and the base may adopt the branch.
    assert_eq!(pool.rebase("branch", "onto", options).unwrap(), Merged::default());
    let log = pool.log("branch").unwrap();
    let merge = log.iter().find(|entry| entry.kind == LogKind::Merge).unwrap();
    assert_eq!(merge.merges[0].branch, "branch@1");
    within(&pool, "branch", |task| task.write("/later", "later").unwrap());
    pool.adopt("onto", "branch").unwrap();
    assert_eq!(read(&pool, "onto", "/later").as_deref(), Some("later"));
    pool.reap().unwrap();
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}

#[test]
fn conflicts_and_refusals_are_those_of_a_merge() {
    let change = |text: &'static str| move |task: &Task| task.write("/f", text).unwrap();
    let (_dir, pool) = pool(
        |task| task.write("/f", "f").unwrap(),
        |task| task.write("/f", "branch").unwrap(),
        |task| task.write("/f", "onto").unwrap(),
    );
    let options = MergeOptions::new();
    let refused = pool.rebase("branch", "onto", options.strategy(Strategy::Fail)).unwrap();
    assert_eq!((refused.is_done, refused.kept), (false, None));
    assert_eq!(refused.conflicts[0].kind, ConflictKind::Content);
    assert_eq!(read(&pool, "branch", "/f").as_deref(), Some("branch"));
    let open = pool.open("branch").unwrap();
    let error = pool.rebase("branch", "onto", options).unwrap_err();
    assert_eq!(error.errno(), Errno::BUSY);
    open.close().unwrap();
    for (branch, onto, errno) in [
        ("none", "onto", Errno::NOENT),
        ("branch", "none", Errno::NOENT),
        ("onto", "onto", Errno::INVAL),
    ] {
        let error = pool.rebase(branch, onto, options).unwrap_err();
        assert_eq!(error.errno(), errno, "{error}");
    }
    assert_eq!(names(&pool).len(), 3);
    // The new base may be open; all changes whose calls have returned are in it.
    let onto = pool.open("onto").unwrap();
    onto.task().write("/late", "late").unwrap();
    let done = pool.rebase("branch", "onto", options).unwrap();
    onto.close().unwrap();
    assert_eq!(done.conflicts[0].beside.as_ref().unwrap().to_str(), Some("/f.branch"));
    assert_eq!(read(&pool, "branch", "/f").as_deref(), Some("onto"));
    assert_eq!(read(&pool, "branch", "/f.branch").as_deref(), Some("branch"));
    assert_eq!(read(&pool, "branch", "/late").as_deref(), Some("late"));
    // A checkpoint has what the branch had: it need not be kept.
    within(&pool, "branch", change("again"));
    within(&pool, "onto", |task| task.write("/g", "g").unwrap());
    pool.checkpoint("branch", "").unwrap();
    let done = pool.rebase("branch", "onto", options.strategy(Strategy::Theirs)).unwrap();
    assert_eq!(done.kept, None);
    assert_eq!(read(&pool, "branch", "/f").as_deref(), Some("again"));
    let error = pool.rebase("branch@2", "onto", options).unwrap_err();
    assert_eq!(error.errno(), Errno::INVAL, "{error}");
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}

/// A rebase gives the tree that a merge into a fork of the new base gives.
#[test]
fn random_branches_get_what_a_merge_gives() {
    let (dir, mut random) = (tempfile::tempdir().unwrap(), Random::new(seed()));
    let pool = vfscale::pool(image(dir.path(), |_| ())).convert(true).open().unwrap();
    let mut change = |pool: &Pool, name: &str| {
        within(pool, name, |task| {
            for _ in 0..8 {
                let (path, other) = (random.below(12), random.below(12));
                let _ = match random.below(4) {
                    0 | 1 => task.write(format!("/{path}"), vec![random.below(3) as u8; 10]),
                    2 => task.remove_file(format!("/{path}")),
                    _ => task.rename(format!("/{path}"), format!("/{other}")),
                };
            }
        });
    };
    for _ in 0..20 {
        change(&pool, "main");
        pool.fork("main", "branch").unwrap();
        change(&pool, "branch");
        change(&pool, "main");
        pool.fork("main", "merged").unwrap();
        let merged = pool.merge("branch", "merged", MergeOptions::new()).unwrap();
        let done = pool.rebase("branch", "main", MergeOptions::new()).unwrap();
        assert_eq!(done.conflicts, merged.conflicts);
        let [one, other] = ["branch", "merged"].map(|it| within(&pool, it, read_contents));
        assert_eq!(unequal(&one, &other), Vec::<String>::new());
        for name in names(&pool).into_iter().filter(|name| name != "main") {
            pool.delete(&name).unwrap();
        }
    }
    pool.reap().unwrap();
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}
