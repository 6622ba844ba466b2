use std::sync::Arc;

use vfscale_block::{CowDevice, Device, MemoryDevice};
use vfscale_journal::{Error, LogKey, Lsn, RecoverySink};
use vfscale_testkit::{CrashPlan, CrashState, RecordingDevice};
use zerocopy::IntoBytes;

use super::{MayLack, Replay};
use crate::base::fault::Fault;
use crate::buffer::{KIND_BLOCK, KIND_INODE_CHUNK};
use crate::format::inode::{INODE_MAGIC, InodeRecord, records, records_mut};
use crate::format::{BLOCK_BYTES, Block, Identity, Magic, byte_of_block};
use crate::inode::incore::KIND_INODE;
use crate::volume::Places;
use crate::{Geometry, LogPlace, Superblock, Uuid};

const VOLUME: Uuid = Uuid::from_bytes(*b"volume of replay");
const BLOCKS: u64 = 4096;
const MAGIC: Magic = Magic(*b"test");

fn superblock() -> Superblock {
    Superblock::new(VOLUME, Geometry::for_blocks(BLOCKS).unwrap())
}

fn device() -> MemoryDevice {
    MemoryDevice::new(BLOCKS * BLOCK_BYTES as u64).unwrap()
}

fn identity(magic: Magic, address: u64, owner: u64) -> Identity {
    Identity { magic, address, owner, volume: VOLUME }
}

/// Returns a block in the form in which it is logged: with a header, but without a valid checksum.
fn image(address: u64, first: u8) -> Vec<u8> {
    let mut block = Block::zeroed();
    block.seal(&identity(MAGIC, address, 3), 0);
    block.body_mut()[0] = first;
    block.bytes().to_vec()
}

fn record(generation: u32) -> Vec<u8> {
    InodeRecord::free(generation).as_bytes().to_vec()
}

fn read(device: &MemoryDevice, address: u64) -> Box<Block> {
    let mut block = Block::zeroed();
    device.read_at(byte_of_block(address), block.bytes_mut()).unwrap();
    block
}

/// Replays these items, each at its own position of the log, from 1 on.
fn replay(device: &dyn Device, items: &[(u32, u64, Vec<u8>)]) -> Result<(), Error> {
    replay_lacking(device, items, MayLack::Nothing)
}

fn replay_lacking(
    device: &dyn Device,
    items: &[(u32, u64, Vec<u8>)],
    may_lack: MayLack,
) -> Result<(), Error> {
    let places = Places::new(&superblock());
    let mut sink = Replay::new(device, VOLUME, &places).lacking(may_lack);
    for (index, (kind, id, bytes)) in (1..).zip(items) {
        sink.replay(LogKey { kind: *kind, id: *id }, bytes, Lsn::new(1, index))?;
    }
    sink.finish()
}

fn damage(result: Result<(), Error>) -> u32 {
    let Err(Error::Client(error)) = result else { panic!("{result:?}") };
    match error.downcast_ref::<Fault>() {
        Some(Fault::Damage(damage)) => damage.number(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_image_of_a_block_is_what_is_home() {
    let device = device();
    let items = [(KIND_BLOCK, 100, image(100, 1)), (KIND_BLOCK, 100, image(100, 2))];
    replay(&device, &items).unwrap();
    let block = read(&device, 100);
    block.verify(&identity(MAGIC, 100, 3)).unwrap();
    assert_eq!(block.body()[0], 2);
    assert_eq!(block.header().lsn.get(), Lsn::new(1, 2).to_bits());
}

/// The log may lack zeros at the end of a block, but not its header.
#[test]
fn a_block_without_the_zeros_at_its_end_is_whole() {
    let device = device();
    let whole = image(100, 1);
    device.write_at(byte_of_block(100), &[0xAA; BLOCK_BYTES]).unwrap();
    replay(&device, &[(KIND_BLOCK, 100, whole[..64].to_vec())]).unwrap();
    let block = read(&device, 100);
    block.verify(&identity(MAGIC, 100, 3)).unwrap();
    assert_eq!(block.body()[..], whole[48..]);
    let short = replay(&device, &[(KIND_BLOCK, 100, whole[..40].to_vec())]);
    assert_eq!(damage(short), damage(replay(&device, &[(KIND_BLOCK, 100, vec![0; 4097])])));
}

#[test]
fn inodes_go_into_the_blocks_of_their_chunk() {
    let device = device();
    // The previous contents do not matter.
    device.write_at(byte_of_block(24), &[0xAA; BLOCK_BYTES]).unwrap();
    let items = [
        (KIND_INODE_CHUNK, 24, Vec::new()),
        (KIND_INODE, 24 * 8 + 1, record(1)),
        // Zeros at the end may be left out.
        (KIND_INODE, 31 * 8 + 7, record(2)[..96].to_vec()),
        (KIND_INODE, 24 * 8 + 1, record(3)),
    ];
    replay(&device, &items).unwrap();
    for address in 24..32 {
        read(&device, address).verify(&identity(INODE_MAGIC, address, 24)).unwrap();
    }
    assert_eq!(records(&read(&device, 24))[1], InodeRecord::free(3));
    assert_eq!(records(&read(&device, 31))[7], InodeRecord::free(2));
    // The next log no longer has the chunk: the replay uses the block on the device.
    replay(&device, &[(KIND_INODE, 24 * 8, record(4))]).unwrap();
    let block = read(&device, 24);
    block.verify(&identity(INODE_MAGIC, 24, 24)).unwrap();
    assert_eq!(records(&block)[..2], [InodeRecord::free(4), InodeRecord::free(3)]);
}

#[test]
fn a_torn_block_of_inodes_gets_its_records_from_the_log() {
    let device = device();
    let mut old = Block::zeroed();
    for (slot, record) in records_mut(&mut old).iter_mut().enumerate() {
        *record = InodeRecord::free(slot as u32);
    }
    old.seal(&identity(INODE_MAGIC, 40, 40), 0);
    let mut new = old.clone();
    records_mut(&mut new)[5] = InodeRecord::free(55);
    new.seal(&identity(INODE_MAGIC, 40, 40), 9);
    for sectors in 0..=8 {
        let cut = sectors * 512;
        let torn = [&new.bytes()[..cut], &old.bytes()[cut..]].concat();
        device.write_at(byte_of_block(40), &torn).unwrap();
        replay(&device, &[(KIND_INODE, 40 * 8 + 5, record(55))]).unwrap();
        let block = read(&device, 40);
        block.verify(&identity(INODE_MAGIC, 40, 40)).unwrap();
        assert_eq!(records(&block), records(&new), "{sectors} sectors were written");
    }
}

/// Returns a block with eight inodes, at address 40.
fn inodes() -> Box<Block> {
    let mut block = Block::zeroed();
    for (slot, record) in records_mut(&mut block).iter_mut().enumerate() {
        *record = InodeRecord::free(slot as u32 + 1001);
    }
    block.seal(&identity(INODE_MAGIC, 40, 40), 0);
    block
}

/// Returns whether the record in a slot has bytes in a range of its block.
fn touches(slot: usize, range: &std::ops::Range<usize>) -> bool {
    let begin = 48 + slot * 504;
    begin < range.end && range.start < begin + 504
}

/// Returns devices with the block [`inodes`] of which sectors can't be read, and their bytes.
fn unreadable_inodes() -> impl Iterator<Item = (Arc<dyn Device>, std::ops::Range<usize>)> {
    let (memory, block) = (Arc::new(device()), inodes());
    memory.write_at(byte_of_block(40), block.bytes()).unwrap();
    [0..1, 1..2, 7..8, 2..5, 0..8].into_iter().map(move |sectors| {
        let recording = RecordingDevice::new(memory.clone());
        let at = |sector: u64| byte_of_block(40) + sector * 512;
        let range = sectors.start as usize * 512..sectors.end as usize * 512;
        recording.write_at(at(sectors.start), &block.bytes()[range.clone()]).unwrap();
        let plan = CrashPlan::default().lost_in(std::iter::once(at(0)..at(8)));
        let crashed = recording.crash_states(plan).filter(CrashState::has_lost).last().unwrap();
        let device: Arc<dyn Device> = crashed.device();
        assert!(device.read_at(byte_of_block(40), &mut [0; 4096]).is_err(), "{sectors:?}");
        (device, range)
    })
}

/// If power fails during the write-back of a block of inodes, the device may be unable to read some
/// of its sectors. It is made anew if the log has all inodes in them.
#[test]
fn a_block_of_inodes_that_cannot_be_read_is_made_anew_from_the_log() {
    for (device, range) in unreadable_inodes() {
        let slots = (0..8).filter(|slot| touches(*slot, &range));
        let items: Vec<_> = slots
            .map(|slot| (KIND_INODE, 40 * 8 + slot as u64, record(50 + slot as u32)))
            .collect();
        let mut unchanged = [0; 4096];
        for missing in 0..items.len() {
            let mut items = items.clone();
            items.remove(missing);
            if items.is_empty() {
                continue;
            }
            let refused = replay(&*device, &items);
            assert!(matches!(refused, Err(Error::Device(_))), "{range:?}: {refused:?}");
            assert!(device.read_at(byte_of_block(40), &mut unchanged).is_err(), "{range:?}");
        }
        // Of no account if a later item has all of the block.
        let anew = [items[0].clone(), (KIND_INODE_CHUNK, 40, Vec::new())];
        replay(&CowDevice::new(device.clone()), &anew).unwrap();
        replay(&*device, &items).unwrap();
        let mut found = Block::zeroed();
        device.read_at(byte_of_block(40), found.bytes_mut()).unwrap();
        found.verify(&identity(INODE_MAGIC, 40, 40)).unwrap();
        for (slot, record) in records(&found).iter().enumerate() {
            let was = if touches(slot, &range) { 50 } else { 1001 };
            assert_eq!(*record, InodeRecord::free(slot as u32 + was), "{range:?}");
        }
    }
}

/// A repair gives up the inodes that can't be read and that the log has not.
#[test]
fn a_repair_gives_up_inodes_that_cannot_be_read() {
    for (device, range) in unreadable_inodes() {
        let items = [(KIND_INODE, 40 * 8 + 5, record(55))];
        if range.start < 512 || range.end > 4096 - 512 || touches(5, &range) {
            assert!(replay(&*device, &items).is_err());
        }
        assert!(replay_lacking(&*device, &items, MayLack::Wrong).is_err() || touches(5, &range));
        replay_lacking(&*device, &items, MayLack::All).unwrap();
        let mut found = Block::zeroed();
        device.read_at(byte_of_block(40), found.bytes_mut()).unwrap();
        found.verify(&identity(INODE_MAGIC, 40, 40)).unwrap();
        for (slot, record) in records(&found).iter().enumerate() {
            let was = slot as u32 + 1001;
            match slot {
                5 => assert_eq!(*record, InodeRecord::free(55), "{range:?}"),
                _ if touches(slot, &range) => {
                    assert!(record.is_free() && record.generation() != was, "{range:?}");
                }
                _ => assert_eq!(*record, InodeRecord::free(was), "{range:?}"),
            }
        }
    }
}

/// Returns the sectors of a block that have bytes of the record in a slot.
fn sectors_of(slot: usize) -> std::ops::RangeInclusive<usize> {
    let begin = 48 + slot * 504;
    begin / 512..=(begin + 503) / 512
}

/// Of a block in which a record is wrong, the sectors of other records and the header are written,
/// as far as they have no byte of it: whatever the record is, it is as before. If it was merely
/// read wrong, the block is right as a whole.
#[test]
fn inodes_beside_a_wrong_one_are_written_back() {
    let (mut written, mut refused) = (0, 0);
    for (slot, other) in (0..8_usize).flat_map(|slot| (0..8).map(move |other| (slot, other))) {
        if slot == other {
            continue;
        }
        let at = 48 + slot * 504 + 100;
        let mut wrong = inodes();
        wrong.bytes_mut()[at] ^= 1;
        let device = device();
        device.write_at(byte_of_block(40), wrong.bytes()).unwrap();
        let recording = RecordingDevice::new(Arc::new(device));
        let mut found = Block::zeroed();
        let replayed = replay(&recording, &[(KIND_INODE, 40 * 8 + other as u64, record(9))]);
        recording.read_at(byte_of_block(40), found.bytes_mut()).unwrap();
        let is_apart = !(0..=0).chain(sectors_of(other)).any(|at| sectors_of(slot).contains(&at));
        if !is_apart {
            refused += 1;
            let why = replayed.as_ref().unwrap_err().to_string();
            let ino = 40 * 8 + slot;
            assert!(
                why.contains(&format!("inode {ino}")) && why.contains("fsck --repair"),
                "{why}"
            );
            assert_eq!(damage(replayed), 902, "{slot} {other}");
            assert_eq!(found.bytes(), wrong.bytes());
            continue;
        }
        written += 1;
        replayed.unwrap();
        assert_eq!(records(&found)[other], InodeRecord::free(9), "{slot} {other}");
        for third in (0..8).filter(|third| *third != other) {
            assert_eq!(records(&found)[third], records(&wrong)[third], "{slot} {other}");
        }
        found.bytes_mut()[at] ^= 1;
        found.verify(&identity(INODE_MAGIC, 40, 40)).unwrap();
        // A replay that was cut off is repeated.
        for state in recording.crash_states(CrashPlan::default()) {
            let device = state.device();
            replay(&*device, &[(KIND_INODE, 40 * 8 + other as u64, record(9))]).unwrap();
            device.read_at(byte_of_block(40), found.bytes_mut()).unwrap();
            assert_eq!(records(&found)[other], InodeRecord::free(9), "{state}");
            assert_eq!(records(&found)[slot], records(&wrong)[slot], "{state}");
        }
    }
    assert_eq!((written, refused), (38, 18));
}

/// A repair writes such a block as a whole. A record that the log has is right afterwards.
#[test]
fn a_wrong_inode_that_the_log_has_is_replaced() {
    let device = device();
    for slot in 0..8_usize {
        let mut wrong = inodes();
        wrong.bytes_mut()[48 + slot * 504 + 100] ^= 1;
        device.write_at(byte_of_block(40), wrong.bytes()).unwrap();
        let other = (slot as u64 + 1) % 8;
        let items = [(KIND_INODE, 40 * 8 + other, record(9))];
        replay_lacking(&device, &items, MayLack::Wrong).unwrap();
        let block = read(&device, 40);
        assert_eq!(records(&block)[slot], records(&wrong)[slot]);
        device.write_at(byte_of_block(40), wrong.bytes()).unwrap();
        replay(&device, &[(KIND_INODE, 40 * 8 + slot as u64, record(9))]).unwrap();
        let block = read(&device, 40);
        block.verify(&identity(INODE_MAGIC, 40, 40)).unwrap();
        assert_eq!(records(&block)[slot], InodeRecord::free(9));
    }
}

#[test]
fn recovery_writes_no_items_that_no_version_logs() {
    let superblock = superblock();
    let LogPlace::Inside { start: log, .. } = superblock.log() else { panic!() };
    let group = superblock.geometry().group_blocks();
    let mut foreign = Block::zeroed();
    foreign.seal(&Identity { volume: Uuid::NIL, ..identity(MAGIC, 100, 3) }, 0);
    let cases = [
        (900, KIND_INODE_CHUNK + 1, 100, Vec::new()),
        (901, KIND_BLOCK, 100, vec![0; 100]),
        (901, KIND_BLOCK, 100, image(101, 1)),
        (901, KIND_BLOCK, 100, foreign.bytes().to_vec()),
        (901, KIND_BLOCK, 0, image(0, 1)),
        (901, KIND_BLOCK, group, image(group, 1)),
        (901, KIND_BLOCK, group + 4, image(group + 4, 1)),
        (901, KIND_BLOCK, BLOCKS, image(BLOCKS, 1)),
        (901, KIND_BLOCK, u64::MAX, image(u64::MAX, 1)),
        (901, KIND_BLOCK, log, image(log, 1)),
        (901, KIND_INODE_CHUNK, 24, vec![0]),
        (901, KIND_INODE_CHUNK, 25, Vec::new()),
        (901, KIND_INODE_CHUNK, 0, Vec::new()),
        (901, KIND_INODE_CHUNK, log, Vec::new()),
        (901, KIND_INODE_CHUNK, BLOCKS, Vec::new()),
        (901, KIND_INODE_CHUNK, u64::MAX - 7, Vec::new()),
        (901, KIND_INODE, 24 * 8, vec![0; 95]),
        (901, KIND_INODE, 24 * 8, vec![0; 505]),
        (901, KIND_INODE, 8, record(1)),
        (901, KIND_INODE, log * 8, record(1)),
        (901, KIND_INODE, u64::MAX, record(1)),
        (1, KIND_INODE, 24 * 8, record(1)),
    ];
    for (number, kind, id, bytes) in cases {
        let device = device();
        let result = replay(&device, &[(kind, id, bytes)]);
        assert_eq!(damage(result), number, "kind {kind}, id {id}");
        assert_eq!(device.bytes_used(), 0, "kind {kind}, id {id}");
    }
    let items = [(KIND_BLOCK, 100, image(100, 1)), (KIND_INODE, 800, record(1))];
    assert_eq!(damage(replay(&device(), &items)), 901, "an inode in a block of something else");
}

#[test]
fn headers_and_roots_of_groups_are_replayed() {
    let device = device();
    let group = superblock().geometry().group_blocks();
    let items: Vec<_> =
        (group + 1..group + 4).map(|at| (KIND_BLOCK, at, image(at, at as u8))).collect();
    replay(&device, &items).unwrap();
    for at in group + 1..group + 4 {
        read(&device, at).verify(&identity(MAGIC, at, 3)).unwrap();
    }
}

#[test]
fn recovery_writes_in_pieces_what_exceeds_memory() {
    let device = device();
    let places = Places::new(&superblock());
    let mut sink = Replay::new(&device, VOLUME, &places);
    sink.blocks_max = 3;
    let mut replay = |kind, id, bytes: &[u8], at| {
        sink.replay(LogKey { kind, id }, bytes, Lsn::new(1, at)).unwrap();
    };
    replay(KIND_INODE_CHUNK, 24, &[], 1);
    for slot in 0..8 {
        replay(KIND_BLOCK, 100 + u64::from(slot), &image(100 + u64::from(slot), 1), 2);
        replay(KIND_INODE, 24 * 8 + u64::from(slot), &record(slot + 1), 3);
    }
    sink.finish().unwrap();
    let generations = records(&read(&device, 24)).each_ref().map(InodeRecord::generation);
    assert_eq!(generations, [1, 2, 3, 4, 5, 6, 7, 8]);
    for at in 100..108 {
        read(&device, at).verify(&identity(MAGIC, at, 3)).unwrap();
    }
}
