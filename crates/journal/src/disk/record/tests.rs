#![allow(clippy::unwrap_used, reason = "a test")]

use proptest::prelude::*;

use super::*;

const VOLUME: VolumeId = VolumeId([9; 16]);
const LOG: u32 = 512;

fn record(payload: &[u8], block: u32) -> (Vec<u8>, RecordHeader) {
    let blocks = blocks_of(payload.len());
    let mut record = vec![0; blocks * LOG_BLOCK_BYTES];
    let mut at = 0;
    while at < payload.len() {
        let room = payload_room(&mut record, at);
        let len = room.len().min(payload.len() - at);
        room[..len].copy_from_slice(&payload[at..at + len]);
        at += len;
    }
    let mut header = RecordHeader {
        kind: RecordKind::Data,
        flags: FLAG_START | FLAG_COMMIT,
        epoch: 3,
        lsn: Lsn::new(5, block),
        tail_lsn: Lsn::new(4, 17),
        sync_lsn: Lsn::new(4, 500),
        prev_lsn: Lsn::new(4, 511),
        prev_crc: 77,
        blocks: u32::try_from(blocks).unwrap(),
        payload_bytes: u32::try_from(payload.len()).unwrap(),
        log_blocks: LOG,
        checkpoint: 12,
        stream_offset: 4000,
        crc: 0,
        features: 5,
        device: *b"device of a log.",
    };
    let cycle = |index: usize| if block as usize + index >= LOG as usize { 6 } else { 5 };
    header.crc = encode(&mut record, &header, VOLUME, cycle);
    (record, header)
}

#[test]
fn a_written_record_is_read() {
    for len in [0, 1, FIRST_PAYLOAD, FIRST_PAYLOAD + 1, payload_of(8), payload_of(64)] {
        for block in [0, 1, LOG - 2, LOG - 1] {
            let payload: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let (record, header) = record(&payload, block);
            assert_eq!(claimed_blocks(&record, VOLUME), Some(header.blocks as usize));
            assert_eq!(decode(&record, VOLUME, block, LOG), Some(header));
            let mut read = Vec::new();
            payload_into(&record, len, &mut read);
            assert_eq!(read, payload, "{len} bytes at {block}");
        }
    }
}

#[test]
fn a_record_is_good_only_where_it_belongs() {
    let (record, _) = record(b"payload", 8);
    assert_eq!(decode(&record, VOLUME, 9, LOG), None);
    assert_eq!(decode(&record, VOLUME, 8, LOG + 1), None);
    assert_eq!(decode(&record, VolumeId([8; 16]), 8, LOG), None);
}

#[test]
fn blocks_and_payload_agree() {
    for blocks in 1..=RECORD_BLOCKS_MAX as usize {
        assert_eq!(blocks_of(payload_of(blocks)), blocks);
        assert_eq!(blocks_of(payload_of(blocks) + 1), blocks + 1);
    }
}

proptest! {
    #[test]
    fn no_changed_byte_goes_unseen(len in 0..9000_usize, at: prop::sample::Index, flip in 1..=255_u8) {
        let (mut record, _) = record(&vec![3; len], 100);
        let at = at.index(record.len());
        record[at] ^= flip;
        prop_assert_eq!(decode(&record, VOLUME, 100, LOG), None);
    }

    #[test]
    fn any_bytes_are_taken(
        bytes in prop::collection::vec(any::<u8>(), LOG_BLOCK_BYTES..=LOG_BLOCK_BYTES),
        header in prop::collection::vec((0..HEADER_BYTES, any::<u8>()), 0..8),
    ) {
        let (mut good, _) = record(&bytes[..100], 5);
        for (at, byte) in header {
            good[at] = byte;
        }
        for block in [&bytes, &good] {
            if let Some(blocks) = claimed_blocks(block, VOLUME) {
                let mut whole = block.clone();
                whole.resize(blocks * LOG_BLOCK_BYTES, 0);
                let _ = decode(&whole, VOLUME, 5, LOG);
            }
        }
    }
}
