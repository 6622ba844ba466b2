//! The flags of an inode that `chattr(1)` sets.

use bitflags::bitflags;

bitflags! {
    /// Flags of a file or directory that `chattr(1)` sets, with the bits of `FS_IOC_SETFLAGS`; see
    /// [`Calls::ioctl_setflags`](crate::Calls::ioctl_setflags). Only those that some driver stores.
    ///
    /// `IMMUTABLE` and `APPEND` bind user 0 as well. They don't end what an open file may do: one
    /// that was opened for writing before remains writable.
    ///
    /// ```
    /// # use vfscale_vfs::{Errno, InodeFlags};
    /// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
    /// let file = task.open("/f")?;
    /// let flags = task.posix().ioctl_getflags(&file)?;
    /// task.posix().ioctl_setflags(&file, flags | InodeFlags::IMMUTABLE)?;
    /// assert_eq!(task.remove_file("/f").unwrap_err().errno(), Errno::PERM);
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
    pub struct InodeFlags: u32 {
        /// Changes are durable when their calls return (`S`).
        const SYNC = 0x8;
        /// Data, attributes and names do not change: neither the names of the file, nor, for a
        /// directory, those in it (`i`).
        const IMMUTABLE = 0x10;
        /// A file is only written at its end. Names in a directory are only added (`a`).
        const APPEND = 0x20;
        /// `dump(8)` leaves it out (`d`).
        const NODUMP = 0x40;
        /// Reads do not update the access time (`A`).
        const NOATIME = 0x80;
        /// Changes of the names in a directory are durable when their calls return (`D`).
        const DIRSYNC = 0x1_0000;
    }
}

impl InodeFlags {
    /// Number of flags: a table of another length does not compile.
    pub const COUNT: usize = InodeFlags::all().bits().count_ones() as usize;

    /// Each flag, and its bit in the `fsx_xflags` of a `struct fsxattr`; 0 if it has none there.
    pub const FSX_BITS: [(InodeFlags, u32); InodeFlags::COUNT] = [
        (InodeFlags::SYNC, 0x20),
        (InodeFlags::IMMUTABLE, 0x8),
        (InodeFlags::APPEND, 0x10),
        (InodeFlags::NODUMP, 0x80),
        (InodeFlags::NOATIME, 0x40),
        (InodeFlags::DIRSYNC, 0),
    ];

    /// The flags that forbid changes, and that only a privileged task changes.
    pub const PRIVILEGED: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

    /// Returns the flags that a new file with this mode gets from its directory, which has `self`.
    #[cold]
    #[inline(never)]
    pub(crate) fn inherited(self, mode: u32) -> InodeFlags {
        let kept = InodeFlags::NODUMP | InodeFlags::NOATIME;
        self & match mode & 0o170_000 {
            0o040_000 => kept | InodeFlags::SYNC | InodeFlags::DIRSYNC,
            0o100_000 => kept | InodeFlags::SYNC,
            _ => kept,
        }
    }
}
