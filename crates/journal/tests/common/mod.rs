//! A file system that is nothing but an array of numbered blocks, for tests: a transaction sets
//! several blocks to its own number.
//!
//! The state after a crash can be checked exactly. Each block has a history, the transactions that
//! set it in the order of its lock. A block that is found with the value of its n-th transaction
//! includes the first n. Then every transaction must be in all of its blocks or in none.

#![allow(dead_code, reason = "not every test uses all of it")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::Mutex as StdMutex;

use vfscale_block::Device;
use vfscale_journal::{
    Committed, Error, Hooks, ItemState, Journal, LogItem, LogKey, LogVector, Lsn, Options, Pushed,
    Recovered, RecoverySink, Region, Reservation, Result, VolumeId,
};
use vfscale_sync::random::Random;
use vfscale_sync::scaling::Scaling;
use vfscale_sync::{Mutex, lock_class};

lock_class! {
    /// An item's own lock.
    pub BlockLock = ("block", 100);
    /// The lock of its contents.
    pub ValueLock = ("value", 200);
}

pub const VOLUME: VolumeId = VolumeId(*b"a volume of test");
pub const LOG_BYTES: u64 = 1 << 20;
pub const LOG: Region = Region { offset: 0, length: LOG_BYTES };
pub const BLOCKS: u64 = 24;
pub const BLOCK_BYTES: usize = 4096;
/// The log, followed by the blocks.
pub const DEVICE_BYTES: u64 = LOG_BYTES + BLOCKS * BLOCK_BYTES as u64;

/// The options of a test: small and without a clock.
pub fn options(slots: usize) -> Options {
    Options {
        scaling: Scaling::with_slots(slots),
        record_blocks: 2,
        sync_interval: None,
        cil_bytes: Some(24 << 10),
        ..Options::default()
    }
}

/// Encodes a block on disk: number, LSN, value, and a checksum of them.
fn encode(id: u64, lsn: Lsn, value: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    let sum = id ^ lsn.to_bits().rotate_left(17) ^ value.rotate_left(31) ^ 0x5eed;
    for (at, word) in [id, lsn.to_bits(), value, sum].into_iter().enumerate() {
        block[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    // The checksum is repeated at the other end, which exposes a torn block.
    block[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    block
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap())
}

pub fn block_offset(id: u64) -> u64 {
    LOG_BYTES + id * BLOCK_BYTES as u64
}

/// Returns LSN and value of a block on disk, if it is whole.
pub fn read_block(device: &dyn Device, id: u64) -> Option<(Lsn, u64)> {
    let mut block = vec![0; BLOCK_BYTES];
    device.read_at(block_offset(id), &mut block).unwrap();
    let (lsn, value) = (Lsn::from_bits(word(&block, 1)), word(&block, 2));
    (block == encode(id, lsn, value)).then_some((lsn, value))
}

/// A block in memory.
pub struct Block {
    pub id: u64,
    state: ItemState,
    device: Arc<dyn Device>,
    /// Held by a transaction from the change to the end of the commit.
    pub lock: Mutex<(), BlockLock>,
    /// A lock at which model checkers switch threads: it is held while the pins are checked.
    value: Mutex<Value, ValueLock>,
}

impl Block {
    /// Changes the value. The caller has locked the block, and added it to its transaction.
    pub fn put(&self, number: u64, bytes: usize) {
        let mut value = self.value.lock();
        (value.now, value.bytes) = (number, bytes);
        value.history.push(number);
    }
}

#[derive(Default)]
struct Value {
    now: u64,
    /// Number of bytes that it logs.
    bytes: usize,
    history: Vec<u64>,
}

impl LogItem for Block {
    fn state(&self) -> &ItemState {
        &self.state
    }

    fn key(&self) -> LogKey {
        LogKey { kind: 1, id: self.id }
    }

    fn format(&self, vector: &mut LogVector) {
        let value = self.value.lock();
        vector.push(&value.now.to_le_bytes());
        vector.push(&vec![value.now.to_le_bytes()[0]; value.bytes]);
    }

    fn push(&self, lsn: Lsn) -> Result<Pushed> {
        let value = {
            // Changes are made under this lock, after the pin.
            let value = self.value.lock();
            if self.state.is_pinned() {
                return Ok(Pushed::Pinned);
            }
            value.now
        };
        self.device.write_at(block_offset(self.id), &encode(self.id, lsn, value))?;
        Ok(Pushed::Written)
    }
}

/// A hook that flushes the device of the blocks.
pub struct FlushBlocks(pub Arc<dyn Device>);

impl Hooks for FlushBlocks {
    fn flush_home(&self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}

/// A sink that writes replayed blocks to disk, unless the blocks there are newer.
pub struct BlockSink(pub Arc<dyn Device>);

impl RecoverySink for BlockSink {
    fn replay(&mut self, key: LogKey, bytes: &[u8], lsn: Lsn) -> Result<()> {
        assert_eq!(key.kind, 1);
        let value = word(bytes, 0);
        assert!(bytes[8..].iter().all(|byte| *byte == bytes[0]), "contents of {key:?}");
        if read_block(&*self.0, key.id).is_none_or(|(on_disk, _)| on_disk < lsn) {
            self.0.write_at(block_offset(key.id), &encode(key.id, lsn, value))?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}

/// Opens the journal of a device, with the blocks after the log.
pub fn open(device: &Arc<dyn Device>, options: Options) -> Result<(Journal, Recovered)> {
    let hooks = Arc::new(FlushBlocks(device.clone()));
    let mut sink = BlockSink(device.clone());
    Journal::open(device.clone(), LOG, VOLUME, hooks, &mut sink, options)
}

/// A transaction that was committed.
#[derive(Clone, Debug)]
pub struct Done {
    pub number: u64,
    pub blocks: Vec<u64>,
    pub committed: Committed,
}

/// The array of blocks.
pub struct Store {
    pub journal: Journal,
    pub blocks: Vec<Arc<Block>>,
    next: StdMutex<u64>,
    pub done: StdMutex<Vec<Done>>,
}

impl Store {
    /// Opens a store with the blocks on disk. The device was formatted by [`Journal::format`].
    pub fn open(device: Arc<dyn Device>, options: Options) -> Result<Self> {
        let (journal, _) = open(&device, options)?;
        Ok(Self::over(device, journal))
    }

    pub fn over(device: Arc<dyn Device>, journal: Journal) -> Self {
        let block = |id| {
            let now = read_block(&*device, id).map_or(0, |(_, value)| value);
            let value = Value { now, bytes: 0, history: vec![now] };
            Arc::new(Block {
                id,
                state: ItemState::new(),
                device: device.clone(),
                lock: Mutex::new(()),
                value: Mutex::new(value),
            })
        };
        let blocks: Vec<_> = (0..BLOCKS).map(block).collect();
        let next = blocks.iter().map(|block| block.value.lock().now).max().unwrap() + 1;
        Self { journal, blocks, next: StdMutex::new(next), done: StdMutex::new(Vec::new()) }
    }

    /// Sets some blocks to a number of its own, in one transaction; each logs `bytes` bytes.
    pub fn set(&self, ids: &[u64], bytes: usize) -> Result<Done> {
        self.set_in_parts(ids, bytes, 1)
    }

    /// Sets some blocks `parts` times in a rolling transaction.
    pub fn set_in_parts(&self, ids: &[u64], bytes: usize, parts: u32) -> Result<Done> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let item = Reservation::item_bytes(8 + bytes as u64);
        let reservation = Reservation::permanent(ids.len() as u64 * item, parts.min(2));
        let mut transaction = self.journal.begin(reservation)?;
        let blocks: Vec<_> = ids.iter().map(|id| self.blocks[*id as usize].clone()).collect();
        let locks: Vec<_> = blocks.iter().map(|block| block.lock.lock_nested()).collect();
        let mut part = 1;
        let done = loop {
            let number = {
                let mut next = self.next.lock().unwrap();
                *next += 1;
                *next - 1
            };
            for block in &blocks {
                transaction.add(block.clone());
                block.put(number, bytes);
            }
            let done = |committed| Done { number, blocks: ids.clone(), committed };
            if part == parts {
                break done(transaction.commit()?);
            }
            part += 1;
            let (committed, rest) = transaction.roll()?;
            self.done.lock().unwrap().push(done(committed));
            transaction = rest;
        };
        drop(locks);
        self.done.lock().unwrap().push(done.clone());
        Ok(done)
    }

    /// Runs a random transaction.
    pub fn set_some(&self, random: &mut Random) -> Result<Done> {
        let count = 1 + random.below(5);
        let ids: Vec<_> = (0..count).map(|_| random.below(BLOCKS)).collect();
        let bytes = [0, 13, 100, 900, 3000][random.below(5) as usize];
        let parts = [1, 1, 1, 3][random.below(4) as usize];
        self.set_in_parts(&ids, bytes, parts)
    }

    /// Returns the history, for comparing it with a recovered state.
    pub fn history(&self) -> History {
        let of = |block: &Arc<Block>| block.value.lock().history.clone();
        History {
            blocks: self.blocks.iter().map(of).collect(),
            done: self.done.lock().unwrap().clone(),
        }
    }
}

/// The transactions of each block, in order, and all that were committed.
pub struct History {
    blocks: Vec<Vec<u64>>,
    done: Vec<Done>,
}

impl History {
    /// Checks the blocks on disk after a recovery: each transaction is present wholly or not at
    /// all, and those for which `is_promised` returns true are present.
    pub fn check(&self, device: &dyn Device, is_promised: impl Fn(&Done) -> bool) {
        let position = |id: u64| {
            let history = &self.blocks[id as usize];
            let value = match read_block(device, id) {
                Some((_, value)) => value,
                None => {
                    let mut block = vec![0; BLOCK_BYTES];
                    device.read_at(block_offset(id), &mut block).unwrap();
                    assert!(block.iter().all(|byte| *byte == 0), "block {id} is torn");
                    0
                }
            };
            let at = history.iter().position(|number| *number == value);
            at.unwrap_or_else(|| panic!("block {id} never was {value}"))
        };
        let found: Vec<_> = (0..BLOCKS).map(position).collect();
        for done in &self.done {
            let has = |id: &u64| {
                let history = &self.blocks[*id as usize];
                let at = history.iter().position(|number| *number == done.number).unwrap();
                at <= found[*id as usize]
            };
            let count = done.blocks.iter().filter(|id| has(id)).count();
            let whole = count == done.blocks.len();
            assert!(whole || count == 0, "{done:?} is present in part: {found:?}");
            assert!(whole || !is_promised(done), "{done:?} was promised, and is missing");
        }
    }
}

/// Returns whether an error is one of a journal that is shut down.
pub fn is_shutdown(error: &Error) -> bool {
    matches!(error, Error::Shutdown(_) | Error::Device(_))
}
