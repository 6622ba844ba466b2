//! The kernel's tmpfs, by system calls.
//!
//! The tree is in a temporary directory, which becomes the working directory of the whole process:
//! the calls get the same relative paths as calls on the other subjects.

use std::io::{Error, Result};
use std::path::PathBuf;

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use std::hint::black_box;
use tempfile::TempDir;

use crate::subject::{
    DATA, DATA_BYTES, DEEP, DIRECTORIES, FILES, Kind, Paths, SHARED, Subject, Work, expected,
    repeat,
};

/// `TMPFS_MAGIC` of `statfs(2)`.
const MAGIC: i64 = 0x0102_1994;

/// A directory on tmpfs with the tree in it, removed when dropped.
pub struct Tmpfs {
    _dir: TempDir,
}

impl Tmpfs {
    /// Makes the tree on the tmpfs at `VFSCALE_TMPFS` or `/dev/shm`, and changes the process's
    /// working directory to it.
    ///
    /// # Errors
    /// Returns an error if there is no tmpfs, or it is not writable.
    pub fn new() -> Result<Tmpfs> {
        let base = std::env::var_os("VFSCALE_TMPFS").map_or("/dev/shm".into(), PathBuf::from);
        if fs::statfs(&base)?.f_type != MAGIC {
            return Err(Error::other(format!("{} is not tmpfs", base.display())));
        }
        let dir = TempDir::new_in(base)?;
        std::env::set_current_dir(dir.path())?;
        for directory in DIRECTORIES {
            std::fs::create_dir(directory)?;
        }
        for file in FILES {
            std::fs::write(file, "")?;
        }
        std::fs::write(DATA, [7; DATA_BYTES])?;
        Ok(Tmpfs { _dir: dir })
    }
}

fn open_work(path: &'static str) -> Work {
    repeat(move || drop(black_box(expected(fs::open(path, OFlags::RDONLY, Mode::empty())))))
}

fn create_work(path: &'static str) -> Work {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    repeat(move || {
        drop(black_box(expected(fs::open(path, flags, Mode::from_raw_mode(0o644)))));
        expected(fs::unlinkat(CWD, path, AtFlags::empty()));
    })
}

fn read_work() -> Work {
    let file = expected(fs::open(DATA, OFlags::RDONLY, Mode::empty()));
    let mut buf = vec![0; DATA_BYTES];
    repeat(move || {
        let n = expected(rustix::io::pread(&file, black_box(&mut buf[..]), 0));
        assert_eq!(n, DATA_BYTES);
    })
}

fn rename_work([from, to]: [&'static str; 2]) -> Work {
    let (mut from, mut to) = (from, to);
    if fs::stat(from).is_err() {
        std::mem::swap(&mut from, &mut to);
    }
    repeat(move || {
        expected(fs::rename(from, to));
        std::mem::swap(&mut from, &mut to);
    })
}

impl Subject for Tmpfs {
    fn name(&self) -> &'static str {
        "tmpfs"
    }

    fn work(&self, kind: Kind, thread: usize) -> Option<Work> {
        let paths = Paths::of(thread);
        Some(match kind.without_descriptors() {
            Kind::OpenShared => open_work(SHARED),
            Kind::CreateOne => create_work(paths.new),
            Kind::CreateOwn => create_work(paths.own_new),
            Kind::Stat => repeat(|| {
                black_box(expected(fs::statat(CWD, DEEP, AtFlags::empty())));
            }),
            Kind::Read => read_work(),
            Kind::RenameShared | Kind::RenameOwn | Kind::RenameOne => {
                rename_work(paths.rename(kind)?)
            }
            _ => open_work(paths.file),
        })
    }
}
