use proptest::prelude::*;

use super::*;
use crate::disk::layout::Layout;

const POOL: [u8; 16] = [3; 16];

fn expected(magic: [u8; 4], place: u64) -> Expected {
    Expected { magic, pool: POOL, place }
}

#[test]
fn a_flipped_bit_is_found_in_every_kind_of_block() {
    for magic in [LEAD, SUPER, NODE, BITMAP, TABLE, LOG, DEAD] {
        let mut block: NodeBlock = zeroed();
        block.header = header(expected(magic, 40), 5, 6, 7);
        let bytes = seal(&block);
        assert!(read::<NodeBlock>(&bytes, expected(magic, 40)).is_ok());
        for byte in 0..PLACE_BYTES {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1 << (byte % 8);
            assert!(read::<NodeBlock>(&damaged, expected(magic, 40)).is_err(), "byte {byte}");
        }
    }
}

#[test]
fn a_block_of_another_place_pool_or_kind_is_refused() {
    let mut block: NodeBlock = zeroed();
    block.header = header(expected(NODE, 40), 5, 6, 7);
    let bytes = seal(&block);
    assert!(read::<NodeBlock>(&bytes, expected(NODE, 41)).is_err());
    assert!(read::<NodeBlock>(&bytes, expected(TABLE, 40)).is_err());
    assert!(read::<NodeBlock>(&bytes, Expected { pool: [4; 16], ..expected(NODE, 40) }).is_err());
}

#[test]
fn superblocks_of_volumes_are_not_imitated() {
    let layout = Layout::whole(1 << 28);
    assert!((10..=27).all(|bit| layout.is_fixed(1 << bit)));
    let free = (0..ZONE_PLACES).filter(|place| layout.has(*place)).count() as u64;
    // 1024 to 16384.
    assert_eq!(free, ZONE_PLACES - HEAD_PLACES - 5);
}

proptest! {
    #[test]
    fn an_entry_tells_its_place_and_birth(place in 1..1_u64 << 36, birth in 1..DEPTH_MAX) {
        let entry = Entry::new(place, birth);
        prop_assert_eq!((entry.place(), entry.birth()), (place, birth));
        prop_assert!(!entry.is_none());
    }

    #[test]
    fn a_hostile_entry_is_none_or_inside(raw: u64, depth in 1..DEPTH_MAX, places in 128..1_u64 << 36) {
        let entry = Entry(raw);
        let layout = Layout::whole(places);
        if layout.complaint(entry, depth).is_none() && !entry.is_none() {
            prop_assert!(layout.has(entry.place()));
            prop_assert!((1..=depth).contains(&entry.birth()) && raw >> 63 == 0);
        }
    }
}

#[test]
fn one_wrong_byte_is_found() {
    let mut block: LogBlock = zeroed();
    block.header.place = 9.into();
    block.maps[100].place = 0x1234_5678.into();
    let right = seal(&block);
    for (at, bits) in [(0, 1), (3, 0x80), (8, 0x11), (63, 0xff), (2464, 0x10), (4095, 0x7e)] {
        let mut wrong = *right;
        wrong[at] ^= bits;
        assert_eq!(mended(&wrong), Some(*right), "{at} {bits:#x}");
        wrong[(at + 1000) % PLACE_BYTES] ^= 1;
        assert_eq!(mended(&wrong), None, "{at} {bits:#x}");
    }
}
