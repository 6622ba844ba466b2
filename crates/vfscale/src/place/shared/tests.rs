//! Adoptions, with somebody else between decision and act; the end of the last user.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use vfscale_block::MemoryDevice;
use vfscale_diskfs::mkfs::{self, MkfsOptions};

use crate::{Pool, PoolError};

/// Makes a pool with a branch `trial` that has changed.
fn new_pool() -> Pool {
    let device = Arc::new(MemoryDevice::with_block_size(64 << 20, 4096).unwrap());
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    let pool = crate::pool_on(device).convert(true).open().unwrap();
    pool.fork("main", "trial").unwrap();
    let trial = pool.open("trial").unwrap();
    trial.task().write("/work", "written").unwrap();
    trial.close().unwrap();
    pool
}

/// Opens a branch, writes a file, and closes it.
fn session(pool: &Pool, path: &str) {
    let volume = pool.open("main").unwrap();
    volume.task().write(path, "written").unwrap();
    volume.close().unwrap();
}

/// Uses a branch without a change of its contents.
fn idle(pool: &Pool) {
    let volume = pool.open("main").unwrap();
    volume.task().write("/removed", "at once").unwrap();
    volume.task().remove_file("/removed").unwrap();
    volume.close().unwrap();
}

fn has(pool: &Pool, path: &str) -> bool {
    let main = pool.open("main").unwrap();
    let has = main.task().metadata(path).is_ok();
    main.close().unwrap();
    has
}

/// Race: a whole session of another user between the comparison and the adoption.
///
/// Opened, written and closed, it is found at the act, and the parent compared again. The adoption
/// threw it away once, with no message. A session that has only read is no reason to refuse.
#[test]
fn a_session_between_comparison_and_act_is_not_lost() {
    let pool = new_pool();
    let mut sessions = ["/first", "/second"].into_iter();
    let beside = || {
        if let Some(path) = sessions.next() {
            session(&pool, path);
        }
    };
    let refused = pool.shared.adopt_with("main", "trial", None, beside).unwrap_err();
    assert!(matches!(refused, PoolError::HasChanged { .. }), "{refused}");
    assert!(has(&pool, "/first") && !has(&pool, "/work"));
    assert_eq!(sessions.next(), Some("/second"));

    let (pool, mut count) = (new_pool(), 0);
    let beside = || {
        count += 1;
        if count < 3 {
            idle(&pool);
        }
    };
    pool.shared.adopt_with("main", "trial", None, beside).unwrap();
    assert!(has(&pool, "/work"));

    // The call does not wait for a user who never stops.
    let (pool, mut count) = (new_pool(), 0);
    let beside = || {
        count += 1;
        idle(&pool);
    };
    let refused = pool.shared.adopt_with("main", "trial", None, beside).unwrap_err();
    assert!(refused.to_string().contains("meanwhile"), "{refused}");
    assert!(!has(&pool, "/work") && count < 20);
}

/// Race: the last user ends while the space of a deleted branch is freed.
///
/// The thread that frees it has had the image open for a step longer, so that the next opening was
/// refused.
#[test]
fn the_last_user_leaves_the_image_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    crate::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    for round in 0..100 {
        let pool = crate::pool(&path).convert(true).open();
        let pool = pool.unwrap_or_else(|refused| panic!("round {round}: {refused}"));
        pool.fork("main", "trial").unwrap();
        let trial = pool.open("trial").unwrap();
        trial.task().write("/work", "written").unwrap();
        trial.close().unwrap();
        pool.delete("trial").unwrap();
        // The work begins a moment later.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(5 * round) {
            thread::yield_now();
        }
    }
}

/// A change of a pool that is opened to be read would be one in memory, and lost without a word.
#[test]
fn a_pool_that_is_read_refuses_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    crate::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    let pool = crate::pool(&path).convert(true).open().unwrap();
    pool.fork("main", "trial").unwrap();
    pool.close().unwrap();
    let pool = crate::pool(&path).read_only(true).open().unwrap();
    let refused = [
        pool.fork("main", "new"),
        pool.delete("trial"),
        pool.rename("trial", "new"),
        pool.rollback("trial").map(drop),
        pool.adopt("main", "trial"),
        pool.grow(Some(256 << 20)).map(drop),
        pool.grow_branch("trial", 256 << 20).map(drop),
        pool.trim().map(drop),
    ];
    for refused in refused {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("opened to be read; open it for writing"), "{refused}");
    }
    assert_eq!(pool.branches().len(), 2);
    assert!(pool.diff("main", "trial").unwrap().is_empty());
}
