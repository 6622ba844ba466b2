//! Compares `locks` with the running kernel: equal calls by this process and by several open files
//! return equal results, and report equal conflicting locks.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use proptest::prelude::*;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use vfscale_vfs::locks::{FileLocks, LockKind, LockRange, Owner, RecordLock};

/// Offsets at which locks begin and end, including the limits of the range.
const EDGES: [u64; 9] = [0, 1, 2, 10, 4095, 4096, 1 << 40, LockRange::EOF - 1, LockRange::EOF];

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn fcntl(file: &File, command: i32, lock: &mut libc::flock64) -> Result<(), Errno> {
    // SAFETY: the descriptor is open, and the call reads and writes only the passed structure.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap())
    }
}

/// Makes a `struct flock`; `kind` is `None` for unlocking.
fn raw(kind: Option<LockKind>, whence: i32, start: i64, len: i64) -> libc::flock64 {
    let kind = match kind {
        Some(LockKind::Shared) => libc::F_RDLCK,
        Some(LockKind::Exclusive) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    };
    libc::flock64 {
        l_type: kind as i16,
        l_whence: whence as i16,
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

fn raw_range(kind: Option<LockKind>, range: LockRange) -> libc::flock64 {
    raw(kind, libc::SEEK_SET, range.start() as i64, range.flock_len() as i64)
}

/// A reported lock: kind, range, process.
type Told = Option<(LockKind, u64, u64, i32)>;

fn told(lock: &libc::flock64) -> Told {
    let kind = match i32::from(lock.l_type) {
        libc::F_RDLCK => LockKind::Shared,
        libc::F_WRLCK => LockKind::Exclusive,
        _ => return None,
    };
    Some((kind, lock.l_start as u64, lock.l_len as u64, lock.l_pid))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Lock(LockKind),
    Test(LockKind),
    Unlock,
    Flock(Option<LockKind>),
}

fn steps() -> impl Strategy<Value = Vec<(usize, LockRange, Step)>> {
    let kind = || prop_oneof![2 => Just(LockKind::Shared), 1 => Just(LockKind::Exclusive)];
    let step = prop_oneof![
        4 => kind().prop_map(Step::Lock),
        2 => kind().prop_map(Step::Test),
        2 => Just(Step::Unlock),
        2 => prop::option::of(kind()).prop_map(Step::Flock),
    ];
    let edge = || prop::sample::select(&EDGES[..]);
    let range = (edge(), edge()).prop_map(|(a, b)| LockRange::new(a.min(b), a.max(b)).unwrap());
    prop::collection::vec((0usize..4, range, step), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn same_results_and_same_locks(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"").unwrap();
        // The first file locks for this process, each other file for itself.
        let files = [(); 4].map(|()| open(&path));
        let pid = std::process::id() as i32;
        let locks = FileLocks::new();
        for (i, range, step) in steps {
            let (file, owner) = match i {
                0 => (&files[0], Owner::Task(0)),
                _ => (&files[i], Owner::File(i as u64)),
            };
            let (setlk, getlk) = match i {
                0 => (libc::F_SETLK, libc::F_GETLK),
                _ => (libc::F_OFD_SETLK, libc::F_OFD_GETLK),
            };
            let request = |kind| RecordLock { owner, pid, kind, range };
            match step {
                Step::Lock(kind) => {
                    let kernel = fcntl(file, setlk, &mut raw_range(Some(kind), range));
                    prop_assert_eq!(locks.try_lock(&request(kind)), kernel);
                }
                Step::Test(kind) => {
                    let mut lock = raw_range(Some(kind), range);
                    fcntl(file, getlk, &mut lock).unwrap();
                    let found = locks.test(&request(kind));
                    let found = found
                        .map(|lock| (lock.kind, lock.range.start(), lock.range.flock_len(), lock.pid));
                    prop_assert_eq!(found, told(&lock));
                }
                Step::Unlock => {
                    let kernel = fcntl(file, setlk, &mut raw_range(None, range));
                    prop_assert_eq!(locks.unlock(owner, range), kernel);
                }
                Step::Flock(kind) => {
                    let (operation, result) = match kind {
                        Some(LockKind::Shared) => (
                            FlockOperation::NonBlockingLockShared,
                            locks.try_flock(i as u64, LockKind::Shared),
                        ),
                        Some(LockKind::Exclusive) => (
                            FlockOperation::NonBlockingLockExclusive,
                            locks.try_flock(i as u64, LockKind::Exclusive),
                        ),
                        None => {
                            locks.unflock(i as u64);
                            (FlockOperation::NonBlockingUnlock, Ok(()))
                        }
                    };
                    prop_assert_eq!(result, flock(file, operation));
                }
            }
        }
    }

    #[test]
    fn same_ranges(
        size in prop::sample::select(&[0i64, 1, 10, 4096][..]),
        from_end: bool,
        start in offset(),
        len in offset(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"").unwrap();
        let (mine, other) = (open(&path), open(&path));
        mine.set_len(size as u64).unwrap();
        let (whence, base) = if from_end { (libc::SEEK_END, size) } else { (libc::SEEK_SET, 0) };
        let mut lock = raw(Some(LockKind::Exclusive), whence, start, len);
        let kernel = fcntl(&mine, libc::F_OFD_SETLK, &mut lock).map(|()| {
            let mut lock = raw_range(Some(LockKind::Shared), LockRange::WHOLE);
            fcntl(&other, libc::F_OFD_GETLK, &mut lock).unwrap();
            (lock.l_start as u64, lock.l_len as u64)
        });
        let model = LockRange::from_flock(base, start, len);
        prop_assert_eq!(model.map(|range| (range.start(), range.flock_len())), kernel);
    }
}

fn offset() -> impl Strategy<Value = i64> {
    let near = prop::sample::select(&[0, 10, 4096, i64::MAX, i64::MIN][..]);
    (near, -12i64..12).prop_map(|(near, by)| near.saturating_add(by))
}
