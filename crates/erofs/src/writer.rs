//! Writing metadata.

use std::fs::File;

use zerocopy::IntoBytes;

use crate::error::Error;
use crate::format::{
    BLOCK, COMPAT, DEVICE_AT, DIRECTORY, FIRST_AT, INCOMPAT, INDEX_BYTES, INDEXED, LINK, Layout,
    MAGIC, NO_ADDRESS, REGULAR, RawDevice, RawInode, RawSuper, SLOT, SUPER_AT, TYPE_MASK,
    encode_device, is_device, type_of,
};
use crate::{Attributes, Content, Directory};
use attributes::Shared;
use contents::{Addresses, Table};
use output::Output;

mod attributes;
mod contents;
mod directory;
mod output;

const INODE_BYTES: u64 = size_of::<RawInode>() as u64;

/// Writes the metadata of a tree to a file: each inode once, and a directory behind what is in it.
///
/// The caller walks the tree. [`begin`](Self::begin) gives a directory its number, so that the
/// directories in it can be begun; [`end`](Self::end) writes its names when all of them have their
/// numbers. The root is begun before everything else.
///
/// Memory: a buffer of two megabytes, up to 4 MiB of attributes that may repeat, and the names of
/// the directories that are begun. Calls block for the I/O.
pub struct Writer<'f> {
    output: Output<'f>,
    shared: Shared,
    device_blocks: u32,
    uuid: [u8; 16],
    inodes: u32,
}

/// The contents of an inode, as it names them.
struct Body<'b> {
    layout: Layout,
    size: u64,
    place: u32,
    /// The bytes behind the inode that have to be in its block.
    tail: &'b [u8],
    table: Option<Table>,
}

impl<'f> Writer<'f> {
    /// Begins with an empty file. Contents are on a device of so many blocks of 4096 bytes. `uuid`
    /// is the id of the file system.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn new(file: &'f File, device_blocks: u64, uuid: [u8; 16]) -> Result<Self, Error> {
        let device_blocks = u32::try_from(device_blocks).map_err(|_| Error::TooLarge)?;
        let output = Output::new(file, FIRST_AT);
        Ok(Self { output, shared: Shared::default(), device_blocks, uuid, inodes: 0 })
    }

    /// Begins a directory below the one with the number `parent`, the root without. Its names may
    /// come in any order. [`Set`](Directory::set) the number of each, and [`end`](Self::end) it.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::Mode`], errors of attributes and of the file.
    pub fn begin(
        &mut self,
        attributes: &Attributes,
        parent: Option<u64>,
        names: Vec<Box<[u8]>>,
    ) -> Result<Directory, Error> {
        if attributes.mode & TYPE_MASK != DIRECTORY {
            return Err(Error::Mode(attributes.mode));
        }
        let mut entries = directory::sorted(names)?;
        let own = self.shared.encode(&mut self.output, &attributes.xattrs)?;
        let size = directory::size(&entries);
        let (tail, before) = (size % BLOCK, INODE_BYTES + own.len() as u64);
        let is_inline = tail > 0 && before + tail <= BLOCK;
        let behind = if is_inline { tail } else { 0 };
        let at = self.output.place(before + behind, is_inline);
        let first = match (size - behind).div_ceil(BLOCK) {
            0 => 0,
            count => self.output.place_blocks(count),
        };
        let nid = at / SLOT;
        directory::set_own(&mut entries, nid, parent.unwrap_or(nid));
        let layout = if is_inline { Layout::Inline } else { Layout::Plain };
        let body = Body { layout, size, place: self.own_address(first)?, tail: &[], table: None };
        self.write_inode(at, attributes, &own, &body)?;
        Ok(Directory { nid, first, tail_at: is_inline.then_some(at + before), entries })
    }

    /// Writes the names of a directory.
    ///
    /// # Errors
    /// [`Error::Name`] if one has no number; errors of the file.
    pub fn end(&mut self, directory: &Directory) -> Result<(), Error> {
        if directory.entries.iter().any(|entry| entry.kind == 0) {
            return Err(Error::Name);
        }
        let full = directory::size(&directory.entries) / BLOCK;
        directory::write(&directory.entries, |number, bytes| {
            let at = match directory.tail_at {
                Some(at) if number == full => at,
                _ => (directory.first + number) * BLOCK,
            };
            Ok(self.output.write(at, bytes)?)
        })
    }

    /// Writes an inode that is no directory, and returns its number.
    ///
    /// # Errors
    /// [`Error::Place`], [`Error::TooSparse`], [`Error::Mode`], [`Error::Device`], errors of
    /// attributes and of the file.
    pub fn inode(&mut self, attributes: &Attributes, content: &Content<'_>) -> Result<u64, Error> {
        let own = self.shared.encode(&mut self.output, &attributes.xattrs)?;
        let mut padded = Vec::new();
        let body = self.body(attributes.mode, own.len() as u64, content, &mut padded)?;
        let before = INODE_BYTES + own.len() as u64;
        let is_inline = body.layout == Layout::Inline;
        // Indexes have an address that is a multiple of their size.
        let table_at = before.next_multiple_of(INDEX_BYTES);
        let behind = match &body.table {
            Some(table) => table_at - before + table.bytes(),
            None => body.tail.len() as u64,
        };
        let at = self.output.place(before + behind, is_inline);
        self.write_inode(at, attributes, &own, &body)?;
        if let Some(table) = &body.table {
            let mut next = at + table_at;
            table.write(|bytes| {
                self.output.write(next, bytes)?;
                next += bytes.len() as u64;
                Ok(())
            })?;
        }
        Ok(at / SLOT)
    }

    /// Returns what an inode says about its contents. `padded` takes bytes for that.
    fn body<'b>(
        &mut self,
        mode: u16,
        attribute_bytes: u64,
        content: &Content<'b>,
        padded: &'b mut Vec<u8>,
    ) -> Result<Body<'b>, Error> {
        let (size, bytes, runs) = match content {
            Content::Data { size, bytes, runs } if mode & TYPE_MASK == REGULAR => {
                (*size, *bytes, *runs)
            }
            Content::Target(bytes) if mode & TYPE_MASK == LINK => {
                (bytes.len() as u64, *bytes, [].as_slice())
            }
            Content::Device { major, minor } if is_device(mode) => {
                let place = encode_device(*major, *minor).ok_or(Error::Device(*major, *minor))?;
                return Ok(Body { layout: Layout::Plain, size: 0, place, tail: &[], table: None });
            }
            Content::None if matches!(type_of(mode), Some(5 | 6)) => {
                return Ok(Body {
                    layout: Layout::Plain,
                    size: 0,
                    place: 0,
                    tail: &[],
                    table: None,
                });
            }
            _ => return Err(Error::Mode(mode)),
        };
        let bytes = &bytes[..bytes.len().min(usize::try_from(size).unwrap_or(usize::MAX))];
        if size == 0 {
            let place = NO_ADDRESS;
            return Ok(Body { layout: Layout::Plain, size, place, tail: &[], table: None });
        }
        if !bytes.is_empty() && INODE_BYTES + attribute_bytes + size <= BLOCK {
            padded.extend_from_slice(bytes);
            padded.resize(size as usize, 0);
            return Ok(Body { layout: Layout::Inline, size, place: 0, tail: padded, table: None });
        }
        let blocks = size.div_ceil(BLOCK);
        let addresses = match bytes {
            [] => Addresses::Table(contents::on_device(blocks, runs, self.device_blocks)?),
            bytes => contents::in_metadata(blocks, bytes, &mut self.output)?,
        };
        Ok(match addresses {
            Addresses::Row(place) => {
                Body { layout: Layout::Plain, size, place, tail: &[], table: None }
            }
            Addresses::Table(table) => {
                let (layout, place) = (Layout::Chunks, INDEXED | table.bits);
                Body { layout, size, place, tail: &[], table: Some(table) }
            }
        })
    }

    /// Writes an inode with its attributes and what has to be in its block.
    fn write_inode(
        &mut self,
        at: u64,
        attributes: &Attributes,
        own: &[u8],
        body: &Body<'_>,
    ) -> Result<(), Error> {
        self.inodes = self.inodes.checked_add(1).ok_or(Error::TooLarge)?;
        // A header, and numbers of four bytes: their length was checked.
        let count = if own.is_empty() { 0 } else { 1 + (own.len() - 12) / 4 } as u16;
        let raw = RawInode {
            format: body.layout.format().into(),
            attributes: count.into(),
            mode: attributes.mode.into(),
            high: 0.into(),
            size: body.size.into(),
            place: body.place.into(),
            number: self.inodes.into(),
            uid: attributes.uid.into(),
            gid: attributes.gid.into(),
            mtime: attributes.mtime.div_euclid(1_000_000_000).cast_unsigned().into(),
            mtime_nanos: (attributes.mtime.rem_euclid(1_000_000_000) as u32).into(),
            links: attributes.links.into(),
            reserved: [0; 16],
        };
        let bytes = [raw.as_bytes(), own, body.tail].concat();
        Ok(self.output.write(at, &bytes)?)
    }

    /// Returns the address of a block of the file that is written.
    fn own_address(&self, block: u64) -> Result<u32, Error> {
        let address = u32::try_from(block).ok();
        address.filter(|_| self.output.blocks() < NO_ADDRESS.into()).ok_or(Error::TooLarge)
    }

    /// Writes the superblock, behind everything else. The file is whole then, and has whole blocks.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and errors of the file.
    pub fn finish(mut self, root: &Directory) -> Result<(), Error> {
        self.own_address(0)?;
        let root = u16::try_from(root.nid).map_err(|_| Error::TooLarge)?;
        let mut name = [0; 16];
        name[..7].copy_from_slice(b"vfscale");
        let raw = RawSuper {
            magic: MAGIC.into(),
            checksum: 0.into(),
            compat: COMPAT.into(),
            block_bits: BLOCK.trailing_zeros() as u8,
            extension_slots: 0,
            root: root.into(),
            inodes: u64::from(self.inodes).into(),
            time: 0.into(),
            time_nanos: 0.into(),
            blocks: (self.output.blocks() as u32).into(),
            inodes_at: 0.into(),
            attributes_at: 0.into(),
            uuid: self.uuid,
            name,
            incompat: INCOMPAT.into(),
            algorithms: 0.into(),
            devices: 1.into(),
            device_slot: ((DEVICE_AT / size_of::<RawDevice>() as u64) as u16).into(),
            directory_bits: 0,
            prefixes: 0,
            prefixes_at: 0.into(),
            packed: 0.into(),
            filter: 0,
            reserved: [0; 23],
        };
        let mut tag = [0; 64];
        tag[..7].copy_from_slice(b"vfscale");
        let blocks = self.device_blocks.into();
        let device = RawDevice { tag, blocks, address: 0.into(), reserved: [0; 56] };
        self.output.write(SUPER_AT, &[raw.as_bytes(), device.as_bytes()].concat())?;
        self.output.finish()?;
        Ok(self.output.seal()?)
    }
}
