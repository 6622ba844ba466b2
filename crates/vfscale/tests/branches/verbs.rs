//! Verbs of branches: what they decide on, and what they leave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use vfscale::{Errno, ForkOptions, Pool};

use crate::common::{image, read, within};

/// The uses of the parent between a fork and the adoption of the child, none of which changes its
/// contents.
const BETWEEN: [&str; 8] =
    ["nothing", "read", "mount", "list", "diff", "fork", "fork and delete", "discarded run"];

fn meanwhile(pool: &Pool, what: &str) {
    match what {
        "list" => assert!(pool.branches().len() >= 2),
        "diff" => drop(pool.diff("main", "trial").unwrap()),
        "fork" => pool.fork("main", "other").unwrap(),
        "fork and delete" => {
            pool.fork("main", "other").unwrap();
            pool.delete("other").unwrap();
            pool.reap().unwrap();
        }
        "discarded run" => {
            pool.fork_with("main", "run", ForkOptions::new()).unwrap();
            within(pool, "run", |task| task.write("/f", "discarded").unwrap());
            pool.delete("run").unwrap();
        }
        _ => {}
    }
}

/// A child is adopted as long as the contents of the parent are those of the fork, whatever was
/// forked, mounted, compared or read since.
#[test]
fn a_child_of_an_unchanged_parent_is_adopted_whatever_happened_in_between() {
    for what in BETWEEN {
        for is_open in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
            let pool = vfscale::pool(&path).convert(true).open().unwrap();
            pool.fork("main", "trial").unwrap();
            within(&pool, "trial", |task| task.write("/f", "work").unwrap());
            for _ in 0..2 {
                let main = pool.open("main").unwrap();
                // A read changes a time, so the parent differs from its node at the fork.
                if is_open || what == "read" {
                    assert_eq!(main.task().read_to_string("/f").unwrap(), "base");
                    main.sync().unwrap();
                }
                if is_open {
                    meanwhile(&pool, what);
                    main.close().unwrap();
                } else {
                    main.close().unwrap();
                    meanwhile(&pool, what);
                }
                if what == "fork" {
                    pool.rename("other", &format!("other {}", pool.branches().len())).unwrap();
                }
            }
            let context = format!("{what}, open: {is_open}");
            pool.adopt("main", "trial").unwrap_or_else(|why| panic!("{context}: {why}"));
            assert_eq!(read(&pool, "main", "/f").as_deref(), Some("work"), "{context}");
            pool.reap().unwrap();
            assert_eq!(pool.check().unwrap(), Vec::<String>::new(), "{context}");
            pool.close().unwrap();
        }
    }
}

/// The image is opened as `main`, so there is always one.
#[test]
fn main_is_not_adopted_by_another_branch() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    pool.fork("main", "trial").unwrap();
    assert_eq!(pool.adopt("trial", "main").unwrap_err().errno(), Errno::INVAL);
    assert_eq!(read(&pool, "main", "/f").as_deref(), Some("base"));
    pool.close().unwrap();
}

/// A rollback never leads behind an adoption: what was adopted stays, what came after it goes.
#[test]
fn a_rollback_after_an_adoption_returns_to_the_adoption() {
    for (has_other, is_nested) in [(false, false), (false, true), (true, false), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
        let pool = vfscale::pool(&path).convert(true).open().unwrap();
        pool.fork("main", "trial").unwrap();
        if has_other {
            pool.fork("main", "other").unwrap();
        }
        if is_nested {
            within(&pool, "trial", |task| task.write("/trial", "first").unwrap());
            pool.fork("trial", "deep").unwrap();
            within(&pool, "deep", |task| task.write("/work", "precious").unwrap());
            pool.adopt("trial", "deep").unwrap();
        } else {
            within(&pool, "trial", |task| task.write("/work", "precious").unwrap());
        }
        pool.adopt("main", "trial").unwrap();
        pool.reap().unwrap();
        within(&pool, "main", |task| task.write("/junk", "junk").unwrap());
        pool.rollback("main").unwrap();
        pool.reap().unwrap();
        let context = format!("{has_other} {is_nested}");
        assert_eq!(read(&pool, "main", "/work").as_deref(), Some("precious"), "{context}");
        assert_eq!(read(&pool, "main", "/junk"), None, "{context}");
        assert_eq!(pool.check().unwrap(), Vec::<String>::new(), "{context}");
        pool.close().unwrap();
    }
}

/// Returns what `call` does, again while the branch is in use.
fn when_free<T>(mut call: impl FnMut() -> Option<T>) -> T {
    loop {
        match call() {
            Some(value) => return value,
            None => thread::yield_now(),
        }
    }
}

/// Race: `adopt` of a child beside sessions that open the parent, write, and close it.
///
/// An adoption acts on the state that it has compared, or compares again. The comparison and the
/// act were two steps once, and a session that fitted in between was thrown away.
#[test]
fn no_closed_session_is_lost_beside_adoptions() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |_| ());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let sessions = 100;
    let is_over = AtomicBool::new(false);
    let mut adopted = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..sessions {
                let main = when_free(|| pool.open("main").ok());
                main.task().write(format!("/s{n}"), "closed").unwrap();
                main.close().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for n in 0.. {
            let name = format!("t{n}");
            pool.fork("main", &name).unwrap();
            within(&pool, &name, |task| task.write("/trial", &name).unwrap());
            match pool.adopt("main", &name) {
                Ok(()) => adopted += 1,
                Err(error) => {
                    assert_eq!(error.errno(), Errno::BUSY, "{error}");
                    pool.delete(&name).unwrap();
                }
            }
            if is_over.load(Ordering::Relaxed) && adopted > 0 {
                break;
            }
        }
    });
    within(&pool, "main", |task| {
        let lost = (0..sessions).filter(|n| task.metadata(format!("/s{n}")).is_err());
        assert_eq!(lost.collect::<Vec<_>>(), [0; 0], "of {sessions}, beside {adopted} adoptions");
    });
    pool.reap().unwrap();
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}
