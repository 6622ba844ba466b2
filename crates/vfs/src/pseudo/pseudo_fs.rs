//! Files without a name: pipes, sockets, and files of memory.
//!
//! # Purpose
//!
//! Such files belong to file systems of their own, which no path leads to: a pipe's to `pipefs`, a socket's
//! ([`crate::pseudo::socket`]) to `sockfs`, a file of memory
//! ([`Task::memfd_create`], [`crate::pseudo::memfd_seals`]) to another instance of the
//! driver that the tree's owner gave it for this. A tree makes each of them when it is first needed, with a
//! mount that is attached nowhere.
//!
//! # Nothing is shared
//!
//! The kernel of 2.6 hung the dentry of every pipe and socket below the root of its file system,
//! under `dcache_lock`, and took its inode number from one counter, so that all of them met there
//! (seed 004, slides 21 and 33). Nobody ever looks there. So here a dentry of this kind has no
//! parent and is on no list: making and closing such a file takes memory, an inode number and a
//! place on the list of open files from what the CPU has for itself.
//! [`Scaling::before_pseudo`](crate::Scaling::before_pseudo) takes that back.
//!
//! # Who holds what
//!
//! The forest of trees has one use of each of these mounts until it ends, and every file one more.
//! A dentry without a parent is kept by the files alone and freed with the last of them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

pub use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use vfscale_sync::rcu::{self, Guard};

use crate::base::error::{Named, Result, check_fork};
use crate::base::types::{FallocateFlags, FileType, MountFlags, OFlags, StatFs};
use crate::file::fd_table::Fd;
use crate::file::open_file::{self, File, FileMode};
use crate::mount::namespace::{Forest, Vfs};
use crate::mount::vfsmount::{Mount, MountRef, OwnedMount, Path};
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::driver::{FileSystem, NewInode};
use crate::objects::inode::{Inode, InodeInit, InodeRef};
use crate::objects::inode_ext::Stream;
use crate::objects::super_block::SuperBlock;
use crate::objects::super_ref::SuperRef;
use crate::pseudo::memfd_seals::{SealFlags, Seals};
use crate::pseudo::pipe::Pipe;
use crate::task::task_struct::Task;

/// The longest name of a file of memory in bytes.
const MEMFD_NAME_MAX: usize = 249;

/// The file systems of a tree that no path leads to.
#[derive(Default)]
pub(crate) struct Pseudo {
    pipes: OnceLock<OwnedMount>,
    sockets: OnceLock<OwnedMount>,
    memory: OnceLock<OwnedMount>,
    memory_driver: OnceLock<Arc<dyn FileSystem>>,
}

impl Pseudo {
    fn pipes(ns: &Forest) -> std::result::Result<&Mount, Errno> {
        Pseudo::mount(ns, &ns.pseudo().pipes, || {
            Ok(Arc::new(PseudoFs { name: "pipefs", magic: 0x5049_5045 }))
        })
    }

    pub(crate) fn sockets(ns: &Forest) -> std::result::Result<&Mount, Errno> {
        Pseudo::mount(ns, &ns.pseudo().sockets, || {
            Ok(Arc::new(PseudoFs { name: "sockfs", magic: 0x534f_434b }))
        })
    }

    fn memory(ns: &Forest) -> std::result::Result<&Mount, Errno> {
        Pseudo::mount(ns, &ns.pseudo().memory, || {
            ns.pseudo().memory_driver.get().cloned().ok_or(Errno::NOSYS)
        })
    }

    /// The mount in `slot`, made when it is first asked for.
    #[inline]
    fn mount<'a>(
        ns: &'a Forest,
        slot: &'a OnceLock<OwnedMount>,
        driver: impl FnOnce() -> std::result::Result<Arc<dyn FileSystem>, Errno>,
    ) -> std::result::Result<&'a Mount, Errno> {
        if let Some(mount) = slot.get() {
            return Ok(mount);
        }
        // Another thread may be faster; then nobody else has seen this one.
        drop(slot.set(ns.internal_mount(driver()?)?));
        slot.get().map(|mount| &**mount).ok_or(Errno::NOMEM)
    }

    /// The file systems that were made so far.
    pub(crate) fn super_blocks(&self) -> Vec<SuperRef> {
        let slots = [&self.pipes, &self.sockets, &self.memory];
        slots.into_iter().filter_map(|slot| Some(slot.get()?.sb().clone())).collect()
    }
}

/// A dentry for a file that has no name, owned by the reference returned. Before the patch it is a
/// child of the root of its file system.
pub(crate) fn new_dentry(
    sb: &SuperBlock,
    name: &[u8],
    inode: InodeRef,
    guard: &Guard,
) -> DentryRef {
    if sb.scaling().pseudo() {
        return Dentry::new_pseudo(sb, name, inode);
    }
    Dentry::new_attached(sb, name, SuperBlock::ino_hash(inode.ino()), inode, guard)
}

/// Takes a dentry that [`new_dentry`] has made a child of the root out of its table. The caller
/// holds no lock.
pub(crate) fn detach(dentry: &Dentry, guard: &Guard) {
    let parent = dentry.parent(guard);
    let _dcache = parent.sb().lock_dcache();
    parent.children().lock(dentry.hash(), guard).remove(dentry);
}

/// What `readlink` of a descriptor says of a file without a name.
pub(crate) fn path(dentry: &Dentry, guard: &Guard) -> Vec<u8> {
    let name = dentry.name(guard);
    let ino = dentry.inode().ino();
    match dentry.inode().file_type() {
        FileType::Fifo => format!("pipe:[{ino}]").into_bytes(),
        FileType::Socket => format!("socket:[{ino}]").into_bytes(),
        _ => [b"/".as_slice(), name, b" (deleted)"].concat(),
    }
}

impl Vfs {
    /// Gives the tree a driver for files of memory ([`Task::memfd_create`]), which serves nothing else.
    ///
    /// # Errors
    /// `EBUSY` if it has one.
    pub fn set_memory_driver(&self, driver: Arc<dyn FileSystem>) -> std::result::Result<(), Errno> {
        self.ns().pseudo().memory_driver.set(driver).map_err(|_| Errno::BUSY)
    }
}

impl Task {
    /// Makes a pipe: the end to read from, and the end to write to. `flags`: `NONBLOCK`, and `DIRECT` for
    /// a pipe of packets; `CLOEXEC` is for [`pipe2_fd`](Self::pipe2_fd). Does not block.
    ///
    /// ```text
    /// let (reader, writer) = task.pipe2(OFlags::empty())?;
    /// writer.write(b"through")?;
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for other flags; `ENFILE` if there are too many open files or pipes.
    pub fn pipe2(&self, flags: OFlags) -> Result<(File, File)> {
        self.new_pipe(flags).named("pipe2")
    }

    /// Makes a pipe and puts its ends under the two lowest free descriptors.
    ///
    /// # Errors
    /// As [`pipe2`](Self::pipe2); `EMFILE`.
    pub fn pipe2_fd(&self, flags: OFlags) -> Result<(Fd, Fd)> {
        let (reader, writer) = self.pipe2(flags)?;
        self.install_pair([reader, writer], flags.contains(OFlags::CLOEXEC)).named("pipe2")
    }

    pub(crate) fn install_pair(
        &self,
        [first, second]: [File; 2],
        close_on_exec: bool,
    ) -> std::result::Result<(Fd, Fd), Errno> {
        let first = self.descriptors().install(first, 0, close_on_exec)?;
        match self.descriptors().install(second, 0, close_on_exec) {
            Ok(second) => Ok((first, second)),
            Err(errno) => {
                // Another thread may have closed it meanwhile.
                let _ = self.descriptors().remove(first);
                Err(errno)
            }
        }
    }

    fn new_pipe(&self, flags: OFlags) -> std::result::Result<(File, File), Errno> {
        check_fork()?;
        if !(OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::DIRECT).contains(flags) {
            return Err(Errno::INVAL);
        }
        self.ns().room_for_file()?;
        let guard = rcu::pin();
        let cred = self.cred(&guard);
        let mount = Pseudo::pipes(self.ns())?;
        let pipe = Pipe::opened(mount.sb().quotas().keep())?;
        let inode = mount.sb().new_inode(InodeInit {
            mode: FileType::Fifo.as_raw_mode() | 0o600,
            uid: cred.uid,
            gid: cred.gid,
            nlink: 1,
            ..InodeInit::default()
        });
        inode.stream_or_init(|| Stream::Pipe(pipe));
        let kept = open_file::kept_ids(cred, &inode);
        let dentry = new_dentry(mount.sb(), b"", inode, &guard);
        let end = |dentry, mode, flags| {
            File::new_stream(Path::new(MountRef::new(mount), dentry), mode | kept, flags)
        };
        let reader = end(dentry.clone(), FileMode::READ, flags & OFlags::NONBLOCK)?;
        let write_flags = OFlags::WRONLY | flags & (OFlags::NONBLOCK | OFlags::DIRECT);
        Ok((reader, end(dentry, FileMode::WRITE, write_flags)?))
    }

    /// Makes an empty file of memory without a name, open for reading and writing; it is gone when
    /// nobody has it open any more. `name` is for [`path_of`](Self::path_of) only. `flags`:
    /// `ALLOW_SEALING`, for [`File::add_seals`]; `NOEXEC_SEAL`, for one that can be sealed and never
    /// executed, or `EXEC`, which is the default; `CLOEXEC` is for
    /// [`memfd_create_fd`](Self::memfd_create_fd).
    ///
    /// # Errors
    /// `EINVAL` for a name of more than 249 bytes or with a zero, or other flags; `ENOSPC`; `ENFILE`;
    /// `ENOSYS` if the tree has no driver for it ([`Vfs::set_memory_driver`]).
    pub fn memfd_create(&self, name: impl AsRef<OsStr>, flags: MemfdFlags) -> Result<File> {
        self.new_memfd(name.as_ref().as_bytes(), flags).named("memfd_create")
    }

    /// Makes a file of memory and puts it under the lowest free descriptor.
    ///
    /// # Errors
    /// As [`memfd_create`](Self::memfd_create); `EMFILE`.
    pub fn memfd_create_fd(&self, name: impl AsRef<OsStr>, flags: MemfdFlags) -> Result<Fd> {
        let file = self.memfd_create(name, flags)?;
        let close_on_exec = flags.contains(MemfdFlags::CLOEXEC);
        self.descriptors().install(file, 0, close_on_exec).named("memfd_create")
    }

    fn new_memfd(&self, name: &[u8], flags: MemfdFlags) -> std::result::Result<File, Errno> {
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
        self.ns().room_for_file()?;
        let mount = Pseudo::memory(self.ns())?;
        let sb = mount.sb();
        let make = || {
            let guard = rcu::pin();
            let cred = self.cred(&guard);
            let inode = sb.fs().create(
                sb,
                &NewInode {
                    mode: FileType::RegularFile.as_raw_mode() | bits,
                    uid: cred.uid,
                    gid: cred.gid,
                    rdev: 0,
                    target: None,
                    name_len: 0,
                    xattrs: &[],
                },
            )?;
            inode.clear_nlink();
            inode.set_seals(Seals::new(seals));
            let mode = FileMode::READ | FileMode::WRITE | open_file::kept_ids(cred, &inode);
            let dentry = new_dentry(sb, &[b"memfd:", name].concat(), inode, &guard);
            File::new(Path::new(MountRef::new(mount), dentry), mode, OFlags::RDWR)
        };
        sb.with_space(make)
    }
}

/// The driver of pipes and sockets: it has inodes and no data.
struct PseudoFs {
    name: &'static str,
    magic: u64,
}

impl FileSystem for PseudoFs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn fill_super(&self, sb: &SuperBlock) -> std::result::Result<InodeRef, Errno> {
        let mode = FileType::Directory.as_raw_mode() | 0o555;
        Ok(sb.new_inode(InodeInit { mode, nlink: 2, ..InodeInit::default() }))
    }

    fn statfs(&self, _: &SuperBlock) -> StatFs {
        StatFs { magic: self.magic, block_size: 4096, name_max: 255, ..StatFs::default() }
    }

    fn create(&self, _: &SuperBlock, _: &NewInode<'_>) -> std::result::Result<InodeRef, Errno> {
        Err(Errno::PERM)
    }

    fn link(&self, _: &Inode, _: usize) -> std::result::Result<(), Errno> {
        Err(Errno::PERM)
    }

    fn read_at(&self, _: &Inode, _: u64, _: &mut [u8]) -> std::result::Result<usize, Errno> {
        Err(Errno::SPIPE)
    }

    fn write_at(&self, _: &Inode, _: u64, _: &[u8]) -> std::result::Result<usize, Errno> {
        Err(Errno::SPIPE)
    }

    fn set_size(&self, _: &Inode, _: u64) -> std::result::Result<(), Errno> {
        Err(Errno::INVAL)
    }

    fn fallocate(
        &self,
        _: &Inode,
        _: FallocateFlags,
        _: u64,
        _: u64,
    ) -> std::result::Result<(), Errno> {
        Err(Errno::SPIPE)
    }

    fn seek_data(&self, _: &Inode, _: u64) -> std::result::Result<u64, Errno> {
        Err(Errno::SPIPE)
    }

    fn seek_hole(&self, _: &Inode, _: u64) -> std::result::Result<u64, Errno> {
        Err(Errno::SPIPE)
    }

    fn sync(&self, _: &Inode, _: bool) -> std::result::Result<(), Errno> {
        Err(Errno::INVAL)
    }
}

/// The options of mounts that are attached nowhere: access times are kept exactly, as in Linux.
pub(crate) const INTERNAL_FLAGS: MountFlags = MountFlags::STRICTATIME;
