//! Pipes, pairs of sockets, files of memory.

use std::ffi::{c_char, c_int};
use std::net::Shutdown;

use vfscale::Errno;
use vfscale::posix::{Fd, MemfdFlags, SocketType};

use crate::args::{given, o_flags};
use crate::border::{Failure, border};
use crate::structs::vfscale_task;
use crate::task_handle::{file, task};

/// Makes a pipe, as pipe2(2), and stores two descriptors in `fds`: the end to read from, and the
/// end to write to. `flags`: O_CLOEXEC, O_NONBLOCK, O_DIRECT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pipe2(
    task: *mut vfscale_task,
    fds: *mut c_int,
    flags: c_int,
) -> c_int {
    border("pipe2", || {
        let place = given!(place(fds.cast::<[c_int; 2]>()))?;
        let (Fd(reader), Fd(writer)) = self::task(task)?.posix().pipe2_fd(o_flags(flags))?;
        place.set([reader, writer]);
        Ok(())
    })
}

/// Makes two connected sockets, as socketpair(2), and stores their descriptors in `fds`. `domain`
/// is AF_UNIX, `type` SOCK_STREAM, SOCK_SEQPACKET or SOCK_DGRAM with SOCK_CLOEXEC and
/// SOCK_NONBLOCK, and `protocol` 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_socketpair(
    task: *mut vfscale_task,
    domain: c_int,
    r#type: c_int,
    protocol: c_int,
    fds: *mut c_int,
) -> c_int {
    border("socketpair", || {
        let place = given!(place(fds.cast::<[c_int; 2]>()))?;
        if domain != libc::AF_UNIX {
            return Err(Failure::new(Errno::AFNOSUPPORT, "the domain is not AF_UNIX"));
        }
        if protocol != 0 && protocol != libc::PF_UNIX {
            return Err(Failure::new(Errno::PROTONOSUPPORT, "the protocol is not 0"));
        }
        // The flags of a socket are those of an open file.
        let flags = r#type & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
        let kind = match r#type & !flags {
            libc::SOCK_STREAM => SocketType::Stream,
            libc::SOCK_SEQPACKET => SocketType::SeqPacket,
            libc::SOCK_DGRAM => SocketType::Datagram,
            _ => return Err(Failure::new(Errno::SOCKTNOSUPPORT, "an unknown type")),
        };
        let (Fd(one), Fd(other)) = self::task(task)?.posix().socketpair_fd(kind, o_flags(flags))?;
        place.set([one, other]);
        Ok(())
    })
}

/// Shuts down a direction of a socket, or both, as shutdown(2): `how` is SHUT_RD, SHUT_WR or
/// SHUT_RDWR. Calls that wait for it end. Data that was written before can still be read.
///
/// Errors: ENOTSOCK if it is no socket; EINVAL for another `how`.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_shutdown(task: *mut vfscale_task, fd: c_int, how: c_int) -> c_int {
    border("shutdown", || {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Failure::new(Errno::INVAL, "an unknown how")),
        };
        Ok(file(&*self::task(task)?, fd)?.shutdown(how)?)
    })
}

/// Makes a file of memory without a name, as memfd_create(2), and returns a descriptor. `flags`:
/// MFD_CLOEXEC, MFD_ALLOW_SEALING, MFD_NOEXEC_SEAL, MFD_EXEC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_memfd_create(
    task: *mut vfscale_task,
    name: *const c_char,
    flags: u32,
) -> c_int {
    border("memfd_create", || {
        let name = given!(string(name, "the name"))?;
        let flags = MemfdFlags::from_bits_retain(flags);
        Ok(self::task(task)?.posix().memfd_create_fd(name, flags)?)
    })
}
