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
//! A [`Vfs`] is a tree of mounted file systems. A [`Task`] is a process, in POSIX terms: it has a
//! root and working directory, umask, credentials and descriptors. Any number of threads may share
//! a task, and each may create its own. The methods of a task are Linux's calls with Linux's
//! errors, without a system call. A [`File`] is an open file. It can be used without a task, and
//! implements `Read`, `Write` and `Seek`.
//!
//! A volume stores a tree durably: [`volume()`] opens one in an image file or on a device
//! ([`mod@volume`]).
//!
//! Everything is `Send` and `Sync`. Calls block only for short critical sections, with two
//! exceptions. Calls on a volume wait for its device. Calls that wait for an advisory lock or for
//! the other end of a pipe or fifo, and `umount`, are documented as waiting.
//!
//! Fork: if a process with a tree forks, the tree can be used only in the parent. In the child,
//! calls fail with [`Errno::NOTRECOVERABLE`] and drops do nothing, until it executes another
//! program. The threads that held locks at the fork do not exist in the child, and only the
//! parent's threads write a volume.

pub mod volume;

pub use vfscale_block as block;
pub use vfscale_diskfs as diskfs;
pub use volume::{CloseError, Volume, VolumeBuilder, VolumeError, volume, volume_on};

pub use vfscale_memfs::{MemFs, MemFsBuilder};
pub use vfscale_procfs::ProcFs;
pub use vfscale_vfs::*;

use std::sync::Arc;

/// Returns the options of a memory file system as the root of a new tree; create it with
/// [`build`](MemoryBuilder::build).
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
    /// Sets the maximum memory of its files, in bytes; beyond it, calls fail with `ENOSPC`. By
    /// default half of the machine's memory. Open files without a name (unlinked, or created with
    /// `O_TMPFILE`) count like others. The default limits of other memory of a tree follow from the
    /// size: see [`limits`](Self::limits) and [`memory_files`](Self::memory_files).
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.options = self.options.size(bytes);
        self
    }

    /// Sets the maximum memory of all memory files ([`Task::memfd_create`]) together, in bytes;
    /// beyond that, calls fail with `ENOSPC`. By default equal to [`size`](Self::size).
    #[must_use]
    pub fn memory_files(mut self, bytes: u64) -> Self {
        self.memory_files = Some(bytes);
        self
    }

    /// Sets limits for the memory of the tree other than the data of its files: open files, pipes,
    /// sockets, locks. By default the limits for its size ([`Limits::for_size`]).
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Sets the maximum number of inodes. By default as many as fit into its memory.
    #[must_use]
    pub fn inodes(mut self, inodes_max: u64) -> Self {
        self.options = self.options.inodes(inodes_max);
        self
    }

    /// Sets the permission bits of the root directory; 0755 by default.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options = self.options.mode(mode.bits());
        self
    }

    /// Sets the owner and group of the root directory; 0 and 0 by default.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.options = self.options.owner(uid, gid);
        self
    }

    /// Sets how its structures are sharded; by default for the number of CPUs of the machine. With
    /// [`Scaling::before`] the tree behaves like the kernel before one of the patches.
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

    /// Creates the file system and mounts it as the root of a new tree.
    ///
    /// # Errors
    /// Returns `ENOSPC` if the size does not suffice for the root directory.
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
