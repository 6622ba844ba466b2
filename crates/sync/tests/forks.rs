//! A fork of a process that uses the crate while another thread is in a section. A process of its
//! own, with one test, since a child has one thread.

#![cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
#![allow(clippy::unwrap_used)]

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use vfscale_sync::{fork, rcu, reclaim};

/// Time after which a child that waits is ended.
const LIMIT: libc::c_uint = 30;

/// Runs `body` in a fork child, and returns what it returns; `None`: it was ended.
fn in_child(body: impl FnOnce() -> i32) -> Option<i32> {
    // SAFETY: the child runs `body`, which may wait for ever but uses nothing that is gone.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: the calls take numbers only.
        unsafe { libc::alarm(LIMIT) };
        let status = panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or(99);
        // SAFETY: as above.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's, and the status is filled in.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

struct Step;

impl reclaim::Work for Step {
    fn step(&mut self) -> bool {
        unreachable!("a child does no work of the reclaim thread")
    }
}

/// A process need not ask for its children to be told.
///
/// Race: A fork against a section of another thread.
#[test]
fn a_child_waits_for_no_thread_that_it_lacks() {
    let ends = Arc::new(AtomicBool::new(false));
    let (entered, is_entered) = std::sync::mpsc::channel();
    let other = {
        let ends = Arc::clone(&ends);
        thread::spawn(move || {
            let _section = rcu::pin();
            entered.send(()).unwrap();
            while !ends.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        })
    };
    is_entered.recv().unwrap();
    drop(rcu::pin());
    let synchronizes = in_child(|| {
        assert!(fork::is_child());
        // A call that can't wait says so.
        i32::from(panic::catch_unwind(rcu::synchronize).is_err())
    });
    assert_eq!(synchronizes, Some(1));
    let submits = in_child(|| {
        let is_taken = reclaim::submit(7, Box::new(Step)).is_ok();
        reclaim::wait_for(7);
        i32::from(is_taken) + 2 * i32::from(reclaim::attend())
    });
    // The work is neither done nor given back, which would have the caller do it.
    assert_eq!(submits, Some(1));
    ends.store(true, Ordering::Relaxed);
    other.join().unwrap();
}
