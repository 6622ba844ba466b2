//! The functions on paths. Each has the name and the arguments that preview 1 gives it.

use vfscale::Errno;
use vfscale::posix::OFlags;

use super::abi::{
    FDFLAGS_APPEND, FDFLAGS_DSYNC, FDFLAGS_NONBLOCK, FDFLAGS_RSYNC, FDFLAGS_SYNC, OFLAGS_CREAT,
    OFLAGS_DIRECTORY, OFLAGS_EXCL, OFLAGS_TRUNC, RIGHTS_FD_READ, RIGHTS_FD_WRITE, check_flags,
    filestat, follows, times,
};
use super::descriptors::Entry;
use super::memory::Memory;
use super::{Done, Guest};
use crate::node::Node;

/// Returns the directory of a call, and the path below it.
fn place<'a>(
    guest: &'a Guest,
    memory: &'a Memory<'_>,
    (fd, path, len): (u32, u32, u32),
) -> Done<(&'a Node, &'a str)> {
    Ok((guest.descriptors.dir(fd)?, memory.text(path, len)?))
}

pub(super) fn path_create_directory(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    path: u32,
    len: u32,
) -> Done {
    let (dir, path) = place(guest, memory, (fd, path, len))?;
    Ok(dir.make_dir(path)?)
}

pub(super) fn path_filestat_get(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    flags: u32,
    path: u32,
    len: u32,
    stat: u32,
) -> Done {
    let (dir, path) = place(guest, memory, (fd, path, len))?;
    let found = dir.stat_at(path, follows(flags)?)?;
    memory.put(stat, &filestat(&found))
}

#[expect(clippy::too_many_arguments, reason = "those of preview 1")]
pub(super) fn path_filestat_set_times(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    flags: u32,
    path: u32,
    len: u32,
    accessed: u64,
    modified: u64,
    set: u32,
) -> Done {
    let times = times(accessed, modified, set)?;
    let (dir, path) = place(guest, memory, (fd, path, len))?;
    Ok(dir.set_times_at(path, follows(flags)?, times)?)
}

#[expect(clippy::too_many_arguments, reason = "those of preview 1")]
pub(super) fn path_link(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    flags: u32,
    old: u32,
    old_len: u32,
    new_fd: u32,
    new: u32,
    new_len: u32,
) -> Done {
    if follows(flags)? {
        return Err(Errno::INVAL.into());
    }
    let (from, old) = place(guest, memory, (fd, old, old_len))?;
    let (to, new) = place(guest, memory, (new_fd, new, new_len))?;
    Ok(from.link_to(old, to, new)?)
}

#[expect(clippy::too_many_arguments, reason = "those of preview 1")]
pub(super) fn path_open(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    lookup: u32,
    path: u32,
    len: u32,
    oflags: u32,
    rights: u64,
    _inheriting: u64,
    flags: u32,
    opened: u32,
) -> Done {
    let how = open_flags(oflags, rights, flags)?;
    let (dir, path) = place(guest, memory, (fd, path, len))?;
    guest.descriptors.check_room(dir)?;
    let node = dir.open_at(path, follows(lookup)?, how)?;
    let entry = if node.is_dir() {
        Entry::Dir { node, preopen: None }
    } else {
        Entry::File { node, nonblock: flags & FDFLAGS_NONBLOCK != 0 }
    };
    let fd = guest.descriptors.push(entry)?;
    memory.put(opened, &fd.to_le_bytes())
}

fn open_flags(oflags: u32, rights: u64, flags: u32) -> Done<OFlags> {
    let sync = FDFLAGS_SYNC | FDFLAGS_RSYNC;
    check_flags(flags, FDFLAGS_APPEND | FDFLAGS_DSYNC | FDFLAGS_NONBLOCK | sync)?;
    check_flags(oflags, OFLAGS_CREAT | OFLAGS_DIRECTORY | OFLAGS_EXCL | OFLAGS_TRUNC)?;
    let mut how = match (rights & RIGHTS_FD_READ != 0, rights & RIGHTS_FD_WRITE != 0) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    };
    how.set(OFlags::CREATE, oflags & OFLAGS_CREAT != 0);
    how.set(OFlags::DIRECTORY, oflags & OFLAGS_DIRECTORY != 0);
    how.set(OFlags::EXCL, oflags & OFLAGS_EXCL != 0);
    how.set(OFlags::TRUNC, oflags & OFLAGS_TRUNC != 0);
    how.set(OFlags::APPEND, flags & FDFLAGS_APPEND != 0);
    how.set(OFlags::DSYNC, flags & FDFLAGS_DSYNC != 0);
    if flags & sync != 0 {
        how |= OFlags::SYNC;
    }
    Ok(how)
}

#[expect(clippy::too_many_arguments, reason = "those of preview 1")]
pub(super) fn path_readlink(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    path: u32,
    len: u32,
    buf: u32,
    buf_len: u32,
    used: u32,
) -> Done {
    let (dir, path) = place(guest, memory, (fd, path, len))?;
    let target = dir.read_link(path)?;
    let n = target.len().min(buf_len as usize);
    memory.put(buf, &target.as_bytes()[..n])?;
    memory.put(used, &(n as u32).to_le_bytes())
}

pub(super) fn path_remove_directory(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    path: u32,
    len: u32,
) -> Done {
    let (dir, path) = place(guest, memory, (fd, path, len))?;
    Ok(dir.remove_dir(path)?)
}

#[expect(clippy::too_many_arguments, reason = "those of preview 1")]
pub(super) fn path_rename(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    old: u32,
    old_len: u32,
    new_fd: u32,
    new: u32,
    new_len: u32,
) -> Done {
    let (from, old) = place(guest, memory, (fd, old, old_len))?;
    let (to, new) = place(guest, memory, (new_fd, new, new_len))?;
    Ok(from.rename_to(old, to, new)?)
}

pub(super) fn path_symlink(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    target: u32,
    target_len: u32,
    fd: u32,
    path: u32,
    len: u32,
) -> Done {
    let (dir, path) = place(guest, memory, (fd, path, len))?;
    Ok(dir.make_symlink(memory.text(target, target_len)?, path)?)
}

pub(super) fn path_unlink_file(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    path: u32,
    len: u32,
) -> Done {
    let (dir, path) = place(guest, memory, (fd, path, len))?;
    Ok(dir.remove_file(path)?)
}
