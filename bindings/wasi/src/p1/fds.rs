//! The functions on descriptors. Each has the name and the arguments that preview 1 gives it.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::pin::pin;

use vfscale::Errno;
use vfscale::posix::{FallocateFlags, OFlags, Whence};
use wasmtime_wasi::p1::wasi_snapshot_preview1 as host;
use wasmtime_wasi::runtime::poll_noop;
use wiggle::GuestMemory;

use super::abi::{
    FDFLAGS_APPEND, FDFLAGS_NONBLOCK, check_flags, fdstat, filestat, filetype, times,
};
use super::descriptors::Entry;
use super::memory::Memory;
use super::{Done, Fault, Guest};

pub(super) fn fd_advise(
    guest: &mut Guest,
    _: &mut Memory<'_>,
    fd: u32,
    _offset: u64,
    _len: u64,
    advice: u32,
) -> Done {
    guest.descriptors.file(fd, Errno::BADF)?;
    // A volume reads ahead by what it sees.
    if advice <= 5 { Ok(()) } else { Err(Errno::INVAL.into()) }
}

pub(super) fn fd_allocate(
    guest: &mut Guest,
    _: &mut Memory<'_>,
    fd: u32,
    offset: u64,
    len: u64,
) -> Done {
    let file = guest.descriptors.file(fd, Errno::BADF)?;
    file.check_change()?;
    Ok(file.file().fallocate(FallocateFlags::empty(), offset, len)?)
}

pub(super) fn fd_close(guest: &mut Guest, _: &mut Memory<'_>, fd: u32) -> Done {
    guest.descriptors.close(fd)?;
    Ok(())
}

pub(super) fn fd_datasync(guest: &mut Guest, _: &mut Memory<'_>, fd: u32) -> Done {
    Ok(guest.descriptors.node(fd)?.sync(true)?)
}

pub(super) fn fd_sync(guest: &mut Guest, _: &mut Memory<'_>, fd: u32) -> Done {
    Ok(guest.descriptors.node(fd)?.sync(false)?)
}

/// Calls a function of the rest of WASI on a standard stream, which has to be one that never waits.
macro_rules! on_stdio {
    ($guest:ident, $memory:ident, $name:ident($stream:expr, $out:expr)) => {{
        let (stream, out) = ($stream.cast_signed(), $out.cast_signed());
        let mut memory = GuestMemory::Unshared($memory.bytes());
        let call = pin!(host::$name($guest.stdio(), &mut memory, stream, out));
        match poll_noop(call) {
            Some(Ok(0)) => Ok(()),
            Some(Ok(number)) => Err(Fault::Number(number)),
            Some(Err(error)) => Err(Fault::Trap(error)),
            None => Err(Errno::AGAIN.into()),
        }
    }};
}

pub(super) fn fd_fdstat_get(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    stat: u32,
) -> Done {
    match guest.descriptors.get(fd)? {
        &Entry::Stdio(stream) => on_stdio!(guest, memory, fd_fdstat_get(stream, stat)),
        Entry::Dir { node, .. } => memory.put(stat, &fdstat(node, false)),
        Entry::File { node, nonblock } => memory.put(stat, &fdstat(node, *nonblock)),
    }
}

pub(super) fn fd_fdstat_set_flags(
    guest: &mut Guest,
    _: &mut Memory<'_>,
    fd: u32,
    flags: u32,
) -> Done {
    check_flags(flags, FDFLAGS_APPEND | FDFLAGS_NONBLOCK)?;
    let Entry::File { node, nonblock } = guest.descriptors.get_mut(fd)? else {
        return Err(Errno::BADF.into());
    };
    let mut opened = node.file().flags();
    opened.set(OFlags::APPEND, flags & FDFLAGS_APPEND != 0);
    node.file().set_flags(opened, &node.task().credentials())?;
    *nonblock = flags & FDFLAGS_NONBLOCK != 0;
    Ok(())
}

pub(super) fn fd_fdstat_set_rights(
    guest: &mut Guest,
    _: &mut Memory<'_>,
    fd: u32,
    _base: u64,
    _inheriting: u64,
) -> Done {
    guest.descriptors.node(fd)?;
    Err(Errno::NOTSUP.into())
}

pub(super) fn fd_filestat_get(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    stat: u32,
) -> Done {
    match guest.descriptors.get(fd)? {
        &Entry::Stdio(stream) => on_stdio!(guest, memory, fd_filestat_get(stream, stat)),
        Entry::Dir { node, .. } | Entry::File { node, .. } => {
            memory.put(stat, &filestat(&node.stat()?))
        }
    }
}

pub(super) fn fd_filestat_set_size(
    guest: &mut Guest,
    _: &mut Memory<'_>,
    fd: u32,
    size: u64,
) -> Done {
    Ok(guest.descriptors.file(fd, Errno::BADF)?.set_size(size)?)
}

pub(super) fn fd_filestat_set_times(
    guest: &mut Guest,
    _: &mut Memory<'_>,
    fd: u32,
    accessed: u64,
    modified: u64,
    flags: u32,
) -> Done {
    let times = times(accessed, modified, flags)?;
    Ok(guest.descriptors.node(fd)?.set_times(times)?)
}

/// Reads into each buffer of a list until one is not filled. Returns the number of bytes; an error
/// after the first buffer is that of the next call.
fn read_into(
    memory: &mut Memory<'_>,
    (iovs, count): (u32, u32),
    mut read: impl FnMut(&mut [u8], u64) -> vfscale::Result<usize>,
) -> Done<u32> {
    let mut total = 0u32;
    for n in 0..count {
        let (at, len) = memory.iovec(iovs, count, n)?;
        let len = len.min(u32::MAX - total);
        match read(memory.slice_mut(at, len)?, total.into()) {
            Ok(n) if n as u32 == len => total += len,
            Ok(n) => return Ok(total + n as u32),
            Err(error) if total == 0 => return Err(error.into()),
            Err(_) => break,
        }
    }
    Ok(total)
}

pub(super) fn fd_read(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    iovs: u32,
    count: u32,
    read: u32,
) -> Done {
    let file = guest.descriptors.file(fd, Errno::BADF)?.file();
    let n = read_into(memory, (iovs, count), |buf, _| file.read(buf))?;
    memory.put(read, &n.to_le_bytes())
}

pub(super) fn fd_pread(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    iovs: u32,
    count: u32,
    offset: u64,
    read: u32,
) -> Done {
    let file = guest.descriptors.file(fd, Errno::SPIPE)?.file();
    let n =
        read_into(memory, (iovs, count), |buf, done| file.pread(buf, offset.saturating_add(done)))?;
    memory.put(read, &n.to_le_bytes())
}

pub(super) fn fd_write(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    iovs: u32,
    count: u32,
    written: u32,
) -> Done {
    let file = guest.descriptors.file(fd, Errno::BADF)?.file();
    let n = match count {
        1 => {
            let (at, len) = memory.iovec(iovs, count, 0)?;
            file.write(memory.slice(at, len)?)?
        }
        _ => file.writev(&memory.buffers(iovs, count)?)?,
    };
    memory.put(written, &(n as u32).to_le_bytes())
}

pub(super) fn fd_pwrite(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    iovs: u32,
    count: u32,
    offset: u64,
    written: u32,
) -> Done {
    let file = guest.descriptors.file(fd, Errno::SPIPE)?.file();
    let n = file.pwritev(&memory.buffers(iovs, count)?, offset)?;
    memory.put(written, &(n as u32).to_le_bytes())
}

pub(super) fn fd_prestat_get(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    prestat: u32,
) -> Done {
    let name = preopen(guest, fd)?;
    // The tag of a directory, and the length of its name.
    memory.put(prestat, &(name.len() as u64).rotate_left(32).to_le_bytes())
}

pub(super) fn fd_prestat_dir_name(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    place: u32,
    len: u32,
) -> Done {
    let name = preopen(guest, fd)?;
    if name.len() > len as usize {
        return Err(Errno::NAMETOOLONG.into());
    }
    memory.put(place, name.as_bytes())
}

fn preopen(guest: &Guest, fd: u32) -> Done<&str> {
    match guest.descriptors.get(fd)? {
        Entry::Dir { preopen: Some(name), .. } => Ok(name),
        _ => Err(Errno::BADF.into()),
    }
}

/// Fills the buffer with entries from the position `cookie` on. The last may be cut: the guest then
/// asks for it again.
pub(super) fn fd_readdir(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    buf: u32,
    len: u32,
    cookie: u64,
    used: u32,
) -> Done {
    let dir = guest.descriptors.dir(fd)?;
    // The guest may not know of the directory above, not even its number.
    let own = dir.stat()?.ino;
    let room = memory.slice_mut(buf, len)?;
    let mut filled = 0;
    dir.file().read_dir_at(cookie, |entry| {
        let name = entry.name.as_bytes();
        let ino = if name == b".." { own } else { entry.ino };
        let mut head = [0; 24];
        head[0..8].copy_from_slice(&entry.next.to_le_bytes());
        head[8..16].copy_from_slice(&ino.to_le_bytes());
        head[16..20].copy_from_slice(&(name.len() as u32).to_le_bytes());
        head[20] = filetype(entry.file_type);
        for part in [&head[..], name] {
            let n = part.len().min(room.len() - filled);
            room[filled..filled + n].copy_from_slice(&part[..n]);
            filled += n;
        }
        if filled < room.len() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    memory.put(used, &(filled as u32).to_le_bytes())
}

pub(super) fn fd_renumber(guest: &mut Guest, _: &mut Memory<'_>, from: u32, to: u32) -> Done {
    guest.descriptors.renumber(from, to)
}

pub(super) fn fd_seek(
    guest: &mut Guest,
    memory: &mut Memory<'_>,
    fd: u32,
    offset: i64,
    whence: u32,
    position: u32,
) -> Done {
    let file = guest.descriptors.file(fd, Errno::SPIPE)?;
    let to = match whence {
        0 => Whence::Set(u64::try_from(offset).map_err(|_| Errno::INVAL)?),
        1 => Whence::Current(offset),
        2 => Whence::End(offset),
        _ => return Err(Errno::INVAL.into()),
    };
    memory.put(position, &file.file().seek(to)?.to_le_bytes())
}

pub(super) fn fd_tell(guest: &mut Guest, memory: &mut Memory<'_>, fd: u32, position: u32) -> Done {
    let file = guest.descriptors.file(fd, Errno::SPIPE)?;
    memory.put(position, &file.file().seek(Whence::Current(0))?.to_le_bytes())
}
