use super::*;
use crate::format::damage::{TreeDamage, TreeFault};

#[test]
fn format_md_has_every_field() {
    crate::format::check_fields("### Blocks of trees", FIELDS, HEADER_BYTES..BLOCK_BYTES);
}

#[test]
fn format_md_has_every_number() {
    let faults = [
        TreeFault::Level { found: 0, expected: 0 },
        TreeFault::Count { found: 0, least: 0, most: 0 },
        TreeFault::Order { record: 0 },
        TreeFault::Range { record: 0 },
        TreeFault::Left { found: 0, expected: None },
        TreeFault::Right { found: 0, expected: None },
        TreeFault::Pointer { child: 0 },
        TreeFault::Height { level: 0, highest: 0 },
        TreeFault::Fill { found: 0, least: 0 },
        TreeFault::Shared,
    ];
    crate::format::check_numbers(
        200,
        "block 7",
        faults.map(|fault| TreeDamage { address: 7, fault }.into()),
    );
}

#[test]
fn a_record_lies_where_format_md_says() {
    let mut block = Block::zeroed();
    let node = raw_mut(&mut block);
    node.level = 0x0102.into();
    node.records = 0x0304.into();
    node.left = 5.into();
    node.right = 6.into();
    let entry = Entry { key: U64::from(7), value: U32::from(8) };
    node.area[..12].copy_from_slice(entry.as_bytes());
    let expected = [2, 1, 4, 3, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(block.bytes()[48..72], expected);
    assert_eq!(block.bytes()[72..84], [7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]);
}
