//! The attributes and forks of an inode, decoded from its record and valid.
//!
//! # Purpose
//!
//! [`InodeCore`] is decoded from the record on disk and encoded into one. A transaction changes a
//! copy of it; the published one never changes. Copies are cheap: bytes in the inode are shared,
//! and so are short lists of extents.
//!
//! # Invariants
//!
//! * Decoding any record ends with a core or with a [numbered fault](InodeFault).
//! * Addresses of a decoded core lie in the volume, outside of the blocks reserved for groups. Only
//!   a check of the volume can find out whether they belong to this inode alone.
//! * Both forks together fit into the area of a record: code that enlarges a fork first calls
//!   [`data_room`](InodeCore::data_room) or [`attr_room`](InodeCore::attr_room).
//!
//! # Locks, references
//!
//! None: it is a value.

use std::borrow::Cow;
use std::sync::Arc;

use vfscale_journal::Image;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::Damage;
use crate::format::damage::{InodeDamage, InodeFault};
use crate::format::extent::{EXTENT_BYTES, Extent, decode_possible, encode_list};
use crate::format::inode::{
    AREA_BYTES, ATTR_BLOB_BYTES_MAX, ATTR_BYTES_MAX, ATTR_ROOT_BYTES, ATTR_TREE, DATA_BYTES_MAX,
    DATA_EXTENTS, DATA_ROOT_BYTES, DATA_TREE, FIELDS_BYTES, FORK_INLINE, FORK_NONE, InodeRecord,
    LINK_TARGET_BYTES_MAX, LINKS_MAX, RECORD_BYTES, RawAttrRoot, RawInode, block_of,
};

/// The type bits of a mode.
pub const TYPE_MASK: u32 = 0o170_000;
/// The type of a directory.
pub const TYPE_DIRECTORY: u32 = 0o040_000;
/// The type of a regular file.
pub const TYPE_REGULAR: u32 = 0o100_000;
/// The type of a symbolic link.
pub const TYPE_LINK: u32 = 0o120_000;

/// The type of an inode. In a directory on disk: the type bits of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// A fifo.
    Fifo = 1,
    /// A character device.
    Character = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    Block = 6,
    /// A regular file.
    Regular = 8,
    /// A symbolic link.
    Link = 10,
    /// A socket.
    Socket = 12,
}

impl FileKind {
    /// Returns the type with this number.
    #[must_use]
    pub const fn of_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Fifo,
            2 => Self::Character,
            4 => Self::Directory,
            6 => Self::Block,
            8 => Self::Regular,
            10 => Self::Link,
            12 => Self::Socket,
            _ => return None,
        })
    }

    /// Returns the type in a mode.
    #[must_use]
    pub const fn of_mode(mode: u32) -> Option<Self> {
        Self::of_raw(((mode & TYPE_MASK) >> 12) as u8)
    }

    /// Returns its number: the type bits of a mode, shifted.
    #[must_use]
    pub const fn to_raw(self) -> u8 {
        self as u8
    }
}

/// The largest size of a file, in bytes.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// Most extents that are freed together with their inode: as many as a transaction changes in the
/// smallest log.
pub(crate) const LAST_EXTENTS_MAX: usize = 2;

/// The location of a file's data, a directory's entries, or a symbolic link's target. Counterpart
/// of the data fork of XFS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DataFork {
    /// Without data, as devices, fifos and sockets always are. Or an empty file.
    #[default]
    None,
    /// In the inode: the first bytes of a file (zeros follow up to its size), entries of a
    /// directory, the target of a link.
    Inline(Arc<[u8]>),
    /// In these extents, in ascending order, of a regular file. Not empty.
    Extents(Arc<[Extent]>),
    /// In a tree, whose kind depends on the type of the file.
    Tree {
        /// The address of its root, in blocks.
        root: u64,
    },
}

/// The location of the attributes. Counterpart of the attribute fork of XFS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AttrFork {
    /// Without attributes.
    #[default]
    None,
    /// All attributes as one blob, in the inode. Not empty.
    Inline(Arc<[u8]>),
    /// All attributes as one blob, in a tree of chunks.
    Tree {
        /// The address of its root, in blocks.
        root: u64,
        /// Their length, in bytes.
        bytes: u32,
    },
}

/// The attributes and forks of an inode. Counterpart of `struct xfs_dinode` of XFS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeCore {
    /// Type and permission bits; 16 of them.
    pub mode: u32,
    /// Flags: bits from `FLAG_SYNC` on. The others have no
    /// meaning yet and are preserved unchanged.
    pub flags: u16,
    /// Number of names.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Size in bytes. Of a file: its size on disk, at most `SIZE_MAX`. Of a symbolic link: the
    /// length of its target. Of a directory: the sum of the lengths of its entries as they lie in
    /// an inode.
    pub size: u64,
    /// Number of blocks, including those of trees.
    pub blocks: u64,
    /// Number that distinguishes the inode from earlier ones with its number.
    pub generation: u32,
    /// The device that a device node stands for.
    pub rdev: u64,
    /// Time of the last access, in nanoseconds since 1970.
    pub atime: i64,
    /// Time of the last change of the contents, in nanoseconds since 1970.
    pub mtime: i64,
    /// Time of the last change of anything, in nanoseconds since 1970.
    pub ctime: i64,
    /// Time of creation, in nanoseconds since 1970.
    pub btime: i64,
    /// Of a directory: the number of its present or last parent; the root is its own parent. 0 for
    /// others.
    pub parent: u64,
    /// Its contents.
    pub data: DataFork,
    /// Its attributes.
    pub attr: AttrFork,
}

impl InodeCore {
    /// Creates an inode without contents: a directory has no entries and no parent yet. All times
    /// are `now`, in nanoseconds since 1970.
    #[must_use]
    pub fn new(mode: u32, generation: u32, now: i64) -> Self {
        let is_directory = mode & TYPE_MASK == TYPE_DIRECTORY;
        Self {
            mode: mode & 0xFFFF,
            flags: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            generation,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            parent: 0,
            // Not the default: all default empty slices are one, with a reference count that all
            // directories would share.
            data: if is_directory { DataFork::Inline(Arc::from([])) } else { DataFork::None },
            attr: AttrFork::None,
        }
    }

    /// Returns the core of a free inode number.
    #[must_use]
    pub fn free(generation: u32) -> Self {
        Self::new(0, generation, 0)
    }

    /// Returns whether the inode number is free.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.mode == 0
    }

    /// Returns the type bits of the mode.
    #[must_use]
    pub fn file_type(&self) -> u32 {
        self.mode & TYPE_MASK
    }

    /// Returns the type; `None` if the inode number is free.
    #[must_use]
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::of_mode(self.mode)
    }

    /// Returns whether the inode is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.file_type() == TYPE_DIRECTORY
    }

    /// Returns whether the inode is a regular file.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.file_type() == TYPE_REGULAR
    }

    /// Returns the extents of a regular file without names, if they are so few that they are freed
    /// together with the inode; none of a file whose data lie in its inode.
    #[must_use]
    pub fn last_extents(&self) -> Option<&[Extent]> {
        let is_last = self.is_regular()
            && !self.is_free()
            && self.nlink == 0
            && !matches!(self.attr, AttrFork::Tree { .. });
        match &self.data {
            DataFork::Extents(list) if is_last => (list.len() <= LAST_EXTENTS_MAX).then_some(list),
            DataFork::None | DataFork::Inline(_) if is_last => Some(&[]),
            _ => None,
        }
    }

    /// Returns whether the inode is a symbolic link.
    #[must_use]
    pub fn is_link(&self) -> bool {
        self.file_type() == TYPE_LINK
    }

    /// Returns the maximum number of bytes of the data fork in the inode, with the present
    /// attributes.
    #[must_use]
    pub fn data_room(&self) -> usize {
        DATA_BYTES_MAX.min(AREA_BYTES.saturating_sub(self.attr.bytes_in_inode()))
    }

    /// Returns the maximum number of extents of the data fork in the inode, with the present
    /// attributes: 7 at least.
    #[must_use]
    pub fn extents_room(&self) -> usize {
        self.data_room() / EXTENT_BYTES
    }

    /// Returns the maximum number of bytes of attributes in the inode, with the present data.
    #[must_use]
    pub fn attr_room(&self) -> usize {
        ATTR_BYTES_MAX.min(AREA_BYTES.saturating_sub(self.data.bytes_in_inode()))
    }

    /// Decodes the record of an inode that exists. `is_possible` says which runs of blocks, by
    /// start and length, files and trees of the volume can have.
    ///
    /// # Errors
    /// The first fault found; `InodeFault::Free` if the record is free.
    pub fn decode(
        ino: u64,
        record: &InodeRecord,
        is_possible: impl Fn(u64, u64) -> bool,
    ) -> Result<Self, Damage> {
        let (core, wrong) = Self::decode_possible(ino, record, is_possible)?;
        wrong.map_or(Ok(core), Err)
    }

    /// Decodes a record like [`decode`](Self::decode), but leaves out impossible extents of a list,
    /// and returns the fault of the first of these.
    ///
    /// # Errors
    /// Any other error of [`decode`](Self::decode).
    pub(crate) fn decode_possible(
        ino: u64,
        record: &InodeRecord,
        is_possible: impl Fn(u64, u64) -> bool,
    ) -> Result<(Self, Option<Damage>), Damage> {
        let damage = |fault| InodeDamage { ino, fault };
        record.verify().map_err(damage)?;
        let core =
            Self::try_decode(record.raw(), &|block| is_possible(block, 1)).map_err(damage)?;
        if let (DATA_EXTENTS, Some(bytes)) = (record.raw().data_format, data_bytes(record.raw())) {
            let (list, wrong) = decode_possible(ino, bytes, &is_possible)?;
            let data = match &list[..] {
                [] => DataFork::None,
                list => DataFork::Extents(list.into()),
            };
            return Ok((Self { data, ..core }, wrong.map(Damage::from)));
        }
        Ok((core, None))
    }

    /// Decodes everything but a list of extents.
    fn try_decode(raw: &RawInode, is_possible: &dyn Fn(u64) -> bool) -> Result<Self, InodeFault> {
        let mode = raw.mode.get();
        let file_type = u32::from(mode) & TYPE_MASK;
        if FileKind::of_mode(file_type).is_none() {
            return Err(InodeFault::Type { mode });
        }
        if raw.nlink.get() > LINKS_MAX {
            return Err(InodeFault::Links { links: raw.nlink.get() });
        }
        let (data_bytes, attr_bytes) = (raw.data_bytes.get(), raw.attr_bytes.get());
        if usize::from(data_bytes) + usize::from(attr_bytes) > AREA_BYTES {
            return Err(InodeFault::Overlap { data: data_bytes, attr: attr_bytes });
        }
        let data = decode_data(raw, file_type, is_possible)?;
        check_size(raw.size.get(), file_type, &data)?;
        let parent = raw.parent.get();
        let is_directory = file_type == TYPE_DIRECTORY;
        if is_directory && !is_possible(block_of(parent)) || !is_directory && parent != 0 {
            return Err(InodeFault::Parent { parent });
        }
        Ok(Self {
            mode: mode.into(),
            flags: raw.flags.get(),
            nlink: raw.nlink.get(),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            size: raw.size.get(),
            blocks: raw.blocks.get(),
            generation: raw.generation.get(),
            rdev: raw.rdev.get(),
            atime: raw.atime.get(),
            mtime: raw.mtime.get(),
            ctime: raw.ctime.get(),
            btime: raw.btime.get(),
            parent,
            data,
            attr: decode_attr(raw, is_possible)?,
        })
    }

    /// Encodes the record as it is logged and lies on disk.
    #[must_use]
    pub fn encode(&self) -> InodeRecord {
        if self.is_free() {
            return InodeRecord::free(self.generation);
        }
        let (data_format, data) = self.data.encode();
        let (attr_format, attr) = self.attr.encode();
        debug_assert!(data.len() + attr.len() <= AREA_BYTES, "the forks of an inode overlap");
        let mut area = [0; AREA_BYTES];
        area.iter_mut().zip(&*data).for_each(|(to, byte)| *to = *byte);
        area.iter_mut().rev().zip(attr.iter().rev()).for_each(|(to, byte)| *to = *byte);
        let raw = RawInode {
            mode: (self.mode as u16).into(),
            flags: self.flags.into(),
            nlink: self.nlink.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            size: self.size.into(),
            blocks: self.blocks.into(),
            generation: self.generation.into(),
            rdev: self.rdev.into(),
            atime: self.atime.into(),
            mtime: self.mtime.into(),
            ctime: self.ctime.into(),
            btime: self.btime.into(),
            parent: self.parent.into(),
            data_format,
            attr_format,
            data_bytes: u16::try_from(data.len()).unwrap_or(u16::MAX).into(),
            attr_bytes: u16::try_from(attr.len()).unwrap_or(u16::MAX).into(),
            area,
            ..RawInode::new_zeroed()
        };
        InodeRecord::from_raw(raw)
    }
}

impl Image for InodeCore {
    /// Returns the length of the record without zeros behind the data: attributes are at the end.
    fn log_bytes(&self) -> usize {
        match self.attr {
            AttrFork::None => FIELDS_BYTES + self.data.bytes_in_inode(),
            _ => RECORD_BYTES,
        }
    }

    fn write(
        &self,
        write: &mut dyn FnMut(&[u8]) -> vfscale_journal::Result<()>,
    ) -> vfscale_journal::Result<()> {
        let (record, bytes) = (self.encode(), self.log_bytes());
        debug_assert!(record.0[bytes..].iter().all(|byte| *byte == 0), "something is not logged");
        write(&record.0[..bytes])
    }
}

impl DataFork {
    /// Returns the number of bytes of the area that the fork takes.
    #[must_use]
    pub fn bytes_in_inode(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Inline(bytes) => bytes.len(),
            Self::Extents(extents) => extents.len() * EXTENT_BYTES,
            Self::Tree { .. } => DATA_ROOT_BYTES,
        }
    }

    fn encode(&self) -> (u8, Cow<'_, [u8]>) {
        match self {
            Self::None => (FORK_NONE, Cow::default()),
            Self::Inline(bytes) => (FORK_INLINE, Cow::Borrowed(bytes)),
            Self::Extents(extents) => (DATA_EXTENTS, Cow::Owned(encode_list(extents))),
            Self::Tree { root } => (DATA_TREE, Cow::Owned(root.to_le_bytes().to_vec())),
        }
    }
}

impl AttrFork {
    /// Returns the number of bytes of the area that the fork takes.
    #[must_use]
    pub fn bytes_in_inode(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Inline(bytes) => bytes.len(),
            Self::Tree { .. } => ATTR_ROOT_BYTES,
        }
    }

    fn encode(&self) -> (u8, Cow<'_, [u8]>) {
        match self {
            Self::None => (FORK_NONE, Cow::default()),
            Self::Inline(bytes) => (FORK_INLINE, Cow::Borrowed(bytes)),
            Self::Tree { root, bytes } => {
                let raw = RawAttrRoot { root: (*root).into(), bytes: (*bytes).into() };
                (ATTR_TREE, Cow::Owned(raw.as_bytes().to_vec()))
            }
        }
    }
}

fn decode_data(
    raw: &RawInode,
    file_type: u32,
    is_possible: &dyn Fn(u64) -> bool,
) -> Result<DataFork, InodeFault> {
    let (format, length) = (raw.data_format, raw.data_bytes.get());
    let is_allowed = match format {
        FORK_NONE => !matches!(file_type, TYPE_DIRECTORY | TYPE_LINK),
        FORK_INLINE | DATA_TREE => matches!(file_type, TYPE_DIRECTORY | TYPE_LINK | TYPE_REGULAR),
        DATA_EXTENTS => file_type == TYPE_REGULAR,
        _ => false,
    };
    if !is_allowed {
        return Err(InodeFault::DataFormat { format });
    }
    let wrong = InodeFault::DataBytes { bytes: length };
    let bytes = data_bytes(raw).ok_or(wrong)?;
    match format {
        FORK_NONE if bytes.is_empty() => Ok(DataFork::None),
        FORK_INLINE => Ok(DataFork::Inline(bytes.into())),
        DATA_EXTENTS if !bytes.is_empty() && bytes.len() % EXTENT_BYTES == 0 => {
            Ok(DataFork::Extents(Arc::default()))
        }
        DATA_TREE => {
            let root = u64::from_le_bytes(bytes.try_into().map_err(|_| wrong)?);
            check_root(root, is_possible)?;
            Ok(DataFork::Tree { root })
        }
        _ => Err(wrong),
    }
}

fn decode_attr(raw: &RawInode, is_possible: &dyn Fn(u64) -> bool) -> Result<AttrFork, InodeFault> {
    let (format, length) = (raw.attr_format, raw.attr_bytes.get());
    let wrong = InodeFault::AttrBytes { bytes: length };
    let begin = AREA_BYTES.checked_sub(length.into()).ok_or(wrong)?;
    let bytes = raw.area.get(begin..).ok_or(wrong)?;
    match format {
        FORK_NONE if bytes.is_empty() => Ok(AttrFork::None),
        FORK_INLINE if (1..=ATTR_BYTES_MAX).contains(&bytes.len()) => {
            Ok(AttrFork::Inline(bytes.into()))
        }
        ATTR_TREE => {
            let raw = RawAttrRoot::read_from_bytes(bytes).map_err(|_| wrong)?;
            check_root(raw.root.get(), is_possible)?;
            let bytes = raw.bytes.get();
            if bytes == 0 || bytes > ATTR_BLOB_BYTES_MAX {
                return Err(wrong);
            }
            Ok(AttrFork::Tree { root: raw.root.get(), bytes })
        }
        FORK_NONE | FORK_INLINE => Err(wrong),
        _ => Err(InodeFault::AttrFormat { format }),
    }
}

fn data_bytes(raw: &RawInode) -> Option<&[u8]> {
    raw.area[..DATA_BYTES_MAX].get(..raw.data_bytes.get().into())
}

fn check_root(root: u64, is_possible: &dyn Fn(u64) -> bool) -> Result<(), InodeFault> {
    if root != 0 && is_possible(root) { Ok(()) } else { Err(InodeFault::Root { root }) }
}

fn check_size(size: u64, file_type: u32, data: &DataFork) -> Result<(), InodeFault> {
    let inline = match data {
        DataFork::Inline(bytes) => Some(bytes.len() as u64),
        _ => None,
    };
    let is_possible = match file_type {
        TYPE_REGULAR => size <= SIZE_MAX && inline.is_none_or(|bytes| bytes <= size),
        TYPE_LINK => {
            (1..=LINK_TARGET_BYTES_MAX).contains(&size) && inline.is_none_or(|bytes| bytes == size)
        }
        TYPE_DIRECTORY => size <= SIZE_MAX && inline.is_none_or(|bytes| bytes == size),
        _ => size == 0,
    };
    if is_possible { Ok(()) } else { Err(InodeFault::Size { size }) }
}

#[cfg(test)]
mod tests;
