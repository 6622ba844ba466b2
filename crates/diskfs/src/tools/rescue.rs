//! Reading a volume that can't be mounted.
//!
//! # Purpose
//!
//! A mount needs a readable log, and every group. [`Rescue`] needs only a superblock, or a copy of
//! it: it finds each inode by its number, and each part of the inode by the inode's record. The
//! changes in the log are replayed in memory if the log is readable; otherwise the blocks are read
//! as they are, without these changes. A damaged tree contributes all its readable records, as for
//! a repair ([`check`](crate::tools::check)), and each missing part is reported.
//!
//! [`Rescue::each_inode`] also finds the inodes that no name leads to: by the trees of their
//! groups, or, in a group whose tree is damaged, by its blocks.
//!
//! # Invariants
//!
//! * Nothing is written.
//! * For any bytes, each call ends. Names are valid names of files. The caller checks
//!   whether the directories form a tree, and whether the same number is found twice.
//! * The data read for a file belonged to that file, as far as its blocks tell: data have no
//!   checksums. Where the free space of a group is unreadable, inodes may be found that were
//!   removed; their data may belong to other files now.
//!
//! # Locks, references
//!
//! None. No other program or thread writes to the device; the caller ensures that.

mod blocks;
mod data;
mod longer;

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use vfscale_block::Device;

use crate::Settings;
use crate::base::fault::Fault;
use crate::btree::{Around, Error, Kind, Record, Tree};
use crate::dir::{DirTree, Directory, NameHash, is_name};
use crate::format::attr::CHUNK_BYTES;
use crate::format::group::{CHUNK_ROOT_AT, FREE_ROOT_AT, FreeSpace, InodeChunks};
use crate::format::inode::{
    CHUNK_BLOCKS, INODE_MAGIC, INODES_PER_BLOCK, InodeRecord, block_of, chunk_of, ino_at, records,
    slot_of,
};
use crate::format::{Block, Damage};
use crate::inode::attr::{self, Attribute};
use crate::inode::blob::{self, AttrTree, LinkTree};
use crate::inode::core::{AttrFork, DataFork, InodeCore};
use crate::inode::extents::ExtentTree;
use crate::tools::check::{Media, NoChange};
use crate::volume::{Places, copies, replay_in_memory};
use crate::{OpenError, Superblock};
pub use blocks::BlockUse;
use longer::Longer;

/// The result of reading the log of a volume that is rescued.
#[derive(Clone, Debug)]
pub enum LogRead {
    /// The log was replayed.
    Replayed {
        /// The number of items that were not written back.
        items: u64,
    },
    /// The log was unreadable, from some place on or all of it. The last changes are missing.
    Unusable(Fault),
}

/// A part of a file that is missing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// A structure that describes the file is damaged.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The device can't read a part of the file's data.
    #[error("bytes {} to {} can't be read: {error}", .bytes.start, .bytes.end)]
    Data {
        /// The range of the file.
        bytes: Range<u64>,
        /// The first error of the device.
        error: vfscale_block::Error,
    },
    /// A part of the file's data lies in blocks that can't belong to a file.
    #[error("bytes {} to {} lie where no file can have any", .bytes.start, .bytes.end)]
    Place {
        /// The range of the file.
        bytes: Range<u64>,
    },
}

/// A name in a directory, and the number of its inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// 1 to 255 bytes, without `/` and NUL, neither `.` nor `..`.
    pub name: Box<[u8]>,
    /// The number of an inode, which need not exist.
    pub ino: u64,
}

/// A volume that is read despite its damage. See the [module](self).
pub struct Rescue {
    device: Arc<dyn Device>,
    superblock: Superblock,
    log: LogRead,
    /// The bytes that the replay of the log has changed.
    replayed: Vec<Range<u64>>,
    /// The size of the device in bytes, if the volume is larger.
    cut_off: Option<u64>,
    strays: OnceCell<Vec<Stray>>,
    /// Blocks of inodes that were read last: files of a directory are often in few.
    last_inodes: RefCell<BTreeMap<u64, Box<Block>>>,
    /// The chunk of inodes that was looked up last, and whether there is one.
    last_chunk: Cell<Option<(u64, bool)>>,
}

/// Most blocks of inodes that are retained.
const INODE_BLOCKS_MAX: usize = 256;

/// The records in a block of inodes.
type Records = [InodeRecord; INODES_PER_BLOCK as usize];

/// A block of a tree by its own header: magic number, owner and address.
type Stray = ([u8; 4], u64, u64);

impl Rescue {
    /// Opens the volume on `device`, with its log on `log` if it is not in the volume. Blocks for
    /// I/O: reads the log.
    ///
    /// # Errors
    /// [`OpenError`]: neither the superblock nor a copy is readable, or the volume has features
    /// that this program does not know.
    pub fn open(device: Arc<dyn Device>, log: Option<Arc<dyn Device>>) -> Result<Self, OpenError> {
        let (device, cut_off, found) = match copies::read(&*device) {
            Err(OpenError::CutOff { volume_bytes, device_bytes, .. }) => {
                let longer: Arc<dyn Device> = Arc::new(Longer::new(device, volume_bytes));
                let found = copies::read(&*longer)?;
                (longer, Some(device_bytes), found)
            }
            found => (device, None, found?),
        };
        let superblock = found.superblock;
        let options = Settings { log_device: log, ..Settings::default() };
        let places = Places::new(&superblock);
        let replay =
            |may_lack| replay_in_memory(device.clone(), &superblock, &places, &options, may_lack);
        let (replayed, log) = match replay(false) {
            Ok(replayed) => {
                let items = replayed.recovered.items;
                (Some(replayed), LogRead::Replayed { items })
            }
            Err(fault) => (replay(true).ok(), LogRead::Unusable(fault)),
        };
        let (device, replayed) = match replayed {
            Some(replayed) => (replayed.device, replayed.changed),
            None => (device, Vec::new()),
        };
        Ok(Self {
            device,
            superblock,
            log,
            replayed,
            cut_off,
            strays: OnceCell::new(),
            last_inodes: RefCell::default(),
            last_chunk: Cell::default(),
        })
    }

    /// Returns the result of reading the log.
    pub fn log(&self) -> &LogRead {
        &self.log
    }

    /// Returns the size of the device in bytes, if the volume is larger.
    pub fn cut_off(&self) -> Option<u64> {
        self.cut_off
    }

    fn media(&self) -> Media<'_> {
        Media::new(&*self.device, &self.superblock)
    }

    /// Returns the inode with this number, if it exists, and the damage of its extents. Blocks for
    /// I/O.
    ///
    /// # Errors
    /// The record of the inode is unreadable.
    pub fn inode(&self, ino: u64) -> Result<Option<(InodeCore, Option<Loss>)>, Loss> {
        let media = self.media();
        if !media.is_one(block_of(ino)) {
            return Ok(None);
        }
        let record = self.records(&media, block_of(ino))?[slot_of(ino)].clone();
        Ok(decoded(&media, ino, &record)?)
    }

    /// Returns the records in a block of inodes.
    fn records(&self, media: &Media<'_>, block: u64) -> Result<Ref<'_, Records>, Damage> {
        if !self.last_inodes.borrow().contains_key(&block) {
            let found = media.inodes(block)?.0;
            let mut last = self.last_inodes.borrow_mut();
            if last.len() >= INODE_BLOCKS_MAX {
                last.clear();
            }
            last.insert(block, found);
        }
        Ok(Ref::map(self.last_inodes.borrow(), |last| records(&last[&block])))
    }

    /// Returns the names in a directory, and its damage. Blocks for I/O.
    pub fn names(&self, ino: u64, core: &InodeCore) -> (Vec<Name>, Vec<Loss>) {
        let (media, mut names, mut losses) = (self.media(), Vec::new(), Vec::new());
        let directory = Directory::new(ino, NameHash::of(media.volume()));
        let entry = |names: &mut Vec<Name>, name: &[u8], ino| {
            if is_name(name) {
                names.push(Name { name: name.into(), ino });
            }
        };
        let mut found = |damage| losses.push(Loss::Damage(damage));
        let mut each = |found: crate::dir::DirEntry<'_>| entry(&mut names, found.name, found.ino);
        // This walk changes no tree, so its only errors are damage.
        directory.check(&media, core, &mut found, &mut |_| {}, &mut each).unwrap_or_default();
        if let (DataFork::Tree { root }, false) = (&core.data, losses.is_empty()) {
            let agrees = |records: &[_], _| directory.size_of(records) == core.size;
            let kept = self.kept::<DirTree>(&media, *root, ino, agrees);
            let mut more = Vec::new();
            directory.entries_of(&kept, &mut |found| entry(&mut more, found.name, found.ino));
            if more.len() > names.len() {
                names = more;
            }
        }
        (names, losses)
    }

    /// Returns the target of a symbolic link. Blocks for I/O.
    ///
    /// # Errors
    /// The target is unreadable.
    pub fn target(&self, ino: u64, core: &InodeCore) -> Result<Vec<u8>, Loss> {
        match &core.data {
            DataFork::Inline(bytes) => Ok(bytes.to_vec()),
            DataFork::Tree { root } => {
                let bytes = u32::try_from(core.size).unwrap_or(u32::MAX);
                let loaded = blob::load(&self.media(), Tree::<LinkTree>::at(*root, ino), bytes);
                loaded.or_else(|error| damage_of(error).map_or(Ok(Vec::new()), Err))
            }
            DataFork::None | DataFork::Extents(_) => Ok(Vec::new()),
        }
    }

    /// Returns the attributes of an inode, including access control lists, and their damage. Blocks
    /// for I/O.
    pub fn attributes(&self, ino: u64, core: &InodeCore) -> (Vec<Attribute>, Option<Loss>) {
        let media = self.media();
        let error = match attr::load(&media, ino, &core.attr) {
            Ok(list) => return (list, None),
            Err(error) => error,
        };
        let mut blob = Vec::new();
        match &core.attr {
            AttrFork::None => {}
            AttrFork::Inline(bytes) => blob.extend_from_slice(bytes),
            AttrFork::Tree { root, bytes } => {
                let chunks = (*bytes as usize).div_ceil(CHUNK_BYTES);
                let agrees = |records: &[Record<AttrTree>], _| records.len() == chunks;
                let kept = self.kept::<AttrTree>(&media, *root, ino, agrees);
                // Bytes behind a missing chunk are meaningless.
                let known = (0..).zip(&kept).take_while(|(at, piece)| piece.key == *at);
                known.for_each(|(_, piece)| blob.extend_from_slice(&piece.value.0));
                blob.truncate(*bytes as usize);
            }
        }
        let mut list = Vec::new();
        // The attributes before the damage are salvaged.
        attr::decode_into(&blob, &mut list).unwrap_or_default();
        (list, damage_of(error))
    }

    /// Calls `each` with every inode that has a name, or should have one, and returns the damage of
    /// the structures that lead to inodes. A damaged chunk contributes its readable inodes. Blocks
    /// for I/O: reads all inodes.
    pub fn each_inode(&self, each: &mut dyn FnMut(u64, &InodeCore)) -> Vec<Loss> {
        let (media, mut losses) = (self.media(), Vec::new());
        for group in 0..media.geometry().groups() {
            let (chunks, damages) = self.chunks(&media, group);
            losses.extend(damages.into_iter().map(Loss::Damage));
            for address in chunks.into_iter().flat_map(|start| start..start + CHUNK_BLOCKS) {
                let (block, _) = match media.inodes(address) {
                    Ok(block) => block,
                    Err(damage) => {
                        losses.push(damage.into());
                        continue;
                    }
                };
                for (slot, record) in records(&block).iter().enumerate() {
                    let ino = ino_at(address, slot);
                    match decoded(&media, ino, record) {
                        Ok(Some((core, _))) if core.nlink > 0 => each(ino, &core),
                        Ok(_) => {}
                        Err(damage) => losses.push(damage.into()),
                    }
                }
            }
        }
        losses
    }

    /// Returns the starts of the chunks of inodes of a group, and the damage of its tree of chunks.
    /// If there is damage, examines all blocks of the group.
    fn chunks(&self, media: &Media<'_>, group: u32) -> (BTreeSet<u64>, Vec<Damage>) {
        let blocks = media.geometry().blocks_of(group).unwrap_or_default();
        let (mut chunks, mut damages) = (BTreeSet::new(), Vec::new());
        let tree = Tree::<InodeChunks>::at(blocks.start + CHUNK_ROOT_AT, group.into());
        let records = |records: &[Record<InodeChunks>]| {
            let starts = records.iter().map(|record| record.key.get());
            let is_possible = |start: &u64| {
                start.is_multiple_of(CHUNK_BLOCKS)
                    && media.is_common(&(*start..start.saturating_add(CHUNK_BLOCKS)))
            };
            chunks.extend(starts.filter(is_possible));
        };
        // This walk changes no tree, so its only errors are damage.
        tree.check_records(media, |damage| damages.push(damage), |_| {}, records)
            .unwrap_or_default();
        if !damages.is_empty() {
            let free = free_runs(media, &blocks, group).unwrap_or_default();
            media.each_block(blocks, |address, header| {
                let start = chunk_of(address);
                let is_inodes = header.magic == INODE_MAGIC && header.owner == start;
                let before = free.partition_point(|run| run.start <= address);
                let is_free = before > 0 && free[before - 1].contains(&address);
                if is_inodes && !is_free && media.is_common(&(start..start + CHUNK_BLOCKS)) {
                    chunks.insert(start);
                }
            });
        }
        (chunks, damages)
    }

    /// Returns the readable records of a damaged tree of an inode.
    fn kept<K: Kind>(
        &self,
        media: &Media<'_>,
        root: u64,
        ino: u64,
        agrees: impl Fn(&[Record<K>], u64) -> bool,
    ) -> Vec<Record<K>> {
        let around = RescueContext { rescue: self, ino, agrees };
        // This walk changes no tree, so its only errors are damage.
        let kept = Tree::<K>::at(root, ino).salvage(media, &around);
        kept.map(|kept| kept.records).unwrap_or_default()
    }

    /// Returns all blocks whose header names a tree of an inode. Reads the whole volume, once.
    fn strays(&self) -> &[Stray] {
        self.strays.get_or_init(|| {
            let (media, mut strays) = (self.media(), Vec::new());
            media.each_block(0..media.geometry().blocks(), |address, header| {
                if [DirTree::MAGIC, ExtentTree::MAGIC, AttrTree::MAGIC].contains(&header.magic) {
                    strays.push((header.magic.0, header.owner.get(), address));
                }
            });
            strays.sort_unstable();
            strays
        })
    }
}

/// The context for salvaging a tree of an inode; the owners of blocks are unknown.
struct RescueContext<'r, A> {
    rescue: &'r Rescue,
    ino: u64,
    agrees: A,
}

impl<K: Kind, A: Fn(&[Record<K>], u64) -> bool> Around<K> for RescueContext<'_, A> {
    fn is_unowned(&self, _: u64) -> bool {
        true
    }

    fn search(&self) -> Vec<u64> {
        let strays = self.rescue.strays();
        let (magic, ino) = (K::MAGIC.0, self.ino);
        let first = strays.partition_point(|(m, owner, _)| (*m, *owner) < (magic, ino));
        let like = strays[first..].iter().take_while(|(m, owner, _)| (*m, *owner) == (magic, ino));
        like.map(|(_, _, address)| *address).collect()
    }

    fn agrees(&self, records: &[Record<K>], leaves: usize) -> bool {
        (self.agrees)(records, leaves as u64)
    }
}

/// Decodes the inode of a record, if it has one, and the damage of its extents.
fn decoded(
    media: &Media<'_>,
    ino: u64,
    record: &InodeRecord,
) -> Result<Option<(InodeCore, Option<Loss>)>, Damage> {
    if record.is_free() {
        return Ok(None);
    }
    let (core, wrong) =
        InodeCore::decode_possible(ino, record, |start, blocks| media.has_ends(start, blocks))?;
    Ok(Some((core, wrong.map(Loss::Damage))))
}

/// Returns the free runs of a group, in order; `None` if some of them are unreadable.
fn free_runs(media: &Media<'_>, blocks: &Range<u64>, group: u32) -> Option<Vec<Range<u64>>> {
    let (mut free, mut is_whole) = (Vec::new(), true);
    let tree = Tree::<FreeSpace>::at(blocks.start + FREE_ROOT_AT, group.into());
    let records = |records: &[Record<FreeSpace>]| {
        let run =
            |run: &Record<FreeSpace>| run.key.get()..run.key.get().saturating_add(run.value.get());
        free.extend(records.iter().map(run));
    };
    tree.check_records(media, |_| is_whole = false, |_| {}, records).unwrap_or_default();
    is_whole.then_some(free)
}

fn damage_of(error: Error<NoChange>) -> Option<Loss> {
    match error {
        Error::Damage(damage) => Some(Loss::Damage(damage)),
        // Only changes fail with this error, and a rescue makes none.
        Error::Nodes(NoChange) => None,
    }
}

#[cfg(test)]
mod tests;
