use std::sync::Arc;

use proptest::prelude::*;
use vfscale_block::{MemoryDevice, Operation, OsError};
use vfscale_testkit::{CrashPlan, Fault, FaultyDevice, RecordingDevice};

use super::*;
use crate::{Features, Geometry, Uuid};

/// The size of a volume: 16 MiB, with groups of 4 MiB.
const BLOCKS: u64 = 4096;
const COPY_1: u64 = 1024;
const COPY_2: u64 = 2048;

fn memory() -> MemoryDevice {
    MemoryDevice::new(byte_of_block(BLOCKS)).unwrap()
}

fn new_superblock(id: u8) -> Superblock {
    Superblock::new(Uuid::from_bytes([id; 16]), Geometry::for_blocks(BLOCKS).unwrap())
}

/// Creates a device with a volume that was written twice.
fn volume(id: u8) -> (MemoryDevice, Superblock) {
    let (device, mut superblock) = (memory(), new_superblock(id));
    create(&device, &mut superblock).unwrap();
    superblock.label = "second".parse().unwrap();
    write(&device, &mut superblock).unwrap();
    (device, superblock)
}

fn spoil(device: &dyn Device, address: u64) {
    let mut block = read_block(device, address).unwrap();
    block.bytes_mut()[100] ^= 1;
    device.write_at(byte_of_block(address), block.bytes()).unwrap();
}

fn put(device: &dyn Device, address: u64, block: &Block) {
    device.write_at(byte_of_block(address), block.bytes()).unwrap();
}

#[test]
fn a_new_volume_is_found_whole() {
    let (device, superblock) = volume(1);
    let found = read(&device).unwrap();
    assert_eq!(found.superblock, superblock);
    assert_eq!(superblock.generation(), 2);
    assert!(found.is_whole() && !found.is_read_only());
    let addresses: Vec<_> = found.copies.iter().map(|copy| copy.address).collect();
    assert_eq!(addresses, [0, COPY_1, COPY_2]);
}

#[test]
fn any_two_may_be_damaged() {
    for damaged in [vec![0], vec![COPY_1], vec![0, COPY_1], vec![0, COPY_2], vec![COPY_1, COPY_2]] {
        let (device, mut superblock) = volume(1);
        damaged.iter().for_each(|address| spoil(&device, *address));
        let found = read(&device).unwrap();
        assert_eq!(found.superblock, superblock, "{damaged:?}");
        for copy in &found.copies {
            let is_damaged = matches!(copy.state, CopyState::Damaged(_));
            assert_eq!(is_damaged, damaged.contains(&copy.address), "{copy:?}");
        }
        write(&device, &mut superblock).unwrap();
        assert!(read(&device).unwrap().is_whole(), "writing makes all of them new");
    }
    let (device, _) = volume(1);
    [0, COPY_1, COPY_2].iter().for_each(|address| spoil(&device, *address));
    let error = read(&device).unwrap_err();
    assert!(matches!(error, OpenError::Superblock { .. }), "{error}");
    assert!(error.to_string().starts_with("memory: V002: block 0: checksum"), "{error}");
}

/// A device that has become a pool is never taken for the volume that it was, whatever two of the
/// superblocks are damaged, and whatever of the conversion is done.
#[test]
fn a_pool_is_no_volume() {
    for damaged in [vec![], vec![0], vec![COPY_1], vec![0, COPY_1], vec![COPY_1, COPY_2]] {
        let (device, superblock) = volume(1);
        assert_eq!(pool(&device).unwrap(), None);
        let lead = superblock.clone().into_pool(BLOCKS);
        for (copy, address) in (0..).zip([0, COPY_1, COPY_2]) {
            put(&device, address, &lead.encode(copy, address));
            let found = pool(&device).unwrap().unwrap();
            assert_eq!(found.superblock.pool(), Some(BLOCKS));
            assert_eq!(found.is_whole(), address == COPY_2);
            assert_eq!(found.superblock, lead);
        }
        damaged.iter().for_each(|address| spoil(&device, *address));
        let error = read(&device).unwrap_err();
        assert!(matches!(error, OpenError::Pool { first: BLOCKS, .. }), "{error}");
        assert_eq!(pool(&device).unwrap().unwrap().superblock.pool(), Some(BLOCKS));
    }
    assert_eq!(pool(&memory()).unwrap(), None);
}

#[test]
fn the_newest_counts() {
    let (device, mut superblock) = volume(1);
    let old = superblock.clone();
    write(&device, &mut superblock).unwrap();
    put(&device, 0, &old.encode(0, 0));
    let found = read(&device).unwrap();
    assert_eq!(found.superblock, superblock);
    assert_eq!(found.copies[0].state, CopyState::Old { generation: 2 });
    assert_eq!(found.copies[1].state, CopyState::Current);
}

#[test]
fn an_unreadable_superblock_copy_is_no_obstacle() {
    let (device, superblock) = volume(1);
    let device = FaultyDevice::new(device);
    device.arm(Fault::on(Operation::Read).within(0..4096));
    let found = read(&device).unwrap();
    assert_eq!(found.superblock, superblock);
    assert!(matches!(found.copies[0].state, CopyState::Unreadable(_)));
    device.arm(Fault::on(Operation::Read));
    let error = read(&device).unwrap_err();
    assert!(matches!(&error, OpenError::Device(error) if error.os() == Some(OsError::IO)));
}

#[test]
fn copies_are_found_with_groups_of_every_size() {
    for log2 in GROUP_LOG2_MIN..=GROUP_LOG2_MAX {
        let geometry = Geometry::new(4 << log2, log2).unwrap();
        for damaged in [vec![0], vec![0, 1 << log2], vec![0, 2 << log2]] {
            let device = MemoryDevice::new(geometry.bytes()).unwrap();
            let mut superblock = Superblock::new(Uuid::from_bytes([7; 16]), geometry);
            create(&device, &mut superblock).unwrap();
            damaged.iter().for_each(|address| spoil(&device, *address));
            assert_eq!(read(&device).unwrap().superblock, superblock, "{log2} {damaged:?}");
        }
    }
}

#[test]
fn a_new_volume_clears_what_another_one_has_left() {
    let device = MemoryDevice::new(byte_of_block(1 << 18)).unwrap();
    // First with small groups, then with large ones: the former copies lie at other addresses.
    let former = Geometry::new(1 << 18, 10).unwrap();
    create(&device, &mut Superblock::new(Uuid::from_bytes([1; 16]), former)).unwrap();
    let geometry = Geometry::new(1 << 18, 16).unwrap();
    let mut superblock = Superblock::new(Uuid::from_bytes([2; 16]), geometry);
    create(&device, &mut superblock).unwrap();
    spoil(&device, 0);
    assert_eq!(read(&device).unwrap().superblock, superblock);
}

#[test]
fn superblock_copies_of_two_volumes_are_ambiguous() {
    let (device, _) = volume(1);
    let other = new_superblock(2);
    put(&device, COPY_2, &other.encode(2, COPY_2));
    let found = read(&device).unwrap();
    assert_eq!(found.superblock.volume(), Uuid::from_bytes([1; 16]));
    let CopyState::Damaged(DecodeError::Damage(damage)) = &found.copies[2].state else {
        panic!("{:?}", found.copies);
    };
    assert_eq!(damage.number(), 4);
    // The rest of block 0 decides.
    spoil(&device, 0);
    assert_eq!(read(&device).unwrap().superblock.volume(), Uuid::from_bytes([1; 16]));
    device.write_at(0, &[0; 4096]).unwrap();
    let error = read(&device).unwrap_err();
    let OpenError::Several { volumes, .. } = &error else { panic!("{error}") };
    assert_eq!(*volumes, [Uuid::from_bytes([1; 16]), Uuid::from_bytes([2; 16])]);
}

/// A file may have any contents, and lie at any address below the size of a group.
#[test]
fn a_file_is_never_the_superblock() {
    const LOG2: u8 = 16;
    let geometry = Geometry::new(1 << 18, LOG2).unwrap();
    for (id, damaged) in [(1, 0), (1, 1 << LOG2), (1, 2 << LOG2), (9, 0), (9, 1 << LOG2)] {
        let device = MemoryDevice::new(geometry.bytes()).unwrap();
        let mut superblock = Superblock::new(Uuid::from_bytes([1; 16]), geometry);
        create(&device, &mut superblock).unwrap();
        for log2 in GROUP_LOG2_MIN..LOG2 {
            let small = Geometry::new(1 << 18, log2).unwrap();
            let mut forged = Superblock::new(Uuid::from_bytes([id; 16]), small);
            forged.generation = 999_999;
            put(&device, 1 << log2, &forged.encode(1, 1 << log2));
            if log2 + 1 < LOG2 {
                put(&device, 2 << log2, &forged.encode(2, 2 << log2));
            }
            let at = |address| byte_of_block(address)..byte_of_block(address + 1);
            for unread in [vec![], vec![0], vec![0, damaged]] {
                let faulty = FaultyDevice::new(&device);
                let arm = |address| faulty.arm(Fault::on(Operation::Read).within(at(address)));
                unread.iter().copied().for_each(arm);
                let found = read(&faulty).unwrap().superblock;
                assert_eq!(found, superblock, "{id} {damaged} {log2} {unread:?}");
            }
            spoil(&device, 0);
            assert_eq!(read(&device).unwrap().superblock, superblock, "{id} {log2}");
            spoil(&device, 0);
        }
    }
}

#[test]
fn opening_tells_what_a_device_without_a_volume_is() {
    let is_none = |device: &dyn Device| {
        let error = read(device).unwrap_err();
        assert!(matches!(error, OpenError::NoVolume { .. }), "{error}");
    };
    is_none(&memory());
    is_none(&MemoryDevice::new(0).unwrap());
    is_none(&MemoryDevice::new(512).unwrap());
    is_none(&MemoryDevice::new(4096).unwrap());
    let foreign = memory();
    foreign.write_at(0, &[0xEF; 8192]).unwrap();
    is_none(&foreign);

    let (device, superblock) = volume(1);
    let cut = MemoryDevice::new(device.size() - 512).unwrap();
    put(&cut, 0, &superblock.encode(0, 0));
    let error = read(&cut).unwrap_err();
    let text = "memory: the volume has 16777216 bytes, and the device only 16776704";
    assert_eq!(error.to_string(), text);
    let short = MemoryDevice::new(4096).unwrap();
    put(&short, 0, &superblock.encode(0, 0));
    assert!(matches!(read(&short), Err(OpenError::CutOff { .. })));
}

#[test]
fn unknown_features_are_respected() {
    let (device, mut superblock) = volume(1);
    superblock.features = Features { compat: 1 << 63, ..Features::default() };
    write(&device, &mut superblock).unwrap();
    assert!(!read(&device).unwrap().is_read_only());
    superblock.features.ro_compat = 2;
    write(&device, &mut superblock).unwrap();
    assert!(read(&device).unwrap().is_read_only());
    superblock.features.incompat = 0x30;
    write(&device, &mut superblock).unwrap();
    assert!(matches!(read(&device), Err(OpenError::Features { bits: 0x30, .. })));
}

/// Crashes at every moment, with blocks torn into sectors.
#[test]
fn a_crash_leaves_the_old_superblock_or_the_new_one() {
    let device = RecordingDevice::new(memory());
    let mut superblock = new_superblock(1);
    let mut written = Vec::new();
    for label in ["first", "second", "third"] {
        superblock.label = label.parse().unwrap();
        match written.len() {
            0 => create(&device, &mut superblock).unwrap(),
            _ => write(&device, &mut superblock).unwrap(),
        }
        written.push(superblock.clone());
        device.mark(label);
    }
    let mut states = 0;
    for state in device.crash_states(CrashPlan::default().exhaustive_bits(9).fragment_bytes(512)) {
        states += 1;
        let promised = state.marks();
        match read(&*state.device()) {
            Err(error) => {
                assert_eq!(promised, 0, "{state}: {error}");
                let torn = matches!(error, OpenError::Superblock { .. });
                assert!(torn || matches!(error, OpenError::NoVolume { .. }), "{state}: {error}");
            }
            Ok(found) => {
                let number = found.superblock.generation() as usize;
                assert!(number == promised.max(1) || number == promised + 1, "{state}: {number}");
                assert_eq!(found.superblock, written[number - 1], "{state}");
                let mut recovered = found.superblock;
                write(&*state.device(), &mut recovered).unwrap();
                assert!(read(&*state.device()).unwrap().is_whole(), "{state}");
            }
        }
    }
    assert!(states > 1000, "{states}");
}

#[test]
fn every_call_may_fail() {
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        for torn in [false, true] {
            let mut tried = 0;
            for n in 1.. {
                let (inner, before) = volume(1);
                let device = FaultyDevice::new(inner);
                let fault = Fault::on(operation).nth(n);
                device.arm(if torn { fault.tear(1024) } else { fault });
                let mut superblock = before.clone();
                superblock.label = "third".parse().unwrap();
                let result = write(&device, &mut superblock);
                let fired = device.fired();
                device.disarm();
                let found = read(&device).unwrap().superblock;
                assert!(found == before || found == superblock);
                if fired == 0 {
                    result.unwrap();
                    assert_eq!(found, superblock);
                    break;
                }
                assert!(result.is_err(), "{operation} {n}");
                tried = n;
            }
            let calls = match operation {
                Operation::Write => 3,
                Operation::Flush => 2,
                _ => 0,
            };
            assert_eq!(tried, calls, "{operation}");
        }
    }
}

#[test]
fn making_a_volume_fails_if_the_device_does() {
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        for n in 1.. {
            let (inner, former) = volume(1);
            let device = FaultyDevice::new(inner);
            device.arm(Fault::on(operation).nth(n).fail(OsError::NO_SPACE));
            let mut superblock = new_superblock(2);
            let result = create(&device, &mut superblock);
            let fired = device.fired();
            device.disarm();
            // An unreadable block may be a leftover, and is overwritten.
            assert_eq!(
                result.is_ok(),
                fired == 0 || operation == Operation::Read,
                "{operation} {n}"
            );
            match read(&device) {
                Ok(found) if result.is_ok() => assert_eq!(found.superblock, superblock),
                Ok(found) => assert!([&superblock, &former].contains(&&found.superblock)),
                Err(OpenError::NoVolume { .. }) => assert!(result.is_err()),
                Err(error) => panic!("{error}"),
            }
            if fired == 0 {
                assert!(n > 3, "{operation}: {n}");
                break;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_is_survived_or_told(
        damage in prop::collection::vec(
            (prop::sample::select(vec![0, COPY_1, COPY_2]), 0..4096_usize, any::<u8>()),
            0..12,
        ),
        sealed in any::<bool>(),
    ) {
        let (device, superblock) = volume(1);
        let device: Arc<dyn Device> = Arc::new(device);
        for (address, at, bits) in damage {
            let mut block = read_block(&device, address).unwrap();
            block.bytes_mut()[at] ^= bits;
            if sealed {
                let header = block.header();
                let identity = crate::format::Identity {
                    magic: header.magic,
                    address: header.address.get(),
                    owner: header.owner.get(),
                    volume: header.volume,
                };
                block.seal(&identity, 0);
            }
            put(&device, address, &block);
        }
        if let Ok(found) = read(&device) {
            prop_assert_eq!(found.copies.len(), 3);
            prop_assert!(found.superblock.geometry().bytes() <= device.size());
            prop_assert!(sealed || found.superblock == superblock);
        }
    }
}
