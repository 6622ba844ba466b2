//! Pipes and files of memory: `pipe2(2)`, `memfd_create(2)`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Named, Outcome, Result, check_fork};
use crate::base::types::{FileType, InodeFlags, OFlags};
use crate::file::fd_table::Fd;
use crate::file::open_file::File;
use crate::file::truncate;
use crate::ipc::pipe::Pipe;
use crate::mount::pseudo_fs::{MemfdFlags, new_dentry};
use crate::objects::driver::NewInode;
use crate::objects::file_description::FileMode;
use crate::objects::inode::InodeInit;
use crate::objects::inode_ext::InodeExt;
use crate::objects::seals::{SealFlags, Seals};
use crate::objects::vfsmount::{MountRef, Path};
use crate::syscalls::posix::Calls;
use crate::task::task_struct::Task;

impl Calls<'_> {
    /// Makes a pipe: the end to read from, and the end to write to. `flags`: `NONBLOCK`, and
    /// `DIRECT` for a pipe of packets; `CLOEXEC` is for [`pipe2_fd`](Self::pipe2_fd). Does not
    /// block.
    ///
    /// ```
    /// # use vfscale_vfs::{OFlags, Task};
    /// # fn example(task: &Task) -> vfscale_vfs::Result<()> {
    /// let (reader, writer) = task.posix().pipe2(OFlags::empty())?;
    /// writer.write(b"through")?;
    /// assert_eq!(reader.read(&mut [0; 100])?, 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for other flags; `ENFILE` if there are too many open files or pipes.
    pub fn pipe2(&self, flags: OFlags) -> Result<(File, File)> {
        self.task.new_pipe(flags).named("pipe2")
    }

    /// Makes a pipe and installs its ends at the two lowest free descriptors.
    ///
    /// # Errors
    /// As [`pipe2`](Self::pipe2); `EMFILE`.
    pub fn pipe2_fd(&self, flags: OFlags) -> Result<(Fd, Fd)> {
        let (reader, writer) = self.pipe2(flags)?;
        self.task.install_pair([reader, writer], flags.contains(OFlags::CLOEXEC)).named("pipe2")
    }

    /// Makes an empty file of memory without a name, open for reading and writing; it is freed with
    /// its last open file. `name` is for [`path_of`](Self::path_of) only. `flags`: `ALLOW_SEALING`,
    /// for [`File::add_seals`]; `NOEXEC_SEAL`, for one that can be sealed and never executed, or
    /// `EXEC`, which is the default; `CLOEXEC` is for [`memfd_create_fd`](Self::memfd_create_fd).
    ///
    /// # Errors
    /// `EINVAL` for a name of more than 249 bytes or with a zero, or other flags; `ENOSPC`;
    /// `ENFILE`; `ENOSYS` if the tree has no driver for it
    /// ([`Vfs::set_memory_driver`](crate::Vfs::set_memory_driver)).
    pub fn memfd_create(&self, name: impl AsRef<OsStr>, flags: MemfdFlags) -> Result<File> {
        self.task.new_memfd(name.as_ref().as_bytes(), flags).named("memfd_create")
    }

    /// Makes a file of memory and installs it at the lowest free descriptor.
    ///
    /// # Errors
    /// As [`memfd_create`](Self::memfd_create); `EMFILE`.
    pub fn memfd_create_fd(&self, name: impl AsRef<OsStr>, flags: MemfdFlags) -> Result<Fd> {
        let file = self.memfd_create(name, flags)?;
        let close_on_exec = flags.contains(MemfdFlags::CLOEXEC);
        self.task.descriptors().install(file, 0, close_on_exec).named("memfd_create")
    }
}

impl Task {
    pub(crate) fn install_pair(
        &self,
        [first, second]: [File; 2],
        close_on_exec: bool,
    ) -> Outcome<(Fd, Fd)> {
        let first = self.descriptors().install(first, 0, close_on_exec)?;
        match self.descriptors().install(second, 0, close_on_exec) {
            Ok(second) => Ok((first, second)),
            Err(errno) => {
                // Another thread may have closed it already.
                let _ = self.descriptors().remove(first);
                Err(errno)
            }
        }
    }

    fn new_pipe(&self, flags: OFlags) -> Outcome<(File, File)> {
        check_fork()?;
        if !(OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::DIRECT).contains(flags) {
            return Err(Errno::INVAL);
        }
        self.ns().with_room_for_files(|| self.make_pipe(flags))
    }

    fn make_pipe(&self, flags: OFlags) -> Outcome<(File, File)> {
        let guard = rcu::pin();
        let cred = self.cred(&guard);
        let mount = self.ns().pipe_mount()?;
        let pipe = Pipe::opened(mount.sb().quotas().keep())?;
        let inode = mount.sb().new_inode(InodeInit {
            mode: FileType::Fifo.as_raw_mode() | 0o600,
            uid: cred.uid,
            gid: cred.gid,
            nlink: 1,
            ..InodeInit::default()
        });
        inode.ext_or_init(|| InodeExt::Pipe(pipe));
        let kept = truncate::preserved_ids(cred, &inode);
        let dentry = new_dentry(mount.sb(), b"", inode, &guard);
        let end = |dentry, mode, flags| {
            File::new_stream(Path::new(MountRef::new(mount), dentry), mode | kept, flags)
        };
        let reader = end(dentry.clone(), FileMode::READ, flags & OFlags::NONBLOCK)?;
        let write_flags = OFlags::WRONLY | flags & (OFlags::NONBLOCK | OFlags::DIRECT);
        Ok((reader, end(dentry, FileMode::WRITE, write_flags)?))
    }

    fn new_memfd(&self, name: &[u8], flags: MemfdFlags) -> Outcome<File> {
        check_fork()?;
        let execution = MemfdFlags::EXEC | MemfdFlags::NOEXEC_SEAL;
        let known = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | execution;
        if flags.contains(execution) || !known.contains(flags) {
            return Err(Errno::INVAL);
        }
        let (bits, seals) = match flags {
            _ if flags.contains(MemfdFlags::NOEXEC_SEAL) => (0o666, SealFlags::EXEC),
            _ if flags.contains(MemfdFlags::ALLOW_SEALING) => (0o777, SealFlags::empty()),
            _ => (0o777, SealFlags::SEAL),
        };
        if name.len() > MEMFD_NAME_MAX || name.contains(&0) {
            return Err(Errno::INVAL);
        }
        let mount = self.ns().memory_mount()?;
        let sb = mount.sb();
        let make = || {
            let guard = rcu::pin();
            let cred = self.cred(&guard);
            let inode = sb.accounting().create(
                sb,
                &NewInode {
                    mode: FileType::RegularFile.as_raw_mode() | bits,
                    uid: cred.uid,
                    gid: cred.gid,
                    rdev: 0,
                    target: None,
                    flags: InodeFlags::empty(),
                    name_len: 0,
                    xattrs: &[],
                },
            )?;
            inode.clear_nlink();
            inode.set_seals(Seals::new(seals));
            let mode = FileMode::READ | FileMode::WRITE | truncate::preserved_ids(cred, &inode);
            let dentry = new_dentry(sb, &[b"memfd:", name].concat(), inode, &guard);
            File::new(Path::new(MountRef::new(mount), dentry), mode, OFlags::RDWR)
        };
        self.ns().with_room_for_files(|| sb.with_space(make))
    }
}

/// The longest name of a file of memory in bytes.
const MEMFD_NAME_MAX: usize = 249;
