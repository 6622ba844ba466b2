use vfscale::posix::OFlags;
use vfscale::{Mode, Scaling};

use super::*;
use crate::case::{Call, Op};
use crate::predict::{Machine, throughput, workload};
use crate::runner::Target;

fn program_of(name: &str, scaling: Scaling) -> Program {
    let workload = workload::find(name).unwrap();
    program_alone(&workload, Options { scaling, ..Options::default() }).unwrap()
}

#[test]
fn opening_scales_now_and_did_not_with_the_kernels_structures() {
    let machine = Machine::eight_sockets();
    let at = |program: &Program, cores| throughput(&machine, program, cores);
    let now = program_of("open-close-same-dir", Scaling::default());
    assert_eq!(now.shared_lines(), 0);
    assert!(at(&now, 80) > 79.0 * at(&now, 1));
    let before = program_of("open-close-same-dir", Scaling::kernel_2_6());
    assert!(before.locks_taken() > 0);
    // Like in the table of Long's lockref patches (2013), eight sockets are slower than one.
    assert!(at(&before, 80) < 0.6 * at(&before, 10));
}

/// Tests that run concurrently use the same pool of pages and the same clock, and may move a CPU's
/// page to the other CPU.
#[test]
fn workloads_share_nothing_in_memory() {
    for workload in workload::all().into_iter().chain(workload::fxmark()) {
        let program = program_alone(&workload, Options::default()).unwrap();
        assert_eq!(program.shared_lines(), 0, "{}", workload.name);
    }
}

/// One counter of dentries, or of inodes, is one more line that two creators write.
#[test]
fn counts_before_are_lines_that_two_creators_share() {
    for patch in ["dentry-count", "inode-count"] {
        let before = program_of("create-unlink-own-dir", Scaling::before(patch).unwrap());
        assert_eq!(before.shared_lines(), 1, "{patch}");
    }
}

/// All shared objects are already sharded over the CPUs: a file that both workers open, their
/// directory, their mount, and an inode that each opens by a different link. Neither writes a line
/// that the other touches.
#[test]
fn lines_that_all_threads_use_are_not_written() {
    for name in ["open-close-one-file", "stat-deep", "d-path"] {
        assert_eq!(program_of(name, Scaling::default()).shared_lines(), 0, "{name}");
    }
    for before in [Scaling::kernel_2_6(), Scaling::before("lockref-spread").unwrap()] {
        assert!(program_of("open-close-one-file", before).shared_lines() > 0);
    }
    let call = |process, op| Call { process, op };
    let open =
        |path: &str, flags| Op::Open { path: path.into(), flags, mode: Mode::from(0o644), slot: 0 };
    let close = Op::Close { slot: 0 };
    let path = |process| format!("dir/{process}");
    let flags = OFlags::CREATE | OFlags::RDWR;
    let mut setup = vec![
        call(0, Op::Mkdir { path: "/dir".into(), mode: Mode::from(0o755) }),
        call(0, open("/dir/0", flags)),
        call(0, close.clone()),
        call(0, Op::Link { old: "/dir/0".into(), new: "/dir/1".into() }),
    ];
    // Both workers use one working directory. One-time costs are excluded.
    let calls = |process: u8| {
        let stat = Op::Stat { path: path(process), follow: true };
        [open(&path(process), OFlags::RDONLY), close.clone(), stat, Op::Getcwd {}]
            .map(|op| call(process, op))
            .to_vec()
    };
    setup.extend([0, 1].map(|process| call(process, Op::Chdir { path: "/".into() })));
    let (workers, undo) = ([0, 1].map(calls), Default::default());
    let workload = Workload { name: "one-inode", operations: 1, setup, workers, undo };
    let lines = |scaling| {
        let options = Options { scaling, ..Options::default() };
        program_alone(&workload, options).unwrap().shared_lines()
    };
    assert_eq!(lines(Scaling::default()), 0);
    assert!(lines(Scaling::kernel_2_6()) > 0);
}

#[test]
fn functions_that_lock_are_known() {
    let is = |function: &str| {
        role(&[Frame { function: function.into(), file: String::new(), line: 0, field: None }])
    };
    assert_eq!(is("vfscale_sync::lock::raw_mutex::RawMutex::take_free"), Role::Acquire);
    assert_eq!(is("RawMutex::unlock"), Role::Release);
    assert_eq!(is("Lockref::claim"), Role::Acquire);
    assert_eq!(is("SlotLock::take<Slot<OpenFile, FilesLock>, FilesLock>"), Role::Acquire);
    assert_eq!(is("SlotGuard::drop<Slot<OpenFile, FilesLock>, FilesLock>"), Role::Release);
    assert_eq!(is("PerCpuRef::change<MountCount>"), Role::Plain);
    assert_eq!(role(&[]), Role::Plain);
}

/// Number of recordings of a workload of a volume, of which the best counts: in the others a call
/// may have queued work for the threads in the background.
const RECORDINGS: usize = 5;

/// Two commits on different CPUs to different inodes do not write a common line. Disabling any
/// patch of Chinner 2020 (per-CPU delayed logging) that is about such commits brings one back, and
/// so does disabling what goes beyond those patches.
#[test]
fn commits_of_different_inodes_share_no_line() {
    let all = Scaling::with_slots(32);
    let lines = |workload: &Workload, scaling| {
        let options = Options { scaling, target: Target::Volume, ..Options::default() };
        let recorded = |_| program_alone(workload, options).unwrap().shared_lines();
        (0..RECORDINGS).map(recorded).min().unwrap()
    };
    let [touch, cut] = ["touch", "orphan-truncate"].map(|name| workload::find(name).unwrap());
    assert_eq!(lines(&touch, all), 0);
    assert_eq!(lines(&cut, all), 0);
    let patches = ["active-trans", "cil-counters", "cil-lists", "busy-extents"];
    for patch in patches.into_iter().chain(["cil-context", "log-space"]) {
        assert!(lines(&touch, all.and_before(patch).unwrap()) > 0, "{patch}");
    }
}

/// The cost of what several CPUs have sharded for a thread that is alone, in percent of the
/// instructions of an operation: the maximum for each patch and workload. Where it is above 2,
/// `docs/SCALING.md` says so. Appending with a sync is not among them: each sync wakes threads, and
/// recordings of it disagree by a third.
#[test]
fn no_patch_costs_one_thread_more_than_it_may() {
    let (memory, volume) = (Target::Memory, Target::Volume);
    for (name, target, patches) in [
        ("open-close-own-dir", memory, &[("mount-count", 2.0), ("lockref-spread", 10.0)][..]),
        ("rename-own-dir", memory, &[("dcache-hash", 2.0)]),
        ("readdir-stat", memory, &[("dcache-hash", 2.0)]),
        ("d-path", memory, &[("seqrwlock", 2.0), ("brlock", 2.0)]),
        ("slob", memory, &[("file-lock", 36.0)]),
        ("touch", volume, &[("active-trans", 2.0), ("cil-counters", 2.0), ("cil-lists", 2.0)]),
        ("touch", volume, &[("busy-extents", 2.0), ("cil-context", 2.0), ("log-space", 2.0)]),
        ("orphan-truncate", volume, &[("orphan", 2.0)]),
    ] {
        let workload = workload::find(name).unwrap();
        let rate = |scaling| {
            let options = Options { scaling, target, ..Options::default() };
            let recorded =
                |_| throughput(&Machine::eight_sockets(), &program(&workload, options).unwrap(), 1);
            (0..RECORDINGS).map(recorded).fold(0.0, f64::max)
        };
        let all = Scaling::with_slots(8);
        let with = rate(all);
        for (patch, most) in patches {
            let cost = (rate(all.and_before(patch).unwrap()) / with - 1.0) * 100.0;
            println!("{name} {patch} {cost:+.2} %");
            assert!(cost <= *most, "{patch} costs {cost:.2} % of {name}, {most} at most");
        }
    }
}
