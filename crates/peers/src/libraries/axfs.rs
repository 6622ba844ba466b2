//! `axfs_ramfs`: ordered maps under spinning reader-writer locks; no permissions, no times, and no
//! rename.

use std::hint::black_box;
use std::sync::Arc;

use axfs_ramfs::RamFileSystem;
use axfs_vfs::{VfsNodeRef, VfsNodeType, VfsOps};

use crate::subject::{
    DATA, DATA_BYTES, DEEP, DIRECTORIES, FILES, Kind, Paths, SHARED, Subject, Work, expected,
    repeat,
};

/// A RAM file system with the tree in it.
pub struct Axfs {
    root: VfsNodeRef,
    _fs: Arc<RamFileSystem>,
}

impl Axfs {
    /// Makes the file system and the tree.
    ///
    /// # Errors
    /// Returns the error of the call that failed.
    pub fn new() -> Result<Axfs, String> {
        let fs = Arc::new(RamFileSystem::new());
        let root = fs.root_dir();
        let make = |path, node_type| root.create(path, node_type).map_err(|e| e.to_string());
        for dir in DIRECTORIES {
            make(dir, VfsNodeType::Dir)?;
        }
        for file in FILES.iter().chain([&DATA]) {
            make(file, VfsNodeType::File)?;
        }
        let data = root.clone().lookup(DATA).map_err(|e| e.to_string())?;
        data.write_at(0, &[7; DATA_BYTES]).map_err(|e| e.to_string())?;
        Ok(Axfs { root, _fs: fs })
    }
}

fn open_work(root: VfsNodeRef, path: &'static str) -> Work {
    repeat(move || {
        let node = expected(root.clone().lookup(path));
        expected(node.open());
        expected(black_box(node).release());
    })
}

fn create_work(root: VfsNodeRef, path: &'static str) -> Work {
    repeat(move || {
        expected(root.create(path, VfsNodeType::File));
        let node = expected(root.clone().lookup(path));
        expected(node.open());
        expected(black_box(node).release());
        expected(root.remove(path));
    })
}

impl Subject for Axfs {
    fn name(&self) -> &'static str {
        "axfs_ramfs"
    }

    fn is_posix_like(&self) -> bool {
        false
    }

    fn work(&self, kind: Kind, thread: usize) -> Option<Work> {
        let paths = Paths::of(thread);
        let root = self.root.clone();
        Some(match kind.without_descriptors() {
            Kind::OpenOwn => open_work(root, paths.file),
            Kind::OpenShared => open_work(root, SHARED),
            Kind::CreateOne => create_work(root, paths.new),
            Kind::CreateOwn => create_work(root, paths.own_new),
            Kind::Stat => repeat(move || {
                let node = expected(root.clone().lookup(DEEP));
                black_box(expected(node.get_attr()));
            }),
            Kind::Read => {
                let node = expected(root.lookup(DATA));
                let mut buf = vec![0; DATA_BYTES];
                repeat(move || {
                    let n = expected(node.read_at(0, black_box(&mut buf)));
                    assert_eq!(n, DATA_BYTES);
                })
            }
            _ => return None,
        })
    }
}
