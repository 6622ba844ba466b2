use super::*;

const EVERYWHERE: fn(u64) -> bool = |_| true;

fn header() -> GroupHeader {
    GroupHeader {
        free: 0x0102,
        free_inodes: 5,
        inodes: 128,
        orphans: 2,
        tree_blocks: 9,
        blocks: 1024,
        set_aside: vec![1030, 1031, 1044],
    }
}

fn block(change: impl FnOnce(&mut RawGroup)) -> Box<Block> {
    let mut block = Block::zeroed();
    header().encode(&mut block);
    change(transmute_mut!(block.body_mut()));
    block
}

fn decoded(change: impl FnOnce(&mut RawGroup)) -> Result<GroupHeader, u32> {
    let block = block(change);
    GroupHeader::decode(1025, &block, |block| (1032..2048).contains(&block) || block < 1032)
        .map_err(|damage| damage.number())
}

#[test]
fn format_md_has_every_field() {
    crate::format::check_fields("### Groups", FIELDS, HEADER_BYTES..BLOCK_BYTES);
}

#[test]
fn format_md_has_every_number() {
    let faults = [
        GroupFault::Counts { free: 0, inodes: 0, free_inodes: 0, orphans: 0 },
        GroupFault::SetAside { block: 0 },
        GroupFault::FreeRun { start: 0, blocks: 0 },
        GroupFault::Chunk { start: 0 },
        GroupFault::NotInUse { start: 0, blocks: 0 },
        GroupFault::NotFree { start: 0, blocks: 0 },
        GroupFault::Inode { ino: 0 },
        GroupFault::Counter,
        GroupFault::Size { blocks: 0 },
    ];
    crate::format::check_numbers(300, "block 7", faults.map(|fault| super::fault(7, fault)));
}

#[test]
fn fields_lie_where_format_md_says() {
    let block = block(|_| {});
    let bytes = block.bytes();
    assert_eq!(bytes[48..64], [2, 1, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[64..80], [128, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[80..96], [9, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[96..112], [3, 0, 0, 0, 0, 0, 0, 0, 6, 4, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[112..128], [7, 4, 0, 0, 0, 0, 0, 0, 0x14, 4, 0, 0, 0, 0, 0, 0]);
    assert!(bytes[128..].iter().all(|byte| *byte == 0));
}

#[test]
fn an_encoded_group_is_decoded() {
    assert_eq!(decoded(|_| {}), Ok(header()));
    let full = GroupHeader { set_aside: (100..164).collect(), ..header() };
    let mut block = Block::zeroed();
    full.encode(&mut block);
    assert_eq!(GroupHeader::decode(1, &block, EVERYWHERE), Ok(full));
    let empty = GroupHeader::default();
    empty.encode(&mut block);
    assert_eq!(GroupHeader::decode(1, &block, EVERYWHERE), Ok(empty));
}

#[test]
fn a_group_header_is_encoded_over_all_of_another() {
    let numbers = |range: std::ops::Range<u64>| GroupHeader {
        free: range.end,
        blocks: 2048,
        set_aside: range.collect(),
        ..header()
    };
    let mut block = block(|_| {});
    for next in [numbers(10..74), numbers(7..9), numbers(0..0), numbers(4..24)] {
        next.encode_over(&mut block);
        let mut fresh = Block::zeroed();
        next.encode(&mut fresh);
        assert_eq!(block.bytes(), fresh.bytes());
    }
}

#[test]
fn impossible_numbers_are_told_by_number() {
    assert_eq!(decoded(|raw| raw.free_inodes = 129.into()), Err(300));
    assert_eq!(decoded(|raw| raw.orphans = 129.into()), Err(300));
    assert_eq!(decoded(|raw| raw.inodes = 127.into()), Err(300));
    assert_eq!(decoded(|raw| raw.set_aside_count = 65.into()), Err(300));
    assert_eq!(decoded(|raw| raw.set_aside_count = u32::MAX.into()), Err(300));
    assert_eq!(decoded(|raw| raw.set_aside[1] = 2048.into()), Err(301));
    assert_eq!(decoded(|raw| raw.set_aside[1] = u64::MAX.into()), Err(301));
    assert_eq!(decoded(|raw| raw.set_aside[2] = 1030.into()), Err(301));
    // Entries behind the count are ignored.
    assert_eq!(decoded(|raw| raw.set_aside[3] = 1030.into()), Ok(header()));
}
