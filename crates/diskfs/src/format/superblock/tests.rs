use proptest::prelude::*;

use super::*;

const MIB: u64 = 256;
const GOLDEN: &str = include_str!("golden-1.hex");

fn superblock(blocks: u64) -> Superblock {
    let geometry = Geometry::for_blocks(blocks).unwrap();
    let volume = Uuid::from_bytes(*b"volume of a test");
    let made = Timestamp::new(1_795_320_845, 123_456_789).unwrap();
    Superblock { made, ..Superblock::new(volume, geometry) }
}

/// Returns a superblock in which every field has a value other than zero. What is now the log's own
/// id was made when that was unknown, and its feature is not set.
fn full() -> Superblock {
    let device = Uuid::from_bytes(*b"a log outside of");
    let features = Features { compat: 0x11, ro_compat: 0x22, incompat: 0x33 };
    let time = |seconds, nanoseconds| Timestamp::new(seconds, nanoseconds).unwrap();
    Superblock {
        generation: 0x0102_0304_0506_0708,
        features,
        label: "Bücher".parse().unwrap(),
        written: time(-1, 999_999_999),
        mounted: time(5_000_000_000, 1),
        checked: time(i64::MAX, 0),
        log_id: Uuid::from_bytes([1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        log_seen: LogSeen::default(),
        ..superblock(40 * 1024 * MIB)
    }
    .with_log(LogPlace::Outside { device, blocks: 1000 })
    .unwrap()
}

fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(16).map(|bytes| line(bytes) + "\n").collect()
}

/// Every later program must read volumes of version 1.
#[test]
fn the_bytes_of_version_1_stay_as_they_are() {
    let bytes = GOLDEN.lines().flat_map(|line| {
        (0..line.len() / 2).map(|at| u8::from_str_radix(&line[2 * at..2 * at + 2], 16).unwrap())
    });
    let mut block = Block::zeroed();
    block.bytes_mut().iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    assert_eq!(Superblock::decode(&block, 1 << 19), Ok(full()));
    let encoded = full().encode(1, 1 << 19);
    assert_eq!(hex(&encoded.bytes()[..272]), GOLDEN);
    assert!(encoded.bytes()[272..].iter().all(|byte| *byte == 0));
}

#[test]
fn format_md_has_every_field() {
    assert_eq!(crate::format::documented("### The superblock"), FIELDS);
}

/// Changes fields without the encoder, and seals the block again.
fn decoded(change: impl FnOnce(&mut RawSuperblock)) -> Result<Superblock, DecodeError> {
    let mut block = superblock(64 * MIB).encode(0, 0);
    change(transmute_mut!(block.body_mut()));
    reseal(&mut block);
    Superblock::decode(&block, 0)
}

fn reseal(block: &mut Block) {
    let header = block.header();
    let (address, owner, volume) = (header.address.get(), header.owner.get(), header.volume);
    let magic = header.magic;
    block.seal(&Identity { magic, address, owner, volume }, 0);
}

#[test]
fn impossible_numbers_are_told_by_number() {
    let number = |change: fn(&mut RawSuperblock)| match decoded(change) {
        Err(DecodeError::Damage(damage)) => {
            let text = damage.to_string();
            assert!(text.starts_with(&format!("V{:03}: ", damage.number())), "{text}");
            damage.number()
        }
        other => panic!("{other:?}"),
    };
    assert!(decoded(|_| {}).is_ok());
    assert_eq!(number(|raw| raw.block_log2 = 13), 100);
    assert_eq!(number(|raw| raw.group_log2 = 9), 101);
    assert_eq!(number(|raw| raw.group_log2 = 255), 101);
    assert_eq!(number(|raw| raw.blocks = u64::MAX.into()), 101);
    assert_eq!(number(|raw| raw.blocks += 255), 101);
    assert_eq!(number(|raw| raw.blocks += 256), 101);
    assert_eq!(number(|raw| raw.groups = 0.into()), 101);
    assert_eq!(number(|raw| raw.log_start = 0.into()), 102);
    assert_eq!(number(|raw| raw.log_start = (64 * MIB).into()), 102);
    assert_eq!(number(|raw| raw.log_start = u64::MAX.into()), 102);
    assert_eq!(number(|raw| raw.log_blocks = 255.into()), 102);
    assert_eq!(number(|raw| raw.log_blocks = u64::MAX.into()), 102);
    assert_eq!(number(|raw| raw.log_blocks = 1024.into()), 102);
    assert_eq!(number(|raw| raw.log_device = Uuid::from_bytes([1; 16])), 102);
    assert_eq!(number(|raw| raw.made.nanoseconds = 1_000_000_000.into()), 103);
    assert_eq!(number(|raw| raw.checked.nanoseconds = u32::MAX.into()), 103);
    assert_eq!(number(|raw| raw.label[0] = 0xFF), 104);
    assert_eq!(number(|raw| raw.label[7] = b'x'), 104);
}

#[test]
fn later_versions_are_refused_and_later_features_told() {
    assert_eq!(decoded(|raw| raw.version = 2.into()), Err(DecodeError::Version { version: 2 }));
    assert_eq!(decoded(|raw| raw.version = 0.into()), Err(DecodeError::Version { version: 0 }));
    let found = decoded(|raw| raw.compat = 8.into()).unwrap();
    assert_eq!(found.features.unknown(), Features { compat: 8, ro_compat: 0, incompat: 0 });
    let found = decoded(|raw| raw.rest[20] = 7).unwrap();
    assert_eq!(found.encode(0, 0).bytes()[328 + 20], 7, "unknown bytes remain");
    let found = decoded(|raw| raw.behind[1000] = 8).unwrap();
    assert_eq!(found.encode(0, 0).bytes()[512 + 1000], 8, "so do those at the end");
}

/// The id of a log and its size mean something with their feature alone.
#[test]
fn a_log_may_have_an_id_of_its_own() {
    let plain = superblock(16 * MIB);
    let most = plain.log().blocks();
    assert_eq!((plain.log_id(), plain.log_blocks()), (None, most));
    assert_eq!(decoded(|raw| raw.log_used = 7.into()).unwrap().log_blocks(), most);
    let id = Uuid::from_bytes([7; 16]);
    for (blocks, fits) in [(0, false), (255, false), (256, true), (most, true), (most + 1, false)] {
        let own = plain.clone().with_log_id(id, blocks);
        assert_eq!(own.is_some(), fits, "{blocks}");
        let Some(own) = own else { continue };
        assert_eq!((own.log_id(), own.log_blocks(), own.log()), (Some(id), blocks, plain.log()));
        assert_eq!(Superblock::decode(&own.encode(0, 0), 0).as_ref(), Ok(&own));
        // A program that knows no such logs may do nothing.
        assert_eq!(own.features.incompat, 4);
    }
    let damaged = |used: u64| {
        decoded(|raw| {
            raw.incompat = Features::LOG_ID.into();
            raw.log_used = used.into();
        })
    };
    for used in [1, 255, most + 1, u64::MAX] {
        let Err(DecodeError::Damage(damage)) = damaged(used) else { panic!("{used} blocks") };
        assert_eq!(damage.number(), 102);
    }
    assert_eq!(damaged(0).unwrap().log_blocks(), most);
}

#[test]
fn a_copy_lies_where_it_belongs() {
    let block = superblock(16 * MIB);
    let number = |copy, address| match Superblock::decode(&block.encode(copy, address), address) {
        Err(DecodeError::Damage(damage)) => damage.number(),
        other => panic!("{other:?}"),
    };
    for (copy, address) in block.geometry().copies().enumerate() {
        assert_eq!(
            Superblock::decode(&block.encode(copy as u32, address), address),
            Ok(block.clone())
        );
        assert_eq!(number(copy as u32 + 1, address), 105);
    }
    assert_eq!(number(1, 2048), 105);
    assert_eq!(number(3, 3072), 105);
    let astray = Superblock::decode(&block.encode(1, 1024), 0);
    assert_eq!(astray, Err(Damage::Address { address: 0, found: 1024 }.into()));
}

#[test]
fn labels() {
    for label in ["", "x", "Bücher", &"x".repeat(64), &"ü".repeat(32)] {
        let label: Label = label.parse().unwrap();
        assert_eq!(Label::decode(&label.raw()), Ok(label));
    }
    assert_eq!("x".repeat(65).parse::<Label>(), Err(NoLabel));
    assert_eq!("a\0b".parse::<Label>(), Err(NoLabel));
}

#[test]
fn times_before_1970_and_after_2038() {
    let of = |time: SystemTime| {
        let time = Timestamp::from(time);
        (time.seconds(), time.nanoseconds())
    };
    assert_eq!(of(UNIX_EPOCH), (0, 0));
    assert_eq!(of(UNIX_EPOCH - Duration::from_secs(5)), (-5, 0));
    assert_eq!(of(UNIX_EPOCH - Duration::new(5, 1)), (-6, 999_999_999));
    assert_eq!(of(UNIX_EPOCH + Duration::new(1 << 40, 7)), (1 << 40, 7));
    assert_eq!(Timestamp::new(0, 1_000_000_000), None);
}

#[test]
fn logs_lie_in_the_middle() {
    let of = |blocks, wanted| {
        let geometry = Geometry::for_blocks(blocks).unwrap();
        let log = LogPlace::inside(geometry, wanted);
        assert!(log.fits(geometry));
        let LogPlace::Inside { start, blocks } = log else { panic!("{log:?}") };
        (start, blocks)
    };
    assert_eq!(of(16 * MIB, None), (8 * MIB + 8, 4 * MIB - 8));
    assert_eq!(of(256 * MIB, None), (128 * MIB + 8, 4 * MIB));
    assert_eq!(of(10 * 1024 * MIB, None), (5 * 1024 * MIB + 8, 160 * MIB));
    assert_eq!(of(16 << 28, None), (8 * (1 << 28) + 8, 1024 * MIB));
    assert_eq!(of(16 * MIB, Some(u64::MAX)), (8 * MIB + 8, 4 * MIB - 8));
    assert_eq!(of(16 * MIB, Some(0)), (8 * MIB + 8, MIB));
    let geometry = Geometry::for_blocks(16 * MIB).unwrap();
    let nowhere = LogPlace::Outside { device: Uuid::NIL, blocks: 256 };
    assert!(!nowhere.fits(geometry));
    assert!(superblock(16 * MIB).with_log(LogPlace::Inside { start: 1020, blocks: 256 }).is_none());
}

/// A program from before keeps the field as it is, with another generation.
#[test]
fn a_log_does_not_count_as_closed_after_who_does_not_know_of_it() {
    let log_seen = LogSeen { epoch: 5, last: 77, checkpoint: 8, is_closed: true };
    let mut superblock = Superblock { log_seen, generation: 9, ..superblock(64 * MIB) };
    let block = superblock.encode(0, 0);
    assert_eq!(Superblock::decode(&block, 0).unwrap().log_seen, log_seen);
    superblock.generation = 10;
    assert!(Superblock::decode(&superblock.encode(0, 0), 0).unwrap().log_seen.is_closed);
    let mut block = block;
    let raw: &mut RawSuperblock = transmute_mut!(block.body_mut());
    raw.generation = 10.into();
    let (volume, owner) = (superblock.volume(), 0);
    block.seal(&Identity { magic: MAGIC, address: 0, owner, volume }, 0);
    let decoded = Superblock::decode(&block, 0).unwrap().log_seen;
    assert_eq!(decoded, LogSeen { is_closed: false, ..log_seen });
}

/// The sums hold for one generation, with the log closed, and for no other state of the volume.
#[test]
fn sums_hold_until_the_volume_changes() {
    let sums = GroupSums { available: 4000, inodes: 640, free_inodes: 6, trees: 7 };
    let log_seen = LogSeen { epoch: 1, last: 2, checkpoint: 3, is_closed: true };
    let with = |sums| Superblock { generation: 9, log_seen, sums, ..superblock(16 * MIB) };
    let written = with(Some(sums));
    let decode = |block: &Block| Superblock::decode(block, 0).unwrap().sums;
    assert_eq!(decode(&written.encode(0, 0)), Some(sums));
    // An older program retains the bytes, and writes the next generation with a closed log.
    let mut block = written.encode(0, 0);
    let raw: &mut RawSuperblock = transmute_mut!(block.body_mut());
    (raw.generation, raw.log_closed) = (10.into(), 10.into());
    reseal(&mut block);
    assert!(Superblock::decode(&block, 0).unwrap().log_seen.is_closed);
    assert_eq!(decode(&block), None);
    // So does the next generation without sums.
    let next = Superblock { generation: 10, ..with(None) };
    assert_eq!(decode(&next.encode(0, 0)), None);
    let open = LogSeen { is_closed: false, ..log_seen };
    assert_eq!(decode(&Superblock { log_seen: open, ..written.clone() }.encode(0, 0)), None);
    let mut mounted = written.clone();
    mounted.note_mount(Some(log_seen));
    assert_eq!(mounted.sums, None);
    let same = written.clone().with_geometry(written.geometry()).unwrap();
    let larger = written.clone().with_geometry(written.geometry().grown(8192).unwrap()).unwrap();
    assert_eq!((same.sums, larger.sums), (Some(sums), None));
    for impossible in [
        GroupSums { available: 4097, ..sums },
        GroupSums { free_inodes: 641, ..sums },
        GroupSums { inodes: u64::MAX, ..sums },
    ] {
        assert_eq!(decode(&with(Some(impossible)).encode(0, 0)), None, "{impossible:?}");
    }
}

fn superblocks() -> impl Strategy<Value = Superblock> {
    let times = prop::array::uniform4((any::<i64>(), 0..1_000_000_000_u32));
    let stopped = (any::<u32>(), "[^\\x00]{0,40}");
    let log = (any::<bool>(), any::<[u8; 16]>(), LOG_BLOCKS_MIN..=LOG_BLOCKS_MAX);
    let rest = prop::collection::vec(any::<u8>(), 0..24);
    let size =
        crate::format::geometry::VOLUME_BLOCKS_MIN..=crate::format::geometry::VOLUME_BLOCKS_MAX;
    let seen = any::<([u64; 3], bool, Option<[u32; 4]>)>();
    let numbers = (any::<[u8; 16]>(), any::<[u64; 4]>(), size, seen);
    let texts = ("[^\\x00]{0,16}", stopped);
    (numbers, log, times, texts, rest).prop_map(|(numbers, log, times, texts, rest)| {
        let (label, (by, why)) = texts;
        let (volume, [generation, compat, ro_compat, incompat], blocks, seen) = numbers;
        let ([epoch, last, checkpoint], is_closed, sums) = seen;
        let is_closed = is_closed && generation > 0;
        let geometry = Geometry::for_blocks(blocks).unwrap();
        let sums = sums.filter(|_| is_closed).map(|numbers| {
            let [available, inodes, free_inodes, trees] = numbers.map(u64::from);
            let (available, inodes) = (available % blocks, inodes % blocks);
            GroupSums { available, inodes, free_inodes: free_inodes % (inodes + 1), trees }
        });
        let [made, written, mounted, checked] = times.map(|(s, n)| Timestamp::new(s, n).unwrap());
        let (outside, device, blocks) = (log.0, Uuid::from_bytes(log.1), log.2);
        let log = if outside && device != Uuid::NIL {
            LogPlace::Outside { device, blocks }
        } else {
            LogPlace::inside(geometry, Some(blocks))
        };
        let new = Superblock::new(Uuid::from_bytes(volume), geometry).with_log(log).unwrap();
        Superblock {
            generation,
            features: Features { compat, ro_compat, incompat },
            label: label.parse().unwrap(),
            made,
            written,
            mounted,
            checked,
            log_seen: LogSeen { epoch, last, checkpoint, is_closed },
            sums,
            stopped: Stopped::new(by, checked, &why),
            own_id: Uuid::from_bytes(volume.map(|byte| byte & 3)),
            rest: without_zeros(&rest).into(),
            ..new
        }
    })
}

proptest! {
    #[test]
    fn an_encoded_superblock_is_decoded(superblock in superblocks()) {
        for (copy, address) in (0..).zip(superblock.geometry().copies()) {
            let block = superblock.encode(copy, address);
            prop_assert_eq!(Superblock::decode(&block, address), Ok(superblock.clone()));
        }
    }

    #[test]
    fn changed_fields_make_another_superblock_or_none(
        superblock in superblocks(),
        changes in prop::collection::vec((HEADER_BYTES..HEADER_BYTES + 216, any::<u8>()), 1..6),
    ) {
        let mut block = superblock.encode(0, 0);
        for (at, byte) in changes {
            block.bytes_mut()[at] = byte;
        }
        // The checksum is right, as an attacker would make it.
        reseal(&mut block);
        if let Ok(found) = Superblock::decode(&block, 0) {
            let again = found.encode(0, 0);
            prop_assert_eq!(Superblock::decode(&again, 0), Ok(found.clone()));
            prop_assert!(found.log().fits(found.geometry()));
        }
    }

    #[test]
    fn any_bytes_are_decoded_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        address in any::<u64>(),
    ) {
        let mut block = Block::zeroed();
        block.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
        prop_assert!(Superblock::decode(&block, address).is_err());
        let (volume, owner) = (block.header().volume, block.header().owner.get());
        block.seal(&Identity { magic: MAGIC, address, owner, volume }, 0);
        prop_assert!(Superblock::decode(&block, address).is_err());
    }
}
