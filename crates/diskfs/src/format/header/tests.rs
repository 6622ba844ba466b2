use proptest::prelude::*;

use super::*;

fn identity() -> Identity {
    let volume = Uuid::from_bytes(*b"0123456789abcdef");
    Identity { magic: Magic(*b"vfsX"), address: 77, owner: 5, volume }
}

fn sealed(fill: u8) -> Box<Block> {
    let mut block = Block::zeroed();
    block.body_mut().fill(fill);
    block.seal(&identity(), 0x0102_0304_0506_0708);
    block
}

#[test]
fn format_md_has_every_field() {
    let fields = [
        (offset_of!(Header, magic), 4, "magic"),
        (offset_of!(Header, checksum), 4, "checksum"),
        (offset_of!(Header, address), 8, "address"),
        (offset_of!(Header, owner), 8, "owner"),
        (offset_of!(Header, volume), 16, "volume"),
        (offset_of!(Header, lsn), 8, "LSN"),
    ];
    assert_eq!(crate::format::documented("### Blocks of metadata"), fields);
}

#[test]
fn zeros_at_the_end_of_a_block_are_not_used() {
    let mut block = sealed(0);
    assert_eq!(block.bytes_used(), 64);
    for (at, used) in [(15, 64), (16, 128), (79, 128), (80, 192), (BODY_BYTES - 1, BLOCK_BYTES)] {
        block.body_mut()[at] = 1;
        assert_eq!(block.bytes_used(), used, "byte {at} of the body");
    }
}

#[test]
fn a_sealed_header_verifies() {
    let block = sealed(9);
    block.verify(&identity()).unwrap();
    assert_eq!(block.header().lsn.get(), 0x0102_0304_0506_0708);
    assert_eq!(block.body(), &[9; BODY_BYTES]);
    assert_eq!(&block.bytes()[..4], b"vfsX");
    assert_eq!(block.bytes()[8..24], [77, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(block.bytes()[40..48], [8, 7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn the_checksum_is_the_published_one() {
    // RFC 3720, B.4: 32 bytes of zeros, and of ones.
    assert_eq!(crc32c::crc32c(&[0; 32]), 0x8A91_36AA);
    assert_eq!(crc32c::crc32c(&[0xFF; 32]), 0x62A8_AB43);
    let block = sealed(3);
    let mut bytes = block.bytes().to_vec();
    bytes[4..8].fill(0);
    assert_eq!(block.header().checksum.get(), crc32c::crc32c(&bytes));
}

#[test]
fn every_flipped_bit_is_found() {
    let mut block = sealed(0xA5);
    for bit in 0..BLOCK_BYTES * 8 {
        block.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
        assert!(block.verify(&identity()).is_err(), "bit {bit}");
        block.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
    }
    block.verify(&identity()).unwrap();
}

#[test]
fn a_block_that_is_another_one_is_found() {
    let block = sealed(1);
    let right = identity();
    let number = |identity| block.verify(&identity).unwrap_err().number();
    assert_eq!(number(Identity { magic: Magic(*b"vfsY"), ..right }), 1);
    assert_eq!(number(Identity { address: 78, ..right }), 3);
    assert_eq!(number(Identity { volume: Uuid::NIL, ..right }), 4);
    assert_eq!(number(Identity { owner: 6, ..right }), 5);
    let error = Block::zeroed().verify(&right).unwrap_err();
    assert_eq!(error.to_string(), "V001: block 77: nothing where vfsX should be");
}

proptest! {
    #[test]
    fn any_change_of_up_to_four_bytes_in_a_row_is_found(
        at in 0..BLOCK_BYTES - 4,
        change in any::<[u8; 4]>(),
        fill in any::<u8>(),
    ) {
        prop_assume!(change != [0; 4]);
        let mut block = sealed(fill);
        block.bytes_mut()[at..at + 4].iter_mut().zip(change).for_each(|(byte, bits)| *byte ^= bits);
        prop_assert!(block.verify(&identity()).is_err());
    }

    #[test]
    fn any_bytes_are_verified_without_a_panic(
        head in prop::collection::vec(any::<u8>(), 0..200),
        checksum in any::<bool>(),
    ) {
        let mut block = Block::zeroed();
        block.bytes_mut()[..head.len()].copy_from_slice(&head);
        if checksum {
            block.header.checksum = block.computed_checksum().into();
        }
        prop_assert!(block.verify(&identity()).is_err());
    }
}
