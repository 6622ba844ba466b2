//! The history of branches: checkpoints, the way back to them, and what has happened.

use std::ffi::c_char;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use libc::ssize_t;
use vfscale::pool::{LogEntry, LogKind};

use crate::args::given;
use crate::border::border;
use crate::pool::{POOLS, branch, check_name_room, failure};
use crate::structs::{
    VFSCALE_LOG_ADOPTION, VFSCALE_LOG_BRANCH, VFSCALE_LOG_CHECKPOINT, VFSCALE_LOG_FORK,
    VFSCALE_LOG_MERGE, VFSCALE_LOG_MERGE_OF, VFSCALE_LOG_MERGED, VFSCALE_LOG_NOW,
    VFSCALE_LOG_OTHER, copy_name, vfscale_log_entry, vfscale_pool,
};
use crate::task::fill_path;

/// Makes a checkpoint of a branch, which may be open: a read-only branch with what calls have
/// returned for, and with `text`, a line that may be NULL. Writes its name and a zero to `name`,
/// which has `size` bytes; 136 are enough. Returns the length of the name. It is durable at the
/// return. Blocks for the I/O.
///
/// Errors: ENOENT if there is no such branch; EINVAL if the text is no line, or has more than 128
/// bytes with the name; ERANGE if the buffer has fewer than 136 bytes; ENOSPC if the pool is full;
/// EIO and the like.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_checkpoint(
    pool: *mut vfscale_pool,
    branch: *const c_char,
    text: *const c_char,
    name: *mut c_char,
    size: usize,
) -> ssize_t {
    border("vfscale_pool_checkpoint", || {
        let (branch, text) = (branch!(branch)?, given!(optional_text(text, "the text"))?);
        let name = given!(buffer(name.cast(), size))?;
        check_name_room(name)?;
        let made = POOLS.get(pool as u64)?.checkpoint(branch, &text.unwrap_or_default());
        fill_path(name, Path::new(&made.map_err(failure)?))
    })
}

/// Gives a branch the contents of `to`, a checkpoint or another read-only branch. Everything else
/// is as for vfscale_pool_rollback.
///
/// Errors: those of vfscale_pool_rollback; EINVAL if `to` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_rollback_to(
    pool: *mut vfscale_pool,
    name: *const c_char,
    to: *const c_char,
    kept: *mut c_char,
    size: usize,
) -> ssize_t {
    border("vfscale_pool_rollback_to", || {
        let (name, to) = (branch!(name)?, branch!(to)?);
        let kept = given!(buffer(kept.cast(), size))?;
        check_name_room(kept)?;
        let branch = POOLS.get(pool as u64)?.rollback_to(name, to).map_err(failure)?;
        fill_path(kept, Path::new(&branch.unwrap_or_default()))
    })
}

/// Stores up to `max` entries of the history of a branch in `entries`, the last state first, and
/// returns how many there are. Behind each state are those that were merged into it
/// (VFSCALE_LOG_MERGE_OF) and the branches that have it (VFSCALE_LOG_BRANCH). Waits for changes of
/// the pool that are under way.
///
/// Errors: ENOENT if there is no such branch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_log(
    pool: *mut vfscale_pool,
    branch: *const c_char,
    entries: *mut vfscale_log_entry,
    max: usize,
) -> ssize_t {
    border("vfscale_pool_log", || {
        let (branch, room) = (branch!(branch)?, given!(room(entries, max))?);
        let found = POOLS.get(pool as u64)?.log(branch).map_err(failure)?;
        let all: Vec<vfscale_log_entry> = found.iter().flat_map(told).collect();
        Ok(room.fill(all.into_iter()))
    })
}

/// Returns an entry, with what belongs to it.
fn told(entry: &LogEntry) -> Vec<vfscale_log_entry> {
    let kind = match entry.kind {
        LogKind::Now => VFSCALE_LOG_NOW,
        LogKind::Fork => VFSCALE_LOG_FORK,
        LogKind::Checkpoint => VFSCALE_LOG_CHECKPOINT,
        LogKind::Merge => VFSCALE_LOG_MERGE,
        LogKind::Merged => VFSCALE_LOG_MERGED,
        LogKind::Adoption => VFSCALE_LOG_ADOPTION,
        _ => VFSCALE_LOG_OTHER,
    };
    let (time, none) = (entry.time.and_then(nanoseconds).unwrap_or(i64::MIN), u64::MAX);
    let state = of(kind, (entry.node, entry.parent.unwrap_or(none)), time, &entry.text);
    let merges = entry.merges.iter();
    let merges = merges.map(|it| of(VFSCALE_LOG_MERGE_OF, (it.node, none), i64::MIN, &it.branch));
    let branch = |name: &String| of(VFSCALE_LOG_BRANCH, (entry.node, none), i64::MIN, name);
    [state].into_iter().chain(merges).chain(entry.branches.iter().map(branch)).collect()
}

fn of(kind: u32, (node, parent): (u64, u64), time: i64, name: &str) -> vfscale_log_entry {
    let (padding, reserved, text) = (0, [0; 4], [0; 136]);
    let mut to = vfscale_log_entry { kind, padding, node, parent, time, reserved, text };
    copy_name(name.as_bytes(), &mut to.text);
    to
}

fn nanoseconds(time: SystemTime) -> Option<i64> {
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}
