//! A process that forbids itself `membarrier` while it runs, as sandboxes do. Grace periods end all
//! the same, and nothing is freed too early. A process of its own, since the filter stays.

#![cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
#![allow(clippy::unwrap_used)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vfscale_sync::rcu::{self, Rcu};

/// Makes the call fail with EPERM in all threads of this process, now and later.
fn forbid_membarrier() -> io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = [
        // The number of the call.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter {
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_membarrier as u32)
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the call takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the program and its filter live until the call returns, which copies them.
    let status = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn membarrier_fails() -> bool {
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) < 0 }
}

#[test]
fn grace_periods_end_without_membarrier() {
    let (ran, ends) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let value = Arc::new(Rcu::new((0_u64, !0_u64)));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (value, ends) = (Arc::clone(&value), Arc::clone(&ends));
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let guard = rcu::pin();
                    let (value, inverse) = *value.read(&guard);
                    assert_eq!(value, !inverse);
                }
            })
        })
        .collect();
    let writes = |time: Duration| {
        let begun = Instant::now();
        let mut next = 1;
        while begun.elapsed() < time {
            let ran = Arc::clone(&ran);
            let guard = rcu::pin();
            value.replace((next, !next), &guard);
            guard.defer(move || _ = ran.fetch_add(1, Ordering::Relaxed));
            next += 1;
        }
    };
    writes(Duration::from_millis(50));
    if let Err(e) = forbid_membarrier() {
        println!("skipped: this system takes no filters of system calls: {e}");
    } else {
        assert!(membarrier_fails());
        let before = ran.load(Ordering::Relaxed);
        writes(Duration::from_millis(200));
        rcu::synchronize();
        assert!(ran.load(Ordering::Relaxed) > before);
    }
    ends.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}
