//! Blocks, groups and trees.

use super::inodes::{extent, record};
use super::{Dump, DumpError, Value};
use crate::btree::{Kind, Record, Tree};
use crate::dir::DirTree;
use crate::format::btree::raw;
use crate::format::extent::Extent;
use crate::format::group::{
    CHUNK_ROOT_AT, FREE_ROOT_AT, FreeSpace, GroupHeader, HEADER_AT, InodeChunks, MAGIC,
};
use crate::format::inode::{INODE_MAGIC, ino_at, records};
use crate::format::{Block, Damage, Identity, Magic, superblock};
use crate::inode::blob::{AttrTree, LinkTree};
use crate::inode::extents::ExtentTree;

impl Dump {
    pub(super) fn header(&self, group: u32) -> Result<GroupHeader, Damage> {
        let media = self.media();
        let blocks = media.geometry().blocks_of(group).unwrap_or_default();
        let at = blocks.start + HEADER_AT;
        let block = media.block(MAGIC, at, group.into())?;
        GroupHeader::decode(at, &block, |block| blocks.contains(&block) && media.is_one(block))
    }

    pub(super) fn group(&self, group: u32) -> Result<Value, DumpError> {
        let media = self.media();
        let Some(blocks) = media.geometry().blocks_of(group) else {
            let groups = media.geometry().groups();
            return Err(DumpError::NoSuch(format!(
                "there is no group {group}: there are {groups}"
            )));
        };
        let header = match self.header(group) {
            Ok(header) => header_value(&header),
            Err(damage) => Value::fields().with("damage", damage.to_string()),
        };
        let free = self.walk::<FreeSpace>(blocks.start + FREE_ROOT_AT, group.into(), |record| {
            Value::fields().with("start", record.key.get()).with("blocks", record.value.get())
        });
        let chunks = self.walk::<InodeChunks>(blocks.start + CHUNK_ROOT_AT, group.into(), chunk);
        Ok(Value::fields()
            .with("group", group)
            .with("start", blocks.start)
            .with("blocks", blocks.end - blocks.start)
            .with("header", header)
            .with("free space", free)
            .with("chunks of inodes", chunks))
    }

    /// Shows a whole tree: its shape, its damage, its records.
    pub(super) fn walk<K: Kind>(
        &self,
        root: u64,
        owner: u64,
        show: impl Fn(&Record<K>) -> Value,
    ) -> Value {
        let (mut shown, mut damages, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
        let walked = Tree::<K>::at(root, owner).check_records(
            &self.media(),
            |damage| damages.push(Value::from(damage.to_string())),
            |block| blocks.push(Value::from(block)),
            |records| shown.extend(records.iter().map(&show)),
        );
        let summary = walked.unwrap_or_default();
        let value = Value::fields()
            .with("root", root)
            .with("owner", owner)
            .with("levels", summary.levels)
            .with("blocks", blocks)
            .with("leaves", summary.leaves)
            .with("room", summary.room);
        let value = if damages.is_empty() { value } else { value.with("damage", damages) };
        value.with("records", shown)
    }

    pub(super) fn tree(&self, root: u64) -> Result<Value, DumpError> {
        let block = self.raw(root)?;
        let (magic, owner) = (block.header().magic, block.header().owner.get());
        let value = Value::fields().with("magic", magic.to_string());
        let shown = match magic {
            FreeSpace::MAGIC => self.walk::<FreeSpace>(root, owner, |record| {
                Value::fields().with("start", record.key.get()).with("blocks", record.value.get())
            }),
            InodeChunks::MAGIC => self.walk::<InodeChunks>(root, owner, chunk),
            ExtentTree::MAGIC => self.walk::<ExtentTree>(root, owner, |record| {
                extent(&Extent::of(record.key.get(), &record.value))
            }),
            DirTree::MAGIC => self.walk::<DirTree>(root, owner, |record| {
                Value::fields()
                    .with("position", record.key.position.get())
                    .with("part", record.key.part)
                    .with("bytes", Value::hex(&record.value.0))
            }),
            AttrTree::MAGIC => self.walk::<AttrTree>(root, owner, piece::<AttrTree>),
            LinkTree::MAGIC => self.walk::<LinkTree>(root, owner, piece::<LinkTree>),
            _ => {
                let what = format!("block {root} is none of a tree: it begins with {magic}");
                return Err(DumpError::NoSuch(what));
            }
        };
        Ok(value.with("tree", shown))
    }

    /// Reads a block of the volume without checks.
    fn raw(&self, address: u64) -> Result<Box<Block>, DumpError> {
        let media = self.media();
        if media.geometry().group_of(address).is_none() {
            let blocks = media.geometry().blocks();
            let what = format!("there is no block {address}: there are {blocks}");
            return Err(DumpError::NoSuch(what));
        }
        Ok(media.raw(address)?)
    }

    pub(super) fn block(&self, address: u64) -> Result<Value, DumpError> {
        let block = self.raw(address)?;
        let header = block.header();
        let (magic, owner, volume) = (header.magic, header.owner.get(), self.media().volume());
        let value = Value::fields().with("block", address);
        if header.volume != volume {
            let value = value.with("kind", "data, or not in use");
            return Ok(value.with("bytes", lines(&block)));
        }
        let is_whole = block.verify(&Identity { magic, address, owner, volume });
        let value = value
            .with("magic", magic.to_string())
            .with("checksum", format!("{:08x}", header.checksum.get()))
            .with("address", header.address.get())
            .with("owner", owner)
            .with("volume", header.volume.to_string())
            .with("lsn", vfscale_journal::Lsn::from_bits(header.lsn.get()).to_string());
        let value = match is_whole {
            Ok(()) => value,
            Err(damage) => value.with("damage", damage.to_string()),
        };
        Ok(match magic {
            superblock::MAGIC => match crate::Superblock::decode(&block, address) {
                Ok(found) => value.with("superblock", super::superblock(&found)),
                Err(error) => value.with("damage", error.to_string()),
            },
            MAGIC => match GroupHeader::decode(address, &block, |_| true) {
                Ok(header) => value.with("group", header_value(&header)),
                Err(damage) => value.with("damage", damage.to_string()),
            },
            INODE_MAGIC => {
                let media = self.media();
                let shown = records(&block).iter().enumerate().map(|(slot, found)| {
                    record(ino_at(address, slot), found, &|start, blocks| {
                        media.has_ends(start, blocks)
                    })
                });
                value.with("inodes", shown.collect::<Value>())
            }
            magic if is_tree(magic) => {
                let node = raw(&block);
                value
                    .with("level", node.level.get())
                    .with("records", node.records.get())
                    .with("left", node.left.get())
                    .with("right", node.right.get())
            }
            _ => value.with("bytes", lines(&block)),
        })
    }
}

fn is_tree(magic: Magic) -> bool {
    [
        FreeSpace::MAGIC,
        InodeChunks::MAGIC,
        ExtentTree::MAGIC,
        DirTree::MAGIC,
        AttrTree::MAGIC,
        LinkTree::MAGIC,
    ]
    .contains(&magic)
}

fn header_value(header: &GroupHeader) -> Value {
    let set_aside = header.set_aside.iter().map(|block| Value::from(*block));
    Value::fields()
        .with("free blocks", header.free)
        .with("free inodes", header.free_inodes)
        .with("inodes", header.inodes)
        .with("orphans", header.orphans)
        .with("tree blocks", header.tree_blocks)
        .with("blocks", header.blocks)
        .with("set aside", set_aside.collect::<Value>())
}

fn chunk(record: &Record<InodeChunks>) -> Value {
    let (free, orphan) = (record.value.free.get(), record.value.orphan.get());
    Value::fields()
        .with("start", record.key.get())
        .with("free", format!("{free:016x}"))
        .with("orphans", format!("{orphan:016x}"))
}

fn piece<K: crate::inode::blob::BlobKind>(record: &Record<K>) -> Value {
    Value::fields().with("piece", record.key.get()).with("bytes", Value::hex(&record.value.0))
}

/// Shows the bytes of a block in lines of 32, without lines of zeros.
fn lines(block: &Block) -> Value {
    const LINE: usize = 32;
    let lines = block.bytes().chunks(LINE).enumerate();
    let lines = lines.filter(|(_, line)| line.iter().any(|byte| *byte != 0));
    let shown = lines.map(|(number, line)| {
        Value::fields().with("at", (number * LINE) as u64).with("bytes", Value::hex(line))
    });
    shown.collect()
}
