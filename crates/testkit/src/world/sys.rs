//! The system calls of the oracle, without a library that checks, retries or, as the C library does
//! for credentials, applies a call to all threads.

use std::ffi::CStr;
use std::sync::OnceLock;

/// Result of a system call: its value or the error number.
pub(crate) type Result<T> = std::result::Result<T, i32>;

/// Makes a system call. Pointers must be derived from references that live through the expression.
macro_rules! syscall {
    ($nr:expr $(, $arg:expr)* $(,)?) => {{
        // SAFETY: every pointer among the arguments is derived from a reference, a `CStr` or a
        // slice that outlives the call, and every length given is that of the buffer it belongs to.
        check(unsafe { libc::syscall($nr $(, $arg)*) })
    }};
}

fn check(value: libc::c_long) -> Result<i64> {
    if value == -1 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    }
    Ok(value)
}

const NULL: usize = 0;

/// `struct open_how`.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// `struct xattr_args`.
#[repr(C)]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

// The four calls of Linux 6.13 have the same numbers everywhere.
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_LISTXATTRAT: libc::c_long = 465;
const SYS_REMOVEXATTRAT: libc::c_long = 466;
const SYS_FCHMODAT2: libc::c_long = 452;

/// Maximum size of an extended attribute.
const XATTR_SIZE_MAX: usize = 65536;

pub(crate) fn openat(at: i32, path: &CStr, flags: u32, mode: u32) -> Result<i64> {
    syscall!(libc::SYS_openat, at, path.as_ptr(), flags, mode)
}

pub(crate) fn openat2(at: i32, path: &CStr, flags: u64, mode: u64, resolve: u64) -> Result<i64> {
    let how = OpenHow { flags, mode, resolve };
    syscall!(libc::SYS_openat2, at, path.as_ptr(), &raw const how, size_of::<OpenHow>())
}

pub(crate) fn close(fd: i32) -> Result<i64> {
    syscall!(libc::SYS_close, fd)
}

pub(crate) fn pipe2(flags: u32) -> Result<[i32; 2]> {
    let mut ends = [0; 2];
    syscall!(libc::SYS_pipe2, ends.as_mut_ptr(), flags)?;
    Ok(ends)
}

/// Closes all descriptors from `first` to `last`.
pub(crate) fn close_range(first: u32, last: u32) -> Result<i64> {
    syscall!(libc::SYS_close_range, first, last, 0)
}

pub(crate) fn dup(fd: i32) -> Result<i64> {
    syscall!(libc::SYS_dup, fd)
}

pub(crate) fn dup3(fd: i32, to: i32, flags: u32) -> Result<i64> {
    syscall!(libc::SYS_dup3, fd, to, flags)
}

pub(crate) fn fcntl(fd: i32, cmd: i32, arg: u64) -> Result<i64> {
    syscall!(libc::SYS_fcntl, fd, cmd, arg)
}

/// Returns the flags of an inode (`FS_IOC_GETFLAGS`).
pub(crate) fn getflags(fd: i32) -> Result<i64> {
    let mut flags: libc::c_long = 0;
    syscall!(libc::SYS_ioctl, fd, libc::FS_IOC_GETFLAGS, &raw mut flags)?;
    Ok(flags)
}

/// Sets the flags of an inode (`FS_IOC_SETFLAGS`).
pub(crate) fn setflags(fd: i32, flags: u32) -> Result<i64> {
    let flags = libc::c_long::from(flags);
    syscall!(libc::SYS_ioctl, fd, libc::FS_IOC_SETFLAGS, &raw const flags)
}

pub(crate) fn fcntl_lock(fd: i32, cmd: i32, lock: &mut libc::flock) -> Result<i64> {
    syscall!(libc::SYS_fcntl, fd, cmd, std::ptr::from_mut(lock))
}

pub(crate) fn flock(fd: i32, operation: i32) -> Result<i64> {
    syscall!(libc::SYS_flock, fd, operation)
}

pub(crate) fn read(fd: i32, buf: &mut [u8]) -> Result<i64> {
    syscall!(libc::SYS_read, fd, buf.as_mut_ptr(), buf.len())
}

pub(crate) fn write(fd: i32, buf: &[u8]) -> Result<i64> {
    syscall!(libc::SYS_write, fd, buf.as_ptr(), buf.len())
}

pub(crate) fn pread(fd: i32, buf: &mut [u8], off: u64) -> Result<i64> {
    syscall!(libc::SYS_pread64, fd, buf.as_mut_ptr(), buf.len(), off)
}

pub(crate) fn pwrite(fd: i32, buf: &[u8], off: u64) -> Result<i64> {
    syscall!(libc::SYS_pwrite64, fd, buf.as_ptr(), buf.len(), off)
}

/// Invokes `readv` or, with an offset, `preadv`.
pub(crate) fn readv(fd: i32, bufs: &mut [Vec<u8>], off: Option<u64>) -> Result<i64> {
    let iov: Vec<libc::iovec> = bufs
        .iter_mut()
        .map(|b| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() })
        .collect();
    match off {
        // The high half of the offset is a separate argument, unused on 64-bit systems.
        Some(off) => syscall!(libc::SYS_preadv, fd, iov.as_ptr(), iov.len(), off, NULL),
        None => syscall!(libc::SYS_readv, fd, iov.as_ptr(), iov.len()),
    }
}

/// Invokes `writev` or, with an offset, `pwritev`.
pub(crate) fn writev(fd: i32, bufs: &[Vec<u8>], off: Option<u64>) -> Result<i64> {
    let iov: Vec<libc::iovec> = bufs
        .iter()
        .map(|b| libc::iovec { iov_base: b.as_ptr().cast_mut().cast(), iov_len: b.len() })
        .collect();
    match off {
        Some(off) => syscall!(libc::SYS_pwritev, fd, iov.as_ptr(), iov.len(), off, NULL),
        None => syscall!(libc::SYS_writev, fd, iov.as_ptr(), iov.len()),
    }
}

pub(crate) fn lseek(fd: i32, off: i64, whence: i32) -> Result<i64> {
    syscall!(libc::SYS_lseek, fd, off, whence)
}

pub(crate) fn ftruncate(fd: i32, len: u64) -> Result<i64> {
    syscall!(libc::SYS_ftruncate, fd, len)
}

pub(crate) fn truncate(path: &CStr, len: u64) -> Result<i64> {
    syscall!(libc::SYS_truncate, path.as_ptr(), len)
}

pub(crate) fn fallocate(fd: i32, mode: u32, off: u64, len: u64) -> Result<i64> {
    syscall!(libc::SYS_fallocate, fd, mode, off, len)
}

/// Invokes `copy_file_range`, which updates given offsets.
pub(crate) fn copy_file_range(
    from: i32,
    off_in: &mut Option<u64>,
    to: i32,
    off_out: &mut Option<u64>,
    len: u64,
) -> Result<i64> {
    let off_in = off_in.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let off_out = off_out.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    syscall!(libc::SYS_copy_file_range, from, off_in, to, off_out, len, 0)
}

pub(crate) fn fsync(fd: i32, data_only: bool) -> Result<i64> {
    let nr = if data_only { libc::SYS_fdatasync } else { libc::SYS_fsync };
    syscall!(nr, fd)
}

pub(crate) fn syncfs(fd: i32) -> Result<i64> {
    syscall!(libc::SYS_syncfs, fd)
}

pub(crate) fn getdents(fd: i32, buf: &mut [u8]) -> Result<i64> {
    syscall!(libc::SYS_getdents64, fd, buf.as_mut_ptr(), buf.len())
}

pub(crate) fn statx(at: i32, path: &CStr, flags: u32) -> Result<libc::statx> {
    // SAFETY: every byte pattern, including zeros, is a valid `statx`.
    let mut buf: libc::statx = unsafe { std::mem::zeroed() };
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_MNT_ID;
    syscall!(libc::SYS_statx, at, path.as_ptr(), flags, mask, &raw mut buf)?;
    Ok(buf)
}

/// `struct statfs` of 64-bit machines, as words: type, block size, five counts, id, longest name,
/// fragment size, flags, four spare.
pub(crate) type StatFs = [i64; 15];

/// Invokes `statfs` on a path, or `fstatfs` on a descriptor.
pub(crate) fn statfs(target: std::result::Result<&CStr, i32>) -> Result<StatFs> {
    let mut buf: StatFs = [0; 15];
    match target {
        Ok(path) => syscall!(libc::SYS_statfs, path.as_ptr(), &raw mut buf)?,
        Err(fd) => syscall!(libc::SYS_fstatfs, fd, &raw mut buf)?,
    };
    Ok(buf)
}

pub(crate) fn faccessat2(at: i32, path: &CStr, mode: u32, flags: u32) -> Result<i64> {
    syscall!(libc::SYS_faccessat2, at, path.as_ptr(), mode, flags)
}

pub(crate) fn mkdirat(at: i32, path: &CStr, mode: u32) -> Result<i64> {
    syscall!(libc::SYS_mkdirat, at, path.as_ptr(), mode)
}

pub(crate) fn mknodat(at: i32, path: &CStr, mode: u32, rdev: u64) -> Result<i64> {
    // The system call takes 32 bits: the number in the format of the kernel's `new_encode_dev`,
    // which for such small numbers is what the C library's `makedev` returns.
    syscall!(libc::SYS_mknodat, at, path.as_ptr(), mode, rdev as u32)
}

pub(crate) fn unlinkat(at: i32, path: &CStr, flags: u32) -> Result<i64> {
    syscall!(libc::SYS_unlinkat, at, path.as_ptr(), flags)
}

pub(crate) fn linkat(at: i32, path: &CStr, to_at: i32, to: &CStr, flags: u32) -> Result<i64> {
    syscall!(libc::SYS_linkat, at, path.as_ptr(), to_at, to.as_ptr(), flags)
}

pub(crate) fn symlinkat(target: &CStr, at: i32, path: &CStr) -> Result<i64> {
    syscall!(libc::SYS_symlinkat, target.as_ptr(), at, path.as_ptr())
}

pub(crate) fn readlinkat(at: i32, path: &CStr) -> Result<Vec<u8>> {
    let mut buf = vec![0; 8192];
    let len = syscall!(libc::SYS_readlinkat, at, path.as_ptr(), buf.as_mut_ptr(), buf.len())?;
    buf.truncate(len as usize);
    Ok(buf)
}

pub(crate) fn renameat2(at: i32, path: &CStr, to_at: i32, to: &CStr, flags: u32) -> Result<i64> {
    syscall!(libc::SYS_renameat2, at, path.as_ptr(), to_at, to.as_ptr(), flags)
}

pub(crate) fn fchmodat2(at: i32, path: &CStr, mode: u32, flags: u32) -> Result<i64> {
    syscall!(SYS_FCHMODAT2, at, path.as_ptr(), mode, flags)
}

pub(crate) fn fchownat(at: i32, path: &CStr, uid: u32, gid: u32, flags: u32) -> Result<i64> {
    syscall!(libc::SYS_fchownat, at, path.as_ptr(), uid, gid, flags)
}

pub(crate) fn utimensat(
    at: i32,
    path: &CStr,
    times: &[libc::timespec; 2],
    flags: u32,
) -> Result<i64> {
    syscall!(libc::SYS_utimensat, at, path.as_ptr(), times.as_ptr(), flags)
}

pub(crate) fn getxattrat(at: i32, path: &CStr, name: &CStr, flags: u32) -> Result<Vec<u8>> {
    let mut buf = vec![0u8; XATTR_SIZE_MAX];
    let args = XattrArgs { value: buf.as_mut_ptr() as u64, size: XATTR_SIZE_MAX as u32, flags: 0 };
    let nr = SYS_GETXATTRAT;
    let size = size_of::<XattrArgs>();
    let len = syscall!(nr, at, path.as_ptr(), flags, name.as_ptr(), &raw const args, size)?;
    buf.truncate(len as usize);
    Ok(buf)
}

pub(crate) fn setxattrat(
    at: i32,
    path: &CStr,
    name: &CStr,
    value: &[u8],
    how: u32,
    flags: u32,
) -> Result<i64> {
    let args = XattrArgs { value: value.as_ptr() as u64, size: value.len() as u32, flags: how };
    let nr = SYS_SETXATTRAT;
    let size = size_of::<XattrArgs>();
    syscall!(nr, at, path.as_ptr(), flags, name.as_ptr(), &raw const args, size)
}

pub(crate) fn listxattrat(at: i32, path: &CStr, flags: u32) -> Result<Vec<u8>> {
    let mut buf = vec![0u8; XATTR_SIZE_MAX];
    let nr = SYS_LISTXATTRAT;
    let len = syscall!(nr, at, path.as_ptr(), flags, buf.as_mut_ptr(), buf.len())?;
    buf.truncate(len as usize);
    Ok(buf)
}

pub(crate) fn removexattrat(at: i32, path: &CStr, name: &CStr, flags: u32) -> Result<i64> {
    syscall!(SYS_REMOVEXATTRAT, at, path.as_ptr(), flags, name.as_ptr())
}

pub(crate) fn chdir(path: &CStr) -> Result<i64> {
    syscall!(libc::SYS_chdir, path.as_ptr())
}

pub(crate) fn fchdir(fd: i32) -> Result<i64> {
    syscall!(libc::SYS_fchdir, fd)
}

pub(crate) fn chroot(path: &CStr) -> Result<i64> {
    syscall!(libc::SYS_chroot, path.as_ptr())
}

/// Returns the working directory, without the final zero byte.
pub(crate) fn getcwd() -> Result<Vec<u8>> {
    let mut buf = vec![0u8; 8192];
    let len = syscall!(libc::SYS_getcwd, buf.as_mut_ptr(), buf.len())?;
    buf.truncate((len as usize).saturating_sub(1));
    Ok(buf)
}

pub(crate) fn umask(mode: u32) -> Result<i64> {
    syscall!(libc::SYS_umask, mode)
}

pub(crate) fn mount(
    source: &CStr,
    target: &CStr,
    fstype: Option<&CStr>,
    flags: u64,
    data: Option<&CStr>,
) -> Result<i64> {
    let fstype = fstype.map_or(std::ptr::null(), CStr::as_ptr);
    let data = data.map_or(std::ptr::null(), CStr::as_ptr);
    syscall!(libc::SYS_mount, source.as_ptr(), target.as_ptr(), fstype, flags, data)
}

pub(crate) fn umount2(target: &CStr, flags: u32) -> Result<i64> {
    syscall!(libc::SYS_umount2, target.as_ptr(), flags)
}

pub(crate) fn pivot_root(new: &CStr, old: &CStr) -> Result<i64> {
    syscall!(libc::SYS_pivot_root, new.as_ptr(), old.as_ptr())
}

pub(crate) fn unshare(flags: i32) -> Result<i64> {
    syscall!(libc::SYS_unshare, flags)
}

/// Pins the calling thread, and those it will start, to the current CPU.
pub(crate) fn pin_to_this_cpu() -> Result<i64> {
    let mut cpu = 0u32;
    syscall!(libc::SYS_getcpu, &raw mut cpu, NULL, NULL)?;
    let mut mask = [0u64; 128];
    mask[cpu as usize / 64 % 128] |= 1 << (cpu % 64);
    syscall!(libc::SYS_sched_setaffinity, 0, size_of_val(&mask), mask.as_ptr())
}

/// Returns the time of the last clock tick, which stamps files.
pub(crate) fn clock_coarse() -> Result<(i64, u32)> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    syscall!(libc::SYS_clock_gettime, libc::CLOCK_REALTIME_COARSE, &raw mut time)?;
    Ok((time.tv_sec, time.tv_nsec as u32))
}

pub(crate) fn gettid() -> i32 {
    syscall!(libc::SYS_gettid).unwrap_or(0) as i32
}

/// Returns whether a thread of this process still exists in the kernel.
pub(crate) fn thread_exists(tid: i32) -> bool {
    syscall!(libc::SYS_tgkill, std::process::id(), tid, 0) != Err(libc::ESRCH)
}

/// Sets real, effective and saved ids of this thread alone.
pub(crate) fn setresuid(real: u32, effective: u32, saved: u32) -> Result<i64> {
    syscall!(libc::SYS_setresuid, real, effective, saved)
}

pub(crate) fn setresgid(real: u32, effective: u32, saved: u32) -> Result<i64> {
    syscall!(libc::SYS_setresgid, real, effective, saved)
}

pub(crate) fn setgroups(groups: &[u32]) -> Result<i64> {
    syscall!(libc::SYS_setgroups, groups.len(), groups.as_ptr())
}

/// Makes `group` the only group of this thread, whatever its user: root's saved id permits it.
pub(crate) fn set_groups_of_thread(group: u32) -> Result<()> {
    let (_, effective) = capget()?;
    set_effective(u64::MAX)?;
    setgroups(&[])?;
    setresgid(group, group, 0)?;
    set_effective(effective)?;
    Ok(())
}

/// Returns permitted and effective capabilities of this thread.
pub(crate) fn capget() -> Result<(u64, u64)> {
    let mut header = [0x2008_0522u32, 0];
    let mut data = [[0u32; 3]; 2];
    syscall!(libc::SYS_capget, header.as_mut_ptr(), data.as_mut_ptr())?;
    let join = |i: usize| u64::from(data[0][i]) | u64::from(data[1][i]) << 32;
    Ok((join(1), join(0)))
}

/// Sets the effective capabilities of this thread and leaves the permitted ones.
pub(crate) fn set_effective(effective: u64) -> Result<i64> {
    let (permitted, _) = capget()?;
    let mut header = [0x2008_0522u32, 0];
    let e = effective & permitted;
    let data = [[e as u32, permitted as u32, 0], [(e >> 32) as u32, (permitted >> 32) as u32, 0]];
    syscall!(libc::SYS_capset, header.as_mut_ptr(), data.as_ptr())
}

/// Invokes `name_to_handle_at`: returns the type and bytes of a handle.
pub(crate) fn name_to_handle(at: i32, path: &CStr, flags: u32) -> Result<Handle> {
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount = 0i32;
    let nr = libc::SYS_name_to_handle_at;
    syscall!(nr, at, path.as_ptr(), &raw mut handle, &raw mut mount, flags)?;
    Ok(handle)
}

pub(crate) fn open_by_handle(mount: i32, handle: &Handle, flags: u32) -> Result<i64> {
    let mut handle = handle.clone();
    syscall!(libc::SYS_open_by_handle_at, mount, &raw mut handle, flags)
}

/// `struct file_handle`, with space for the longest handle.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

/// Returns whether a sysctl of file systems was on at the first call.
pub(crate) fn sysctl(name: &'static str) -> bool {
    static ON: OnceLock<Vec<&'static str>> = OnceLock::new();
    let all = ["protected_hardlinks", "protected_symlinks", "protected_regular", "protected_fifos"];
    let is_on = |name: &&'static str| {
        let text = std::fs::read_to_string(format!("/proc/sys/fs/{name}"));
        text.is_ok_and(|text| text.trim() != "0")
    };
    ON.get_or_init(|| all.into_iter().filter(is_on).collect()).contains(&name)
}
