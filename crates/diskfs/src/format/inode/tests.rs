use super::*;
use crate::format::damage::InodeDamage;
use crate::format::{BLOCK_BYTES, Damage};

#[test]
fn format_md_has_every_field() {
    crate::format::check_fields("### Inodes", FIELDS, 0..RECORD_BYTES);
}

#[test]
fn format_md_has_every_number() {
    let faults = [
        InodeFault::Free,
        InodeFault::Type { mode: 0 },
        InodeFault::Links { links: 0 },
        InodeFault::Size { size: 0 },
        InodeFault::DataFormat { format: 0 },
        InodeFault::DataBytes { bytes: 0 },
        InodeFault::AttrFormat { format: 0 },
        InodeFault::AttrBytes { bytes: 0 },
        InodeFault::Overlap { data: 0, attr: 0 },
        InodeFault::Root { root: 0 },
        InodeFault::Parent { parent: 0 },
        InodeFault::Number,
        InodeFault::Checksum { found: 0, computed: 0 },
    ];
    crate::format::check_numbers(
        400,
        "inode 7",
        faults.map(|fault| InodeDamage { ino: 7, fault }.into()),
    );
}

#[test]
fn a_record_lies_where_its_number_says() {
    let mut block = Block::zeroed();
    for (slot, record) in records_mut(&mut block).iter_mut().enumerate() {
        *record = InodeRecord([slot as u8 + 1; RECORD_BYTES]);
    }
    assert_eq!(ino_at(block_of(8 * 77 + 3), slot_of(8 * 77 + 3)), 8 * 77 + 3);
    assert_eq!((block_of(ROOT_INO), slot_of(ROOT_INO), chunk_of(15), chunk_of(16)), (8, 0, 8, 16));
    assert_eq!(records(&block)[5], InodeRecord([6; RECORD_BYTES]));
    assert_eq!(block.bytes()[48], 1);
    assert_eq!(block.bytes()[48 + 504 * 3 - 1], 3);
    assert_eq!(block.bytes()[48 + 504 * 3], 4);
    assert_eq!(block.bytes()[48 + 504 * 8..], [0; BLOCK_BYTES - 48 - 504 * 8]);
}

#[test]
fn a_free_record_has_a_generation_and_nothing_else() {
    let record = InodeRecord::free(0x0102_0304);
    assert!(record.is_free());
    assert_eq!(record.generation(), 0x0102_0304);
    let set: Vec<_> = (0..RECORD_BYTES).filter(|at| record.0[*at] != 0).collect();
    assert_eq!(set, [32, 33, 34, 35, 36, 37, 38, 39]);
}

#[test]
fn a_torn_block_is_taken_for_what_it_is_but_no_other_block() {
    let volume = crate::Uuid::from_bytes(*b"volume of a test");
    let identity = Identity { magic: INODE_MAGIC, address: 9, owner: 8, volume };
    let mut block = Block::zeroed();
    block.seal(&identity, 5);
    records_mut(&mut block)[3] = InodeRecord([9; RECORD_BYTES]);
    assert!(matches!(block.verify(&identity), Err(Damage::Checksum { .. })));
    assert_eq!(verify_torn(&block, &identity), Ok(()));
    assert!(verify_torn(&block, &Identity { address: 10, ..identity }).is_err());
    assert!(verify_torn(&block, &Identity { owner: 16, ..identity }).is_err());
    assert!(verify_torn(&block, &Identity { volume: crate::Uuid::NIL, ..identity }).is_err());
    assert!(verify_torn(&Block::zeroed(), &identity).is_err());
}
