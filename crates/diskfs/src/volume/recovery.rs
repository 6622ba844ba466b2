//! Replay of the log's contents.
//!
//! # Why the order of the log is enough
//!
//! Everything from the tail on is replayed in order, even changes that were written back before. A
//! block is logged as a whole, so its last image is its final state. An inode is logged as its
//! record, without the zeros at its end, so its last record is its final state. The block of that
//! record exists: either the log contains the chunk that created it, earlier, or that chunk was
//! written back.
//!
//! A block that was torn during its write-back, or can't be read any more, is written again if it
//! is logged as a whole. The argument for blocks of inodes is in
//! [`format::inode`](crate::format::inode).
//!
//! # What can't be read
//!
//! A block of inodes is read before records are put in, and the device may fail to read it, or some
//! of its sectors, or give back wrong bytes for once. So it is written as a whole only if all its
//! records are known: they were read and are right, or they are in the log. If all of it was read,
//! and records are wrong, only sectors without a byte of these are written ([`Beside`]). Otherwise
//! the recovery fails, and that block is as it was. A repair, and a recovery in memory, may go on
//! without the other inodes ([`MayLack`]).
//!
//! A sector that a logged record shares with a wrong one is not written, not even with the wrong
//! bytes as they were read. A wrong checksum does not tell whether the bytes are wrong on the
//! device or were so in this reading, and no number of readings does: a cache below repeats its
//! error. In the second case the write would make an inode wrong for good that is right on the
//! device. The log loses nothing by waiting: it is replayed as soon as the record is read right, or
//! once a repair has given it up.
//!
//! # Invariants
//!
//! * Nothing is written to an address that an item of its kind can't have.
//! * No byte is written that was not read and that the log does not have, unless a repair gives it
//!   up.
//! * An item that no version of the program logs ends the recovery with a numbered [`Damage`].
//! * When [`finish`](RecoverySink::finish) has returned, all changes are written in place and
//!   durable.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use vfscale_block::Device;
use vfscale_journal::{LogKey, Lsn, RecoverySink};

use super::block_map::Places;
use crate::Uuid;
use crate::base::fault::Fault;
use crate::buffer::{KIND_BLOCK, KIND_INODE_CHUNK};
use crate::format::group::MAGIC;
use crate::format::header::HEADER_BYTES;
use crate::format::inode::{
    CHUNK_BLOCKS, INODE_MAGIC, INODES_PER_BLOCK, InodeRecord, block_of, bytes_of, chunk_of,
    clear_lost, ino_at, records, records_mut, slot_of, verify_torn,
};
use crate::format::superblock::Superblock;
use crate::format::{BLOCK_BYTES, Block, Damage, Identity, Magic, byte_of_block};
use crate::inode::incore::KIND_INODE;
use crate::volume::copies::read_block;

/// The maximum number of blocks that are gathered before they are written.
const BLOCKS_MAX: usize = 8192;

/// The records of inodes that a recovery may do without, beside those in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayLack {
    /// None.
    Nothing,
    /// Records that were read and are wrong: they stay as they are.
    Wrong,
    /// Also records that can't be read: their inodes become free.
    All,
}

/// A recovery that writes the contents of the log to their blocks.
pub(crate) struct Replay<'d> {
    device: &'d dyn Device,
    volume: Uuid,
    places: &'d Places,
    /// Blocks that are not written yet, with the LSN of their last change.
    blocks: BTreeMap<u64, (Box<Block>, Lsn)>,
    blocks_max: usize,
    /// The end of a log with which the headers of groups are checked only if something is replayed.
    closed: Option<Lsn>,
    /// The end of the log, if the headers have not been checked yet.
    unchecked: Option<Lsn>,
    /// Inodes, free ones among them, whose records were not read and are not in the log so far: why
    /// not.
    unread: BTreeMap<u64, Fault>,
    /// Blocks of inodes of which some records are wrong, and all were read.
    beside: BTreeMap<u64, Beside>,
    may_lack: MayLack,
}

/// A block of inodes with wrong records: a running volume reads the others, and so may a later
/// opening read these.
struct Beside {
    /// The block as it was read.
    former: Box<Block>,
    /// The slots of the records that the log has.
    logged: [bool; INODES_PER_BLOCK as usize],
}

impl<'d> Replay<'d> {
    pub(crate) fn new(device: &'d dyn Device, volume: Uuid, places: &'d Places) -> Self {
        let blocks = BTreeMap::new();
        let (closed, unchecked) = (None, None);
        let (blocks_max, may_lack) = (BLOCKS_MAX, MayLack::Nothing);
        let (unread, beside) = (BTreeMap::new(), BTreeMap::new());
        Self {
            device,
            volume,
            places,
            blocks,
            blocks_max,
            closed,
            unchecked,
            unread,
            beside,
            may_lack,
        }
    }

    /// Permits that records are missing.
    pub(crate) fn lacking(self, may_lack: MayLack) -> Self {
        Self { may_lack, ..self }
    }

    /// Leaves the headers of groups to those who read them later, if the superblock records their
    /// sums, and the log ends where it says: then it was closed, and there is nothing to replay.
    pub(crate) fn unless_closed(self, superblock: &Superblock) -> Self {
        let closed = superblock.sums.map(|_| Lsn::from_bits(superblock.log_seen.last));
        Self { closed, ..self }
    }

    /// Replays a whole block, of which the log may lack zeros at the end. A logged block was never
    /// sealed, but its header identifies it.
    fn block(&mut self, key: LogKey, bytes: &[u8], lsn: Lsn) -> Result<(), Fault> {
        let bad = |why| Damage::LogItem { kind: key.kind, id: key.id, why };
        if !(HEADER_BYTES..=BLOCK_BYTES).contains(&bytes.len()) {
            return Err(bad("it has not the size of a block").into());
        }
        if !self.places.is_for_metadata(key.id) {
            return Err(bad("no metadata can be there").into());
        }
        let mut block = Block::zeroed();
        block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let header = block.header();
        if header.address.get() != key.id || header.volume != self.volume {
            return Err(bad("the block is another one").into());
        }
        self.insert(key.id, block, lsn);
        Ok(())
    }

    /// Replays blocks of free inodes.
    fn inode_chunk(&mut self, key: LogKey, bytes: &[u8], lsn: Lsn) -> Result<(), Fault> {
        let bad = |why| Damage::LogItem { kind: key.kind, id: key.id, why };
        if !bytes.is_empty() {
            return Err(bad("it has contents").into());
        }
        let blocks = key.id..key.id.saturating_add(CHUNK_BLOCKS);
        let is_chunk = chunk_of(key.id) == key.id;
        if !is_chunk || !blocks.clone().all(|address| self.places.is_for_files(address)) {
            return Err(bad("no inodes can be there").into());
        }
        for address in blocks {
            let mut block = Block::zeroed();
            block.seal(&self.identity(INODE_MAGIC, address, key.id), lsn.to_bits());
            self.insert(address, block, lsn);
        }
        Ok(())
    }

    /// Gathers a block all of which is in the log.
    fn insert(&mut self, address: u64, block: Box<Block>, lsn: Lsn) {
        self.unread.retain(|ino, _| block_of(*ino) != address);
        self.beside.remove(&address);
        self.blocks.insert(address, (block, lsn));
    }

    /// Replays the record of an inode.
    fn inode(&mut self, key: LogKey, bytes: &[u8], lsn: Lsn) -> Result<(), Fault> {
        let bad = |why| Damage::LogItem { kind: key.kind, id: key.id, why };
        let Some(record) = InodeRecord::from_log(bytes) else {
            return Err(bad("it has not the size of a record").into());
        };
        let (address, slot) = (block_of(key.id), slot_of(key.id));
        if !self.places.is_for_files(address) {
            return Err(bad("no inodes can be there").into());
        }
        if !self.blocks.contains_key(&address) {
            let block = self.home_inodes(address, lsn)?;
            self.blocks.insert(address, (block, lsn));
        }
        self.unread.remove(&key.id);
        if let Some(beside) = self.beside.get_mut(&address) {
            beside.logged[slot] = true;
        }
        let Some((block, newest)) = self.blocks.get_mut(&address) else { return Ok(()) };
        if block.header().magic != INODE_MAGIC {
            return Err(bad("no inodes are there").into());
        }
        records_mut(block)[slot] = record;
        *newest = lsn;
        Ok(())
    }

    /// Reads a block of inodes from its on-disk location, as far as it is readable, and notes the
    /// inodes whose records are not.
    fn home_inodes(&mut self, address: u64, lsn: Lsn) -> Result<Box<Block>, Fault> {
        let identity = self.identity(INODE_MAGIC, address, chunk_of(address));
        let (mut block, mut is_read) = (Block::zeroed(), true);
        match self.device.read_at(byte_of_block(address), block.bytes_mut()) {
            Err(vfscale_block::Error::Io { .. }) => {
                self.read_sectors(address, &mut block, lsn)?;
                is_read = false;
            }
            read => read?,
        }
        verify_torn(&block, &identity)?;
        if let Err(damage) = block.verify(&identity) {
            // The records that the log has are the only ones which a torn block may lack.
            let inodes = (ino_at(address, 0)..).zip(records(&block));
            let wrong = inodes.filter(|(_, record)| !record.is_whole());
            for (ino, _) in wrong {
                match self.may_lack {
                    MayLack::Nothing => {
                        self.unread.insert(ino, damage.clone().into());
                        if is_read {
                            let (former, logged) = (block.clone(), Default::default());
                            self.beside.insert(address, Beside { former, logged });
                        }
                    }
                    _ => tracing::error!(ino, "the inode is damaged, unless the log has it"),
                }
            }
        }
        Ok(block)
    }

    /// Reads a block of inodes by sectors, and clears the inodes in sectors that can't be read.
    fn read_sectors(&mut self, address: u64, block: &mut Block, lsn: Lsn) -> Result<(), Fault> {
        let length = self.device.block_size() as usize;
        let mut lost = Vec::new();
        for (at, sector) in (0..).step_by(length).zip(block.bytes_mut().chunks_mut(length)) {
            match self.device.read_at(byte_of_block(address) + at as u64, sector) {
                Err(error @ vfscale_block::Error::Io { .. }) => {
                    sector.fill(0);
                    lost.push((at..at + length, error));
                }
                read => read?,
            }
        }
        if lost.first().is_some_and(|(first, _)| first.start == 0) {
            block.seal(&self.identity(INODE_MAGIC, address, chunk_of(address)), lsn.to_bits());
        }
        // An earlier inode of this number is very unlikely to have had this generation.
        let generation = (lsn.to_bits() ^ lsn.to_bits() >> 32) as u32;
        for (lost, error) in lost {
            for slot in clear_lost(block, &lost, generation) {
                self.unread.insert(ino_at(address, slot), error.clone().into());
            }
        }
        Ok(())
    }

    fn identity(&self, magic: Magic, address: u64, owner: u64) -> Identity {
        Identity { magic, address, owner, volume: self.volume }
    }

    /// Writes the gathered blocks, but those of which something is not known yet.
    fn write(&mut self) -> Result<(), Fault> {
        let all = std::mem::take(&mut self.blocks);
        let unknown: BTreeSet<u64> = self.unread.keys().map(|ino| block_of(*ino)).collect();
        let may_lack = self.may_lack == MayLack::All;
        let is_known = |address: &u64| may_lack || !unknown.contains(address);
        let (mut blocks, rest): (BTreeMap<_, _>, _) =
            all.into_iter().partition(|(address, _)| is_known(address));
        self.blocks = rest;
        for (address, (block, lsn)) in &mut blocks {
            let (magic, owner) = (block.header().magic, block.header().owner.get());
            block.seal(&self.identity(magic, *address, owner), lsn.to_bits());
        }
        let writes = blocks.iter().map(|(at, (block, _))| (byte_of_block(*at), block.bytes()));
        let writes: Vec<_> = writes.collect();
        Ok(self.device.write_many(&writes)?)
    }
}

impl Replay<'_> {
    /// Writes the records that the log has into blocks with wrong ones, which stay as they are.
    fn write_beside(&mut self) -> Result<(), Fault> {
        let mut writes = Vec::new();
        for (address, Beside { former, logged }) in std::mem::take(&mut self.beside) {
            let inos = ino_at(address, 0)..ino_at(address + 1, 0);
            let wrong: Vec<_> = self.unread.range(inos).map(|(ino, _)| *ino).collect();
            if wrong.is_empty() {
                // The log has all of them: the block is written as a whole.
                continue;
            }
            let Some((mut block, lsn)) = self.blocks.remove(&address) else { continue };
            let unit = (self.device.block_size() as usize).min(BLOCK_BYTES);
            let units = |slot: usize| -> RangeInclusive<usize> {
                let bytes = bytes_of(slot);
                bytes.start / unit..=(bytes.end - 1) / unit
            };
            let mut written = BTreeSet::from([0]);
            for slot in (0..logged.len()).filter(|slot| logged[*slot]) {
                written.extend(units(slot));
                let is_apart =
                    |wrong: &u64| !units(slot_of(*wrong)).any(|at| written.contains(&at));
                if let Some(wrong) = wrong.iter().find(|wrong| !is_apart(wrong)).copied() {
                    return Err(Damage::LogBeside { ino: ino_at(address, slot), wrong }.into());
                }
            }
            let identity = self.identity(INODE_MAGIC, address, chunk_of(address));
            block.seal_over(&former, &identity, lsn.to_bits());
            writes.push((address, block, written, unit));
            for ino in wrong {
                tracing::error!(ino, "the inode is damaged: it stays as it is");
                self.unread.remove(&ino);
            }
        }
        for (address, block, written, unit) in writes {
            // The header last.
            for at in written.into_iter().rev().map(|at| at * unit) {
                let bytes = &block.bytes()[at..at + unit];
                self.device.write_at(byte_of_block(address) + at as u64, bytes)?;
            }
        }
        Ok(())
    }

    /// Checks that no group header has an LSN beyond the end of the log. Each transaction that
    /// claims or frees something changes a header, and nothing else is ever stored at its address.
    /// A torn or unreadable header is ignored.
    fn check_headers(&self, last: Lsn) -> Result<(), Damage> {
        for (group, address) in (0..).zip(self.places.headers()) {
            let Ok(block) = read_block(self.device, address) else { continue };
            let lsn = Lsn::from_bits(block.header().lsn.get());
            if lsn > last && block.verify(&self.identity(MAGIC, address, group)).is_ok() {
                return Err(Damage::Newer { address, lsn, last });
            }
        }
        Ok(())
    }
}

impl RecoverySink for Replay<'_> {
    fn begin(&mut self, last: Lsn) -> vfscale_journal::Result<()> {
        if self.closed == Some(last) {
            self.unchecked = Some(last);
            return Ok(());
        }
        Ok(self.check_headers(last).map_err(Fault::from)?)
    }

    fn replay(&mut self, key: LogKey, bytes: &[u8], lsn: Lsn) -> vfscale_journal::Result<()> {
        if let Some(last) = self.unchecked.take() {
            self.check_headers(last).map_err(Fault::from)?;
        }
        match key.kind {
            KIND_BLOCK => self.block(key, bytes, lsn)?,
            KIND_INODE => self.inode(key, bytes, lsn)?,
            KIND_INODE_CHUNK => self.inode_chunk(key, bytes, lsn)?,
            kind => return Err(Fault::from(Damage::LogKind { kind, id: key.id }).into()),
        }
        if self.blocks.len() >= self.blocks_max {
            self.write()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> vfscale_journal::Result<()> {
        let is_beside = |ino: &u64| self.beside.contains_key(&block_of(*ino));
        if self.unread.keys().all(is_beside) {
            self.write_beside()?;
        }
        for (ino, fault) in &self.unread {
            tracing::error!(ino, %fault, "the inode can't be read: it is missing if it was in use");
        }
        match self.unread.values().next() {
            Some(fault) if self.may_lack != MayLack::All => return Err(fault.clone().into()),
            _ => self.write()?,
        }
        Ok(self.device.flush().map_err(Fault::Device)?)
    }
}

#[cfg(test)]
mod tests;
