//! The file system of modules: `wasi_snapshot_preview1`.
//!
//! The functions on files are implemented here, and move data between the file and the guest's
//! memory without a copy between. Arguments, environment, clocks, random numbers and the standard
//! streams are those of `wasmtime_wasi`.

use std::fmt;

use vfscale::Errno;
use wasmtime::{Caller, Extern, Linker};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p1::wasi_snapshot_preview1::{self as host, WasiSnapshotPreview1 as _};
use wasmtime_wasi::runtime::in_tokio;
use wiggle::GuestMemory;

use crate::errors::number;
use crate::filesystem::Filesystem;

mod abi;
mod descriptors;
mod fds;
mod memory;
mod paths;
mod poll;

use descriptors::Descriptors;
use memory::Memory;

const MODULE: &str = "wasi_snapshot_preview1";

/// The most bytes that one call on a standard stream may make the host copy.
const STDIO_BYTES: usize = 64 << 20;

/// A guest: its descriptors, and the rest of its WASI.
pub struct Guest {
    wasi: WasiP1Ctx,
    descriptors: Descriptors,
}

impl Guest {
    /// Returns a guest with the directories of `files` at its descriptors from 3 on. Directories of
    /// the host that `wasi` has preopened are not seen.
    pub fn new(wasi: WasiP1Ctx, files: Filesystem) -> Guest {
        Guest { wasi, descriptors: Descriptors::new(&files) }
    }

    /// Returns the rest of WASI, for a call of the host's own functions on a standard stream.
    fn stdio(&mut self) -> &mut WasiP1Ctx {
        self.wasi.set_hostcall_fuel(STDIO_BYTES);
        &mut self.wasi
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("descriptors", &self.descriptors).finish_non_exhaustive()
    }
}

/// The failure of a call.
#[derive(Debug)]
enum Fault {
    /// The guest gets this error.
    Errno(Errno),
    /// The guest gets this number, which the rest of WASI has returned.
    Number(i32),
    /// The guest ends.
    Trap(wasmtime::Error),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::Errno(errno)
    }
}

impl From<vfscale::Error> for Fault {
    fn from(error: vfscale::Error) -> Fault {
        Fault::Errno(error.errno())
    }
}

type Done<T = ()> = Result<T, Fault>;

/// Returns the number that the guest gets.
fn finish(done: Done) -> wasmtime::Result<i32> {
    match done {
        Ok(()) => Ok(0),
        Err(Fault::Errno(errno)) => Ok(number(errno)),
        Err(Fault::Number(number)) => Ok(number),
        Err(Fault::Trap(error)) => Err(error),
    }
}

/// Returns the guest and its memory.
fn parts<'a, T: 'static>(
    caller: &'a mut Caller<'_, T>,
    guest: impl Fn(&mut T) -> &mut Guest,
) -> wasmtime::Result<(&'a mut Guest, Memory<'a>)> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        wasmtime::bail!("the module exports no memory of its own named `memory`");
    };
    let (bytes, data) = memory.data_and_store_mut(caller);
    Ok((guest(data), Memory::new(bytes)))
}

/// Adds the functions that never wait for a standard stream.
macro_rules! add {
    ($linker:ident, $guest:ident, $($room:ident::$name:ident($($arg:ident: $kind:ty),*);)*) => {$(
        $linker.func_wrap(
            MODULE,
            stringify!($name),
            move |mut caller: Caller<'_, T>, $($arg: $kind),*| -> wasmtime::Result<i32> {
                let (guest, mut memory) = parts(&mut caller, $guest)?;
                finish($room::$name(guest, &mut memory, $($arg),*))
            },
        )?;
    )*};
}

/// Adds all of preview 1, for stores that are not async; `guest` finds the guest in their data.
///
/// # Errors
/// If the linker has a function of preview 1 already.
pub fn add_to_linker_sync<T: Send + 'static>(
    linker: &mut Linker<T>,
    guest: impl Fn(&mut T) -> &mut Guest + Copy + Send + Sync + 'static,
) -> wasmtime::Result<()> {
    wasmtime_wasi::p1::add_to_linker_sync(linker, move |data| guest(data).stdio())?;
    shadow(linker, |linker| {
        add_files(linker, guest)?;
        linker.func_wrap(
            MODULE,
            "fd_read",
            move |mut caller: Caller<'_, T>, fd: u32, iovs: u32, count: u32, read: u32| {
                let (guest, mut memory) = parts(&mut caller, guest)?;
                if guest.descriptors.stdio(fd).is_some() {
                    return in_tokio(fd_read(guest, memory, (fd, iovs, count, read)));
                }
                finish(fds::fd_read(guest, &mut memory, fd, iovs, count, read))
            },
        )?;
        linker.func_wrap(
            MODULE,
            "fd_write",
            move |mut caller: Caller<'_, T>, fd: u32, iovs: u32, count: u32, written: u32| {
                let (guest, mut memory) = parts(&mut caller, guest)?;
                if guest.descriptors.stdio(fd).is_some() {
                    return in_tokio(fd_write(guest, memory, (fd, iovs, count, written)));
                }
                finish(fds::fd_write(guest, &mut memory, fd, iovs, count, written))
            },
        )?;
        linker.func_wrap(
            MODULE,
            "poll_oneoff",
            move |mut caller: Caller<'_, T>, from: u32, to: u32, count: u32, events: u32| {
                let (guest, memory) = parts(&mut caller, guest)?;
                in_tokio(poll_oneoff(guest, memory, (from, to, count, events)))
            },
        )?;
        Ok(())
    })
}

/// Adds all of preview 1, for stores that are async; `guest` finds the guest in their data. Calls
/// on files never give way to other tasks: in memory they do not wait, on a volume they wait for
/// the device on this thread.
///
/// # Errors
/// If the linker has a function of preview 1 already.
pub fn add_to_linker_async<T: Send + 'static>(
    linker: &mut Linker<T>,
    guest: impl Fn(&mut T) -> &mut Guest + Copy + Send + Sync + 'static,
) -> wasmtime::Result<()> {
    wasmtime_wasi::p1::add_to_linker_async(linker, move |data| guest(data).stdio())?;
    shadow(linker, |linker| {
        add_files(linker, guest)?;
        linker.func_wrap_async(
            MODULE,
            "fd_read",
            move |mut caller: Caller<'_, T>, args: Four| {
                Box::new(async move {
                    let (guest, memory) = parts(&mut caller, guest)?;
                    fd_read(guest, memory, args).await
                })
            },
        )?;
        linker.func_wrap_async(
            MODULE,
            "fd_write",
            move |mut caller: Caller<'_, T>, args: Four| {
                Box::new(async move {
                    let (guest, memory) = parts(&mut caller, guest)?;
                    fd_write(guest, memory, args).await
                })
            },
        )?;
        linker.func_wrap_async(
            MODULE,
            "poll_oneoff",
            move |mut caller: Caller<'_, T>, args: Four| {
                Box::new(async move {
                    let (guest, memory) = parts(&mut caller, guest)?;
                    poll_oneoff(guest, memory, args).await
                })
            },
        )?;
        Ok(())
    })
}

type Four = (u32, u32, u32, u32);

/// Lets `add` put functions in the place of those of the host.
fn shadow<T: 'static>(
    linker: &mut Linker<T>,
    add: impl FnOnce(&mut Linker<T>) -> wasmtime::Result<()>,
) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let added = add(linker);
    linker.allow_shadowing(false);
    added
}

fn add_files<T: Send + 'static>(
    linker: &mut Linker<T>,
    guest: impl Fn(&mut T) -> &mut Guest + Copy + Send + Sync + 'static,
) -> wasmtime::Result<()> {
    add! { linker, guest,
        fds::fd_advise(fd: u32, offset: u64, len: u64, advice: u32);
        fds::fd_allocate(fd: u32, offset: u64, len: u64);
        fds::fd_close(fd: u32);
        fds::fd_datasync(fd: u32);
        fds::fd_fdstat_get(fd: u32, stat: u32);
        fds::fd_fdstat_set_flags(fd: u32, flags: u32);
        fds::fd_fdstat_set_rights(fd: u32, base: u64, inheriting: u64);
        fds::fd_filestat_get(fd: u32, stat: u32);
        fds::fd_filestat_set_size(fd: u32, size: u64);
        fds::fd_filestat_set_times(fd: u32, accessed: u64, modified: u64, flags: u32);
        fds::fd_pread(fd: u32, iovs: u32, count: u32, offset: u64, read: u32);
        fds::fd_prestat_get(fd: u32, prestat: u32);
        fds::fd_prestat_dir_name(fd: u32, name: u32, len: u32);
        fds::fd_pwrite(fd: u32, iovs: u32, count: u32, offset: u64, written: u32);
        fds::fd_readdir(fd: u32, buf: u32, len: u32, cookie: u64, used: u32);
        fds::fd_renumber(from: u32, to: u32);
        fds::fd_seek(fd: u32, offset: i64, whence: u32, position: u32);
        fds::fd_sync(fd: u32);
        fds::fd_tell(fd: u32, position: u32);
        paths::path_create_directory(fd: u32, path: u32, len: u32);
        paths::path_filestat_get(fd: u32, flags: u32, path: u32, len: u32, stat: u32);
        paths::path_filestat_set_times(
            fd: u32, flags: u32, path: u32, len: u32, accessed: u64, modified: u64, times: u32
        );
        paths::path_link(
            fd: u32, flags: u32, old: u32, old_len: u32, new_fd: u32, new: u32, new_len: u32
        );
        paths::path_open(
            fd: u32, lookup: u32, path: u32, len: u32, oflags: u32, rights: u64, inheriting: u64,
            flags: u32, opened: u32
        );
        paths::path_readlink(fd: u32, path: u32, len: u32, buf: u32, buf_len: u32, used: u32);
        paths::path_remove_directory(fd: u32, path: u32, len: u32);
        paths::path_rename(fd: u32, old: u32, old_len: u32, new_fd: u32, new: u32, new_len: u32);
        paths::path_symlink(target: u32, target_len: u32, fd: u32, path: u32, len: u32);
        paths::path_unlink_file(fd: u32, path: u32, len: u32);
    }
    Ok(())
}

async fn fd_read(
    guest: &mut Guest,
    mut memory: Memory<'_>,
    (fd, iovs, count, read): Four,
) -> wasmtime::Result<i32> {
    let Some(stream) = guest.descriptors.stdio(fd) else {
        return finish(fds::fd_read(guest, &mut memory, fd, iovs, count, read));
    };
    let mut memory = GuestMemory::Unshared(memory.into_bytes());
    let [iovs, count, read] = [iovs, count, read].map(u32::cast_signed);
    host::fd_read(guest.stdio(), &mut memory, stream, iovs, count, read).await
}

async fn fd_write(
    guest: &mut Guest,
    mut memory: Memory<'_>,
    (fd, iovs, count, written): Four,
) -> wasmtime::Result<i32> {
    let Some(stream) = guest.descriptors.stdio(fd) else {
        return finish(fds::fd_write(guest, &mut memory, fd, iovs, count, written));
    };
    let mut memory = GuestMemory::Unshared(memory.into_bytes());
    let [iovs, count, written] = [iovs, count, written].map(u32::cast_signed);
    host::fd_write(guest.stdio(), &mut memory, stream, iovs, count, written).await
}

async fn poll_oneoff(
    guest: &mut Guest,
    mut memory: Memory<'_>,
    (from, to, count, events): Four,
) -> wasmtime::Result<i32> {
    match poll::poll_files(guest, &mut memory, from, to, count, events) {
        Ok(true) => return Ok(0),
        Ok(false) => {}
        Err(fault) => return finish(Err(fault)),
    }
    let mut memory = GuestMemory::Unshared(memory.into_bytes());
    let [from, to, count, events] = [from, to, count, events].map(u32::cast_signed);
    host::poll_oneoff(guest.stdio(), &mut memory, from, to, count, events).await
}
