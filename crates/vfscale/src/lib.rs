//! A POSIX file system in user space whose every layer scales with cores.
//!
//! ```
//! use vfscale::{At, Mode};
//!
//! # fn main() -> vfscale::Result<()> {
//! let vfs = vfscale::memory().size(64 << 20).build()?;
//! let task = vfs.task();
//! task.create_dir_all("/etc/init.d", Mode::from_bits_retain(0o755))?;
//! task.write_file("/etc/hostname", "vfscale\n")?;
//! task.symlink("hostname", At::Cwd, "/etc/name")?;
//! assert_eq!(task.read_to_string("/etc/name")?, "vfscale\n");
//! # Ok(())
//! # }
//! ```
//!
//! A [`Vfs`] is a tree of mounted file systems. A [`Task`] is who acts in it: root and working directory,
//! umask, credentials, descriptors; any number of threads may share one, and make their own. Its methods
//! are Linux's calls with Linux's errors, without a system call. A [`File`] is an open file, which works
//! without a task, and is `Read`, `Write` and `Seek`.
//!
//! A volume keeps what is in it: [`volume()`] opens one in an image file or on a device ([`mod@volume`]).
//!
//! Everything is `Send` and `Sync`. No call blocks on anything but short critical sections, except those
//! that wait for advisory locks, for the other end of a pipe or fifo, and `umount`, which say so; and those
//! on a volume, which wait for its device.
//!
//! A process that has made a tree and then forks is told from its child: calls in the child fail with
//! [`Errno::NOTRECOVERABLE`] and drops do nothing, until it executes another program. Threads that held
//! locks at that moment are not there any more, and what a volume is written with is the parent's.

pub mod volume;

pub use vfscale_block as block;
pub use vfscale_diskfs as diskfs;
pub use volume::{CloseError, Volume, VolumeBuilder, VolumeError, volume, volume_on};

pub use vfscale_memfs::{MemFs, MemFsBuilder};
pub use vfscale_procfs::ProcFs;
pub use vfscale_vfs::*;

use std::sync::Arc;

/// A memory file system as the root of a new tree: set it up, then [`build`](MemoryBuilder::build).
pub fn memory() -> MemoryBuilder {
    let (options, scaling) = (MemFs::builder(), Scaling::default());
    MemoryBuilder { options, memory_files: None, limits: None, scaling }
}

/// Options of [`memory`].
#[derive(Clone, Debug)]
pub struct MemoryBuilder {
    options: MemFsBuilder,
    memory_files: Option<u64>,
    limits: Option<Limits>,
    scaling: Scaling,
}

impl MemoryBuilder {
    /// The most memory that its files may take, in bytes; `ENOSPC` beyond. Half of the machine's by default.
    /// A file that is open and has no name any more, or never had one (`O_TMPFILE`), counts as others do.
    /// Other memory of a tree follows the size, too: see [`limits`](Self::limits) and
    /// [`memory_files`](Self::memory_files).
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.options = self.options.size(bytes);
        self
    }

    /// The most memory that files of memory ([`Task::memfd_create`]) may take, all of them together, in
    /// bytes; `ENOSPC` beyond. As much as [`size`](Self::size) by default.
    #[must_use]
    pub fn memory_files(mut self, bytes: u64) -> Self {
        self.memory_files = Some(bytes);
        self
    }

    /// Bounds what the tree takes beside the data of its files: open files, pipes, sockets, locks. Those for
    /// its size ([`Limits::for_size`]) by default.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// The most inodes it may have. As many as there is memory for by default.
    #[must_use]
    pub fn inodes(mut self, inodes_max: u64) -> Self {
        self.options = self.options.inodes(inodes_max);
        self
    }

    /// The permission bits of the root directory; 0755 by default.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options = self.options.mode(mode.bits());
        self
    }

    /// The owner and group of the root directory; 0 and 0 by default.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.options = self.options.owner(uid, gid);
        self
    }

    /// How far its structures are spread; as far as the machine has CPUs by default. With
    /// [`Scaling::before`] it is as the kernel was before one of the patches.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use vfscale::Scaling;
    ///
    /// let vfs = vfscale::memory().size(1 << 20).scaling(Scaling::before("lockref")?).build()?;
    /// assert!(!vfs.scaling().lockref());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn scaling(mut self, scaling: Scaling) -> Self {
        self.scaling = scaling;
        self.options = self.options.slots(scaling.slots());
        self
    }

    /// Makes the file system and mounts it as the root of a new tree.
    ///
    /// # Errors
    /// `ENOSPC` if the size does not even hold the root directory.
    pub fn build(self) -> Result<Vfs> {
        let limits = self.limits.unwrap_or_else(|| Limits::for_size(self.options.size_bytes()));
        let memory_files = self.memory_files.unwrap_or_else(|| self.options.size_bytes());
        let fs: Arc<dyn FileSystem> = self.options.clone().build();
        let build = || {
            let vfs = Vfs::with_limits(fs, self.scaling, limits)?;
            vfs.set_memory_driver(self.options.size(memory_files).build())?;
            Ok(vfs)
        };
        build().map_err(|errno| Error::new("mount", errno))
    }
}
