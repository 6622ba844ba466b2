use proptest::prelude::*;

use super::*;

/// Foster's case in the discussion of Chinner's patch 3 (2020): the first transaction of a
/// checkpoint fills several records, and is the only one in it. The space that it gives covers the
/// headers of all of them.
#[test]
fn the_first_large_transaction_takes_its_split_reservation() {
    for record_blocks in [1, 2, 8, 64] {
        let costs = Costs::new(record_blocks);
        for records in 1..40 {
            let payload = payload_of(record_blocks) as u64 * records;
            for len in payload - 40..payload + 40 {
                let given = costs.unit() + len + costs.split(len);
                let used = costs.stream(len + CHECKPOINT_HEADER_BYTES as u64);
                assert!(used <= given, "{len} bytes in records of {record_blocks} blocks");
            }
        }
    }
}

#[test]
fn a_small_transaction_costs_what_it_logs() {
    let costs = Costs::new(8);
    assert_eq!(costs.split(200), 2);
    assert_eq!(costs.stream(CHECKPOINT_HEADER_BYTES as u64 + 200), 4096);
}

proptest! {
    /// The shares of any transactions of a checkpoint cover its records.
    #[test]
    fn shares_cover_all_headers(
        sizes in prop::collection::vec(1..60_000_u64, 1..60),
        record_blocks in 1..=64_usize,
    ) {
        let costs = Costs::new(record_blocks);
        let given: u64 = sizes.iter().map(|len| len + costs.split(*len)).sum::<u64>() + costs.unit();
        let used = costs.stream(sizes.iter().sum::<u64>() + CHECKPOINT_HEADER_BYTES as u64);
        prop_assert!(used <= given, "{} > {}", used, given);
        // And the excess is little more than the unit: rounding costs at most a byte for each
        // commit.
        prop_assert!(given <= used + costs.unit() + sizes.len() as u64);
    }

    /// The space that a checkpoint has covers its records, and little more, also when commits make
    /// its stream shorter.
    #[test]
    fn shares_of_a_stream_that_shrinks_come_back(
        lengths in prop::collection::vec(0..60_000_i64, 1..60),
        record_blocks in 1..=64_usize,
    ) {
        let costs = Costs::new(record_blocks);
        let (mut stream, mut given) = (0, signed(costs.unit()));
        for len in &lengths {
            given += costs.share(len - stream);
            stream = *len;
            let used = signed(costs.stream(stream as u64 + CHECKPOINT_HEADER_BYTES as u64));
            prop_assert!(used <= given, "{} > {}", used, given);
            prop_assert!(given <= used + signed(costs.unit()) + lengths.len() as i64);
        }
    }

    /// A reservation suffices for the first and only transaction of a checkpoint.
    #[test]
    fn a_reservation_covers_its_transaction(bytes in 0..1_000_000_u64, record_blocks in 1..=64_usize) {
        let costs = Costs::new(record_blocks);
        prop_assert!(costs.transaction(bytes) >= costs.unit() + bytes + costs.split(bytes));
    }
}
