//! Pools: the branches of an image.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::ssize_t;
use vfscale::block::Ceph;
use vfscale::pool::{Difference, DifferenceKind};
use vfscale::{BranchInfo, Errno, Error, ForkOptions, Pool, PoolError};
use vfscale_sync::lock::Mutex;

use crate::args::given;
use crate::border::{Failure, border};
use crate::cache_budget::budget;
use crate::fs;
use crate::handles::{Kind, Table};
use crate::ranks::DiffLock;
use crate::structs::{
    VFSCALE_CHANGED_ATTRIBUTES, VFSCALE_CHANGED_CONTENT, VFSCALE_CHANGED_XATTRS,
    VFSCALE_DIFFERENCE_ADDED, VFSCALE_DIFFERENCE_CHANGED, VFSCALE_DIFFERENCE_MOVED,
    VFSCALE_DIFFERENCE_OTHER, VFSCALE_DIFFERENCE_REMOVED, VFSCALE_DIFFERENCE_REPLACED,
    VFSCALE_FORK_AS_SYNCED, VFSCALE_FORK_READ_ONLY, VFSCALE_FORK_TEMPORARY, VFSCALE_POOL_CONVERT,
    VFSCALE_POOL_READ_ONLY, VFSCALE_POOL_TAKE_OVER, copy_name, vfscale_branch, vfscale_diff,
    vfscale_difference, vfscale_fs, vfscale_pool, vfscale_pool_options, vfscale_pool_usage,
    vfscale_volume_options,
};
use crate::task::fill_path;

pub(crate) static POOLS: Table<Pool> = Table::new(Kind::Pool, false);
static DIFFS: Table<Differences> = Table::new(Kind::Diff, false);

/// The differences that are still to be told.
struct Differences(Mutex<std::vec::IntoIter<Difference>, DiffLock>);

/// Returns the failure of a call of a pool.
pub(crate) fn failure(error: PoolError) -> Failure {
    Error::from(error).into()
}

/// Reads the name of a branch.
///
/// # Safety
/// As [`string`](crate::args::string).
pub(crate) unsafe fn branch_name<'a>(name: *const c_char) -> Result<&'a str, Failure> {
    let name = given!(string(name, "the name of the branch"))?;
    let invalid = || Failure::new(Errno::INVAL, "the name of the branch is not UTF-8");
    name.to_str().ok_or_else(invalid)
}

/// Checks that a buffer has room for any name, before a call changes anything.
pub(crate) fn check_name_room(buffer: &[u8]) -> Result<(), Failure> {
    match buffer.len() {
        136.. => Ok(()),
        _ => Err(Failure::new(Errno::RANGE, "the buffer has fewer than 136 bytes")),
    }
}

macro_rules! branch {
    ($name:expr) => {{
        // SAFETY: the caller of the exported function has promised what the header says about its
        // pointers.
        unsafe { $crate::pool::branch_name($name) }
    }};
}
pub(crate) use branch;

/// Opens the branches of the image file or device at `path`, and stores the handle of the pool in
/// `pool`. `options` are `options_size` bytes, sizeof *options; NULL means the default of each. One
/// process has an image open at a time. Blocks for the I/O.
///
/// Errors: ENOENT if there is no image; EINVAL if it has no branches, unless VFSCALE_POOL_CONVERT
/// makes its volume the first one; EBUSY if it is in use; EIO and the like of the device; EUCLEAN
/// if it is damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_new(
    path: *const c_char,
    options: *const vfscale_pool_options,
    options_size: usize,
    pool: *mut *mut vfscale_pool,
) -> c_int {
    border("vfscale_pool_new", || {
        const KNOWN: u32 = VFSCALE_POOL_READ_ONLY | VFSCALE_POOL_CONVERT | VFSCALE_POOL_TAKE_OVER;
        let (path, pool) = (given!(path(path))?, given!(place(pool))?);
        let from: vfscale_pool_options = given!(options(options, options_size))?;
        if from.flags & !KNOWN != 0 || from.reserved != 0 {
            return Err(Failure::new(Errno::INVAL, "unknown flags"));
        }
        let is = |flag| from.flags & flag != 0;
        let conf = given!(optional_path(from.ceph_conf)).map(Path::to_owned);
        let id = given!(optional_text(from.ceph_id, "the user of Ceph"))?;
        let mut builder = vfscale::pool(path)
            .read_only(is(VFSCALE_POOL_READ_ONLY))
            .convert(is(VFSCALE_POOL_CONVERT))
            .take_over(is(VFSCALE_POOL_TAKE_OVER))
            .ceph(Ceph { conf, id });
        if !from.cache_budget.is_null() {
            builder = builder.cache_budget(&*budget(from.cache_budget)?);
        }
        let opened = builder.open().map_err(failure)?;
        pool.set(POOLS.insert(opened)? as *mut vfscale_pool);
        Ok(())
    })
}

/// Makes the next opening of the pool have nothing to recover, ends it, and frees its handle; its
/// image can be opened again when no call uses the handle. Blocks for the I/O.
///
/// Errors: EBUSY if a branch is open: the pool stays as it is, and can be closed again. EIO and the
/// like: the handle is freed, and nothing is lost that was synced.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_pool_close(pool: *mut vfscale_pool) -> c_int {
    border("vfscale_pool_close", || {
        let closed = {
            let used = POOLS.get(pool as u64)?;
            Pool::clone(&used).close()
        };
        match closed {
            Err(error) if error.errno() == Errno::BUSY => Err(failure(error)),
            closed => {
                POOLS.remove(pool as u64)?;
                closed.map_err(failure)
            }
        }
    })
}

/// Opens the volume in the branch `name`, and stores the handle of its tree in `fs`, which is
/// closed as that of any volume. Only one user has a branch open that can be written. `options` are
/// `options_size` bytes, sizeof *options; NULL means the default of each. Blocks for the I/O.
///
/// Errors: ENOENT if there is no such branch; EBUSY if it is open; those of vfscale_fs_volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_open(
    pool: *mut vfscale_pool,
    name: *const c_char,
    options: *const vfscale_volume_options,
    options_size: usize,
    fs: *mut *mut vfscale_fs,
) -> c_int {
    border("vfscale_pool_open", || {
        let (name, fs) = (branch!(name)?, given!(place(fs))?);
        let builder = POOLS.get(pool as u64)?.branch(name);
        // SAFETY: the caller has promised what the header says about its pointers.
        let builder = unsafe { fs::configured(builder, options, options_size) }?;
        fs::open(builder, fs)
    })
}

/// Makes the branch `name`, a copy of the branch `parent` that shares all its blocks. The parent
/// may be open: what calls have returned for is in the copy. `flags` are VFSCALE_FORK_* flags. It
/// is durable at the return. Blocks for the I/O.
///
/// Errors: ENOENT if there is no such parent; EEXIST; EINVAL if it can't be a name, or for unknown
/// flags; ENOSPC if the pool is full; EIO and the like.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_fork(
    pool: *mut vfscale_pool,
    parent: *const c_char,
    name: *const c_char,
    flags: u32,
) -> c_int {
    border("vfscale_pool_fork", || {
        const KINDS: u32 = VFSCALE_FORK_READ_ONLY | VFSCALE_FORK_TEMPORARY;
        let (parent, name) = (branch!(parent)?, branch!(name)?);
        if flags & !(KINDS | VFSCALE_FORK_AS_SYNCED) != 0 {
            return Err(Failure::new(Errno::INVAL, "unknown flags"));
        }
        let options = match flags & KINDS {
            KINDS => {
                let text = "a temporary branch can be written";
                return Err(Failure::new(Errno::INVAL, text));
            }
            VFSCALE_FORK_READ_ONLY => ForkOptions::new().read_only(true),
            VFSCALE_FORK_TEMPORARY => ForkOptions::new().temporary(true),
            _ => ForkOptions::new(),
        };
        let options = options.as_synced(flags & VFSCALE_FORK_AS_SYNCED != 0);
        POOLS.get(pool as u64)?.fork_with(parent, name, options).map_err(failure)
    })
}

/// Deletes a branch; its space becomes free in the background. Blocks for the I/O. Works if the
/// pool is full.
///
/// Errors: ENOENT if there is no such branch; EBUSY if it is open; EINVAL for `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_delete(
    pool: *mut vfscale_pool,
    name: *const c_char,
) -> c_int {
    border("vfscale_pool_delete", || {
        let name = branch!(name)?;
        POOLS.get(pool as u64)?.delete(name).map_err(failure)
    })
}

/// Gives a branch another name. Blocks for the I/O.
///
/// Errors: ENOENT if there is no such branch; EEXIST; EBUSY if it is open; EINVAL for `main`, and
/// if `to` can't be a name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_rename(
    pool: *mut vfscale_pool,
    name: *const c_char,
    to: *const c_char,
) -> c_int {
    border("vfscale_pool_rename", || {
        let (name, to) = (branch!(name)?, branch!(to)?);
        POOLS.get(pool as u64)?.rename(name, to).map_err(failure)
    })
}

/// Limits how many bytes a branch may have for itself; 0 ends that. What it has written since it
/// was forked counts until it gives it up. At the limit, calls that need more space fail with
/// EDQUOT. The branch may be open. Blocks for the I/O.
///
/// Errors: ENOENT if there is no such branch; EINVAL if it can only be read, and for a limit below
/// 16 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_set_limit(
    pool: *mut vfscale_pool,
    name: *const c_char,
    limit: u64,
) -> c_int {
    border("vfscale_pool_set_limit", || {
        let limit = (limit != 0).then_some(limit);
        POOLS.get(pool as u64)?.set_limit(branch!(name)?, limit).map_err(failure)
    })
}

/// Gives a branch the contents back that it had at its last fork or adoption. Those until now
/// become another branch, whose name and a zero are written to `kept`, which has `size` bytes; 136
/// are enough. Returns the length of the name, 0 if the branch has written nothing. Blocks for the
/// I/O.
///
/// Errors: ENOENT if there is no such branch; EBUSY if it is open; EINVAL if it can only be read,
/// or the state is gone; ERANGE if the buffer has fewer than 136 bytes: nothing was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_rollback(
    pool: *mut vfscale_pool,
    name: *const c_char,
    kept: *mut c_char,
    size: usize,
) -> ssize_t {
    border("vfscale_pool_rollback", || {
        let (name, kept) = (branch!(name)?, given!(buffer(kept.cast(), size))?);
        check_name_room(kept)?;
        let branch = POOLS.get(pool as u64)?.rollback(name).map_err(failure)?;
        fill_path(kept, Path::new(&branch.unwrap_or_default()))
    })
}

/// Gives the branch `parent` the contents of `child`, which was forked from it or from one that it
/// comes from, and frees the name of that. Both are closed. It is durable at the return, whole or
/// not at all. Blocks for the I/O.
///
/// Errors: ENOENT if there is no such branch; EBUSY if one of them is open, or the parent has
/// changed since the fork; EINVAL if they have no state in common, one of them can only be read, or
/// the child is `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_adopt(
    pool: *mut vfscale_pool,
    parent: *const c_char,
    child: *const c_char,
) -> c_int {
    border("vfscale_pool_adopt", || {
        let (parent, child) = (branch!(parent)?, branch!(child)?);
        POOLS.get(pool as u64)?.adopt(parent, child).map_err(failure)
    })
}

/// Stores up to `max` branches, by name, in `branches`, and returns how many there are. Waits for
/// changes of the pool that are under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_branches(
    pool: *mut vfscale_pool,
    branches: *mut vfscale_branch,
    max: usize,
) -> ssize_t {
    border("vfscale_pool_branches", || {
        let room = given!(room(branches, max))?;
        let found = POOLS.get(pool as u64)?.branches();
        Ok(room.fill(found.iter().map(branch_info)))
    })
}

fn branch_info(info: &BranchInfo) -> vfscale_branch {
    let mut to = vfscale_branch {
        size: info.size,
        own: info.own,
        depth: info.depth,
        read_only: u32::from(info.read_only),
        limit: info.limit.unwrap_or(0),
        reserved: [0; 3],
        name: [0; 136],
    };
    copy_name(info.name.as_bytes(), &mut to.name);
    to
}

/// Stores in `usage` the space that the branches share.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_usage(
    pool: *mut vfscale_pool,
    usage: *mut vfscale_pool_usage,
) -> c_int {
    border("vfscale_pool_usage", || {
        let place = given!(place(usage))?;
        let found = POOLS.get(pool as u64)?.usage();
        place.set(vfscale_pool_usage { size: found.size, free: found.free, reserved: [0; 6] });
        Ok(())
    })
}

/// Compares two branches, which may be open, and stores the handle of the differences in `diff`:
/// what has to be done to `a` to get `b`, by path. Blocks for the I/O.
///
/// Errors: ENOENT if there is no such branch; ENOSPC if the pool is full; EUCLEAN, EIO and the
/// like.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_diff(
    pool: *mut vfscale_pool,
    a: *const c_char,
    b: *const c_char,
    diff: *mut *mut vfscale_diff,
) -> c_int {
    border("vfscale_pool_diff", || {
        let (a, b, place) = (branch!(a)?, branch!(b)?, given!(place(diff))?);
        let found = POOLS.get(pool as u64)?.diff(a, b).map_err(failure)?;
        let found = Differences(Mutex::new(found.into_iter()));
        place.set(DIFFS.insert(found)? as *mut vfscale_diff);
        Ok(())
    })
}

/// Stores the next difference in `difference`, and returns 1; 0 at the end. Does not block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_next_difference(
    diff: *mut vfscale_diff,
    difference: *mut vfscale_difference,
) -> c_int {
    border("vfscale_next_difference", || {
        let place = given!(place(difference))?;
        let next = DIFFS.get(diff as u64)?.0.lock().next();
        let is_there = next.is_some();
        if let Some(next) = next {
            place.set(told(&next));
        }
        Ok(is_there)
    })
}

fn told(difference: &Difference) -> vfscale_difference {
    let (mut changes, mut other) = (0, Path::new(""));
    let kind = match &difference.kind {
        DifferenceKind::Added => VFSCALE_DIFFERENCE_ADDED,
        DifferenceKind::Removed => VFSCALE_DIFFERENCE_REMOVED,
        DifferenceKind::Replaced => VFSCALE_DIFFERENCE_REPLACED,
        DifferenceKind::Moved { from } => {
            other = from;
            VFSCALE_DIFFERENCE_MOVED
        }
        DifferenceKind::Changed(parts) => {
            for (is_changed, flag) in [
                (parts.content, VFSCALE_CHANGED_CONTENT),
                (parts.attributes, VFSCALE_CHANGED_ATTRIBUTES),
                (parts.xattrs, VFSCALE_CHANGED_XATTRS),
            ] {
                changes |= if is_changed { flag } else { 0 };
            }
            VFSCALE_DIFFERENCE_CHANGED
        }
        _ => VFSCALE_DIFFERENCE_OTHER,
    };
    let (path_len, other_len, path, text) = (0, 0, [0; 4096], [0; 4096]);
    let mut to = vfscale_difference { kind, changes, path_len, other_len, path, other: text };
    to.path_len = copy_name(difference.path.as_os_str().as_bytes(), &mut to.path);
    to.other_len = copy_name(other.as_os_str().as_bytes(), &mut to.other);
    to
}

/// Frees the handle of differences.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_diff_free(diff: *mut vfscale_diff) -> c_int {
    border("vfscale_diff_free", || DIFFS.remove(diff as u64))
}
