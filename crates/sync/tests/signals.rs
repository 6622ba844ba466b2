//! The signals of a host's process. A process of its own, which waits for SIGTERM.

#![cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::mem::MaybeUninit;
use std::sync::{Arc, Barrier};

use vfscale_sync::reclaim;
use vfscale_sync::worker::{Priority, WorkItem};

/// Returns the names of the library's threads, and the signals that each of them blocks.
fn threads() -> Vec<(String, u64)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let status = |task: std::io::Result<fs::DirEntry>| {
        fs::read_to_string(task.unwrap().path().join("status"))
    };
    // A thread may end meanwhile.
    let statuses = tasks.map(status).filter_map(Result::ok);
    let field = |status: &str, name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    };
    statuses
        .map(|status| (field(&status, "Name:"), field(&status, "SigBlk:")))
        .filter(|(name, _)| name.starts_with("vfscale-"))
        .map(|(name, blocked)| (name, u64::from_str_radix(&blocked, 16).unwrap()))
        .collect()
}

/// A host that blocks a signal in its own threads and waits for it gets it, also if it blocks the
/// signal after the library has started threads.
#[test]
fn threads_of_the_library_take_no_signals() {
    let (run, ends) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (of_run, of_ends) = (Arc::clone(&run), Arc::clone(&ends));
    let item = WorkItem::new(Priority::Normal, 1, move || {
        of_run.wait();
        of_ends.wait();
    });
    item.queue();
    assert!(reclaim::attend());
    run.wait();
    let threads = threads();
    ends.wait();
    for expected in ["vfscale-timer", "vfscale-worker", "vfscale-reclaim"] {
        assert!(threads.iter().any(|(name, _)| name == expected), "{expected}: {threads:?}");
    }
    let bit = |signal: i32| 1_u64 << (signal - 1);
    for (name, blocked) in threads {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGPROF, libc::SIGALRM] {
            assert_ne!(blocked & bit(signal), 0, "{name} takes signal {signal}");
        }
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
            assert_eq!(blocked & bit(fault), 0, "{name} blocks its own fault {fault}");
        }
    }
    // The mask of a caller is as before.
    let mut mine = MaybeUninit::uninit();
    // SAFETY: the call fills in the set, which the other one reads.
    let has_term = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mine.as_mut_ptr());
        libc::sigismember(mine.as_ptr(), libc::SIGTERM)
    };
    assert_eq!(has_term, 0);
}
