//! Threads that all work on a few common names.
//!
//! The winner of each race is unknown, so no tree is compared. But a crash must leave a consistent
//! tree: every inode has as many links as names, no name exists twice, no directory has two names,
//! and a file holds zeros or data that one of these threads wrote to that offset of a file.
//!
//! # Invariants
//!
//! * Every write and every size is in whole units of the pattern.

use std::path::Path;

use vfscale::posix::{OFlags, RenameFlags};
use vfscale::{Errno, Mode, Task, Vfs};
use vfscale_sync::random::Random;
use vfscale_testkit::calls::compound::{Compound as C, Space};
use vfscale_testkit::calls::pattern;

use crate::model::tree::{Body, Tree};

/// The shared directory.
pub const DIR: &str = "/crowd";
/// Number of directories in it.
const DIRS: u64 = 3;
/// Number of names in each directory.
const NAMES: u64 = 4;
/// Tag of all writes.
pub const TAG: u32 = 1 << 27;
/// Maximum number of units of a file.
const UNITS_MAX: u64 = 4000;

/// Makes the directories.
///
/// # Errors
/// Returns the error of a call that failed.
pub fn prepare(task: &Task) -> Result<(), Errno> {
    let dirs = (0..DIRS).map(|dir| format!("{DIR}/{dir}"));
    for dir in std::iter::once(DIR.to_owned()).chain(dirs) {
        task.create_dir(&dir)?;
    }
    Ok(())
}

/// Makes calls, each of which may fail because of concurrent ones.
///
/// # Errors
/// Returns an error that concurrent calls can't cause.
pub fn run(vfs: &Vfs, calls: usize, seed: u64) -> Result<(), String> {
    let (task, mut random) = (vfs.task(), Random::new(seed));
    for _ in 0..calls {
        let kind = random.below(KINDS);
        match call(&task, kind, &mut random) {
            Err(errno) if !is_expected(errno) => return Err(format!("call {kind}: {errno}")),
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether concurrent calls can cause an error.
fn is_expected(errno: Errno) -> bool {
    [
        Errno::NOENT,
        Errno::EXIST,
        Errno::NOTEMPTY,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::INVAL,
        Errno::LOOP,
        Errno::NODATA,
        Errno::PERM,
        Errno::OPNOTSUPP,
    ]
    .contains(&errno)
}

/// Returns a random one of the names.
fn name(random: &mut Random) -> String {
    format!("{DIR}/{}/{}", random.below(DIRS), random.below(NAMES))
}

/// Number of kinds of calls.
const KINDS: u64 = 15;

fn call(task: &Task, kind: u64, random: &mut Random) -> Result<(), Errno> {
    let (one, other) = (&name(random), &name(random));
    let rename = |flags: RenameFlags| C::rename(one, other, flags.bits());
    let at = random.below(UNITS_MAX) * pattern::UNIT;
    let len = (1 + random.below(UNITS_MAX)) * pattern::UNIT;
    let calls = match kind {
        0..3 => {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let file = task.posix().open(one, flags, Mode::from(0o644))?;
            file.pwrite(&pattern::bytes(TAG, at, len as usize), at)?;
            return if kind == 0 { Ok(file.sync_all()?) } else { Ok(()) };
        }
        3 => vec![rename(RenameFlags::empty())],
        4 => vec![rename(RenameFlags::EXCHANGE)],
        5 => vec![rename(RenameFlags::NOREPLACE)],
        6 => vec![C::link(one, other)],
        7 => vec![C::symlink(other, one)],
        8 => vec![C::unlink(one)],
        9 => vec![C::mkdir(one)],
        10 => vec![C::rmdir(one)],
        11 => vec![C::setxattr(one, "user.crowd", vec![b'v'; len as usize % 5000])],
        12 => vec![C::removexattr(one, "user.crowd")],
        13 => vec![
            C::truncate(one, at),
            C::fallocate(one, Space::Take, at, len),
            C::fallocate(one, Space::Punch, at / 2 / pattern::UNIT * pattern::UNIT, len),
        ],
        _ => vec![C::fsync_dir(one.rsplit_once('/').unwrap_or_default().0)],
    };
    calls.iter().try_for_each(|call| call.run(task))
}

/// Judges a recovered tree, which contains the directories if they were durable.
///
/// # Errors
/// Describes the inconsistency.
pub fn judge(task: &Task) -> Result<(), String> {
    if task.symlink_metadata(Path::new(DIR)).is_err() {
        return Ok(());
    }
    let inside = task.fork();
    inside.posix().chroot(DIR).map_err(|error| error.to_string())?;
    whole(&Tree::read(&inside).map_err(|why| format!("{DIR}: {why}"))?)
        .map_err(|why| format!("{DIR}{why}"))
}

/// Checks that the links and data of a tree are possible.
fn whole(tree: &Tree) -> Result<(), String> {
    for (ino, node) in &tree.nodes {
        let links = match &node.body {
            Body::Dir(entries) => {
                let below = entries.values().filter_map(|ino| tree.nodes.get(ino));
                2 + below.filter(|node| matches!(node.body, Body::Dir(_))).count()
            }
            _ => node.names.len(),
        };
        if node.nlink as usize != links {
            let path = tree.path_of(*ino);
            return Err(format!("{path}: {} links instead of {links}", node.nlink));
        }
        let units = node.data().unwrap_or_default().chunks(pattern::UNIT as usize);
        for (unit, at) in units.zip((0..).step_by(pattern::UNIT as usize)) {
            let is_zero = unit.iter().all(|byte| *byte == 0);
            if !is_zero && unit != pattern::bytes(TAG, at, unit.len()) {
                let (path, what) = (tree.path_of(*ino), pattern::explain(unit));
                return Err(format!("{path}: at {at}: {what}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
