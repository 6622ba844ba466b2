//! Reading metadata.

use std::fs::File;
use std::os::unix::fs::FileExt;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::error::Error;
use crate::format::{
    BLOCK, CHUNK_BITS_MAX, COMPAT, DIRECTORY, INCOMPAT, INDEX_BYTES, INDEXED, LINK, Layout, MAGIC,
    NO_ADDRESS, ON_DEVICE, RawAttribute, RawAttributes, RawDevice, RawIndex, RawInode, RawName,
    RawSuper, SLOT, SUPER_AT, TYPE_MASK, checksum, decode_device, is_device, joined,
};
use crate::{Attribute, Attributes, INDEX_BYTES_MAX};
pub use check::Totals;

mod check;

/// The most bytes of a directory, or of a link's target, that are read at once.
const READ_MAX: u64 = 1 << 31;

/// Reads the metadata of a tree, as far as a [`Writer`](crate::Writer) writes it. Calls block for
/// the I/O, and fail with [`Error::Damage`] for anything else.
pub struct Reader<'f> {
    file: &'f File,
    bytes: u64,
    device_blocks: u64,
    root: u64,
    inodes: u64,
    id: [u8; 16],
}

/// An inode that was read.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Its number.
    pub nid: u64,
    /// Its attributes.
    pub attributes: Attributes,
    /// The size in bytes.
    pub size: u64,
    /// Of a device: the parts of its number.
    pub device: Option<(u32, u32)>,
    layout: Layout,
    place: u32,
    /// The byte behind the inode and its attributes.
    behind: u64,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name.
    pub name: Box<[u8]>,
    /// The number of its inode.
    pub nid: u64,
    /// The number of the inode's type.
    kind: u8,
}

/// Where a part of a file's contents is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nowhere: zeros.
    Hole,
    /// In the file with the metadata, from this byte on.
    Here(u64),
    /// On the device, from this byte on.
    Device(u64),
}

fn damage<T>(at: u64, what: &'static str) -> Result<T, Error> {
    Err(Error::Damage { at, what })
}

impl<'f> Reader<'f> {
    /// Reads the superblock.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(file: &'f File) -> Result<Self, Error> {
        let bytes = file.metadata()?.len();
        let mut block = [0; BLOCK as usize];
        if bytes < BLOCK {
            return damage(0, "no superblock");
        }
        file.read_exact_at(&mut block, 0)?;
        let Ok((raw, _)) = RawSuper::read_from_prefix(&block[SUPER_AT as usize..]) else {
            return damage(SUPER_AT, "no superblock");
        };
        block[SUPER_AT as usize + 4..][..4].fill(0);
        if raw.magic.get() != MAGIC || checksum(&block[SUPER_AT as usize..]) != raw.checksum.get() {
            return damage(SUPER_AT, "no superblock, or a checksum that is wrong");
        }
        let features = (raw.compat.get(), raw.incompat.get(), raw.block_bits, raw.devices.get());
        let is_known = features == (COMPAT, INCOMPAT, 12, 1)
            && (raw.inodes_at.get(), raw.attributes_at.get()) == (0, 0)
            && u64::from(raw.blocks.get()) * BLOCK == bytes;
        let slot = usize::from(raw.device_slot.get()) * size_of::<RawDevice>();
        let slot = block.get(slot..).and_then(|rest| RawDevice::read_from_prefix(rest).ok());
        let (Some((slot, _)), true) = (slot, is_known) else {
            return damage(SUPER_AT, "other features than this program writes");
        };
        if slot.address.get() != 0 {
            return damage(SUPER_AT, "addresses of the device that are others' too");
        }
        let device_blocks = slot.blocks.get().into();
        let (root, inodes) = (raw.root.get().into(), raw.inodes.get());
        Ok(Self { file, bytes, device_blocks, root, inodes, id: raw.uuid })
    }

    /// Returns the number of the root.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root
    }

    /// Returns the id of the file system.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    fn bytes(&self, at: u64, length: u64) -> Result<Vec<u8>, Error> {
        if length > READ_MAX || at.checked_add(length).is_none_or(|end| end > self.bytes) {
            return damage(at, "bytes beyond the end");
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn raw<T: FromBytes + FromZeros + IntoBytes>(&self, at: u64) -> Result<T, Error> {
        let bytes = self.bytes(at, size_of::<T>() as u64)?;
        T::read_from_bytes(&bytes).or_else(|_| damage(at, "bytes beyond the end"))
    }

    /// Reads an inode.
    ///
    /// # Errors
    /// [`Error`].
    pub fn inode(&self, nid: u64) -> Result<Inode, Error> {
        let at = nid.saturating_mul(SLOT);
        let raw: RawInode = self.raw(at)?;
        let Some(layout) = Layout::of(raw.format.get()) else {
            return damage(at, "an unknown layout of an inode");
        };
        let own = match u64::from(raw.attributes.get()) {
            0 => 0,
            count => size_of::<RawAttributes>() as u64 + 4 * (count - 1),
        };
        let own_at = at + size_of::<RawInode>() as u64;
        let (mode, place) = (raw.mode.get(), raw.place.get());
        let seconds = raw.mtime.get().cast_signed().checked_mul(1_000_000_000);
        let Some(mtime) = seconds.and_then(|it| it.checked_add(raw.mtime_nanos.get().into()))
        else {
            return damage(at, "a time that is none");
        };
        let attributes = Attributes {
            mode,
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            links: raw.links.get(),
            mtime,
            xattrs: self.attributes(own_at, own)?,
        };
        let (size, behind) = (raw.size.get(), own_at + own);
        let device = is_device(mode).then(|| decode_device(place));
        let inode = Inode { nid, attributes, size, device, layout, place, behind };
        let tail = size % BLOCK;
        if layout == Layout::Inline && (tail == 0 || behind % BLOCK + tail > BLOCK) {
            return damage(at, "contents behind an inode that cross a block");
        }
        Ok(inode)
    }

    /// Reads the attributes of an inode.
    fn attributes(&self, at: u64, length: u64) -> Result<Vec<Attribute>, Error> {
        if length == 0 {
            return Ok(Vec::new());
        }
        let bytes = self.bytes(at, length)?;
        let head = RawAttributes::read_from_prefix(&bytes);
        let Ok((head, rest)) = head.map(|(head, _)| (head, &bytes[size_of::<RawAttributes>()..]))
        else {
            return damage(at, "attributes without a head");
        };
        let Some((shared, mut own)) = rest.split_at_checked(4 * usize::from(head.shared)) else {
            return damage(at, "more attributes than bytes");
        };
        let mut list = Vec::new();
        for number in shared.as_chunks().0 {
            let at = u64::from(u32::from_le_bytes(*number)) * 4;
            let head: RawAttribute = self.raw(at)?;
            let length = size_of::<RawAttribute>() as u64
                + u64::from(head.name_bytes)
                + u64::from(head.value_bytes.get());
            list.push(attribute(at, &self.bytes(at, length)?)?.0);
        }
        while !own.is_empty() {
            let (found, length) = attribute(at, own)?;
            list.push(found);
            own = own.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        list.sort();
        Ok(list)
    }

    /// Returns where the contents of a regular file, a link or a directory are at a byte below the
    /// size, and for how many bytes.
    ///
    /// # Errors
    /// [`Error::Damage`] if that is neither on the device nor in the file.
    pub fn part(&self, inode: &Inode, at: u64) -> Result<(Part, u64), Error> {
        let (size, block) = (inode.size, at / BLOCK);
        let left = size.saturating_sub(at);
        let (device, address, length) = match inode.layout {
            Layout::Inline if block == size / BLOCK => {
                return Ok((Part::Here(inode.behind + at % BLOCK), left));
            }
            Layout::Inline => (0, u64::from(inode.place) + block, size - size % BLOCK - at),
            Layout::Plain => (0, u64::from(inode.place) + block, left),
            Layout::Chunks => {
                let bits = inode.place ^ INDEXED;
                let entry = (block >> bits.min(CHUNK_BITS_MAX)) * INDEX_BYTES;
                if bits > CHUNK_BITS_MAX || entry > INDEX_BYTES_MAX {
                    return damage(inode.behind, "a table of chunks that is too large");
                }
                let index_at = inode.behind.next_multiple_of(INDEX_BYTES) + entry;
                let RawIndex { device, address, .. } = self.raw(index_at)?;
                let end = ((block >> bits) + 1) << bits;
                let length = left.min(end.saturating_mul(BLOCK) - at);
                if address.get() == NO_ADDRESS {
                    return Ok((Part::Hole, length));
                }
                (device.get(), u64::from(address.get()) + (block & ((1 << bits) - 1)), length)
            }
        };
        let end = address + (at % BLOCK + length).div_ceil(BLOCK);
        let byte = address * BLOCK + at % BLOCK;
        match device {
            0 if end <= self.bytes / BLOCK => Ok((Part::Here(byte), length)),
            ON_DEVICE if end <= self.device_blocks => Ok((Part::Device(byte), length)),
            _ => damage(inode.nid * SLOT, "contents outside of the device"),
        }
    }

    /// Reads contents that are all in the file with the metadata.
    fn contents(&self, inode: &Inode) -> Result<Vec<u8>, Error> {
        let mut contents = Vec::new();
        while (contents.len() as u64) < inode.size {
            let (part, length) = self.part(inode, contents.len() as u64)?;
            let Part::Here(at) = part else {
                return damage(inode.nid * SLOT, "a directory or link on the device");
            };
            contents.extend(self.bytes(at, length)?);
        }
        Ok(contents)
    }

    /// Reads the target of a symbolic link.
    ///
    /// # Errors
    /// [`Error`].
    pub fn target(&self, inode: &Inode) -> Result<Vec<u8>, Error> {
        match inode.attributes.mode & TYPE_MASK {
            LINK => self.contents(inode),
            _ => damage(inode.nid * SLOT, "no link"),
        }
    }

    /// Reads the names of a directory, in order, with those of itself and its parent.
    ///
    /// # Errors
    /// [`Error`], also if they are not in order.
    pub fn names(&self, inode: &Inode) -> Result<Vec<Found>, Error> {
        let at = inode.nid * SLOT;
        if inode.attributes.mode & TYPE_MASK != DIRECTORY {
            return damage(at, "no directory");
        }
        let mut found: Vec<Found> = Vec::new();
        for block in self.contents(inode)?.chunks(BLOCK as usize) {
            let names = block_names(block);
            found.extend(names.map_or_else(|| damage(at, "a directory's block"), Ok)?);
        }
        match found.windows(2).all(|two| two[0].name < two[1].name) {
            true => Ok(found),
            false => damage(at, "names of a directory that are not in order"),
        }
    }
}

/// Returns an attribute, and how many bytes it has.
fn attribute(at: u64, bytes: &[u8]) -> Result<(Attribute, usize), Error> {
    let parsed = || {
        let (head, rest) = RawAttribute::read_from_prefix(bytes).ok()?;
        let (name, rest) = rest.split_at_checked(head.name_bytes.into())?;
        let value = rest.get(..usize::from(head.value_bytes.get()))?;
        let length = size_of::<RawAttribute>() + name.len() + value.len();
        Some(((joined(head.prefix, name)?.into(), value.into()), length))
    };
    parsed().map_or_else(|| damage(at, "an attribute"), Ok)
}

/// Returns the names of a block of a directory, if it is one.
fn block_names(block: &[u8]) -> Option<Vec<Found>> {
    let first = RawName::read_from_prefix(block).ok()?.0.name_at.get();
    let table = block.get(..usize::from(first))?;
    let entries: Vec<RawName> = table
        .chunks(size_of::<RawName>())
        .map(|it| RawName::read_from_bytes(it).ok())
        .collect::<Option<_>>()?;
    let ends = entries.iter().skip(1).map(|next| usize::from(next.name_at.get()));
    let ends = ends.chain([block.len()]);
    entries
        .iter()
        .zip(ends)
        .map(|(entry, end)| {
            let name = block.get(usize::from(entry.name_at.get())..end)?;
            let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
            Some(Found { name: name.into(), nid: entry.nid.get(), kind: entry.kind })
        })
        .collect()
}
