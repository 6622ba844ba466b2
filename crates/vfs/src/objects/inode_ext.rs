//! The part that only some inodes have: a pipe, a socket, generated text, seals, or a sharded link
//! count.
//!
//! Counterpart of the union of `i_pipe`, `i_link` and `i_cdev` in `struct inode` of Linux.

use crate::ipc::pipe::Pipe;
use crate::ipc::socket::Socket;
use crate::objects::seals::Seals;
use crate::objects::seq_file::Text;
use crate::objects::sharded_nlink::ShardedNlink;

/// Extension of an inode whose files have no positions, or of three more kinds: see the
/// [module](self).
pub(crate) enum InodeExt {
    Pipe(Pipe),
    Socket(Socket),
    Text(Text),
    Memory(Seals),
    Directories(Box<ShardedNlink>),
}

impl InodeExt {
    /// Returns the pipe, if the extension is one.
    pub(crate) fn pipe(&self) -> Option<&Pipe> {
        match self {
            InodeExt::Pipe(pipe) => Some(pipe),
            _ => None,
        }
    }
}
