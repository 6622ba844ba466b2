//! `vfs::MemoryFS`: one map of whole paths under one reader-writer lock, with times, without
//! permissions.

use std::hint::black_box;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use vfs::{FileSystem, MemoryFS};

use crate::subject::{
    DATA, DATA_BYTES, DEEP, DIRECTORIES, FILES, Kind, Paths, SHARED, Subject, Work, expected,
    repeat,
};

/// A memory file system with the tree in its root directory.
pub struct VfsMemory {
    fs: Arc<MemoryFS>,
}

/// Returns the absolute form of a path, which the calls of this library take.
fn absolute(path: &str) -> String {
    format!("/{path}")
}

impl VfsMemory {
    /// Makes the file system and the tree.
    ///
    /// # Errors
    /// Returns the error of the call that failed.
    pub fn new() -> Result<VfsMemory, String> {
        let fs = MemoryFS::new();
        let make = || {
            for dir in DIRECTORIES {
                fs.create_dir(&absolute(dir))?;
            }
            for file in FILES {
                fs.create_file(&absolute(file))?;
            }
            fs.create_file(&absolute(DATA))?.write_all(&[7; DATA_BYTES])?;
            Ok(())
        };
        make().map_err(|e: vfs::VfsError| e.to_string())?;
        Ok(VfsMemory { fs: Arc::new(fs) })
    }
}

fn open_work(fs: Arc<MemoryFS>, path: &str) -> Work {
    let path = absolute(path);
    repeat(move || drop(black_box(expected(fs.open_file(&path)))))
}

fn create_work(fs: Arc<MemoryFS>, path: &str) -> Work {
    let path = absolute(path);
    repeat(move || {
        drop(black_box(expected(fs.create_file(&path))));
        expected(fs.remove_file(&path));
    })
}

impl Subject for VfsMemory {
    fn name(&self) -> &'static str {
        "vfs"
    }

    fn is_posix_like(&self) -> bool {
        false
    }

    fn work(&self, kind: Kind, thread: usize) -> Option<Work> {
        let paths = Paths::of(thread);
        let fs = self.fs.clone();
        Some(match kind.without_descriptors() {
            Kind::OpenOwn => open_work(fs, paths.file),
            Kind::OpenShared => open_work(fs, SHARED),
            Kind::CreateOne => create_work(fs, paths.new),
            Kind::CreateOwn => create_work(fs, paths.own_new),
            Kind::Stat => {
                let path = absolute(DEEP);
                repeat(move || {
                    black_box(expected(fs.metadata(&path)));
                })
            }
            Kind::Read => {
                let mut file = expected(fs.open_file(&absolute(DATA)));
                let mut buf = vec![0; DATA_BYTES];
                repeat(move || {
                    expected(file.seek(SeekFrom::Start(0)));
                    let n = expected(file.read(black_box(&mut buf)));
                    assert_eq!(n, DATA_BYTES);
                })
            }
            // The library renames only by copying and removing.
            _ => return None,
        })
    }
}
