//! The words as which statistics travel from a mount to the program that asks for them: each has a
//! name and numbers, so that versions which count other things understand each other.

use std::time::Duration;

use vfscale::Counts;
use vfscale::driver::{CacheCounts, LogCounts};
use vfscale::pool::Usage;

use super::{CLASSES, OperationStats, Statistics, Stats, name_of, nanos};
use crate::base::polling::PollingChoice;
use crate::base::transport::Transport;
use crate::wire::opcode;

/// Makes the functions that encode the fields of a struct as words with a prefix, and that set the
/// field of a name.
macro_rules! fields {
    ($of:ty, $prefix:literal, $encode:ident, $set:ident: $($field:ident)+) => {
        fn $encode(of: &$of) -> Vec<String> {
            vec![$(format!(concat!($prefix, ".", stringify!($field), " {}"), of.$field)),+]
        }

        fn $set(of: &mut $of, name: &str, number: u64) {
            match name {
                $(stringify!($field) => put(&mut of.$field, number),)+
                _ => {}
            }
        }
    };
}

fields!(Stats, "mount", encode_mount, set_mount:
    nodes lookups open_files waiting requests polls polls_found queues workers);
fields!(Counts, "counts", encode_counts, set_counts:
    dentries unused_dentries negative_dentries inodes unused_inodes open_files);
fields!(LogCounts, "log", encode_log, set_log:
    bytes used_bytes commits checkpoints writes flushes space_waits memory_waits);
fields!(CacheCounts, "cache", encode_cache, set_cache:
    bytes_max clean_bytes dirty_bytes changed_metadata_bytes);

fields!(Usage, "pool", encode_pool, set_pool:
    size free branches);

fn put<T: TryFrom<u64>>(field: &mut T, number: u64) {
    if let Ok(number) = T::try_from(number) {
        *field = number;
    }
}

/// Encodes statistics as the words that a mount replies.
pub(crate) fn encode(statistics: &Statistics) -> Vec<String> {
    let Statistics { mount, counts, storage, pool, operations } = statistics;
    let mut words = encode_mount(mount);
    words.push(format!("polling {}", mount.polling.number()));
    words.push(format!("uring {}", u8::from(mount.transport == Transport::Uring)));
    words.extend(encode_counts(counts));
    words.extend(storage.log.iter().flat_map(encode_log));
    words.extend(storage.cache.iter().flat_map(encode_cache));
    words.extend(pool.iter().flat_map(encode_pool));
    for OperationStats { name, count, total, longest, classes } in operations {
        let numbers = [*count, nanos(*total), nanos(*longest)].into_iter().chain(*classes);
        let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
        words.push(format!("operation.{name} {}", numbers.join(" ")));
    }
    words
}

/// Decodes what [`encode`] made, and leaves out what this version does not know.
pub(crate) fn decode(words: &[&str]) -> Statistics {
    let mut statistics = Statistics::default();
    for word in words {
        let mut parts = word.split(' ');
        let (kind, name) = parts.next().and_then(|it| it.split_once('.')).unwrap_or((word, ""));
        let numbers: Vec<u64> = parts.filter_map(|number| number.parse().ok()).collect();
        let Some(&number) = numbers.first() else { continue };
        let Statistics { mount, counts, storage, pool, operations } = &mut statistics;
        match kind {
            "mount" => set_mount(mount, name, number),
            "counts" => set_counts(counts, name, number),
            "log" => set_log(storage.log.get_or_insert_default(), name, number),
            "cache" => set_cache(storage.cache.get_or_insert_default(), name, number),
            "pool" => set_pool(pool.get_or_insert_default(), name, number),
            "operation" => operations.extend(operation(name, &numbers)),
            _ if word.starts_with("polling ") => mount.polling = PollingChoice::from_number(number),
            _ if *word == "uring 1" => mount.transport = Transport::Uring,
            _ => {}
        }
    }
    statistics
}

fn operation(name: &str, numbers: &[u64]) -> Option<OperationStats> {
    let [count, total, longest, classes @ ..] = numbers else { return None };
    let classes: [u64; CLASSES] = classes.try_into().ok()?;
    let name = name_of(u64::from(opcode::number(name).unwrap_or(0)));
    let (total, longest) = (Duration::from_nanos(*total), Duration::from_nanos(*longest));
    Some(OperationStats { name, count: *count, total, longest, classes })
}
