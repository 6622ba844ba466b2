//! The queues: requests of one CPU that wait, and helpers for long ones.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::fs::{FlockOperation, flock};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use vfscale_fuse::{Builder, MountError, Sharing, Transport, UringObstacle};

use crate::common::{self, SHARED, TestMount};

/// Pins this thread to the first CPU that it may use.
fn pin() {
    let usable = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|cpu| usable.is_set(*cpu)).unwrap();
    let mut set = CpuSet::new();
    set.set(first);
    sched_setaffinity(None, &set).unwrap();
}

/// Runs `test` on a thread that is pinned, as are the threads that it starts.
fn on_one_cpu(test: impl FnOnce() + Send) {
    let pinned = || {
        pin();
        test();
    };
    thread::scope(|scope| scope.spawn(pinned).join().unwrap());
}

/// The statistics name the transport. The kernel has a queue for each CPU that it may ever have.
#[test]
fn statistics_show_a_queue_for_each_cpu() {
    let Some(m) = TestMount::new(SHARED) else { return };
    let stats = vfscale_fuse::control::connect(m.path("")).unwrap().statistics().unwrap().mount;
    let cpus = thread::available_parallelism().unwrap().get();
    assert_eq!(stats.transport, Transport::Uring);
    assert!(stats.queues >= cpus, "{stats:?}");
    assert!(stats.workers > stats.queues, "one thread reads the device: {stats:?}");
}

/// More requests of one CPU wait for a lock than its queue has entries, and the holder's own
/// requests come through the same queue.
#[test]
fn waiting_requests_do_not_use_up_a_queue() {
    const WAITERS: usize = 60;
    let Some(m) = TestMount::new(SHARED) else { return };
    let granted = AtomicUsize::new(0);
    let wait = || {
        let file = File::open(m.path("f")).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        granted.fetch_add(1, Ordering::Relaxed);
    };
    on_one_cpu(|| {
        let held = File::create(m.path("f")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        thread::scope(|scope| {
            for _ in 0..WAITERS {
                scope.spawn(wait);
            }
            vfscale_harness::wait_until("the waiters", || m.mounted().stats().waiting == WAITERS);
            held.write_at(b"x", 0).unwrap();
            assert_eq!(granted.load(Ordering::Relaxed), 0);
            flock(&held, FlockOperation::Unlock).unwrap();
        });
    });
    assert_eq!(granted.load(Ordering::Relaxed), WAITERS);
    assert_eq!(m.mounted().stats().waiting, 0);
}

/// All requests of a CPU that are in the server at a time begin to wait, so that one more is left
/// with the kernel: an entry that comes later must get it, though no lock is released.
#[test]
fn requests_that_arrive_together_all_wait() {
    const TOGETHER: usize = 24;
    let Some(m) = TestMount::new(SHARED) else { return };
    for _ in 0..20 {
        let held = File::create(m.path("f")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let (barrier, others) = (Barrier::new(2 * TOGETHER), AtomicUsize::new(0));
        let wait = || {
            let file = File::open(m.path("f")).unwrap();
            barrier.wait();
            flock(&file, FlockOperation::LockShared).unwrap();
        };
        let look = || {
            barrier.wait();
            std::fs::metadata(m.path("missing")).unwrap_err();
            others.fetch_add(1, Ordering::Relaxed);
        };
        on_one_cpu(|| {
            thread::scope(|scope| {
                for _ in 0..TOGETHER {
                    scope.spawn(wait);
                    scope.spawn(look);
                }
                vfscale_harness::wait_until("the waiters", || {
                    m.mounted().stats().waiting == TOGETHER
                });
                vfscale_harness::wait_until("the others", || {
                    others.load(Ordering::Relaxed) == TOGETHER
                });
                flock(&held, FlockOperation::Unlock).unwrap();
            });
        });
    }
}

/// Long and short requests of many threads, on all CPUs.
#[test]
fn data_of_many_threads_is_right() {
    let Some(m) = TestMount::with(Sharing::Exclusive, |builder| builder.threads(3)) else { return };
    assert_eq!(m.mounted().transport(), Transport::Uring);
    thread::scope(|scope| {
        for t in 0..6_u8 {
            let m = &m;
            scope.spawn(move || {
                let file = File::options()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .open(m.path(&format!("f{t}")))
                    .unwrap();
                for (i, size) in [4096, 128 << 10, 1 << 20, 100, 3 << 20].into_iter().enumerate() {
                    let bytes: Vec<u8> = (0..size).map(|n| (n as u8) ^ t ^ (i as u8)).collect();
                    file.write_all_at(&bytes, 0).unwrap();
                    file.sync_all().unwrap();
                    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                    let mut back = vec![0; size];
                    file.read_exact_at(&mut back, 0).unwrap();
                    assert!(back == bytes, "thread {t}, {size} bytes");
                }
            });
        }
    });
}

/// A process whose CPUs are limited serves callers on all CPUs.
#[test]
fn callers_on_foreign_cpus_are_served() {
    let Some(switch) = common::UringSwitch::on() else { return };
    let usable = sched_getaffinity(None).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let vfs = common::memory(64 << 20);
    let mut mounted = None;
    on_one_cpu(|| mounted = Some(Builder::new(&vfs).transport(Transport::Uring).mount(dir.path())));
    drop(switch);
    match mounted.unwrap() {
        Ok(_mounted) => {
            for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| usable.is_set(*cpu)) {
                thread::scope(|scope| scope.spawn(|| use_on(cpu, dir.path())).join().unwrap());
            }
        }
        Err(MountError::Uring(UringObstacle::Kernel)) => common::skipped("an old kernel"),
        Err(e) => panic!("{e}"),
    }
}

/// Writes and reads a file in a directory, on a CPU.
fn use_on(cpu: usize, dir: &Path) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
    let path = dir.join(cpu.to_string());
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap().len(), 1 << 20);
}
