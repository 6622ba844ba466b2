//! Trees of each kind.

use std::sync::Arc;

use vfscale::block::MemoryDevice;
use vfscale::{Pool, Task, Vfs, Volume};

/// A tree, and what it stands on.
pub enum Tree {
    Memory(Vfs),
    Volume(Volume),
    Branch(Volume),
}

const SIZE: u64 = 64 << 20;

impl Tree {
    pub fn memory() -> Tree {
        Tree::Memory(vfscale::memory().size(SIZE).build().unwrap())
    }

    pub fn volume() -> Tree {
        let device = Arc::new(MemoryDevice::new(SIZE).unwrap());
        Tree::Volume(vfscale::volume_on(device).create(SIZE).open().unwrap())
    }

    pub fn branch() -> Tree {
        let pool = pool();
        pool.fork("main", "fork").unwrap();
        Tree::Branch(pool.open("fork").unwrap())
    }

    pub fn all() -> [Tree; 3] {
        [Tree::memory(), Tree::volume(), Tree::branch()]
    }

    pub fn task(&self) -> Task {
        match self {
            Tree::Memory(vfs) => vfs.task(),
            Tree::Volume(volume) | Tree::Branch(volume) => volume.task(),
        }
    }
}

/// Returns a pool with an empty branch `main`.
pub fn pool() -> Pool {
    let device = Arc::new(MemoryDevice::new(4 * SIZE).unwrap());
    let volume = vfscale::volume_on(device.clone()).create(4 * SIZE).open().unwrap();
    volume.close().unwrap();
    vfscale::pool_on(device).convert(true).open().unwrap()
}
