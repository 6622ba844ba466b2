//! Two branches of one pool, as the trees of the two processes of a case.

use std::io;
use std::sync::Arc;

use vfscale::block::Device;
use vfscale::{Pool, Scaling, Vfs};

use crate::case::PROCESSES;
use crate::execute::World;
use crate::generate::branches;

/// Size of the volume that the branches come from.
pub(super) const BYTES: u64 = 512 << 20;
/// Names of the branches.
const NAMES: [&str; PROCESSES] = ["one", "other"];

/// Makes a pool of a new volume, and two branches of one state in it, which has the files of
/// [`branches::base`]. Both are open, each for one CPU, and without write-back in the background.
pub(super) fn siblings(device: Arc<dyn Device>, scaling: Scaling) -> io::Result<[Vfs; PROCESSES]> {
    let pool = vfscale::pool_on(device).convert(true).open().map_err(io::Error::other)?;
    let main = pool.open(vfscale::pool::MAIN).map_err(io::Error::other)?;
    let mut world = World::new(main.vfs().clone());
    branches::base().iter().for_each(|call| drop(world.call(call)));
    drop(world);
    main.close().map_err(io::Error::other)?;
    let [one, other] = NAMES.map(|name| branch(&pool, name, scaling));
    Ok([one?, other?])
}

/// Forks a branch and opens it.
fn branch(pool: &Pool, name: &str, scaling: Scaling) -> io::Result<Vfs> {
    pool.fork(vfscale::pool::MAIN, name).map_err(io::Error::other)?;
    let builder = pool.branch(name).sync_interval(None).scaling(scaling);
    let volume = builder.open().map_err(io::Error::other)?;
    Ok(volume.vfs().clone())
}

#[cfg(test)]
mod tests;
