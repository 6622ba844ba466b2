use std::time::{Duration, SystemTime};

use super::LogKind;
use crate::tests::harness::{UNIT, get, merge, new_pool, put, reap};
use crate::{Error, Pool};

#[test]
fn a_log_has_what_happened_the_last_first() {
    let (device, pool) = new_pool(2000, 100 * UNIT);
    put(&pool, "main", 0..1, 1);
    assert_eq!(pool.checkpoint("main", "the beginning", || ()).unwrap(), "main@1");
    put(&pool, "main", 0..1, 2);
    pool.fork("main", "trial", false).unwrap();
    put(&pool, "trial", 0..1, 3);
    put(&pool, "main", 0..1, 4);
    pool.snapshot("main", || ()).unwrap().close().unwrap();
    merge(&pool, "trial", "main", |name| put(&pool, name, 0..1, 5));
    put(&pool, "main", 0..1, 6);
    pool.fork("main", "other", false).unwrap();
    put(&pool, "other", 0..1, 7);
    let adoption = pool.adoption("main", "other").unwrap();
    pool.adopt(&adoption).unwrap();
    drop(adoption);
    pool.fork("main", "end", true).unwrap();
    reap(&pool);
    pool.close().unwrap();
    let pool = Pool::open(device).unwrap();
    let log = pool.log("main").unwrap();
    let told: Vec<_> =
        log.iter().map(|it| (it.kind, it.text.as_str(), it.branches.join(" "))).collect();
    assert_eq!(
        told,
        [
            (LogKind::Now, "", String::new()),
            (LogKind::Merge, "other", "end".into()),
            (LogKind::Merged, "", "trial".into()),
            (LogKind::Fork, "", String::new()),
            (LogKind::Checkpoint, "the beginning", "main@1".into()),
        ]
    );
    let merge = &log[1].merges[0];
    assert_eq!((merge.node, merge.branch.as_str()), (log[2].node, "trial"));
    let parents: Vec<_> = log.iter().map(|it| it.parent).collect();
    let nodes: Vec<_> = log.iter().map(|it| Some(it.node)).collect();
    assert_eq!(parents, [nodes[1], nodes[3], nodes[3], nodes[4], None]);
    let times: Vec<SystemTime> = log.iter().skip(1).map(|it| it.time.unwrap()).collect();
    assert!(log[0].time.is_none() && times[0] >= times[3]);
    assert!(times[0].elapsed().unwrap() < Duration::from_secs(3600));
    let made = pool.info("main").unwrap().made.unwrap();
    assert!(made <= times[3], "main was made before the checkpoint");
    let log = pool.log("main@1").unwrap();
    assert_eq!((log.len(), log[0].kind, log[0].text.as_str()), (2, LogKind::Now, "the beginning"));
    assert_eq!(pool.log("none"), Err(Error::NoBranch("none".into())));
}

#[test]
fn a_branch_is_rolled_back_to_any_checkpoint() {
    let (device, pool) = new_pool(2000, 100 * UNIT);
    for number in 1..4 {
        put(&pool, "main", 0..1, number);
        let text = format!("state {number}");
        assert_eq!(pool.checkpoint("main", &text, || ()).unwrap(), format!("main@{number}"));
    }
    // The numbers rise.
    pool.delete("main@2").unwrap();
    put(&pool, "main", 0..1, 4);
    assert_eq!(pool.rollback_to("main", "main@1").unwrap().as_deref(), Some("main@4"));
    assert_eq!((get(&pool, "main", 0), get(&pool, "main@4", 0)), (1, 4));
    put(&pool, "main", 0..1, 5);
    assert_eq!(pool.rollback("main").unwrap().as_deref(), Some("main@5"));
    assert_eq!(get(&pool, "main", 0), 1);
    assert_eq!(pool.rollback_to("main", "main@3").unwrap(), None, "nothing was written");
    assert_eq!(get(&pool, "main", 0), 3);
    reap(&pool);
    // A checkpoint of one that can only be read is another name for it.
    assert_eq!(pool.checkpoint("main@3", "", || ()).unwrap(), "main@3@1");
    assert_eq!(get(&pool, "main@3@1", 0), 3);
    for (name, to) in [("main", "main@4"), ("main@1", "main@3"), ("main", "main")] {
        let refused = pool.rollback_to(name, to).unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{name} {to}: {refused}");
    }
    assert_eq!(pool.rollback_to("main", "x"), Err(Error::NoBranch("x".into())));
    drop(pool);
    let pool = Pool::open(device).unwrap();
    let told: Vec<_> = pool.list().into_iter().filter(|info| info.is_checkpoint()).collect();
    let told: Vec<_> = told.iter().map(|info| (info.name.as_str(), info.text.as_str())).collect();
    assert_eq!(told, [("main@1", "state 1"), ("main@3", "state 3"), ("main@3@1", "")]);
}

#[test]
fn a_text_is_a_line_that_fits_beside_the_name() {
    let (_, pool) = new_pool(2000, 100 * UNIT);
    let long = "n".repeat(120);
    pool.fork("main", &long, false).unwrap();
    let room = "ä".repeat(3);
    let name = pool.checkpoint(&long, &room, || ()).unwrap();
    assert_eq!(pool.info(&name).unwrap().text, room);
    for (branch, text, max) in [("main", "a\nb", 122), (&*long, "seven b", 6)] {
        let refused = pool.checkpoint(branch, text, || ()).unwrap_err();
        assert!(matches!(refused, Error::Text { max: told, .. } if told == max), "{refused}");
    }
    pool.checkpoint("main", &"t".repeat(122), || ()).unwrap();
    assert!(matches!(pool.rename("main@1", "longer name"), Err(Error::Text { max: 117, .. })));
    pool.rename("main@1", "short").unwrap();
    assert_eq!(pool.info("short").unwrap().text.len(), 122);
}

/// The space that a branch is said to have is what its deletion frees.
#[test]
fn a_deletion_frees_what_is_told() {
    let (_, pool) = new_pool(2000, 100 * UNIT);
    put(&pool, "main", 0..10, 1);
    pool.fork("main", "a", false).unwrap();
    put(&pool, "a", 10..40, 2);
    pool.checkpoint("a", "", || ()).unwrap();
    put(&pool, "a", 40..45, 3);
    merge(&pool, "a", "main", |name| put(&pool, name, 0..1, 4));
    put(&pool, "a", 20..30, 5);
    pool.fork("a", "b", true).unwrap();
    put(&pool, "a", 25..35, 6);
    for (name, least) in [("b", 6), ("a@1", 0), ("a", 36)] {
        reap(&pool);
        let (before, told) = (pool.check().unwrap().used, pool.info(name).unwrap().own / UNIT);
        pool.delete(name).unwrap();
        reap(&pool);
        let freed = before - pool.check().unwrap().used;
        // The table, and blocks of dead lists.
        let context = format!("{name}: {freed} places, not {told}");
        assert!(freed.abs_diff(told) <= 6 && told >= least, "{context}");
    }
}
