//! Messages between a command and the server of an image, over a socket.
//!
//! A message is its length (4 bytes, little-endian) and that many bytes: fields that each end with
//! a zero. The first field of the first message is [`VERSION`]; `image` is an [`image_id`], and
//! empty where the command names a directory.
//!
//! ```text
//! command                                    server
//! version, "mount", image, branch,
//!   namespaces, the arguments of the
//!   command line                       --->
//!                                      <---  "ready", or why not
//! (makes the mount)
//! one byte, with the open /dev/fuse;
//! directory, device number             --->
//!                                      <---  "mounted", or why not
//!                                      <---  "closed", "failed" and why, when it is unmounted
//!
//! version, "wait", device number       --->
//!                                      <---  "waiting", when the mount is known
//!                                      <---  "closed" or "last", when it is closed;
//!                                            "failed" and why
//!
//! version, "diff", image, two branches --->
//!                                      <---  a message for each difference, then "end"
//! version, "adopt", image, parent and
//!   child                              --->
//!                                      <---  "end"
//!
//! version, "rollback", image, branch,
//!   ""                                 --->
//!                                      <---  "kept" and the branch that has what went, if any,
//!                                            a message for each difference, then "end"
//! ```

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};
use vfscale::Capabilities;
use vfscale_fuse::process::certainly_has;

/// Version of the messages.
pub(crate) const VERSION: &str = "2";
/// A reply that says that the server ends.
pub(crate) const ENDING: &str = "ending";
/// Most bytes of a message: more than the arguments of a process can have.
const BYTES_MAX: u32 = 8 << 20;

/// Sends a message.
pub(crate) fn send(mut stream: &UnixStream, fields: &[&OsStr]) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    for field in fields {
        bytes.extend_from_slice(field.as_bytes());
        bytes.push(0);
    }
    let length = u32::try_from(bytes.len() - 4).ok().filter(|length| *length <= BYTES_MAX);
    let length = length.ok_or(io::ErrorKind::InvalidInput)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&bytes)
}

/// Sends a message of words.
pub(crate) fn say(stream: &UnixStream, words: &[&str]) -> io::Result<()> {
    let fields: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    send(stream, &fields)
}

/// Receives a message.
///
/// # Errors
/// `UnexpectedEof` if the other side is gone, `InvalidData` if this is no message; any error of the
/// socket.
pub(crate) fn receive(mut stream: &UnixStream) -> io::Result<Vec<OsString>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    if stream.take(length.into()).read_to_end(&mut bytes)? < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match bytes.pop() {
        Some(0) => {}
        _ => return Err(io::ErrorKind::InvalidData.into()),
    }
    let fields = bytes.split(|byte| *byte == 0);
    Ok(fields.map(|field| OsString::from_vec(field.to_vec())).collect())
}

/// Sends a descriptor, with one byte.
pub(crate) fn send_fd(stream: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(stream, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a byte with a descriptor.
///
/// # Errors
/// `InvalidData` if there is none; any error of the socket.
pub(crate) fn receive_fd(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    recvmsg(stream, &mut data, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fd.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns whether the other side has closed the socket. Never blocks.
pub(crate) fn is_gone(stream: &UnixStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let peeked = rustix::net::recv(stream, &mut [0_u8; 1][..], flags);
    !matches!(peeked, Ok((_, 1..)) | Err(rustix::io::Errno::AGAIN))
}

/// Returns the effective user of the process at the other end of a socket, at the time when it
/// connected or began to listen.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<u32> {
    Ok(sockopt::socket_peercred(stream)?.uid.as_raw())
}

/// Returns whether the process on the other side may make requests of a server: one of the same
/// user, and with `CAP_SYS_ADMIN` in the same user namespace if that is root. Root of a container
/// has that number, too.
pub(crate) fn may_request(stream: &UnixStream) -> io::Result<bool> {
    let peer = sockopt::socket_peercred(stream)?;
    let is_root = peer.uid.is_root();
    let is_same = is_root || peer.uid == rustix::process::geteuid();
    Ok(is_same
        && (!is_root
            || certainly_has(
                peer.pid.as_raw_nonzero().get().cast_unsigned(),
                Capabilities::SYS_ADMIN,
            )))
}

/// Returns the namespaces of users and of processes of this process, by which the server knows who
/// makes a request; empty if they can't be read.
pub(crate) fn namespaces() -> OsString {
    let of = |kind: &str| std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
    let (users, processes) = (of("user").into_os_string(), of("pid").into_os_string());
    [users, processes].join(OsStr::new(" "))
}

/// Returns a name of an image by which both sides know whether they mean the same one: of a file or
/// a block device its numbers, otherwise the path.
pub(crate) fn image_id(image: &Path) -> OsString {
    match image.metadata() {
        Ok(meta) if meta.file_type().is_block_device() => format!("block {}", meta.rdev()).into(),
        Ok(meta) => format!("file {} {}", meta.dev(), meta.ino()).into(),
        Err(_) => image.into(),
    }
}

/// Returns a device number as text.
pub(crate) fn device_text((major, minor): (u32, u32)) -> String {
    format!("{major}:{minor}")
}

/// Parses a device number.
pub(crate) fn device_of(text: &OsStr) -> Option<(u32, u32)> {
    let (major, minor) = text.to_str()?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests;
