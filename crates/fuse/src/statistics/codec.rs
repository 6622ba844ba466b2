//! The numbers as which statistics travel from a mount to the program that asks for them.

use std::time::Duration;

use vfscale::Errno;
use vfscale::driver::{CacheCounts, LogCounts, StorageCounts};

use super::{CLASSES, KINDS, OperationStats, Statistics, Stats, name_of, nanos};
use crate::base::polling::PollingChoice;
use crate::base::transport::Transport;
use crate::wire::opcode;

/// Numbers of the log and the cache.
const STORAGE: usize = 12;

/// Numbers in front of the operations.
pub(super) const HEAD: usize = 17 + STORAGE;

/// Numbers of one operation.
const OPERATION: usize = 4 + CLASSES;

/// Bytes of encoded statistics at most; the rest of a shorter answer is zero.
pub(crate) const BYTES_MAX: usize = (HEAD + KINDS * OPERATION) * size_of::<u64>();

/// Encodes statistics as the numbers that a mount replies.
pub(crate) fn encode(statistics: &Statistics) -> Vec<u64> {
    let (mount, counts) = (&statistics.mount, &statistics.counts);
    let mut numbers = vec![
        mount.nodes as u64,
        mount.lookups,
        mount.open_files as u64,
        mount.waiting as u64,
        mount.requests,
        counts.dentries as u64,
        counts.unused_dentries as u64,
        counts.negative_dentries as u64,
        counts.inodes as u64,
        counts.unused_inodes as u64,
        counts.open_files as u64,
        mount.polling.number(),
        mount.polls,
        mount.polls_found,
        u64::from(mount.transport == Transport::Uring),
        mount.queues as u64,
        mount.workers as u64,
    ];
    numbers.extend(encode_storage(&statistics.storage));
    for stats in &statistics.operations {
        let code = opcode::number(stats.name).unwrap_or(0);
        let times = [nanos(stats.total), nanos(stats.longest)];
        numbers.extend([u64::from(code), stats.count, times[0], times[1]]);
        numbers.extend(stats.classes);
    }
    numbers
}

/// Decodes what [`encode`] made, and zeros after it.
///
/// # Errors
/// Returns `EPROTO` if the numbers are too few.
pub(crate) fn decode(numbers: &[u64]) -> Result<Statistics, Errno> {
    let (head, rest) = numbers.split_first_chunk::<HEAD>().ok_or(Errno::PROTO)?;
    let (head, storage) = head.split_last_chunk::<STORAGE>().ok_or(Errno::PROTO)?;
    let mut statistics = Statistics { storage: decode_storage(storage), ..Statistics::default() };
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    statistics.mount = Stats {
        nodes: size(head[0]),
        lookups: head[1],
        open_files: size(head[2]),
        waiting: size(head[3]),
        requests: head[4],
        polling: PollingChoice::from_number(head[11]),
        polls: head[12],
        polls_found: head[13],
        transport: if head[14] == 0 { Transport::Classic } else { Transport::Uring },
        queues: size(head[15]),
        workers: size(head[16]),
    };
    let counts = &mut statistics.counts;
    let places = [
        &mut counts.dentries,
        &mut counts.unused_dentries,
        &mut counts.negative_dentries,
        &mut counts.inodes,
        &mut counts.unused_inodes,
        &mut counts.open_files,
    ];
    for (place, number) in places.into_iter().zip(&head[5..]) {
        *place = size(*number);
    }
    for numbers in rest.as_chunks::<OPERATION>().0 {
        let [code, count, total, longest, classes @ ..] = *numbers;
        if count > 0 {
            let (total, longest) = (Duration::from_nanos(total), Duration::from_nanos(longest));
            let name = name_of(code);
            let stats = OperationStats { name, count, total, longest, classes };
            statistics.operations.push(stats);
        }
    }
    Ok(statistics)
}

/// Encodes a log and a cache; one that the file system lacks is zeros.
fn encode_storage(storage: &StorageCounts) -> [u64; STORAGE] {
    let log = storage.log.unwrap_or_default();
    let cache = storage.cache.unwrap_or_default();
    [
        log.bytes,
        log.used_bytes,
        log.commits,
        log.checkpoints,
        log.writes,
        log.flushes,
        log.space_waits,
        log.memory_waits,
        cache.bytes_max,
        cache.clean_bytes,
        cache.dirty_bytes,
        cache.changed_metadata_bytes,
    ]
}

fn decode_storage(numbers: &[u64; STORAGE]) -> StorageCounts {
    let [
        bytes,
        used_bytes,
        commits,
        checkpoints,
        writes,
        flushes,
        space_waits,
        memory_waits,
        bytes_max,
        clean_bytes,
        dirty_bytes,
        changed_metadata_bytes,
    ] = *numbers;
    let log = LogCounts {
        bytes,
        used_bytes,
        commits,
        checkpoints,
        writes,
        flushes,
        space_waits,
        memory_waits,
    };
    let cache = CacheCounts { bytes_max, clean_bytes, dirty_bytes, changed_metadata_bytes };
    let mut storage = StorageCounts::default();
    storage.log = (log.bytes > 0).then_some(log);
    storage.cache = (cache.bytes_max > 0).then_some(cache);
    storage
}
