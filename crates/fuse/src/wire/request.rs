//! Requests: from bytes to an [`Operation`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use vfscale::Timestamp;
use vfscale::posix::{OFlags, SetTime};

use super::{AttrMask, IN_HEADER, InitFlags, WriteFlags, opcode};

/// A message that does not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A reader of consecutive fields, in one or two pieces. No field extends over both.
struct Fields<'a>(&'a [u8], &'a [u8]);

impl<'a> Fields<'a> {
    fn of(bytes: &'a [u8]) -> Fields<'a> {
        Fields(bytes, &[])
    }

    /// Continues with the second piece after the end of the first.
    fn advance(&mut self) {
        if self.0.is_empty() {
            self.0 = std::mem::take(&mut self.1);
        }
    }

    fn bytes(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        self.advance();
        let (head, rest) = self.0.split_at_checked(n).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.bytes(N)?.try_into().map_err(|_| Malformed)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Reads a string and its terminating zero; returns the string.
    fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        self.advance();
        let end = self.0.iter().position(|&b| b == 0).ok_or(Malformed)?;
        let name = OsStr::from_bytes(&self.0[..end]);
        self.0 = &self.0[end + 1..];
        Ok(name)
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// Number of the operation.
    pub(crate) opcode: u32,
    /// Number of the request, which the reply must carry.
    pub(crate) unique: u64,
    /// The node that the request concerns.
    pub(crate) node: u64,
    /// The caller's file system user.
    pub(crate) uid: u32,
    /// The caller's file system group.
    pub(crate) gid: u32,
    /// The calling thread, or 0 if the kernel calls for itself or the thread is unknown.
    pub(crate) pid: u32,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) header: Header,
    /// A supplementary group of the caller, if relevant: the group of the directory in which a file
    /// is created.
    pub(crate) group: Option<u32>,
    pub(crate) operation: Operation<'a>,
}

/// The fields of a `SETATTR` that the mask selects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetAttr {
    pub(crate) fh: Option<u64>,
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) times: [SetTime; 2],
    /// The time of the change, from a kernel that gathers writes and so keeps the times itself.
    pub(crate) ctime: Option<Timestamp>,
    pub(crate) kill_priv: bool,
}

impl SetAttr {
    /// Returns whether the message sets the time of the last change of the data by hand, and not
    /// the size.
    pub(crate) fn sets_time(&self) -> bool {
        self.size.is_none() && matches!(self.times[1], SetTime::At(_))
    }

    /// Returns whether the message names no change, except for the time of it. The kernel sends
    /// that for a `chown` of neither owner nor group, and to have set-id bits cleared before a
    /// write: it names no bits, because the server clears them itself at changes of the owner and
    /// of the data (`HANDLE_KILLPRIV_V2`). overlayfs relies on the second, since it writes with the
    /// rights of its mounter.
    pub(crate) fn is_empty(&self) -> bool {
        let SetAttr { mode, uid, gid, .. } = self;
        [mode, uid, gid].iter().all(|field| field.is_none())
            && self.size.is_none()
            && self.times == [SetTime::Omit; 2]
    }
}

/// Fields of a `CREATE` or `TMPFILE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Create<'a> {
    pub(crate) name: &'a OsStr,
    pub(crate) flags: u32,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

/// A record lock, or a lock of `flock(2)` on the whole file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    pub(crate) fh: u64,
    pub(crate) owner: u64,
    pub(crate) start: u64,
    /// The last byte, inclusive.
    pub(crate) end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub(crate) kind: u32,
    pub(crate) pid: u32,
    pub(crate) flock: bool,
}

/// The source or target of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyEnd {
    pub(crate) node: u64,
    pub(crate) fh: u64,
    pub(crate) offset: u64,
}

/// Parameters of reading a file or directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) fh: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    /// Whether the reader has `O_NOATIME`.
    pub(crate) keeps_atime: bool,
}

/// Parameters of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    pub(crate) fh: u64,
    pub(crate) offset: u64,
    pub(crate) flags: WriteFlags,
    /// The present flags of the open file.
    pub(crate) open: OFlags,
    pub(crate) data: &'a [u8],
}

/// The kernel's version and features at `INIT`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) readahead_max: u32,
    pub(crate) flags: InitFlags,
}

/// Pairs of a node and its number of forgotten lookups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgets<'a>(&'a [u8]);

impl Iterator for Forgets<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let mut fields = Fields::of(self.0);
        let pair = (fields.u64().ok()?, fields.u64().ok()?);
        self.0 = fields.0;
        Some(pair)
    }
}

/// An operation. The node that it concerns is in the header.
#[derive(Debug)]
pub(crate) enum Operation<'a> {
    Init(Offer),
    Destroy,
    Interrupt {
        unique: u64,
    },
    Lookup {
        name: &'a OsStr,
    },
    Forget {
        count: u64,
    },
    BatchForget(Forgets<'a>),
    GetAttr {
        fh: Option<u64>,
    },
    Statx {
        fh: Option<u64>,
    },
    SetAttr(SetAttr),
    ReadLink,
    Symlink {
        name: &'a OsStr,
        target: &'a OsStr,
    },
    MkNod {
        name: &'a OsStr,
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    MkDir {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a OsStr,
    },
    RmDir {
        name: &'a OsStr,
    },
    Rename {
        name: &'a OsStr,
        to: u64,
        to_name: &'a OsStr,
        flags: u32,
    },
    Link {
        node: u64,
        name: &'a OsStr,
    },
    Open {
        flags: u32,
        kill_priv: bool,
    },
    Create(Create<'a>),
    TmpFile(Create<'a>),
    Read(Reading),
    Write(Write<'a>),
    Flush {
        fh: u64,
        owner: u64,
    },
    Release {
        fh: u64,
    },
    FSync {
        fh: u64,
        data_only: bool,
    },
    OpenDir {
        flags: u32,
    },
    ReadDir(Reading),
    ReadDirPlus(Reading),
    ReleaseDir {
        fh: u64,
    },
    FSyncDir {
        fh: u64,
        data_only: bool,
    },
    StatFs,
    SyncFs,
    SetXattr {
        name: &'a OsStr,
        value: &'a [u8],
        flags: u32,
        kill_sgid: bool,
    },
    GetXattr {
        name: &'a OsStr,
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a OsStr,
    },
    Access {
        mask: u32,
    },
    GetLk(Lock),
    SetLk {
        lock: Lock,
        wait: bool,
    },
    FAllocate {
        fh: u64,
        offset: u64,
        len: u64,
        mode: u32,
    },
    LSeek {
        fh: u64,
        offset: u64,
        whence: u32,
    },
    CopyFileRange {
        from: CopyEnd,
        to: CopyEnd,
        len: u64,
        wide: bool,
    },
    Ioctl {
        command: u32,
        data: &'a [u8],
        /// Length of the data that the kernel expects in the reply.
        room: u32,
    },
    /// Any other operation, answered with `ENOSYS`.
    Unknown,
}

impl Operation<'_> {
    /// Returns whether the operation changes no time but that of an access.
    pub(crate) fn only_reads(&self) -> bool {
        use Operation as Op;
        let changes_nothing =
            matches!(self, Op::Lookup { .. } | Op::GetAttr { .. } | Op::Statx { .. } | Op::StatFs);
        changes_nothing
            || matches!(self, Op::Read(_) | Op::ReadDir(_) | Op::ReadDirPlus(_) | Op::ReadLink)
    }
}

/// The agreed features that change the format of messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dialect {
    /// Whether `SETXATTR` has its longer form.
    pub(crate) setxattr_ext: bool,
}

impl<'a> Request<'a> {
    /// Parses one message.
    ///
    /// # Errors
    /// Returns the header if it was readable, so that the request can be refused by its number.
    pub(crate) fn parse(bytes: &'a [u8], dialect: Dialect) -> Result<Request<'a>, Option<Header>> {
        let (head, body) = bytes.split_at_checked(IN_HEADER).ok_or(None)?;
        Request::parse_pieces(head, body, &[], dialect)
    }

    /// Parses one message that comes in pieces: its header, its first argument, and all others.
    ///
    /// # Errors
    /// The errors of [`parse`](Self::parse).
    pub(crate) fn parse_pieces(
        head: &'a [u8],
        first: &'a [u8],
        others: &'a [u8],
        dialect: Dialect,
    ) -> Result<Request<'a>, Option<Header>> {
        let received = head.len() + first.len() + others.len();
        let (header, extension) =
            header(&mut Fields::of(head), received).map_err(|Malformed| None)?;
        let parsed = (|| {
            let last = if others.is_empty() { first } else { others };
            let len = last.len().checked_sub(extension).ok_or(Malformed)?;
            let (last, extension) = last.split_at(len);
            let group = group(extension)?;
            let body = if others.is_empty() { Fields::of(last) } else { Fields(first, last) };
            Ok(Request { header, group, operation: operation(&header, body, dialect)? })
        })();
        parsed.map_err(|Malformed| Some(header))
    }
}

/// Parses the header. Also returns the length of the extensions at the end of the message.
fn header(fields: &mut Fields<'_>, received: usize) -> Result<(Header, usize), Malformed> {
    let len = fields.u32()?;
    let header = Header {
        opcode: fields.u32()?,
        unique: fields.u64()?,
        node: fields.u64()?,
        uid: fields.u32()?,
        gid: fields.u32()?,
        pid: fields.u32()?,
    };
    let extension = usize::from(fields.u16()?) * 8;
    fields.u16()?;
    if usize::try_from(len) != Ok(received) {
        return Err(Malformed);
    }
    Ok((header, extension))
}

/// Returns the first group in the extensions.
fn group(bytes: &[u8]) -> Result<Option<u32>, Malformed> {
    let mut fields = Fields::of(bytes);
    while !fields.0.is_empty() {
        let (size, kind) = (fields.u32()? as usize, fields.u32()?);
        let mut body = Fields::of(fields.bytes(size.checked_sub(8).ok_or(Malformed)?)?);
        if kind == super::EXT_GROUPS && body.u32()? > 0 {
            return body.u32().map(Some);
        }
    }
    Ok(None)
}

fn operation<'a>(
    header: &Header,
    mut f: Fields<'a>,
    dialect: Dialect,
) -> Result<Operation<'a>, Malformed> {
    use Operation as Op;
    Ok(match header.opcode {
        opcode::LOOKUP => Op::Lookup { name: f.name()? },
        opcode::FORGET => Op::Forget { count: f.u64()? },
        opcode::BATCH_FORGET => {
            let count = f.u32()? as usize;
            f.u32()?;
            Op::BatchForget(Forgets(f.bytes(count.checked_mul(16).ok_or(Malformed)?)?))
        }
        opcode::GETATTR => Op::GetAttr { fh: getattr_fh(&mut f)? },
        opcode::STATX => Op::Statx { fh: getattr_fh(&mut f)? },
        opcode::SETATTR => Op::SetAttr(set_attr(&mut f)?),
        opcode::READLINK => Op::ReadLink,
        opcode::STATFS => Op::StatFs,
        opcode::SYNCFS => {
            f.u64()?;
            Op::SyncFs
        }
        opcode::DESTROY => Op::Destroy,
        opcode::IOCTL => {
            let (_fh, _flags, command, _arg) = (f.u64()?, f.u32()?, f.u32()?, f.u64()?);
            let (in_size, room) = (f.u32()? as usize, f.u32()?);
            Op::Ioctl { command, data: f.bytes(in_size)?, room }
        }
        opcode::INTERRUPT => Op::Interrupt { unique: f.u64()? },
        opcode::ACCESS => Op::Access { mask: f.u32()? },
        opcode::INIT => Op::Init(offer(&mut f)?),
        opcode::SYMLINK..=opcode::LINK | opcode::RENAME2 => name_operation(header, &mut f)?,
        opcode::OPEN | opcode::OPENDIR | opcode::CREATE | opcode::TMPFILE => {
            open_operation(header, &mut f)?
        }
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            xattr_operation(header, &mut f, dialect)?
        }
        _ => handle_operation(header, &mut f)?,
    })
}

/// Parses operations on names in a directory.
fn name_operation<'a>(header: &Header, f: &mut Fields<'a>) -> Result<Operation<'a>, Malformed> {
    Ok(match header.opcode {
        opcode::SYMLINK => {
            let name = f.name()?;
            Operation::Symlink { name, target: f.name()? }
        }
        opcode::MKNOD => {
            let (mode, rdev, umask) = (f.u32()?, f.u32()?, f.u32()?);
            f.u32()?;
            Operation::MkNod { name: f.name()?, mode, rdev, umask }
        }
        opcode::MKDIR => {
            let (mode, umask) = (f.u32()?, f.u32()?);
            Operation::MkDir { name: f.name()?, mode, umask }
        }
        opcode::UNLINK => Operation::Unlink { name: f.name()? },
        opcode::RMDIR => Operation::RmDir { name: f.name()? },
        opcode::RENAME | opcode::RENAME2 => {
            let to = f.u64()?;
            let mut flags = 0;
            if header.opcode == opcode::RENAME2 {
                flags = f.u32()?;
                f.u32()?;
            }
            let name = f.name()?;
            Operation::Rename { name, to, to_name: f.name()?, flags }
        }
        opcode::LINK => {
            let node = f.u64()?;
            Operation::Link { node, name: f.name()? }
        }
        _ => Operation::Unknown,
    })
}

fn open_operation<'a>(header: &Header, f: &mut Fields<'a>) -> Result<Operation<'a>, Malformed> {
    let flags = f.u32()?;
    Ok(match header.opcode {
        opcode::OPEN => {
            Operation::Open { flags, kill_priv: f.u32()? & super::OPEN_KILL_SUIDGID != 0 }
        }
        opcode::OPENDIR => Operation::OpenDir { flags },
        _ => {
            let (mode, umask) = (f.u32()?, f.u32()?);
            f.u32()?;
            let create = Create { name: f.name()?, flags, mode, umask };
            if header.opcode == opcode::CREATE {
                Operation::Create(create)
            } else {
                Operation::TmpFile(create)
            }
        }
    })
}

fn xattr_operation<'a>(
    header: &Header,
    f: &mut Fields<'a>,
    dialect: Dialect,
) -> Result<Operation<'a>, Malformed> {
    Ok(match header.opcode {
        opcode::SETXATTR => {
            let (size, flags) = (f.u32()? as usize, f.u32()?);
            let mut kill_sgid = false;
            if dialect.setxattr_ext {
                kill_sgid = f.u32()? & super::SETXATTR_ACL_KILL_SGID != 0;
                f.u32()?;
            }
            let name = f.name()?;
            Operation::SetXattr { name, value: f.bytes(size)?, flags, kill_sgid }
        }
        opcode::GETXATTR => {
            let size = f.u32()?;
            f.u32()?;
            Operation::GetXattr { name: f.name()?, size }
        }
        opcode::LISTXATTR => Operation::ListXattr { size: f.u32()? },
        _ => Operation::RemoveXattr { name: f.name()? },
    })
}

/// Parses operations that begin with a file handle.
fn handle_operation<'a>(header: &Header, f: &mut Fields<'a>) -> Result<Operation<'a>, Malformed> {
    use Operation as Op;
    if !matches!(
        header.opcode,
        opcode::READ
            | opcode::WRITE
            | opcode::RELEASE
            | opcode::FSYNC
            | opcode::FLUSH
            | opcode::READDIR
            ..=opcode::SETLKW
                | opcode::FALLOCATE
                | opcode::READDIRPLUS
                | opcode::LSEEK
                | opcode::COPY_FILE_RANGE
                | opcode::COPY_FILE_RANGE_64
    ) {
        return Ok(Op::Unknown);
    }
    let fh = f.u64()?;
    Ok(match header.opcode {
        opcode::READ => Op::Read(reading(fh, f)?),
        opcode::WRITE => {
            let (offset, size, flags) = (f.u64()?, f.u32()? as usize, f.u32()?);
            let _lock_owner = f.u64()?;
            let open = OFlags::from_bits_retain(f.u32()?);
            let _padding = f.u32()?;
            let flags = WriteFlags::from_bits_retain(flags);
            Op::Write(Write { fh, offset, flags, open, data: f.bytes(size)? })
        }
        opcode::FLUSH => {
            f.u64()?;
            Op::Flush { fh, owner: f.u64()? }
        }
        opcode::RELEASE => Op::Release { fh },
        opcode::RELEASEDIR => Op::ReleaseDir { fh },
        opcode::FSYNC => Op::FSync { fh, data_only: f.u32()? & super::FSYNC_DATA != 0 },
        opcode::FSYNCDIR => Op::FSyncDir { fh, data_only: f.u32()? & super::FSYNC_DATA != 0 },
        opcode::READDIR => Op::ReadDir(reading(fh, f)?),
        opcode::READDIRPLUS => Op::ReadDirPlus(reading(fh, f)?),
        opcode::GETLK => Op::GetLk(lock(fh, f)?),
        opcode::SETLK => Op::SetLk { lock: lock(fh, f)?, wait: false },
        opcode::SETLKW => Op::SetLk { lock: lock(fh, f)?, wait: true },
        opcode::FALLOCATE => Op::FAllocate { fh, offset: f.u64()?, len: f.u64()?, mode: f.u32()? },
        opcode::LSEEK => Op::LSeek { fh, offset: f.u64()?, whence: f.u32()? },
        _ => {
            let from = CopyEnd { node: header.node, fh, offset: f.u64()? };
            let to = CopyEnd { node: f.u64()?, fh: f.u64()?, offset: f.u64()? };
            let wide = header.opcode == opcode::COPY_FILE_RANGE_64;
            Op::CopyFileRange { from, to, len: f.u64()?, wide }
        }
    })
}

fn getattr_fh(f: &mut Fields<'_>) -> Result<Option<u64>, Malformed> {
    let flags = f.u32()?;
    f.u32()?;
    let fh = f.u64()?;
    Ok((flags & super::GETATTR_FH != 0).then_some(fh))
}

fn set_attr(f: &mut Fields<'_>) -> Result<SetAttr, Malformed> {
    let mask = AttrMask::from_bits_retain(f.u32()?);
    f.u32()?;
    let (fh, size, _lock_owner) = (f.u64()?, f.u64()?, f.u64()?);
    let (atime, mtime, ctime) = (f.u64()?, f.u64()?, f.u64()?);
    let (atime_nanos, mtime_nanos, ctime_nanos) = (f.u32()?, f.u32()?, f.u32()?);
    let mode = f.u32()?;
    f.u32()?;
    let (uid, gid) = (f.u32()?, f.u32()?);
    let time = |set, now, secs: u64, nanos| {
        if mask.contains(now) {
            SetTime::Now
        } else if mask.contains(set) {
            SetTime::At(Timestamp::new(secs.cast_signed(), nanos))
        } else {
            SetTime::Omit
        }
    };
    let has = |bit| mask.contains(bit);
    Ok(SetAttr {
        fh: has(AttrMask::FH).then_some(fh),
        mode: has(AttrMask::MODE).then_some(mode & 0o7777),
        uid: has(AttrMask::UID).then_some(uid),
        gid: has(AttrMask::GID).then_some(gid),
        size: has(AttrMask::SIZE).then_some(size),
        times: [
            time(AttrMask::ATIME, AttrMask::ATIME_NOW, atime, atime_nanos),
            time(AttrMask::MTIME, AttrMask::MTIME_NOW, mtime, mtime_nanos),
        ],
        ctime: has(AttrMask::CTIME).then(|| Timestamp::new(ctime.cast_signed(), ctime_nanos)),
        kill_priv: has(AttrMask::KILL_SUIDGID),
    })
}

fn reading(fh: u64, f: &mut Fields<'_>) -> Result<Reading, Malformed> {
    let (offset, size) = (f.u64()?, f.u32()?);
    let (_read_flags, _lock_owner) = (f.u32()?, f.u64()?);
    let keeps_atime = OFlags::from_bits_retain(f.u32()?).contains(OFlags::NOATIME);
    Ok(Reading { fh, offset, size, keeps_atime })
}

fn lock(fh: u64, f: &mut Fields<'_>) -> Result<Lock, Malformed> {
    let (owner, start, end) = (f.u64()?, f.u64()?, f.u64()?);
    let (kind, pid, flags) = (f.u32()?, f.u32()?, f.u32()?);
    Ok(Lock { fh, owner, start, end, kind, pid, flock: flags & super::LK_FLOCK != 0 })
}

fn offer(f: &mut Fields<'_>) -> Result<Offer, Malformed> {
    let (major, minor, readahead_max) = (f.u32()?, f.u32()?, f.u32()?);
    let mut flags = InitFlags::from_bits_retain(u64::from(f.u32()?));
    if flags.contains(InitFlags::INIT_EXT) {
        flags |= InitFlags::from_bits_retain(u64::from(f.u32()?) << 32);
    }
    Ok(Offer { major, minor, readahead_max, flags })
}
