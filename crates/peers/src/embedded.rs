//! vfscale in the process, with a task for each thread.

use std::hint::black_box;

use vfscale::posix::{At, OFlags, OpenHow};
use vfscale::{Mode, Result, Task, Vfs};

use crate::subject::{
    DATA, DATA_BYTES, DEEP, DIRECTORIES, FILES, Kind, Paths, SHARED, Subject, Work, expected,
    repeat,
};

/// A memory file system with the tree in its root directory.
pub struct Embedded {
    vfs: Vfs,
}

impl Embedded {
    /// Makes the file system and the tree.
    ///
    /// # Errors
    /// Returns the error of the call that failed.
    pub fn new() -> Result<Embedded> {
        let vfs = vfscale::memory().build()?;
        let task = vfs.task();
        for dir in DIRECTORIES {
            task.create_dir(dir)?;
        }
        for file in FILES {
            task.write(file, "")?;
        }
        task.write(DATA, [7; DATA_BYTES])?;
        Ok(Embedded { vfs })
    }

    fn open_work(task: Task, path: &'static str) -> Work {
        repeat(move || drop(black_box(open(&task, path))))
    }

    fn descriptor_work(task: Task, path: &'static str) -> Work {
        let how = OpenHow::new(OFlags::RDONLY);
        repeat(move || {
            let fd = expected(task.posix().open_fd(At::Cwd, path, &how));
            expected(task.posix().close(fd));
        })
    }

    fn create_work(task: Task, path: &'static str) -> Work {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        repeat(move || {
            drop(black_box(expected(task.posix().open(path, flags, mode(0o644)))));
            expected(task.remove_file(path));
        })
    }

    fn read_work(task: &Task) -> Work {
        let file = open(task, DATA);
        let mut buf = vec![0; DATA_BYTES];
        repeat(move || {
            let n = expected(file.pread(black_box(&mut buf), 0));
            assert_eq!(n, DATA_BYTES);
        })
    }

    fn rename_work(task: Task, [from, to]: [&'static str; 2]) -> Work {
        let (mut from, mut to) = (from, to);
        if task.metadata(from).is_err() {
            std::mem::swap(&mut from, &mut to);
        }
        repeat(move || {
            expected(task.rename(from, to));
            std::mem::swap(&mut from, &mut to);
        })
    }
}

impl Subject for Embedded {
    fn name(&self) -> &'static str {
        "vfscale"
    }

    fn work(&self, kind: Kind, thread: usize) -> Option<Work> {
        let task = self.vfs.task();
        let paths = Paths::of(thread);
        Some(match kind {
            Kind::OpenOwn => Self::open_work(task, paths.file),
            Kind::OpenShared => Self::open_work(task, SHARED),
            Kind::DescriptorOwn => Self::descriptor_work(task, paths.file),
            Kind::DescriptorShared => Self::descriptor_work(task, SHARED),
            Kind::CreateOne => Self::create_work(task, paths.new),
            Kind::CreateOwn => Self::create_work(task, paths.own_new),
            Kind::Stat => repeat(move || {
                black_box(expected(task.metadata(DEEP)));
            }),
            Kind::Read => Self::read_work(&task),
            Kind::RenameShared | Kind::RenameOwn | Kind::RenameOne => {
                Self::rename_work(task, paths.rename(kind)?)
            }
        })
    }
}

fn mode(bits: u32) -> Mode {
    Mode::from_bits_retain(bits)
}

#[inline]
fn open(task: &Task, path: &str) -> vfscale::File {
    expected(task.posix().open(path, OFlags::RDONLY, Mode::empty()))
}
