//! Merges of branches, and rebases.

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

use libc::ssize_t;
use vfscale::{Conflict, ConflictKind, Errno, MergeOptions, Merged, Strategy};

use crate::args::given;
use crate::border::{Failure, border};
use crate::pool::{POOLS, branch, failure};
use crate::structs::{
    VFSCALE_CONFLICT_ATTRIBUTES, VFSCALE_CONFLICT_CONTENT, VFSCALE_CONFLICT_LOOP,
    VFSCALE_CONFLICT_NAME, VFSCALE_CONFLICT_OTHER, VFSCALE_CONFLICT_REMOVED,
    VFSCALE_CONFLICT_RENAMED, VFSCALE_CONFLICT_XATTRS, VFSCALE_MERGE_DRY_RUN, VFSCALE_MERGE_FAIL,
    VFSCALE_MERGE_OURS, VFSCALE_MERGE_THEIRS, copy_name, vfscale_conflict, vfscale_merged,
    vfscale_pool,
};

/// Makes in the branch `into` what the branch `from` has changed since both had the same contents,
/// and stores in `merged` what was done. Stores up to `max` conflicts, by path, in `conflicts`, and
/// returns how many there are. `flags` are VFSCALE_MERGE_* flags. `from` may be open, `into` only
/// for a dry run. It is durable at the return, whole or not at all. Blocks for the I/O.
///
/// Errors: ENOENT if there is no such branch; EBUSY if `into` is open, or is used all the time;
/// EINVAL if it can only be read, both are one or have no state in common, or for unknown flags;
/// ENOSPC if the pool is full; EUCLEAN, EIO and the like. `into` is as before then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_merge(
    pool: *mut vfscale_pool,
    from: *const c_char,
    into: *const c_char,
    flags: u32,
    merged: *mut vfscale_merged,
    conflicts: *mut vfscale_conflict,
    max: usize,
) -> ssize_t {
    border("vfscale_pool_merge", || {
        let (from, into) = (branch!(from)?, branch!(into)?);
        let (merged, room) = (given!(place(merged))?, given!(room(conflicts, max))?);
        let options = options(flags)?;
        let done = POOLS.get(pool as u64)?.merge(from, into, options).map_err(failure)?;
        merged.set(told_merged(&done));
        Ok(room.fill(done.conflicts.iter().map(told)))
    })
}

/// Gives the branch `name` what the branch `onto` has, and in it what `name` has changed since both
/// had the same contents. Everything else is as for vfscale_pool_merge, where `onto` is `into`, and
/// stays as it is, and `name` is `from`, which must not be open. What `name` had becomes the branch
/// NAME@N, with the number after the greatest one in use. Blocks for the I/O.
///
/// Errors: those of vfscale_pool_merge, about `name` in place of `into`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_rebase(
    pool: *mut vfscale_pool,
    name: *const c_char,
    onto: *const c_char,
    flags: u32,
    merged: *mut vfscale_merged,
    conflicts: *mut vfscale_conflict,
    max: usize,
) -> ssize_t {
    border("vfscale_pool_rebase", || {
        let (name, onto) = (branch!(name)?, branch!(onto)?);
        let (merged, room) = (given!(place(merged))?, given!(room(conflicts, max))?);
        let options = options(flags)?;
        let done = POOLS.get(pool as u64)?.rebase(name, onto, options).map_err(failure)?;
        merged.set(told_merged(&done));
        Ok(room.fill(done.conflicts.iter().map(told)))
    })
}

/// Returns the options that flags stand for.
fn options(flags: u32) -> Result<MergeOptions, Failure> {
    let strategy = match flags & !VFSCALE_MERGE_DRY_RUN {
        0 => Strategy::Both,
        VFSCALE_MERGE_OURS => Strategy::Ours,
        VFSCALE_MERGE_THEIRS => Strategy::Theirs,
        VFSCALE_MERGE_FAIL => Strategy::Fail,
        _ => return Err(Failure::new(Errno::INVAL, "unknown flags, or two strategies")),
    };
    let options = MergeOptions::new().strategy(strategy);
    Ok(options.dry_run(flags & VFSCALE_MERGE_DRY_RUN != 0))
}

fn told_merged(done: &Merged) -> vfscale_merged {
    vfscale_merged {
        added: done.added,
        removed: done.removed,
        moved: done.moved,
        changed: done.changed,
        texts: done.texts,
        done: u64::from(done.is_done),
        reserved: [0; 6],
    }
}

fn told(conflict: &Conflict) -> vfscale_conflict {
    let kind = match conflict.kind {
        ConflictKind::Content => VFSCALE_CONFLICT_CONTENT,
        ConflictKind::Attributes => VFSCALE_CONFLICT_ATTRIBUTES,
        ConflictKind::Xattrs => VFSCALE_CONFLICT_XATTRS,
        ConflictKind::Removed => VFSCALE_CONFLICT_REMOVED,
        ConflictKind::Renamed => VFSCALE_CONFLICT_RENAMED,
        ConflictKind::Name => VFSCALE_CONFLICT_NAME,
        ConflictKind::Loop => VFSCALE_CONFLICT_LOOP,
        _ => VFSCALE_CONFLICT_OTHER,
    };
    let (path_len, beside_len, path, beside) = (0, 0, [0; 4096], [0; 4096]);
    let mut to = vfscale_conflict { kind, reserved: 0, path_len, beside_len, path, beside };
    to.path_len = copy_name(conflict.path.as_os_str().as_bytes(), &mut to.path);
    let other = conflict.beside.as_deref().unwrap_or("".as_ref());
    to.beside_len = copy_name(other.as_os_str().as_bytes(), &mut to.beside);
    to
}
