//! A small volume with a structure of every kind, built block by block from the format, without the
//! parts of the program that make volumes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use vfscale_block::{CowDevice, Device, MemoryDevice};
use vfscale_journal::{Journal, Region, VolumeId};

use crate::btree::{Entry, Tree};
use crate::dir::{Directory, Insertion, NameHash};
use crate::format::extent::Extent;
use crate::format::geometry::Geometry;
use crate::format::group::{
    CHUNK_ROOT_AT, FREE_ROOT_AT, FreeSpace, GroupHeader, HEADER_AT, InodeChunks, MAGIC, RawChunk,
};
use crate::format::inode::{
    CHUNK_BLOCKS, CHUNK_INODES, INODE_MAGIC, ROOT_INO, block_of, chunk_of, records_mut, slot_of,
};
use crate::format::{Block, Identity, byte_of_block};
use crate::inode::core::{DataFork, FileKind, InodeCore};
use crate::inode::extents::ExtentTree;
use crate::inode::{attr, blob};
use crate::tools::check::media::Media;
use crate::tools::check::overlay::Overlay;
use crate::tools::check::{self, Finding, Options, Report};
use crate::volume::copies;
use crate::{LogPlace, Superblock, Uuid};

pub(crate) const ID: Uuid = Uuid::from_bytes(*b"sample of checks");
const BLOCKS: u64 = 4096;
/// Number of blocks of a group.
pub(crate) const GROUP: u64 = 1024;
/// First block of the only chunk of inodes.
pub(crate) const CHUNK: u64 = 8;

/// A directory with its entries in a tree.
pub(crate) const TREE_DIR: u64 = 65;
/// A file with its data in its inode, and with many names.
pub(crate) const MANY: u64 = 66;
/// A file with a list of extents.
pub(crate) const LIST: u64 = 67;
/// A file with a tree of extents.
pub(crate) const EXTENTS: u64 = 68;
/// A symbolic link with its target in its inode.
pub(crate) const SHORT_LINK: u64 = 69;
/// A symbolic link with its target in a tree.
pub(crate) const LONG_LINK: u64 = 70;
/// A file with attributes in its inode.
pub(crate) const FEW_ATTRIBUTES: u64 = 71;
/// A file with attributes in a tree.
pub(crate) const MANY_ATTRIBUTES: u64 = 72;
/// A fifo.
pub(crate) const FIFO: u64 = 73;
/// A directory in the other one.
pub(crate) const BELOW: u64 = 74;
/// An inode that is being removed.
pub(crate) const ORPHAN: u64 = 75;
/// The first free inode.
pub(crate) const FREE: u64 = 76;

/// Number of names for [`MANY`] in the directory with a tree.
const NAMES: u32 = 150;

/// A volume on a device, for tests to change.
pub(crate) struct Sample {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: Superblock,
}

/// Seals a block and writes it.
pub(crate) fn write(device: &dyn Device, address: u64, block: &Block) {
    let (header, mut block) = (block.header().clone(), Box::new(block.clone()));
    let (magic, owner, volume) = (header.magic, header.owner.get(), header.volume);
    block.seal(&Identity { magic, address, owner, volume }, header.lsn.get());
    device.write_at(byte_of_block(address), block.bytes()).unwrap();
}

fn core(mode: u32, nlink: u32) -> InodeCore {
    InodeCore { nlink, ..InodeCore::new(mode, 1, 1_700_000_000_000_000_000) }
}

/// A volume under construction.
struct Maker<'m, 'd> {
    overlay: Overlay<'m, 'd>,
    inodes: Vec<(u64, InodeCore)>,
}

impl Maker<'_, '_> {
    fn directory(&mut self, ino: u64, parent: u64, nlink: u32, names: &[(&str, u64, FileKind)]) {
        let mut core = core(0o040_755, nlink);
        core.parent = parent;
        let directory = Directory::new(ino, NameHash::of(ID));
        for (name, to, kind) in names {
            let name = name.as_bytes();
            let inserted = directory.insert(&mut self.overlay, &mut core, name, (*to, *kind));
            assert!(matches!(inserted.unwrap(), Insertion::At(_)));
        }
        self.inodes.push((ino, core));
    }

    fn blocks(&mut self, count: usize) -> Range<u64> {
        let first = *self.overlay.pool.last().unwrap();
        self.overlay.pool.truncate(self.overlay.pool.len() - count);
        first..first + count as u64
    }

    fn files(&mut self) {
        let mut many = core(0o100_644, NAMES + 1);
        many.data = DataFork::Inline(b"in the inode"[..].into());
        many.size = 5000;
        self.inodes.push((MANY, many));
        let mut list = core(0o100_600, 1);
        let extent =
            |file_block, start, is_unwritten| Extent { file_block, start, blocks: 2, is_unwritten };
        let run = self.blocks(6);
        let extents = [
            extent(0, run.start, false),
            extent(5, run.start + 4, true),
            extent(9, run.start + 2, false),
        ];
        list.data = DataFork::Extents(extents[..].into());
        (list.size, list.blocks) = (10 * 4096 + 1, 6);
        self.inodes.push((LIST, list));
        let mut tree = core(0o100_600, 1);
        let run = self.blocks(80);
        let records: Vec<_> = (0..40)
            .map(|n| extent(n * 3, run.start + n * 2, false))
            .map(|extent| Entry { key: extent.file_block.into(), value: extent.place() })
            .collect();
        let built = Tree::<ExtentTree>::build(&mut self.overlay, EXTENTS, 0, &records, 80).unwrap();
        tree.data = DataFork::Tree { root: built.root() };
        (tree.size, tree.blocks) = (119 * 4096, 81);
        self.inodes.push((EXTENTS, tree));
    }

    fn links_and_others(&mut self) {
        let mut short = core(0o120_777, 1);
        short.data = DataFork::Inline(b"target"[..].into());
        short.size = 6;
        self.inodes.push((SHORT_LINK, short));
        let mut long = core(0o120_777, 1);
        let tree =
            blob::create::<blob::LinkTree, _>(&mut self.overlay, LONG_LINK, 0, &[b'x'; 1000])
                .unwrap();
        long.data = DataFork::Tree { root: tree.root() };
        (long.size, long.blocks) = (1000, 1);
        self.inodes.push((LONG_LINK, long));
        for (ino, length) in [(FEW_ATTRIBUTES, 100), (MANY_ATTRIBUTES, 5000)] {
            let mut file = core(0o100_644, 1);
            let list = [("system.one", 7), ("user.two", length)]
                .map(|(name, length)| (name.as_bytes().into(), vec![7; length].into()));
            let bytes = attr::encode(&list).unwrap();
            attr::store(&mut self.overlay, ino, 0, &mut file, &bytes).unwrap();
            self.inodes.push((ino, file));
        }
        self.inodes.push((FIFO, core(0o010_644, 1)));
        self.inodes.push((ORPHAN, core(0o100_644, 0)));
    }

    fn names(&mut self) {
        use FileKind::{Directory, Fifo, Link, Regular};
        let root = [
            ("many", MANY, Regular),
            ("list", LIST, Regular),
            ("extents", EXTENTS, Regular),
            ("short", SHORT_LINK, Link),
            ("fifo", FIFO, Fifo),
            ("tree", TREE_DIR, Directory),
        ];
        self.directory(ROOT_INO, ROOT_INO, 3, &root);
        let long = |n| format!("{n}: a name that does not fit into the first record of its entry");
        let names: Vec<_> = (0..NAMES).map(long).collect();
        let mut entries: Vec<_> = names.iter().map(|name| (name.as_str(), MANY, Regular)).collect();
        entries.extend([
            ("few", FEW_ATTRIBUTES, Regular),
            ("attributes", MANY_ATTRIBUTES, Regular),
            ("long", LONG_LINK, Link),
            ("below", BELOW, Directory),
        ]);
        self.directory(TREE_DIR, ROOT_INO, 3, &entries);
        self.directory(BELOW, TREE_DIR, 2, &[]);
    }

    fn inode_blocks(&mut self) {
        for address in CHUNK..CHUNK + CHUNK_BLOCKS {
            let identity = Identity { magic: INODE_MAGIC, address, owner: CHUNK, volume: ID };
            let mut block = Block::zeroed();
            block.seal(&identity, 0);
            for (ino, core) in self.inodes.iter().filter(|(ino, _)| block_of(*ino) == address) {
                records_mut(&mut block)[slot_of(*ino)] = core.encode();
            }
            self.overlay.blocks.insert(address, block);
        }
    }

    /// Writes the metadata of a group whose free blocks are `free`.
    fn group(&mut self, group: u32, free: &Range<u64>, set_aside: Vec<u64>) {
        let start = u64::from(group) * GROUP;
        let header = |count: u64| if group == 0 { count } else { 0 };
        let header = GroupHeader {
            free: free.end - free.start,
            free_inodes: header(CHUNK_INODES - 12),
            inodes: header(CHUNK_INODES),
            orphans: header(1),
            tree_blocks: 0,
            blocks: GROUP,
            set_aside,
        };
        header.encode(self.overlay.put(start + HEADER_AT, &GroupHeader::expected(group)));
        self.overlay.pool = vec![start + CHUNK_ROOT_AT, start + FREE_ROOT_AT];
        let records = [Entry { key: free.start.into(), value: (free.end - free.start).into() }];
        let owner = group.into();
        Tree::<FreeSpace>::build(&mut self.overlay, owner, 0, &records, 80).unwrap();
        let value = RawChunk { free: (u64::MAX << 12).into(), orphan: (1 << 11).into() };
        let chunks = if group == 0 { vec![Entry { key: CHUNK.into(), value }] } else { vec![] };
        Tree::<InodeChunks>::build(&mut self.overlay, owner, 0, &chunks, 80).unwrap();
    }
}

impl Sample {
    /// Creates the volume, closed cleanly.
    pub(crate) fn new() -> Self {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(byte_of_block(BLOCKS)).unwrap());
        let geometry = Geometry::new(BLOCKS, 10).unwrap();
        let (start, blocks) = (2 * GROUP + 8, 256);
        let superblock = Superblock::new(ID, geometry);
        let mut superblock = superblock.with_log(LogPlace::Inside { start, blocks }).unwrap();
        let region = Region { offset: byte_of_block(start), length: byte_of_block(blocks) };
        Journal::format(&*device, region, VolumeId(ID.to_bytes())).unwrap();
        let media = Media::new(&*device, &superblock);
        let mut overlay = Overlay::new(&media);
        overlay.pool = (CHUNK + CHUNK_BLOCKS..GROUP).rev().collect();
        let mut maker = Maker { overlay, inodes: Vec::new() };
        maker.files();
        maker.links_and_others();
        maker.names();
        maker.inode_blocks();
        let set_aside = vec![maker.blocks(1).start, maker.blocks(1).start];
        let behind = *maker.overlay.pool.last().unwrap();
        maker.group(0, &(behind..GROUP), set_aside);
        maker.group(1, &(GROUP + 8..2 * GROUP), Vec::new());
        maker.group(2, &(start + blocks..3 * GROUP), Vec::new());
        maker.group(3, &(3 * GROUP + 8..BLOCKS), Vec::new());
        let blocks = maker.overlay.blocks;
        blocks.iter().for_each(|(address, block)| write(&*device, *address, block));
        copies::create(&*device, &mut superblock).unwrap();
        Self { device, superblock }
    }

    /// Returns a copy that a test can damage.
    pub(crate) fn copied(&self) -> Self {
        let device = Arc::new(CowDevice::new(self.device.clone()));
        Self { device, superblock: self.superblock.clone() }
    }

    pub(crate) fn media(&self) -> Media<'_> {
        Media::new(&*self.device, &self.superblock)
    }

    /// Changes a block, and makes its checksum right.
    pub(crate) fn block(&self, address: u64, change: impl FnOnce(&mut Block)) {
        let mut block = self.media().raw(address).unwrap();
        change(&mut block);
        write(&*self.device, address, &block);
    }

    /// Changes an inode.
    pub(crate) fn inode(&self, ino: u64, change: impl FnOnce(&mut InodeCore)) {
        let media = self.media();
        self.block(block_of(ino), |block| {
            let record = &mut records_mut(block)[slot_of(ino)];
            let mut core =
                InodeCore::decode(ino, record, |start, blocks| media.has_ends(start, blocks))
                    .unwrap();
            change(&mut core);
            *record = core.encode();
        });
    }

    pub(crate) fn core(&self, ino: u64) -> InodeCore {
        let (block, media) = (block_of(ino), self.media());
        let block = media.block(INODE_MAGIC, block, chunk_of(block)).unwrap();
        let record = &crate::format::inode::records(&block)[slot_of(ino)];
        InodeCore::decode(ino, record, |start, blocks| media.has_ends(start, blocks)).unwrap()
    }

    /// Returns an inode, if it is in use.
    pub(crate) fn core_of(&self, ino: u64) -> Option<InodeCore> {
        let (block, media) = (block_of(ino), self.media());
        let block = media.block(INODE_MAGIC, block, chunk_of(block)).unwrap();
        let is_free = crate::format::inode::records(&block)[slot_of(ino)].is_free();
        (!is_free).then(|| self.core(ino))
    }

    /// Changes the header of a group.
    pub(crate) fn header(&self, group: u32, change: impl FnOnce(&mut GroupHeader)) {
        let at = u64::from(group) * GROUP + HEADER_AT;
        let block = self.media().block(MAGIC, at, group.into()).unwrap();
        let mut header = GroupHeader::decode(at, &block, |_| true).unwrap();
        change(&mut header);
        self.block(at, |block| header.encode(block));
    }

    /// Changes trees.
    pub(crate) fn trees(&self, change: impl FnOnce(&mut Overlay<'_, '_>)) {
        let media = self.media();
        let mut overlay = Overlay::new(&media);
        change(&mut overlay);
        let blocks = overlay.blocks;
        blocks.iter().for_each(|(address, block)| write(&*self.device, *address, block));
    }

    pub(crate) fn check(&self) -> Report {
        check::check(self.device.clone(), &Options::default(), &mut ()).unwrap()
    }

    /// Returns all bytes of the device.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.device.size() as usize];
        self.device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// Returns the numbers of the findings, each once.
    pub(crate) fn found(&self) -> Vec<u32> {
        self.numbers().into_iter().collect()
    }

    /// Returns the numbers of the findings as a set.
    pub(crate) fn numbers(&self) -> BTreeSet<u32> {
        self.check().findings.iter().map(Finding::number).collect()
    }
}

impl InodeCore {
    /// Returns the first block of a file with a list of extents.
    pub(crate) fn first_block(&self) -> u64 {
        let DataFork::Extents(list) = &self.data else { panic!("a list of extents") };
        list[0].start
    }
}
