use std::sync::atomic::AtomicI64;

use vfscale::posix::{StatMask, Whence};

use super::*;
use crate::case::Op;

fn call(process: u8, op: Op) -> Call {
    Call { process, op }
}

fn create(path: &str, slot: u8) -> Op {
    let flags = OFlags::CREATE | OFlags::RDWR;
    Op::Open { path: path.into(), flags, mode: Mode::RUSR | Mode::WUSR, slot }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir { path: path.into(), mode: Mode::RWXU }
}

fn open(path: &str, slot: u8) -> Op {
    Op::Open { path: path.into(), flags: OFlags::RDWR, mode: Mode::empty(), slot }
}

/// Returns cases whose calls commute.
pub(crate) fn by_hand() -> Vec<Case> {
    let p = |process: u8, op: Op| call(process, op);
    let stat = |path: &str| Op::Stat { path: path.into(), follow: true };
    let statx = |path: &str| Op::Statx { path: path.into(), mask: StatMask::UID | StatMask::GID };
    let unlink = |path: &str| Op::Unlink { path: path.into() };
    let files = vec![p(0, mkdir("d")), p(0, create("d/a", 0)), p(1, create("d/b", 0))];
    let pages = |slot| Op::Pwrite { slot, len: 8192, byte: 1, offset: 0 };
    let mut shared = files.clone();
    shared.extend([p(0, pages(0)), p(1, open("d/a", 1))]);
    let dir = vec![p(0, mkdir("d")), p(0, mkdir("e"))];
    let make = |name: &str, setup: &[Call], a: Op, b: Op| {
        Case::new(name.into(), setup.to_vec(), p(0, a), p(1, b))
    };
    let pread = |slot, offset| Op::Pread { slot, len: 100, offset };
    let pwrite = |slot, offset| Op::Pwrite { slot, len: 100, byte: 2, offset };
    let seek = |slot| Op::Lseek { slot, to: Whence::Set(5) };
    let rename = |old: &str, new: &str| Op::Rename {
        old: old.into(),
        new: new.into(),
        flags: vfscale::posix::RenameFlags::empty(),
    };
    vec![
        make("stat, stat: two files", &files, stat("d/a"), stat("d/b")),
        make("stat, stat: one file", &files, stat("d/a"), stat("d/a")),
        make("create, create: one directory", &dir, create("d/a", 0), create("d/b", 0)),
        make("create, create: two directories", &dir, create("d/a", 0), create("e/b", 0)),
        make("open, open: one file", &files, open("d/a", 1), open("d/a", 1)),
        make("open, open: two files", &files, open("d/a", 1), open("d/b", 1)),
        make("close, close: two files", &files, Op::Close { slot: 0 }, Op::Close { slot: 0 }),
        make("close, close: one file", &shared, Op::Close { slot: 0 }, Op::Close { slot: 1 }),
        make("unlink, unlink: one directory", &files, unlink("d/a"), unlink("d/b")),
        make("pread, pread: one page", &shared, pread(0, 0), pread(1, 0)),
        make("pwrite, pwrite: two pages", &shared, pwrite(0, 0), pwrite(1, 4096)),
        make("pwrite, pwrite: two files", &shared, pwrite(0, 0), pwrite(0, 0)),
        make("getcwd, getcwd", &files, Op::Getcwd {}, Op::Getcwd {}),
        make("lseek, lseek", &shared, seek(0), seek(1)),
        make("mkdir, mkdir: one directory", &dir, mkdir("d/a"), mkdir("d/b")),
        make("rename, rename: one directory", &files, rename("d/a", "d/x"), rename("d/b", "d/y")),
        make(
            "pipe, pipe",
            &[],
            Op::Pipe { reader: 0, writer: 1 },
            Op::Pipe { reader: 0, writer: 1 },
        ),
        make("chdir, chdir", &dir, Op::Chdir { path: "d".into() }, Op::Chdir { path: "d".into() }),
        make("statx, create: one directory", &dir, statx("d"), create("d/a", 0)),
        make("stat, create: one directory", &files, stat("d/a"), create("d/c", 1)),
        make("stat, unlink: one directory", &files, stat("d/a"), unlink("d/b")),
        make("fstat, pwrite: two files", &shared, Op::Fstat { slot: 0 }, pwrite(0, 0)),
    ]
}

/// Runs the cases; returns the names of those without a conflict.
fn free(options: Options) -> Vec<String> {
    let mut runner = Runner::new(options).unwrap();
    let mut free = Vec::new();
    for case in by_hand() {
        let result = runner.run(&case).unwrap();
        assert_eq!(result.not_understood, 0, "{}", case.name);
        assert!(result.instructions.iter().all(|n| *n > 10), "{}", case.name);
        for outcome in &result.outcomes {
            assert!(!matches!(outcome, Outcome::Error(_)), "{}: {outcome:?}", case.name);
        }
        free.extend(result.conflicts.is_empty().then_some(case.name));
    }
    free
}

#[test]
fn calls_that_scale_are_free_of_conflicts() {
    let free = free(Options::default());
    for name in [
        "stat, stat: two files",
        "stat, stat: one file",
        "statx, create: one directory",
        "stat, create: one directory",
        "stat, unlink: one directory",
        "create, create: one directory",
        "rename, rename: one directory",
        "create, create: two directories",
        "open, open: one file",
        "close, close: one file",
        "pread, pread: one page",
        "getcwd, getcwd",
        "pipe, pipe",
    ] {
        assert!(free.iter().any(|n| n == name), "{name} is not among {free:?}");
    }
}

#[test]
fn one_file_that_everybody_opens_conflicts_until_its_count_is_spread() {
    let before = free(Options { promoted: false, ..Options::default() });
    assert!(!before.iter().any(|name| name == "open, open: one file"), "{before:?}");
    assert!(before.iter().any(|name| name == "open, open: two files"), "{before:?}");
}

/// Has two threads record one call each on a shared object.
fn planted<T: Send + Sync + 'static>(shared: T, call: fn(&T)) -> Vec<Conflict> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = Arc::new(shared);
    // Both live until the end, so neither gets the stack or the arena of the other.
    let end = Arc::new(std::sync::Barrier::new(2));
    let threads = [0, 1].map(|number| {
        let (shared, end) = (shared.clone(), end.clone());
        std::thread::spawn(move || {
            let arena = Arena::new().unwrap();
            let _cpu = cpu::pretend(number);
            call(&shared);
            let mut recorder = Recorder::new(&arena).unwrap();
            let trace = recorder.record(&mut CodeCache::new(), || call(&shared)).1;
            end.wait();
            trace
        })
    });
    let traces = threads.map(|thread| thread.join().unwrap());
    conflicts(&traces[0], &traces[1])
}

#[test]
fn a_planted_counter_is_caught_and_counters_of_each_cpu_are_not() {
    assert_eq!(planted(Box::new(AtomicI64::new(0)), |count| add_to(count)).len(), 1);
    let spread = vfscale_sync::percpu::PerCpu::new(2, |_| AtomicI64::new(0));
    let found = planted(spread, |counts| add_to(counts.this()));
    assert_eq!(found, []);
}

fn add_to(count: &AtomicI64) {
    count.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn the_same_case_has_the_same_conflicts_each_time() {
    let mut runner = Runner::new(Options::default()).unwrap();
    // `chdir` defers the release of the old directory to all threads, including threads of other
    // tests.
    for case in by_hand().into_iter().filter(|case| !case.name.starts_with("chdir")) {
        let mut owners = || -> Vec<_> {
            let result = runner.run(&case).unwrap();
            let mut owners: Vec<_> = result.conflicts.into_iter().map(|c| c.owner).collect();
            owners.sort();
            owners
        };
        let first = owners();
        for _ in 0..20 {
            assert_eq!(owners(), first, "{}", case.name);
        }
    }
}
