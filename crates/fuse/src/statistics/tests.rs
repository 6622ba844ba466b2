use vfscale::driver::{CacheCounts, LogCounts};
use vfscale::pool::Usage;

use super::*;

const MICRO: Duration = Duration::from_micros(1);

#[test]
fn times_fall_into_classes_by_their_bounds() {
    for class in 0..CLASSES - 1 {
        let bound = OperationStats::class_bound(class).unwrap();
        assert_eq!(class_of(nanos(bound) - 1), class, "{bound:?}");
        assert_eq!(class_of(nanos(bound)), class + 1, "{bound:?}");
    }
    assert_eq!(OperationStats::class_bound(CLASSES - 1), None);
    assert_eq!((class_of(0), class_of(u64::MAX)), (0, CLASSES - 1));
}

#[test]
fn workers_are_summed_and_unknown_kinds_kept_apart() {
    let counters = Counters::new(2, PollingChoice::Never);
    counters.of_worker(0).add(opcode::LOOKUP, 3 * MICRO);
    counters.of_worker(1).add(opcode::LOOKUP, 9 * MICRO);
    for unknown in [0, 7, 63, 64, u32::MAX] {
        counters.of_worker(1).add(unknown, MICRO);
    }
    assert_eq!(counters.served(), 7);
    let operations = counters.operations();
    let names: Vec<_> = operations.iter().map(|stats| (stats.name, stats.count)).collect();
    assert_eq!(names, [("OTHER", 5), ("LOOKUP", 2)]);
    let lookups = &operations[1];
    assert_eq!((lookups.total, lookups.longest), (12 * MICRO, 9 * MICRO));
    assert_eq!(lookups.mean(), 6 * MICRO);
    assert_eq!((lookups.classes[2], lookups.classes[4]), (1, 1), "{:?}", lookups.classes);
    assert_eq!(lookups.classes.iter().sum::<u64>(), 2);
}

#[test]
fn names_and_numbers_of_operations_belong_together() {
    let named: Vec<u32> = (0..200).filter(|code| opcode::name(*code).is_some()).collect();
    assert!(named.len() > 40 && named.iter().all(|code| (*code as usize) < KINDS), "{named:?}");
    for code in named {
        assert_eq!(opcode::number(opcode::name(code).unwrap()), Some(code));
    }
    assert_eq!((opcode::name(15), opcode::number("OTHER")), (Some("READ"), None));
}

#[test]
fn encoded_statistics_are_decoded_whole() {
    let counters = Counters::new(1, PollingChoice::Quota);
    for code in 0..100 {
        counters.of_worker(0).add(code, code * MICRO);
    }
    let mut statistics = Statistics { operations: counters.operations(), ..Default::default() };
    statistics.mount = Stats {
        nodes: 1,
        lookups: 2,
        open_files: 3,
        waiting: 4,
        requests: 5,
        polling: PollingChoice::Quota,
        polls: 7,
        polls_found: 8,
        transport: Transport::Uring,
        queues: 9,
        workers: 10,
    };
    statistics.counts.dentries = 6;
    statistics.counts.open_files = 11;
    assert_eq!(decoded(&statistics), statistics);
    let log = LogCounts {
        bytes: 12,
        used_bytes: 13,
        commits: 14,
        checkpoints: 15,
        writes: 16,
        flushes: 17,
        space_waits: 18,
        memory_waits: 19,
    };
    statistics.storage.log = Some(log);
    assert_eq!(decoded(&statistics), statistics, "with a log");
    statistics.storage.cache = Some(CacheCounts {
        bytes_max: 20,
        clean_bytes: 21,
        dirty_bytes: 22,
        changed_metadata_bytes: 23,
    });
    assert_eq!(decoded(&statistics), statistics, "with a cache");
    statistics.pool = Some(Usage { size: 24, free: 25, branches: 26 });
    assert_eq!(decoded(&statistics), statistics, "with branches");
}

/// Returns statistics as they arrive, with words that only another version knows.
fn decoded(statistics: &Statistics) -> Statistics {
    let words = encode(statistics);
    let other = ["mount.unknown 5", "unknown", "unknown 7 8", "log", "operation.READ 1 2"];
    decode(&words.iter().map(String::as_str).chain(other).collect::<Vec<_>>())
}
