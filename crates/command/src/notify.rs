//! Messages to the service manager that has started the program, as `sd_notify(3)` defines them: a
//! datagram of `NAME=VALUE` lines to the socket that `$NOTIFY_SOCKET` names.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable with the name of the socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Sends lines such as `READY=1` to the service manager, if there is one. Blocks while its socket
/// is full.
///
/// # Errors
/// Returns the error of the socket.
pub fn notify(lines: &str) -> io::Result<()> {
    match std::env::var_os(SOCKET) {
        Some(socket) if !socket.is_empty() => send(&socket, lines),
        _ => Ok(()),
    }
}

/// Sends lines to a socket: a path, or behind an `@` a name without one.
fn send(socket: &OsStr, lines: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(lines.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests;
