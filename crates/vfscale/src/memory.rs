//! Trees in memory.

use std::sync::Arc;

use vfscale_memfs::{MemFs, MemFsBuilder};
use vfscale_vfs::{Error, FileSystem, Limits, Mode, Result, Scaling, Vfs};

/// Returns the options of a memory file system as the root of a new tree; create it with
/// [`build`](MemoryBuilder::build).
pub fn memory() -> MemoryBuilder {
    let (options, scaling) = (MemFs::builder(), Scaling::default());
    MemoryBuilder { options, memory_files: None, limits: None, scaling }
}

/// Options of [`memory`].
///
/// ```
/// let vfs = vfscale::memory().size(1 << 20).mode(0o1777).owner(1000, 1000).build()?;
/// assert_eq!(vfs.task().metadata("/")?.uid, 1000);
/// # Ok::<(), vfscale::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryBuilder {
    options: MemFsBuilder,
    memory_files: Option<u64>,
    limits: Option<Limits>,
    scaling: Scaling,
}

impl MemoryBuilder {
    /// Returns the default options; the same as [`memory`].
    #[allow(clippy::new_without_default)]
    pub fn new() -> MemoryBuilder {
        memory()
    }

    /// Sets the maximum memory of its files, in bytes; beyond it, calls fail with `ENOSPC`. By
    /// default half of the memory that the process may use. Open files without a name (unlinked, or
    /// created with `O_TMPFILE`) count like others. The default limits of other memory of a tree
    /// follow from the size: see [`limits`](Self::limits) and
    /// [`memory_files`](Self::memory_files).
    pub fn size(mut self, bytes: u64) -> Self {
        self.options = self.options.size(bytes);
        self
    }

    /// Sets the maximum memory of all memory files
    /// ([`memfd_create`](crate::posix::Calls::memfd_create)) together, in bytes; beyond that, calls
    /// fail with `ENOSPC`. By default equal to [`size`](Self::size).
    pub fn memory_files(mut self, bytes: u64) -> Self {
        self.memory_files = Some(bytes);
        self
    }

    /// Sets limits for the memory of the tree other than the data of its files: open files, pipes,
    /// sockets, locks. By default the limits for its size ([`Limits::for_size`]).
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Sets the maximum number of inodes. By default as many as fit into its memory.
    pub fn inodes(mut self, inodes_max: u64) -> Self {
        self.options = self.options.inodes(inodes_max);
        self
    }

    /// Sets the permission bits of the root directory; 0755 by default.
    pub fn mode(mut self, mode: impl Into<Mode>) -> Self {
        self.options = self.options.mode(mode.into().bits());
        self
    }

    /// Sets the owner and group of the root directory; 0 and 0 by default.
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
    pub fn scaling(mut self, scaling: Scaling) -> Self {
        self.scaling = scaling;
        self.options = self.options.slots(scaling.slots());
        self
    }

    /// Creates the file system without a tree, to be mounted in one. The limits of a tree do not
    /// count.
    #[must_use]
    pub fn driver(self) -> Arc<MemFs> {
        self.options.build()
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
            let options = self.options.size(memory_files);
            vfs.set_memory_driver(move || options.clone().build())?;
            Ok(vfs)
        };
        build().map_err(|errno| Error::new("mount", errno))
    }
}
