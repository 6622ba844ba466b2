//! Plain values that calls take and return: times, attributes, modes, flags.

use std::io::SeekFrom;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bitflags::bitflags;
pub use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, XattrFlags,
};

pub use crate::base::inode_flags::InodeFlags;

/// A point in time, in nanoseconds since 1970-01-01 00:00 UTC; reaches from 1677 to 2262.
///
/// Times outside of that range are clamped to it, as Linux does for file systems with a smaller
/// range.
///
/// ```
/// # mod vfscale { pub use vfscale_vfs::*; }
/// use std::time::SystemTime;
/// use vfscale::Timestamp;
///
/// let time = Timestamp::new(1_000_000_000, 5);
/// assert_eq!((time.secs(), time.nanos()), (1_000_000_000, 5));
/// assert_eq!(Timestamp::from(SystemTime::from(time)), time);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Creates a time from seconds and nanoseconds, clamped to the range.
    pub fn new(secs: i64, nanos: u32) -> Timestamp {
        let wide = i128::from(secs) * 1_000_000_000 + i128::from(nanos);
        Timestamp(wide.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }

    /// Returns whole seconds, rounded down.
    pub fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Returns the nanoseconds within the second, 0 to 999,999,999.
    pub fn nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }
}

impl From<Timestamp> for SystemTime {
    fn from(t: Timestamp) -> SystemTime {
        let distance = Duration::from_nanos(t.0.unsigned_abs());
        if t.0 >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(t: SystemTime) -> Timestamp {
        match t.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp::new(after.as_secs() as i64, after.subsec_nanos()),
            Err(before) => {
                let d = before.duration();
                let secs = i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
                Timestamp(Timestamp::new(secs, d.subsec_nanos()).0.saturating_neg())
            }
        }
    }
}

/// An argument of `utimensat` for one of the two times.
///
/// ```
/// # use vfscale_vfs::{At, AtFlags, SetTime};
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// // As `touch -m`.
/// task.posix().utimensat(At::Cwd, "/f", [SetTime::Omit, SetTime::Now], AtFlags::empty())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// No change (`UTIME_OMIT`).
    Omit,
    /// The time of the call (`UTIME_NOW`).
    Now,
    /// This time.
    At(Timestamp),
}

bitflags! {
    /// The attributes that a caller requests: the mask of `statx(2)`, with its bits.
    ///
    /// Attributes that are not requested are not read. So a request without times does not mark
    /// them as read, and a request for attributes that never change does not wait for writers of
    /// the others.
    ///
    /// ```
    /// # use vfscale_vfs::{At, AtFlags, StatMask};
    /// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
    /// let size = task.posix().statx(At::Cwd, "/f", AtFlags::empty(), StatMask::SIZE)?.size;
    /// # assert_eq!(size, 0);
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct StatMask: u32 {
        /// The permission bits of [`Stat::mode`]; the type is always returned.
        const MODE = 0x2;
        /// [`Stat::nlink`].
        const NLINK = 0x4;
        /// [`Stat::uid`].
        const UID = 0x8;
        /// [`Stat::gid`].
        const GID = 0x10;
        /// [`Stat::atime`].
        const ATIME = 0x20;
        /// [`Stat::mtime`].
        const MTIME = 0x40;
        /// [`Stat::ctime`].
        const CTIME = 0x80;
        /// [`Stat::size`].
        const SIZE = 0x200;
        /// [`Stat::blocks`].
        const BLOCKS = 0x400;
        /// [`Stat::btime`].
        const BTIME = 0x800;
        /// [`Stat::generation`], which is not in `statx`.
        const GENERATION = 0x8000_0000;

        /// All attributes that can change, except the times.
        const NO_TIMES = Self::MODE.bits() | Self::NLINK.bits() | Self::UID.bits()
            | Self::GID.bits() | Self::SIZE.bits() | Self::BLOCKS.bits();
    }
}

/// The attributes of a file, as `statx` returns them.
///
/// ```
/// # use vfscale_vfs::{At, AtFlags};
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let stat = task.posix().fstatat(At::Cwd, "/link", AtFlags::SYMLINK_NOFOLLOW)?;
/// println!("{:o} {} {}", stat.mode, stat.nlink, stat.size);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The device number of the superblock.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// Number of earlier uses of the inode's number, for file handles.
    pub generation: u32,
    /// The number of names.
    pub nlink: u32,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device number of a device node.
    pub rdev: u64,
    /// Length in bytes.
    pub size: u64,
    /// Preferred unit of I/O in bytes.
    pub blksize: u32,
    /// Memory or disk it occupies, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// The mount it was reached through.
    pub mnt_id: u64,
    /// Whether it is the root of that mount (`STATX_ATTR_MOUNT_ROOT`).
    pub mount_root: bool,
    /// The inode flags, of which `statx(2)` shows `IMMUTABLE`, `APPEND` and `NODUMP`
    /// (`STATX_ATTR_*`). Always returned.
    pub flags: InodeFlags,
}

impl Stat {
    /// Returns the type of the file.
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    /// Returns the permission bits (07777).
    pub fn permissions(&self) -> Mode {
        Mode::from_bits_truncate(self.mode & 0o7777)
    }

    /// Returns whether the file is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Returns whether the file is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type() == FileType::RegularFile
    }

    /// Returns whether the file is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type() == FileType::Symlink
    }
}

/// The state of a file system, as `statfs` returns it.
///
/// ```
/// # use vfscale_vfs::At;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let fs = task.posix().statfs(At::Cwd, "/")?;
/// println!("{} of {} inodes are free", fs.files_free, fs.files);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StatFs {
    /// The file system's magic number.
    pub magic: u64,
    /// Block size in bytes; the next three count such blocks.
    pub block_size: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that an unprivileged user may take.
    pub blocks_available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// The longest name in bytes.
    pub name_max: u32,
    /// The identifier of the file system.
    pub fsid: u64,
    /// The mount's flags.
    pub flags: MountFlags,
}

/// The range of a file system that is to be trimmed, in bytes (`struct fstrim_range`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FstrimRange {
    /// The start.
    pub start: u64,
    /// The length; `u64::MAX` for all.
    pub len: u64,
    /// The length of the shortest free extent that is discarded; 0 for one that suits the device.
    pub minlen: u64,
}

bitflags! {
    /// The options of a mount, with the values of `mount(2)`.
    ///
    /// ```
    /// # use vfscale_vfs::MountFlags;
    /// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
    /// task.posix().remount_bind("/srv", MountFlags::RDONLY | MountFlags::NOSUID)?;
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
    pub struct MountFlags: u32 {
        /// No writes (`MS_RDONLY`).
        const RDONLY = 1;
        /// Set-id bits are ignored.
        const NOSUID = 2;
        /// Device nodes cannot be opened.
        const NODEV = 4;
        /// No execution; `access(X_OK)` on regular files fails.
        const NOEXEC = 8;
        /// Symbolic links are not followed (`MS_NOSYMFOLLOW`).
        const NOSYMFOLLOW = 256;
        /// Access times are not updated.
        const NOATIME = 1024;
        /// Access times of directories are not updated.
        const NODIRATIME = 2048;
        /// Access times are updated if older than a change or a day (the default).
        const RELATIME = 1 << 21;
        /// Access times are always updated.
        const STRICTATIME = 1 << 24;
    }
}

impl MountFlags {
    /// All rules for access times.
    pub const ACCESS_TIMES: MountFlags = MountFlags::NOATIME
        .union(MountFlags::NODIRATIME)
        .union(MountFlags::RELATIME)
        .union(MountFlags::STRICTATIME);
}

/// The propagation of mounts and unmounts below a mount; see `mount_namespaces(7)`.
///
/// ```
/// # use vfscale_vfs::Propagation;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// task.posix().set_propagation("/", Propagation::Private, true)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// To and from its peers, which are binds and copies of it (`MS_SHARED`). A slave remains a
    /// slave as well.
    Shared,
    /// None (`MS_PRIVATE`), the default of new mounts.
    Private,
    /// From its former peers, but not to them (`MS_SLAVE`). A mount that was not shared stays as it
    /// is.
    Slave,
    /// None, and the mount cannot be bound (`MS_UNBINDABLE`).
    Unbindable,
}

bitflags! {
    /// The options of `umount2`.
    ///
    /// ```
    /// # use vfscale_vfs::UmountFlags;
    /// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
    /// task.posix().umount("/mnt", UmountFlags::DETACH)?;
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
    pub struct UmountFlags: u32 {
        /// Aborts use by force, as far as the driver can. No driver here waits for an operation
        /// that could be aborted, so the flag has no effect: a mount in use is busy, as in Linux on
        /// a file system without `umount_begin`.
        const FORCE = 1;
        /// Detaches now; the mount ends when its last user leaves.
        const DETACH = 2;
        /// Marks as expired, or unmounts if it was marked and unused since.
        const EXPIRE = 4;
        /// Does not follow a symbolic link.
        const NOFOLLOW = 8;
    }
}

bitflags! {
    /// The rights that `access` checks.
    ///
    /// ```
    /// # use vfscale_vfs::{Access, At, AtFlags};
    /// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
    /// task.posix().faccessat(At::Cwd, "/f", Access::READ | Access::WRITE, AtFlags::empty())?;
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
    pub struct Access: u8 {
        /// May execute, or search a directory.
        const EXEC = 1;
        /// May write.
        const WRITE = 2;
        /// May read.
        const READ = 4;
    }
}

bitflags! {
    /// The privileges that matter to a file system, by their Linux names; see `capabilities(7)`.
    ///
    /// ```
    /// # mod vfscale { pub use vfscale_vfs::*; }
    /// use vfscale::{Capabilities, Credentials};
    ///
    /// let mut backup = Credentials::user(34, 34);
    /// backup.caps = Capabilities::DAC_READ_SEARCH;
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
    pub struct Capabilities: u64 {
        /// Change owners and groups at will.
        const CHOWN = 1;
        /// Bypass read, write and execute checks.
        const DAC_OVERRIDE = 1 << 1;
        /// Bypass read checks, and search checks of directories.
        const DAC_READ_SEARCH = 1 << 2;
        /// Act as the owner of any file.
        const FOWNER = 1 << 3;
        /// Preserve set-id bits on changes.
        const FSETID = 1 << 4;
        /// Change the inode flags `IMMUTABLE` and `APPEND`.
        const LINUX_IMMUTABLE = 1 << 9;
        /// Change root.
        const SYS_CHROOT = 1 << 18;
        /// Mount, `trusted.*` attributes.
        const SYS_ADMIN = 1 << 21;
        /// Exceed limits.
        const SYS_RESOURCE = 1 << 24;
        /// Make device nodes.
        const MKNOD = 1 << 27;
        /// Set file capabilities.
        const SETFCAP = 1 << 31;
    }
}

/// Where `lseek` counts from.
///
/// ```
/// # use vfscale_vfs::Whence;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let file = task.open("/sparse")?;
/// let data = file.seek(Whence::Data(0))?;
/// let hole = file.seek(Whence::Hole(data))?;
/// # let _ = hole;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whence {
    /// From the start.
    Set(u64),
    /// From the current position.
    Current(i64),
    /// From the end.
    End(i64),
    /// The first data at or after this offset (`SEEK_DATA`).
    Data(u64),
    /// The first hole at or after this offset (`SEEK_HOLE`); the end counts as one.
    Hole(u64),
}

impl From<SeekFrom> for Whence {
    fn from(place: SeekFrom) -> Whence {
        match place {
            SeekFrom::Start(offset) => Whence::Set(offset),
            SeekFrom::Current(delta) => Whence::Current(delta),
            SeekFrom::End(delta) => Whence::End(delta),
        }
    }
}

/// The arguments of `openat2`, as `struct open_how` in Linux.
///
/// ```
/// # use vfscale_vfs::{At, OFlags, OpenHow, ResolveFlags};
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let mut how = OpenHow::new(OFlags::RDONLY);
/// how.resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
/// let dir = task.open("/srv")?;
/// let file = task.posix().openat2(At::File(&dir), "index.html", &how)?;
/// # let _ = file;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OpenHow {
    /// The `O_*` flags.
    pub flags: OFlags,
    /// The permissions of a new file, before the umask.
    pub mode: Mode,
    /// The `RESOLVE_*` limits of the walk.
    pub resolve: ResolveFlags,
}

impl OpenHow {
    /// Returns `flags` with mode 0 and no `RESOLVE_*` limits.
    pub fn new(flags: OFlags) -> OpenHow {
        OpenHow { flags, mode: Mode::empty(), resolve: ResolveFlags::empty() }
    }
}
