//! Sockets: `socketpair(2)`, `shutdown(2)`.

use std::net::Shutdown;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Named, Outcome, Result, check_fork};
use crate::base::types::{FileType, OFlags};
use crate::file::fd_table::Fd;
use crate::file::open_file::File;
use crate::file::truncate;
use crate::ipc::socket::{Socket, SocketType};
use crate::mount::pseudo_fs;
use crate::objects::file_description::FileMode;
use crate::objects::inode::InodeInit;
use crate::objects::inode_ext::InodeExt;
use crate::objects::vfsmount::{MountRef, Path};
use crate::syscalls::posix::Calls;
use crate::task::task_struct::Task;

impl Calls<'_> {
    /// Makes two sockets that are connected with each other. `flags`: `NONBLOCK`; `CLOEXEC` is for
    /// [`socketpair_fd`](Self::socketpair_fd). Does not block.
    ///
    /// Each direction of a stream holds 52 pages; a write of at most a page is never split. A
    /// message has at most 212,960 bytes; a read into a shorter buffer discards the rest. A write
    /// to a closed peer fails and sends no signal.
    ///
    /// # Errors
    /// `EINVAL` for other flags; `ENFILE` if there are too many open files.
    pub fn socketpair(&self, kind: SocketType, flags: OFlags) -> Result<(File, File)> {
        self.task.new_sockets(kind, flags).map(|[one, other]| (one, other)).named("socketpair")
    }

    /// Makes two connected sockets and installs them at the two lowest free descriptors.
    ///
    /// # Errors
    /// As [`socketpair`](Self::socketpair); `EMFILE`.
    pub fn socketpair_fd(&self, kind: SocketType, flags: OFlags) -> Result<(Fd, Fd)> {
        let sockets = self.task.new_sockets(kind, flags).named("socketpair")?;
        self.task.install_pair(sockets, flags.contains(OFlags::CLOEXEC)).named("socketpair")
    }
}

impl Task {
    fn new_sockets(&self, kind: SocketType, flags: OFlags) -> Outcome<[File; 2]> {
        check_fork()?;
        if !(OFlags::CLOEXEC | OFlags::NONBLOCK).contains(flags) {
            return Err(Errno::INVAL);
        }
        self.ns().with_room_for_files(|| self.make_sockets(kind, flags))
    }

    fn make_sockets(&self, kind: SocketType, flags: OFlags) -> Outcome<[File; 2]> {
        let guard = rcu::pin();
        let cred = self.cred(&guard);
        let mount = self.ns().socket_mount()?;
        let open = |socket: Socket| {
            let inode = mount.sb().new_inode(InodeInit {
                mode: FileType::Socket.as_raw_mode() | 0o777,
                uid: cred.uid,
                gid: cred.gid,
                nlink: 1,
                ..InodeInit::default()
            });
            inode.ext_or_init(|| InodeExt::Socket(socket));
            let mode = FileMode::READ | FileMode::WRITE | truncate::preserved_ids(cred, &inode);
            let dentry = pseudo_fs::new_dentry(mount.sb(), b"", inode, &guard);
            let flags = OFlags::RDWR | flags & OFlags::NONBLOCK;
            File::new_stream(Path::new(MountRef::new(mount), dentry), mode, flags)
        };
        let [one, other] = Socket::pair(kind, mount.sb().quotas());
        Ok([open(one)?, open(other)?])
    }
}

impl File {
    /// Shuts down one direction of a socket, or both, and wakes the calls that wait for it. Data
    /// that the peer has written can still be read. After `Read` or `Both` the peer cannot write;
    /// after `Write` or `Both` it can read only data that was written before.
    ///
    /// # Errors
    /// `ENOTSOCK` if it is no socket, `EBADF` for an `O_PATH` handle.
    pub fn shutdown(&self, how: Shutdown) -> Result<()> {
        check_fork().named("shutdown")?;
        let socket = match self.inode().stream() {
            _ if self.is_path() => Err(Errno::BADF),
            Some(InodeExt::Socket(socket)) => Ok(socket),
            _ => Err(Errno::NOTSOCK),
        };
        socket.map(|socket| socket.shutdown(how)).named("shutdown")
    }
}
