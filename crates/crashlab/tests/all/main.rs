//! Tests of the laboratory.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use vfscale::block::MemoryDevice;
use vfscale::{Pool, Task};
use vfscale_fuse::recording::{Attributes, Name, Object};

mod promises;
mod recorded;

/// Returns a pool whose branch `main` has what `make` makes.
fn pool(make: impl FnOnce(&Task)) -> Pool {
    let device = Arc::new(MemoryDevice::new(1 << 30).unwrap());
    let made: Arc<dyn vfscale::block::Device> = device.clone();
    let volume = vfscale::volume_on(made).create(1 << 30).open().unwrap();
    make(&volume.task());
    volume.close().unwrap();
    vfscale::pool_on(device).convert(true).open().unwrap()
}

/// Calls `look` with a fork of `main`, which `change` has changed.
fn in_fork<T>(pool: &Pool, change: impl FnOnce(&Task), look: impl FnOnce(&Task) -> T) -> T {
    pool.fork("main", "fork").unwrap();
    let volume = pool.open("fork").unwrap();
    change(&volume.task());
    let seen = look(&volume.task());
    volume.close().unwrap();
    pool.delete("fork").unwrap();
    seen
}

fn object(task: &Task, path: &str) -> Object {
    let stat = task.symlink_metadata(path).unwrap();
    Object { ino: stat.ino, generation: stat.generation }
}

fn name(dir: Object, path: &str) -> Name {
    let name = path.rsplit('/').next().unwrap();
    Name { dir, name: name.into(), path: path.into() }
}

fn attributes(mode: u32) -> Attributes {
    Attributes { mode, uid: 0, gid: 0, mtime: vfscale::Timestamp(1_000_000_000) }
}
