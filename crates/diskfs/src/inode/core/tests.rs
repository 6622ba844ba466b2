use proptest::prelude::*;

use super::*;
use crate::format::inode::RECORD_BYTES;

/// The type of a fifo.
const TYPE_FIFO: u32 = 0o010_000;
/// The type of a character device.
const TYPE_CHARACTER: u32 = 0o020_000;
/// The type of a block device.
const TYPE_BLOCK: u32 = 0o060_000;
/// The type of a socket.
const TYPE_SOCKET: u32 = 0o140_000;
const INO: u64 = 100;

/// Returns whether a volume of four groups of 4096 blocks can have this block in files.
fn is_possible(block: u64) -> bool {
    block < 1 << 14 && block & 0xFFF >= 8
}

fn decode(record: &InodeRecord) -> Result<InodeCore, Damage> {
    InodeCore::decode(INO, record, |start, blocks| {
        is_possible(start) && is_possible(start + blocks - 1)
    })
}

fn decoded(core: &InodeCore) -> Result<InodeCore, Damage> {
    decode(&core.encode())
}

fn extent(file_block: u64, start: u64, blocks: u32) -> Extent {
    Extent { file_block, start, blocks, is_unwritten: file_block % 2 == 1 }
}

fn address() -> impl Strategy<Value = u64> {
    (0_u64..4, 8_u64..1 << 12).prop_map(|(group, block)| (group << 12) + block)
}

fn extents() -> impl Strategy<Value = DataFork> {
    let one = (0_u64..1 << 45, address(), 1_u32..=8, any::<bool>());
    prop::collection::vec(one, 1..20).prop_map(|parts| {
        let mut behind = 0;
        let extents = parts.into_iter().map(|(gap, start, blocks, is_unwritten)| {
            let start = start & !7;
            let extent = Extent { file_block: behind + gap, start, blocks, is_unwritten };
            behind = extent.end();
            extent
        });
        DataFork::Extents(extents.collect())
    })
}

fn bytes(most: usize) -> impl Strategy<Value = Arc<[u8]>> {
    prop::collection::vec(any::<u8>(), 1..=most).prop_map(Arc::from)
}

fn attr() -> impl Strategy<Value = AttrFork> {
    prop_oneof![
        Just(AttrFork::None),
        bytes(ATTR_BYTES_MAX).prop_map(AttrFork::Inline),
        (address(), 1..=ATTR_BLOB_BYTES_MAX)
            .prop_map(|(root, bytes)| AttrFork::Tree { root, bytes }),
    ]
}

/// Generates every type with every fork that it can have.
fn contents() -> impl Strategy<Value = (u32, u64, DataFork)> {
    let tree = || address().prop_map(|root| DataFork::Tree { root });
    let special = prop::sample::select(vec![TYPE_FIFO, TYPE_BLOCK, TYPE_CHARACTER, TYPE_SOCKET]);
    let file = prop_oneof![
        Just(DataFork::None),
        bytes(DATA_BYTES_MAX).prop_map(DataFork::Inline),
        extents(),
        tree()
    ];
    let size = |data: &DataFork| data.bytes_in_inode() as u64;
    prop_oneof![
        special.prop_map(|kind| (kind, 0, DataFork::None)),
        (file, 400..=SIZE_MAX).prop_map(|(data, size)| (TYPE_REGULAR, size, data)),
        bytes(DATA_BYTES_MAX).prop_map(DataFork::Inline).prop_map(move |data| (
            TYPE_LINK,
            size(&data),
            data
        )),
        (tree(), 1..4096_u64).prop_map(|(data, size)| (TYPE_LINK, size, data)),
        (tree(), 1..4096_u64).prop_map(|(data, size)| (TYPE_DIRECTORY, size, data)),
        bytes(DATA_BYTES_MAX).prop_map(DataFork::Inline).prop_map(move |data| (
            TYPE_DIRECTORY,
            size(&data),
            data
        )),
    ]
}

fn core() -> impl Strategy<Value = InodeCore> {
    let numbers = (0_u32..0o10000, any::<u16>(), 0..=LINKS_MAX, any::<[u32; 3]>());
    let wide = (any::<[u64; 2]>(), any::<[i64; 4]>(), address());
    (contents(), attr(), numbers, wide).prop_map(
        |((kind, size, data), attr, (mode, flags, nlink, [uid, gid, generation]), wide)| {
            let ([blocks, rdev], [atime, mtime, ctime, btime], parent) = wide;
            let is_directory = kind == TYPE_DIRECTORY;
            let mut core = InodeCore {
                mode: kind | mode,
                parent: if is_directory { parent * 8 } else { 0 },
                ..InodeCore::new(kind, generation, 0)
            };
            (core.flags, core.nlink, core.uid, core.gid) = (flags, nlink, uid, gid);
            (core.size, core.blocks, core.rdev, core.data) = (size, blocks, rdev, data);
            (core.atime, core.mtime, core.ctime, core.btime) = (atime, mtime, ctime, btime);
            if attr.bytes_in_inode() <= core.attr_room() {
                core.attr = attr;
            }
            core
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn an_encoded_inode_is_decoded(core in core()) {
        prop_assert_eq!(decoded(&core), Ok(core));
    }

    #[test]
    fn an_inode_is_logged_without_trailing_zeros(core in core()) {
        let mut logged = Vec::new();
        core.write(&mut |bytes| { logged.extend_from_slice(bytes); Ok(()) }).unwrap();
        prop_assert_eq!(logged.len(), core.log_bytes());
        prop_assert_eq!(InodeRecord::from_log(&logged), Some(core.encode()));
        let has_attributes = core.attr != AttrFork::None;
        prop_assert!(has_attributes || logged.len() < RECORD_BYTES);
    }

    #[test]
    fn a_decoded_inode_is_encoded(core in core(), at in 0..RECORD_BYTES, byte: u8) {
        let mut record = core.encode();
        let was = std::mem::replace(&mut record.0[at], byte);
        let number = decode(&record).err().map(|damage| damage.number());
        prop_assert!(was == byte || matches!(number, Some(400 | 412)));
        record.seal();
        if let Ok(core) = decode(&record) {
            let again = decoded(&core).unwrap();
            prop_assert_eq!(&again, &core);
            prop_assert!(core.data.bytes_in_inode() <= core.data_room());
            prop_assert!(core.attr.bytes_in_inode() <= core.attr_room());
        }
    }

    #[test]
    fn garbage_is_a_fault(mut bytes in prop::collection::vec(any::<u8>(), RECORD_BYTES), formats: [u8; 2]) {
        (bytes[88], bytes[89]) = (formats[0] % 5, formats[1] % 4);
        (bytes[91], bytes[93]) = (bytes[91] % 2, bytes[93] % 2);
        let mut record = InodeRecord(bytes.try_into().unwrap());
        record.seal();
        let _ = decode(&record);
    }
}

fn file(data: DataFork) -> InodeCore {
    InodeCore { size: 1 << 20, data, ..InodeCore::new(TYPE_REGULAR | 0o644, 1, 5) }
}

/// Returns the fault code of the record with some bytes replaced, if any.
fn with(core: &InodeCore, at: usize, bytes: &[u8]) -> Option<u32> {
    let mut record = core.encode();
    record.0[at..at + bytes.len()].copy_from_slice(bytes);
    record.seal();
    decode(&record).err().map(|damage| damage.number())
}

#[test]
fn every_fault_is_found() {
    let plain = file(DataFork::None);
    let changes: [(usize, &[u8], u32); 15] = [
        (0, &[0, 0], 400),
        (0, &[0, 0xF0], 401),
        (4, &[0, 0, 0, 0x80], 402),
        (23, &[0x80], 403),
        (88, &[4], 404),
        (90, &[1], 405),
        (88, &[3], 405),
        (88, &[2], 405),
        (88, &[1, 0, 0x8D, 1], 405),
        (89, &[3], 406),
        (89, &[1], 407),
        (89, &[2], 407),
        (92, &[1], 407),
        (88, &[1, 1, 0x8C, 1, 13, 0], 408),
        (80, &[64], 410),
    ];
    for (at, bytes, number) in changes {
        assert_eq!(with(&plain, at, bytes), Some(number), "{bytes:?} at {at}");
    }
    let tree = file(DataFork::Tree { root: 100 });
    assert_eq!(with(&tree, 96, &[0]), Some(409));
    assert_eq!(with(&tree, 98, &[1]), Some(409));
    // Reserved for a group's own use.
    assert_eq!(with(&tree, 96, &[7, 0x10]), Some(409));
    let fifo = InodeCore::new(TYPE_FIFO, 1, 0);
    assert_eq!(with(&fifo, 88, &[1]), Some(404));
    assert_eq!(with(&fifo, 16, &[1]), Some(403));
}

#[test]
fn directories_have_parents_and_entries() {
    let directory = InodeCore { parent: 64, ..InodeCore::new(TYPE_DIRECTORY, 1, 0) };
    assert_eq!(decoded(&directory).as_ref(), Ok(&directory));
    for (at, byte, number) in [(80, 0, 410), (83, 1, 410), (16, 1, 403), (88, 0, 404), (88, 2, 404)]
    {
        assert_eq!(with(&directory, at, &[byte]), Some(number), "{byte} at {at}");
    }
}

#[test]
fn extents_are_checked() {
    let number = |extents: &[Extent]| {
        decoded(&file(DataFork::Extents(extents.into()))).err().map(|damage| damage.number())
    };
    assert_eq!(number(&[extent(0, 8, 4088), extent(4088, 4104, 1)]), None);
    assert_eq!(number(&[extent(0, 7, 1)]), Some(702));
    assert_eq!(number(&[extent(0, 8, 2), extent(1, 20, 1)]), Some(701));
    assert_eq!(number(&[]), Some(405));
    let most: Arc<[_]> = (0..19).map(|at| extent(at * 2, 100 + at, 1)).collect();
    assert_eq!(file(DataFork::None).extents_room(), 19);
    assert!(decoded(&file(DataFork::Extents(most))).is_ok());
}

#[test]
fn attributes_always_find_room_for_a_root_and_extents_for_seven() {
    let mut core = file(DataFork::Inline([1; 396].into()));
    assert_eq!((core.data_room(), core.attr_room()), (396, 12));
    core.attr = AttrFork::Tree { root: 9, bytes: 1 };
    assert_eq!(decoded(&core).as_ref(), Ok(&core));
    let mut core = file(DataFork::None);
    assert_eq!(core.attr_room(), 256);
    core.attr = AttrFork::Inline([1; 256].into());
    assert_eq!((core.data_room(), core.extents_room()), (152, 7));
}

#[test]
fn a_number_that_is_free_keeps_its_generation() {
    let free = InodeCore::free(7);
    assert!(free.is_free());
    assert_eq!(free.encode(), InodeRecord::free(7));
    let fault = InodeFault::Free;
    assert_eq!(decoded(&free), Err(InodeDamage { ino: INO, fault }.into()));
}
