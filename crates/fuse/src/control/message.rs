//! Messages on a socket.
//!
//! A message is its length (4 bytes, little-endian) and that many bytes: fields that each end with
//! a zero. A descriptor goes with one byte.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The fields of a message.
pub(super) type Fields = Vec<OsString>;

/// Most bytes of a message: more than the arguments of a process can have.
const BYTES_MAX: u32 = 8 << 20;

/// Sends a message.
pub(super) fn send(mut stream: &UnixStream, fields: &[OsString]) -> io::Result<()> {
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

/// Receives a message.
///
/// # Errors
/// `UnexpectedEof` if the other side is gone, `InvalidData` if this is no message; any error of the
/// socket.
pub(super) fn receive(mut stream: &UnixStream) -> io::Result<Fields> {
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
pub(super) fn send_fd(stream: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    retry_on_intr(|| sendmsg(stream, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a byte with a descriptor.
///
/// # Errors
/// `InvalidData` if there is none; any error of the socket.
pub(super) fn receive_fd(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    retry_on_intr(|| recvmsg(stream, &mut data, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fd.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
