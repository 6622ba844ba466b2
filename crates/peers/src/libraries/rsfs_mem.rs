//! `rsfs::mem`: a tree under one reader-writer lock, with permission bits, and times of its files.

use std::hint::black_box;
use std::io::Write;

use rsfs::mem::FS;
use rsfs::unix_ext::FileExt;
use rsfs::{GenFS, OpenOptions};

use crate::subject::{
    DATA, DATA_BYTES, DEEP, DIRECTORIES, FILES, Kind, Paths, SHARED, Subject, Work, expected,
    repeat,
};

/// A memory file system with the tree in its root directory.
pub struct Rsfs {
    fs: FS,
}

impl Rsfs {
    /// Makes the file system and the tree.
    ///
    /// # Errors
    /// Returns the error of the call that failed.
    pub fn new() -> Result<Rsfs, String> {
        let fs = FS::new();
        let make = || {
            for dir in DIRECTORIES {
                fs.create_dir(dir)?;
            }
            for file in FILES {
                fs.create_file(file)?;
            }
            fs.create_file(DATA)?.write_all(&[7; DATA_BYTES])
        };
        make().map_err(|e| e.to_string())?;
        Ok(Rsfs { fs })
    }
}

fn open_work(fs: FS, path: &'static str) -> Work {
    repeat(move || drop(black_box(expected(fs.open_file(path)))))
}

fn create_work(fs: FS, path: &'static str) -> Work {
    let mut options = fs.new_openopts();
    options.write(true).create_new(true);
    repeat(move || {
        drop(black_box(expected(options.open(path))));
        expected(fs.remove_file(path));
    })
}

fn rename_work(fs: FS, [from, to]: [&'static str; 2]) -> Work {
    let (mut from, mut to) = (from, to);
    if fs.metadata(from).is_err() {
        std::mem::swap(&mut from, &mut to);
    }
    repeat(move || {
        expected(fs.rename(from, to));
        std::mem::swap(&mut from, &mut to);
    })
}

impl Subject for Rsfs {
    fn name(&self) -> &'static str {
        "rsfs"
    }

    fn work(&self, kind: Kind, thread: usize) -> Option<Work> {
        let paths = Paths::of(thread);
        let fs = self.fs.clone();
        Some(match kind.without_descriptors() {
            Kind::OpenShared => open_work(fs, SHARED),
            Kind::CreateOne => create_work(fs, paths.new),
            Kind::CreateOwn => create_work(fs, paths.own_new),
            Kind::Stat => repeat(move || {
                black_box(expected(fs.metadata(DEEP)));
            }),
            Kind::Read => {
                let file = expected(fs.open_file(DATA));
                let mut buf = vec![0; DATA_BYTES];
                repeat(move || {
                    let n = expected(file.read_at(black_box(&mut buf), 0));
                    assert_eq!(n, DATA_BYTES);
                })
            }
            Kind::RenameShared | Kind::RenameOwn | Kind::RenameOne => {
                rename_work(fs, paths.rename(kind)?)
            }
            _ => open_work(fs, paths.file),
        })
    }
}
