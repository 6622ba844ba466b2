//! Times of files in a mount beside those of other file systems.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use vfscale_fuse::Sharing;

use crate::common::{self, SHARED, TestMount};

fn time_of(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

fn create(dir: &Path, name: &str) -> SystemTime {
    let path = dir.join(name);
    fs::write(&path, "x").unwrap();
    time_of(&path)
}

fn make_dir(dir: &Path, name: &str) -> SystemTime {
    let path = dir.join(name);
    fs::create_dir(&path).unwrap();
    time_of(&path)
}

fn rewrite(dir: &Path, _: &str) -> SystemTime {
    let path = dir.join("rewritten");
    fs::write(&path, "x").unwrap();
    time_of(&path)
}

fn touch(dir: &Path, _: &str) -> SystemTime {
    let path = dir.join("touched");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    rustix::fs::futimens(&file, &Timestamps { last_access: now, last_modification: now }).unwrap();
    time_of(&path)
}

/// Returns whether Linux stamps a change exactly that follows a look at the time (since 6.13).
fn is_exact(dir: &Path) -> bool {
    let times: Vec<_> = (0..5).map(|_| rewrite(dir, "")).collect();
    times.windows(2).all(|pair| pair[0] < pair[1])
}

#[test]
fn a_later_file_of_another_file_system_is_not_older() {
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    if !is_exact(other.path()) {
        return;
    }
    for sharing in [Sharing::Exclusive, SHARED] {
        let Some(m) = TestMount::of(common::memory(64 << 20), sharing, |b| b) else { return };
        let changes: [fn(&Path, &str) -> SystemTime; 4] = [create, make_dir, rewrite, touch];
        let end = Instant::now() + Duration::from_secs(1);
        let mut round = 0;
        while Instant::now() < end {
            round += 1;
            for (i, change) in changes.into_iter().enumerate() {
                let dirs = [m.dir(), other.path(), m.dir(), other.path()];
                let times: Vec<_> = (0..)
                    .zip(dirs)
                    .map(|(n, dir)| change(dir, &format!("{round}-{i}-{n}")))
                    .collect();
                assert!(times.is_sorted(), "{sharing:?}, change {i}, round {round}: {times:?}");
            }
        }
        for entry in fs::read_dir(other.path()).unwrap() {
            let path = entry.unwrap().path();
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        }
    }
}
