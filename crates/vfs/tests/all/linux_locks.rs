//! Compares the ranges of `locks` with those of the running kernel: equal arguments name equal
//! bytes, or are refused with equal errors.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use proptest::prelude::*;
use rustix::io::Errno;
use vfscale_vfs::locks::LockRange;

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

fn exclusive(whence: i32, start: i64, len: i64) -> libc::flock64 {
    let (l_type, l_whence) = (libc::F_WRLCK as i16, whence as i16);
    libc::flock64 { l_type, l_whence, l_start: start, l_len: len, l_pid: 0 }
}

proptest! {
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
        let mut lock = exclusive(whence, start, len);
        let kernel = fcntl(&mine, libc::F_OFD_SETLK, &mut lock).map(|()| {
            let mut lock = exclusive(libc::SEEK_SET, 0, 0);
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
