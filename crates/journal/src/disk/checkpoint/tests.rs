#![allow(clippy::unwrap_used, reason = "a test")]

use proptest::prelude::*;

use super::*;

fn stream(sequence: u64, items: &[(u64, Option<Vec<u8>>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (id, bytes) in items {
        let mut vector = LogVector::new();
        match bytes {
            Some(bytes) => vector.push(bytes),
            None => vector.cancel(),
        }
        body.extend(op_header(LogKey { kind: 2, id: *id }, &vector, vector.len()));
        body.extend(crate::support_tests::bytes_of(&vector));
        body.resize(body.len().next_multiple_of(OP_ALIGN), 0);
    }
    let bytes = (CHECKPOINT_HEADER_BYTES + body.len()) as u64;
    let mut stream = checkpoint_header(sequence, items.len() as u64, bytes).to_vec();
    stream.extend(body);
    stream
}

#[test]
fn a_stream_of_another_checkpoint_is_refused() {
    let stream = stream(4, &[(1, None)]);
    assert!(Operations::new(&stream, 4).is_ok());
    assert!(Operations::new(&stream, 5).is_err());
    assert!(Operations::new(&stream[..stream.len() - 8], 4).is_err());
    assert!(Operations::new(&[], 4).is_err());
}

#[test]
fn bytes_behind_the_last_operation_are_an_error() {
    let mut stream = stream(4, &[(1, Some(vec![1; 9]))]);
    stream.extend([0; 8]);
    let len = stream.len() as u64;
    stream[24..32].copy_from_slice(&len.to_le_bytes());
    let parsed: Vec<_> = Operations::new(&stream, 4).unwrap().collect();
    assert!(parsed[0].is_ok() && parsed[1].is_err() && parsed.len() == 2);
}

proptest! {
    #[test]
    fn a_written_checkpoint_is_read(
        items in prop::collection::vec((any::<u64>(), prop::option::of(prop::collection::vec(any::<u8>(), 0..50))), 0..20),
    ) {
        let stream = stream(9, &items);
        let read: Vec<_> = Operations::new(&stream, 9).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), items.len());
        for (operation, (id, bytes)) in read.into_iter().zip(&items) {
            let key = LogKey { kind: 2, id: *id };
            match bytes {
                Some(bytes) => prop_assert_eq!(operation, Operation::Item { key, bytes }),
                None => prop_assert_eq!(operation, Operation::Cancel { key }),
            }
        }
    }

    #[test]
    fn damaged_streams_end(
        count in 0..6_u64,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
    ) {
        let items: Vec<_> = (0..count).map(|id| (id, Some(vec![1; 20]))).collect();
        let mut stream = stream(9, &items);
        for (at, byte) in changes {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        if let Ok(operations) = Operations::new(&stream, 9) {
            prop_assert!(operations.count() <= stream.len());
        }
    }
}
