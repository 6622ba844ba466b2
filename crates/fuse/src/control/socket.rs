//! The socket at which the server of a mount takes requests that an `ioctl` can't carry.

use std::io;
use std::path::Path;

use rustix::ioctl::{self, opcode};
use vfscale::Errno;

use super::open;

/// Bytes of a name, which zeros follow.
const NAME_BYTES: usize = 64;

type RawName = [u8; NAME_BYTES];

/// `VFSCALE_IOC_SOCKET`.
pub(crate) const SOCKET: ioctl::Opcode = opcode::read::<RawName>(0xe7, 6);

/// Returns the reply to [`SOCKET`].
pub(crate) fn named(name: &str) -> Result<RawName, Errno> {
    let mut raw = [0; NAME_BYTES];
    let room = raw.get_mut(..name.len()).ok_or(Errno::NAMETOOLONG)?;
    room.copy_from_slice(name.as_bytes());
    Ok(raw)
}

/// Returns the name of the abstract socket at which the server of the mount at `dir` takes requests
/// ([`Builder::requests_at`](crate::Builder::requests_at)).
///
/// # Errors
/// * `ENOTTY` if no vfscale file system is mounted there.
/// * `EOPNOTSUPP` if its server takes no such requests.
/// * `EPERM` if the caller has neither `CAP_SYS_ADMIN` nor mounted it as another user than root.
pub fn socket(dir: impl AsRef<Path>) -> io::Result<String> {
    let dir = open(dir.as_ref())?;
    let mut raw: RawName = [0; NAME_BYTES];
    // SAFETY: the command's number encodes the size of a name, and at most that many bytes are
    // written through its argument. No file system but vfscale has this command.
    unsafe { ioctl::ioctl(&dir, ioctl::Updater::<SOCKET, RawName>::new(&mut raw))? };
    let length = raw.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
    String::from_utf8(raw[..length].to_vec()).map_err(|_| Errno::INVAL.into())
}
