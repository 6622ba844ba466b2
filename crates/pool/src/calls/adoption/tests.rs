//! Adoptions, and the frozen states that they and comparisons look at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use vfscale_block::{Device, MemoryDevice};

use crate::state::branch_table::Fate;
use crate::tests::harness::{self, UNIT, get, put, reap};
use crate::{Branch, Error, Kind, Pool};

/// Makes a pool whose branch has 1 in the block that these tests write.
fn new_pool() -> (Arc<MemoryDevice>, Pool) {
    let (device, pool) = harness::new_pool(2000, 100 * UNIT);
    put(&pool, "main", 7..8, 1);
    (device, pool)
}

fn first(device: &dyn Device) -> u8 {
    let mut bytes = [0xff];
    device.read_at(7 * UNIT, &mut bytes).unwrap();
    bytes[0]
}

fn adopt(pool: &Pool, parent: &str, child: &str) -> Result<(), Error> {
    let adoption = pool.adoption(parent, child)?;
    pool.adopt(&adoption)
}

fn nodes(pool: &Pool) -> usize {
    pool.shared.state.lock().table.records().count()
}

/// Nodes that are open without a name.
fn looked_at(pool: &Pool) -> usize {
    pool.open.lock().keys().filter(|key| key.starts_with('/')).count()
}

/// Race: a session, a rollback, an adoption or the reaper between the comparison and the adoption.
///
/// The adoption acts only on the states that were compared: what anybody has done to the parent
/// meanwhile is kept, and told. A session without a write is no change, and neither is a child that
/// has gone on.
#[test]
fn an_adoption_acts_on_what_was_decided_on() {
    type Meanwhile = fn(&Pool);
    let cases: [(&str, Meanwhile, Result<u8, u8>); 9] = [
        ("nothing", |_| (), Ok(2)),
        ("a session", |pool| put(pool, "main", 7..8, 3), Err(3)),
        ("the bytes that were there", |pool| put(pool, "main", 7..8, 1), Err(1)),
        ("a look", |pool| pool.branch("main").unwrap().close().unwrap(), Ok(2)),
        ("the reaper", reap, Ok(2)),
        ("a fork", |pool| pool.fork("main", "other", false).unwrap(), Ok(2)),
        ("another adoption", |pool| adopt(pool, "main", "second").unwrap(), Err(4)),
        (
            "a session and a rollback",
            |pool| {
                put(pool, "main", 7..8, 3);
                pool.rollback("main").unwrap();
            },
            Ok(2),
        ),
        (
            "a child of another state",
            |pool| {
                pool.delete("trial").unwrap();
                pool.fork("old", "trial", false).unwrap();
            },
            Err(1),
        ),
    ];
    for is_read in [false, true] {
        for (what, meanwhile, expected) in cases {
            let (_, pool) = new_pool();
            pool.fork("main", "old", false).unwrap();
            put(&pool, "old", 7..8, 9);
            pool.fork("old", "older", false).unwrap();
            put(&pool, "main", 7..8, 1);
            pool.fork("main", "trial", false).unwrap();
            pool.fork("main", "second", false).unwrap();
            put(&pool, "trial", 7..8, 2);
            put(&pool, "second", 7..8, 4);
            if is_read {
                // The parent differs from its node at the fork, but not in what is compared.
                put(&pool, "main", 7..8, 1);
            }
            let adoption = pool.adoption("main", "trial").unwrap();
            assert_eq!(adoption.is_unchanged(), !is_read);
            assert_eq!((first(&**adoption.base()), first(&**adoption.now())), (1, 1));
            meanwhile(&pool);
            let adopted = pool.adopt(&adoption);
            let told = match adopted {
                Ok(()) => Ok(get(&pool, "main", 7)),
                Err(Error::Changed(_)) => Err(get(&pool, "main", 7)),
                Err(error) => panic!("{what}: {error}"),
            };
            // After a rollback of what was only read, the parent is the base, and not what was
            // compared.
            let is_other = is_read && what.ends_with("rollback");
            assert_eq!(told, if is_other { Err(1) } else { expected }, "{what}");
            drop(adoption);
            assert_eq!(looked_at(&pool), 0, "{what}");
            reap(&pool);
        }
    }
}

#[test]
fn an_adoption_that_is_refused_leaves_nothing() {
    let (_, pool) = new_pool();
    pool.create_branch("strange", 100 * UNIT).unwrap();
    pool.fork("main", "kept", true).unwrap();
    pool.fork("main", "trial", false).unwrap();
    put(&pool, "main", 7..8, 1);
    let before = nodes(&pool);
    let open = pool.branch("trial").unwrap();
    for (parent, child) in [("main", "trial"), ("trial", "main")] {
        let refused = pool.adoption(parent, child).unwrap_err();
        assert_eq!(refused, Error::InUse("trial".into()));
    }
    open.close().unwrap();
    for (parent, child) in
        [("main", "main"), ("main", "kept"), ("kept", "main"), ("main", "strange")]
    {
        let refused = pool.adoption(parent, child).unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{parent} {child}: {refused}");
    }
    assert_eq!(pool.adoption("main", "x").unwrap_err(), Error::NoBranch("x".into()));
    assert_eq!((looked_at(&pool), nodes(&pool)), (0, before));
    for _ in 0..20 {
        let adoption = pool.adoption("main", "trial").unwrap();
        let open = pool.branch("main").unwrap();
        assert_eq!(pool.adopt(&adoption), Err(Error::InUse("main".into())));
        open.close().unwrap();
    }
    assert_eq!(looked_at(&pool), 0);
    reap(&pool);
    assert_eq!(nodes(&pool), before);
    // A handle that is dropped without a close is forgotten when its node is reaped.
    put(&pool, "main", 7..8, 1);
    drop(pool.snapshot("main", || ()).unwrap());
    reap(&pool);
    assert_eq!((looked_at(&pool), nodes(&pool)), (0, before));
}

/// A snapshot does not change, hinders nobody, and is gone after a crash.
#[test]
fn a_snapshot_is_one_moment_and_leaves_nothing() {
    let (device, pool) = new_pool();
    reap(&pool);
    let before = nodes(&pool);
    for is_open in [false, true] {
        put(&pool, "main", 7..8, 1);
        let open = is_open.then(|| pool.branch("main").unwrap());
        let mut is_told = false;
        let taken = pool.snapshot("main", || is_told = true).unwrap();
        assert!(is_told && taken.is_read_only());
        match &open {
            Some(main) => main.write_at(7 * UNIT, &[2; UNIT as usize]).unwrap(),
            None => put(&pool, "main", 7..8, 2),
        }
        assert!(!pool.reap(100).unwrap().more);
        assert_eq!(first(&*taken), 1);
        let again = pool.snapshot("main", || ()).unwrap();
        assert_eq!((first(&*again), first(&*taken)), (2, 1));
        again.close().unwrap();
        taken.close().unwrap();
        if let Some(main) = open {
            main.close().unwrap();
        }
        assert_eq!(get(&pool, "main", 7), 2);
        assert_eq!(pool.list().len(), 1);
        reap(&pool);
        assert_eq!((looked_at(&pool), nodes(&pool)), (0, before));
    }
    // Deleting what is looked at does not disturb.
    pool.fork("main", "kept", true).unwrap();
    let taken = pool.snapshot("kept", || ()).unwrap();
    pool.delete("kept").unwrap();
    put(&pool, "main", 7..8, 3);
    assert!(!pool.reap(100).unwrap().more);
    assert_eq!(first(&*taken), 2);
    drop(pool);
    drop(taken);
    let pool = Pool::open(device).unwrap();
    reap(&pool);
    assert_eq!((pool.list().len(), nodes(&pool), get(&pool, "main", 7)), (1, before, 3));
}

/// A state that was looked at is no fork: a rollback goes behind it.
#[test]
fn a_look_does_not_hide_the_last_fork() {
    for is_reaped in [false, true] {
        let (_, pool) = new_pool();
        pool.fork("main", "trial", false).unwrap();
        put(&pool, "main", 7..8, 2);
        pool.snapshot("main", || ()).unwrap().close().unwrap();
        put(&pool, "main", 7..8, 3);
        let taken = pool.snapshot("main", || ()).unwrap();
        if is_reaped {
            reap(&pool);
        }
        assert_eq!(pool.rollback("main").unwrap().as_deref(), Some("main@1"));
        assert_eq!((get(&pool, "main", 7), get(&pool, "main@1", 7), first(&*taken)), (1, 3, 3));
        taken.close().unwrap();
        // A state that another branch was forked from is a fork.
        put(&pool, "main", 7..8, 4);
        pool.snapshot("main", || ()).unwrap().close().unwrap();
        pool.fork("main", "other", false).unwrap();
        put(&pool, "main", 7..8, 5);
        pool.rollback("main").unwrap();
        assert_eq!(get(&pool, "main", 7), 4);
        reap(&pool);
    }
}

/// A rollback returns to the last adoption, whatever other branches there are, and can be undone.
#[test]
fn a_rollback_leads_to_the_adoption() {
    let (device, pool) = new_pool();
    pool.fork("main", "trial", false).unwrap();
    put(&pool, "trial", 7..8, 2);
    adopt(&pool, "main", "trial").unwrap();
    put(&pool, "main", 7..8, 3);
    pool.snapshot("main", || ()).unwrap().close().unwrap();
    reap(&pool);
    drop(pool);
    let pool = Pool::open(device).unwrap();
    for number in 1..4 {
        assert_eq!(pool.rollback("main").unwrap(), Some(format!("main@{number}")));
        assert_eq!(get(&pool, "main", 7), 2);
        put(&pool, "main", 7..8, 3 + number);
    }
    pool.rollback("main").unwrap();
    // The undo, by a name.
    adopt(&pool, "main", "main@1").unwrap();
    assert_eq!(get(&pool, "main", 7), 3);
    for number in 2..5 {
        pool.delete(&format!("main@{number}")).unwrap();
    }
    reap(&pool);
    // The next adoption or fork takes the place of the last one: it does not keep space for ever.
    assert_eq!(nodes(&pool), 2);
    pool.fork("main", "other", false).unwrap();
    pool.delete("other").unwrap();
    put(&pool, "main", 7..8, 9);
    pool.fork("main", "other", false).unwrap();
    pool.delete("other").unwrap();
    reap(&pool);
    assert_eq!((nodes(&pool), get(&pool, "main", 7)), (1, 9));
    assert!(matches!(pool.rollback("main"), Err(Error::Refused { .. })));
}

/// The reaper does not look at the states of adoptions as long as they are kept, however many.
#[test]
fn kept_states_are_no_candidates() {
    let (_, pool) = new_pool();
    for n in 0..20 {
        let name = format!("b{n}");
        pool.fork("main", &name, false).unwrap();
        pool.fork(&name, "try", false).unwrap();
        put(&pool, "try", 7..8, n);
        adopt(&pool, &name, "try").unwrap();
    }
    reap(&pool);
    let count = |fate| pool.shared.state.lock().table.nameless(fate).count();
    assert_eq!(Fate::ALL.map(count), [0, 0, 20, 0, 0]);
    (0..20).for_each(|n| pool.delete(&format!("b{n}")).unwrap());
    reap(&pool);
    assert_eq!(Fate::ALL.map(count), [0; 5]);
}

/// A pool that is nearly full gives up what is only kept for a rollback; that is refused then, and
/// does not lead behind the adoption.
#[test]
fn a_nearly_full_pool_keeps_no_adoption() {
    let (_, pool) = new_pool();
    pool.create_branch("large", 4000 * UNIT).unwrap();
    pool.fork("main", "trial", false).unwrap();
    put(&pool, "trial", 7..8, 2);
    adopt(&pool, "main", "trial").unwrap();
    put(&pool, "main", 7..8, 3);
    reap(&pool);
    assert_eq!(nodes(&pool), 3);
    let large = pool.branch("large").unwrap();
    let mut blocks = 0..4000_u64;
    blocks.find(|block| large.write_at(block * UNIT, &[1; UNIT as usize]).is_err()).unwrap();
    large.close().unwrap();
    reap(&pool);
    assert_eq!((nodes(&pool), get(&pool, "main", 7)), (2, 3));
    assert!(matches!(pool.rollback("main"), Err(Error::Refused { .. })));
    assert_eq!(get(&pool, "main", 7), 3);
}

#[test]
fn names_of_what_was_rolled_back_are_names() {
    let (_, pool) = new_pool();
    for name in ["ä".repeat(64), format!("{}ä", "n".repeat(125))] {
        pool.fork("main", &name, false).unwrap();
        put(&pool, &name, 7..8, 2);
        let kept = pool.rollback(&name).unwrap().unwrap();
        assert!(kept.len() <= 128 && kept.ends_with("@1"), "{kept}");
        assert_eq!(get(&pool, &kept, 7), 2);
    }
}

/// The next opening deletes what was to live no longer than the pool was open, also after a crash.
/// A name that its user gave makes it stay.
#[test]
fn temporary_branches_end_with_the_pool() {
    let (device, pool) = new_pool();
    for name in ["run 0", "run 1", "run 2"] {
        pool.fork_with("main", name, Kind::Temporary, || ()).unwrap();
    }
    pool.rename("run 1", "wanted").unwrap();
    pool.fork("run 2", "child", false).unwrap();
    let open = pool.branch("run 2").unwrap();
    open.write_at(7 * UNIT, &[2; UNIT as usize]).unwrap();
    open.flush().unwrap();
    drop(open);
    pool.snapshot("run 2", || ()).unwrap().close().unwrap();
    // Also one that was rolled back, with what is kept of it.
    pool.rollback("run 2").unwrap();
    drop(pool);
    let pool = Pool::open(device).unwrap();
    let names: Vec<String> = pool.list().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["child", "main", "wanted"]);
    reap(&pool);
    assert_eq!((get(&pool, "child", 7), get(&pool, "wanted", 7)), (1, 1));
}

/// Returns whether two states have the same blocks.
fn is_equal(a: &dyn Device, b: &dyn Device) -> bool {
    let all = |device: &dyn Device| {
        let mut bytes = vec![0; 100 * UNIT as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    all(a) == all(b)
}

/// Opens the branch `main` when nobody else has it open.
fn when_free(pool: &Pool) -> Arc<Branch> {
    loop {
        match pool.branch("main") {
            Ok(main) => return main,
            Err(Error::InUse(_)) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Race: sessions of a branch beside its rollbacks, adoptions, snapshots and the reaper.
///
/// A file that a session has closed is in the branch, or in one that a rollback has kept.
#[test]
fn nothing_that_was_closed_is_lost_beside_all_verbs() {
    let (_, pool) = new_pool();
    let (is_over, decisions) = (AtomicBool::new(false), AtomicU64::new(0));
    let until_over = |call: &dyn Fn(u64)| {
        for n in 0.. {
            call(n);
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            thread::yield_now();
        }
    };
    let adopt = |n: u64| {
        let name = format!("t{n}");
        pool.fork("main", &name, false).unwrap();
        let trial = pool.branch(&name).unwrap();
        trial.write_at(8 * UNIT, &[n as u8; UNIT as usize]).unwrap();
        trial.close().unwrap();
        let decided = pool.adoption("main", &name).and_then(|adoption| {
            let is_equal = is_equal(&**adoption.base(), &**adoption.now());
            // A session may come in here.
            decisions.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
            match is_equal {
                true => pool.adopt(&adoption),
                false => Err(Error::Changed("main".into())),
            }
        });
        match decided {
            Ok(()) => {}
            Err(Error::Changed(_) | Error::InUse(_)) => pool.delete(&name).unwrap(),
            Err(error) => panic!("{error}"),
        }
    };
    let roll_back = |_| match pool.rollback("main") {
        Ok(_) | Err(Error::InUse(_) | Error::Refused { .. }) => {}
        Err(error) => panic!("{error}"),
    };
    thread::scope(|scope| {
        scope.spawn(|| until_over(&adopt));
        scope.spawn(|| until_over(&roll_back));
        scope.spawn(|| until_over(&|_| _ = pool.reap(3).unwrap()));
        scope.spawn(|| until_over(&|_| pool.snapshot("main", || ()).unwrap().close().unwrap()));
        for block in 10..60_u64 {
            let before = decisions.load(Ordering::Relaxed);
            while decisions.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
            let main = when_free(&pool);
            main.write_at(block * UNIT, &[block as u8; UNIT as usize]).unwrap();
            main.close().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    reap(&pool);
    assert_eq!(looked_at(&pool), 0);
    let mut lost: Vec<u64> = (10..60).collect();
    for info in pool.list() {
        let branch = pool.branch(&info.name).unwrap();
        let has = |block: u64| {
            let mut bytes = [0];
            branch.read_at(block * UNIT, &mut bytes).unwrap();
            bytes == [block as u8]
        };
        lost.retain(|block| !has(*block));
    }
    assert_eq!(lost, [0; 0]);
}
