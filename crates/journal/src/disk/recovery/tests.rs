#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use proptest::prelude::*;
use vfscale_block::{Device, MemoryDevice, Operation};
use vfscale_testkit::{CrashPlan, CrashState, FaultyDevice, RecordingDevice};

use super::*;
use crate::support_tests::{LOG, Sink, Thing, VOLUME, device, open, open_with, options};
use crate::{Inspection, Journal, Known, NoHooks, Options, Reservation};

fn log(journal: &Journal, things: &[&Arc<Thing>]) -> u64 {
    let mut transaction = journal.begin(Reservation::new(40_000)).unwrap();
    for thing in things {
        transaction.add(Arc::clone(thing));
    }
    transaction.commit().unwrap().sequence
}

fn log_now(journal: &Journal, things: &[&Arc<Thing>]) {
    let sequence = log(journal, things);
    journal.force(sequence).unwrap();
}

fn copy(device: &dyn Device) -> Arc<dyn Device> {
    let copy = MemoryDevice::new(device.size()).unwrap();
    copy.write_at(0, &all(device)).unwrap();
    Arc::new(copy)
}

#[test]
fn recovery_replays_forced_items_in_order() {
    let device = device();
    let (journal, recovered, sink) = open(&device);
    assert!(recovered.was_clean && sink.replayed.is_empty() && sink.finished == 1);
    let (one, two) = (Thing::new(1, b"first"), Thing::new(2, b"second"));
    log_now(&journal, &[&one, &two]);
    one.set(Some(b"third"));
    log_now(&journal, &[&one]);
    drop(journal);
    let (_journal, recovered, sink) = open(&device);
    assert!(!recovered.was_clean);
    assert_eq!((recovered.checkpoints, recovered.items), (2, 3));
    let replayed: Vec<_> = sink.replayed.iter().map(|(id, bytes, _)| (*id, &bytes[..])).collect();
    assert_eq!(replayed, [(1, &b"first"[..]), (2, b"second"), (1, b"third")]);
    assert!(sink.replayed.is_sorted_by_key(|(_, _, lsn)| *lsn));
    assert_eq!(
        one.committed.load(std::sync::atomic::Ordering::Relaxed),
        sink.replayed[2].2.to_bits()
    );
}

#[test]
fn recovery_replays_no_unforced_items() {
    let device = device();
    let (journal, ..) = open(&device);
    log_now(&journal, &[&Thing::new(1, b"in")]);
    log(&journal, &[&Thing::new(2, b"out")]);
    drop(journal);
    let (_journal, _, sink) = open(&device);
    assert_eq!(sink.last().into_keys().collect::<Vec<_>>(), [1]);
}

/// A block of metadata is freed and reused for data, which is not in the log: no old contents may
/// be written over it.
#[test]
fn recovery_replays_no_cancelled_items() {
    let device = device();
    let (journal, ..) = open(&device);
    let (gone, stays) = (Thing::new(1, b"old"), Thing::new(2, b"stays"));
    log_now(&journal, &[&gone, &stays]);
    gone.set(None);
    log_now(&journal, &[&gone]);
    drop(journal);
    let (_journal, recovered, sink) = open(&device);
    assert_eq!(sink.last().into_keys().collect::<Vec<_>>(), [2]);
    assert_eq!(recovered.cancelled, 1);
}

/// Cancelled and reused as metadata: only later contents count, in another checkpoint or in the
/// same one.
#[test]
fn recovery_replays_items_logged_after_a_cancellation() {
    let device = device();
    let (journal, ..) = open(&device);
    let old = Thing::new(1, b"old");
    log_now(&journal, &[&old]);
    old.set(None);
    log(&journal, &[&old]);
    // Another object under the same key, in the same checkpoint.
    log_now(&journal, &[&Thing::new(1, b"new")]);
    drop(journal);
    let (_journal, recovered, sink) = open(&device);
    assert_eq!(sink.last()[&1], b"new");
    assert_eq!((sink.replayed.len(), recovered.cancelled), (1, 1));
}

/// An item that is cancelled before it was ever written leaves only the cancellation.
#[test]
fn a_cancellation_replaces_the_vector_of_its_item() {
    let device = device();
    let (journal, ..) = open(&device);
    let thing = Thing::new(1, b"never seen");
    log(&journal, &[&thing]);
    thing.set(None);
    log_now(&journal, &[&thing]);
    drop(journal);
    let (_journal, recovered, sink) = open(&device);
    assert!(sink.replayed.is_empty());
    assert_eq!((recovered.checkpoints, recovered.cancelled), (1, 0));
}

#[test]
fn a_checkpoint_that_spans_records_is_whole_or_nothing() {
    let device = device();
    let small = Options { record_blocks: 1, ..options() };
    let (journal, ..) = open_with(&device, Arc::new(NoHooks), small).unwrap();
    log_now(&journal, &[&Thing::new(1, &[1; 100])]);
    let before = copy(&*device);
    log_now(&journal, &[&Thing::new(2, &[2; 30_000])]);
    assert_eq!(journal.stats().tickets[1].records, 8);
    let end = journal.stats().head.block();
    drop(journal);
    // All of its records but one: the checkpoint did not happen.
    for missing in end - 8..end {
        let torn = copy(&*device);
        let at = LOG.offset + u64::from(missing) * LOG_BLOCK_BYTES as u64;
        let mut block = vec![0; LOG_BLOCK_BYTES];
        before.read_at(at, &mut block).unwrap();
        torn.write_at(at, &block).unwrap();
        let (_journal, recovered, sink) = open(&torn);
        assert_eq!(sink.last().into_keys().collect::<Vec<_>>(), [1], "without {missing}");
        assert_eq!(recovered.unconnected, u64::from(end - 1 - missing));
    }
    let (_journal, _, sink) = open(&device);
    assert_eq!(sink.last()[&2], [2; 30_000]);
}

/// Records after a torn one have the very LSNs that new records will get; a new epoch prevents them
/// from ever counting.
#[test]
fn stale_records_behind_the_end_are_never_taken_for_new_ones() {
    let device = device();
    let small = Options { record_blocks: 1, ..options() };
    let (journal, ..) = open_with(&device, Arc::new(NoHooks), small).unwrap();
    let start = journal.stats().head.block();
    // Two records each: later records may begin where the second of the lost ones is.
    for id in 0..3 {
        log_now(&journal, &[&Thing::new(id, &[1; 5000])]);
    }
    drop(journal);
    // The first record of the second checkpoint is lost.
    let lost = LOG.offset + u64::from(start + 2) * LOG_BLOCK_BYTES as u64;
    // A former promise would make this damage: the records themselves must not contain one.
    device.write_at(lost, &[0; LOG_BLOCK_BYTES]).unwrap();
    let found = open_with(&device, Arc::new(NoHooks), small);
    assert!(matches!(found, Err(Error::Damaged { .. })), "the third names the second as durable");
    // Without the third checkpoint no record names the second one as durable.
    for block in start + 4..start + 6 {
        let at = LOG.offset + u64::from(block) * LOG_BLOCK_BYTES as u64;
        device.write_at(at, &[0; LOG_BLOCK_BYTES]).unwrap();
    }
    let (journal, recovered, sink) = open_with(&device, Arc::new(NoHooks), small).unwrap();
    assert_eq!((recovered.unconnected, sink.replayed.len()), (1, 1));
    // The opening record is where the lost one was. The next record would follow at the stale
    // record's very LSN.
    assert_eq!(journal.stats().head.block(), start + 3);
    drop(journal);
    let (_journal, recovered, sink) = open_with(&device, Arc::new(NoHooks), small).unwrap();
    assert_eq!((recovered.unconnected, sink.replayed.len()), (0, 0));
}

#[test]
fn the_log_can_be_filled_many_times() {
    let device = device();
    let (journal, ..) = open(&device);
    let things: Vec<_> = (0..8).map(|id| Thing::new(id, &[0; 3000])).collect();
    for round in 0..600_u32 {
        let thing = &things[(round % 8) as usize];
        thing.set(Some(&round.to_le_bytes().repeat(700)));
        log_now(&journal, &[thing]);
        if round % 97 == 0 {
            let (_journal, _, sink) = open(&copy(&*device));
            let id = u64::from(round % 8);
            assert_eq!(sink.last()[&id][..4], round.to_le_bytes(), "round {round}");
        }
    }
    assert!(journal.stats().head.cycle() > 2);
    journal.close().unwrap();
    let (_journal, recovered, sink) = open(&device);
    assert!(recovered.was_clean && sink.replayed.is_empty());
}

#[test]
fn recovery_ignores_records_of_another_log() {
    let device = device();
    let open_as = |volume, region| {
        let options = options();
        Journal::open(
            device.clone(),
            region,
            volume,
            Arc::new(NoHooks),
            &mut Sink::default(),
            options,
        )
    };
    let other = open_as(VolumeId([1; 16]), LOG);
    assert!(matches!(other, Err(Error::NotALog { .. })));
    let moved = open_as(VOLUME, Region { offset: 0, ..LOG });
    assert!(moved.is_err(), "a log at another offset is not this one");
    for region in [
        Region { offset: 100, ..LOG },
        Region { length: 4096, ..LOG },
        Region { length: 1 << 40, ..LOG },
        Region { offset: u64::MAX - 4095, ..LOG },
        Region { length: (1 << 32) * 4096, offset: 0 },
    ] {
        assert!(matches!(open_as(VOLUME, region), Err(Error::Region { .. })), "{region:?}");
    }
}

#[test]
fn an_inspection_changes_nothing_and_shows_everything() {
    let device = device();
    let (journal, ..) = open(&device);
    log_now(&journal, &[&Thing::new(1, b"seen"), &Thing::new(2, b"too")]);
    drop(journal);
    let before = copy(&*device);
    let inspection = Inspection::new(&*device, LOG, VOLUME).unwrap();
    let kinds: Vec<_> = inspection.records().iter().map(|record| record.kind).collect();
    assert_eq!(kinds, [RecordKind::Unmount, RecordKind::Open, RecordKind::Data]);
    assert_eq!(inspection.live().unwrap().len(), 2);
    let mut items = Vec::new();
    inspection
        .checkpoints(|checkpoint| {
            items.extend(checkpoint.operations.map(|op| format!("{:?}", op.unwrap())));
            Ok(())
        })
        .unwrap();
    assert_eq!(items.len(), 2);
    let (mut was, mut is) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    before.read_at(0, &mut was).unwrap();
    device.read_at(0, &mut is).unwrap();
    assert!(was == is);
}

/// Returns a log with operations of every kind.
fn rich() -> Arc<dyn Device> {
    let device = device();
    let small = Options { record_blocks: 2, ..options() };
    let (journal, ..) = open_with(&device, Arc::new(NoHooks), small).unwrap();
    let things: Vec<_> = (0..6).map(|id| Thing::new(id, &[5; 6000])).collect();
    for thing in &things {
        log_now(&journal, &[thing, &things[0]]);
    }
    things[1].set(None);
    log_now(&journal, &[&things[1]]);
    device
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any bytes are an error or a log, and an inspection agrees.
    #[test]
    fn damaged_logs_are_an_error_or_a_log(
        changes in prop::collection::vec((0..40_usize, 0..LOG_BLOCK_BYTES, any::<u8>()), 1..30),
        headers in prop::collection::vec((0..40_usize, 0..128_usize, any::<u8>()), 0..10),
        repair in any::<bool>(),
    ) {
        let device = rich();
        for (block, at, byte) in changes.into_iter().chain(headers) {
            let offset = LOG.offset + (block * LOG_BLOCK_BYTES) as u64;
            let mut bytes = vec![0; LOG_BLOCK_BYTES];
            device.read_at(offset, &mut bytes).unwrap();
            bytes[at] = byte;
            if repair && record::claimed_blocks(&bytes, VOLUME) == Some(1) {
                // With a correct checksum, like an attacker would write it.
                let crc = {
                    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..104]), &[0; 4]);
                    crc32c::crc32c_append(crc, &bytes[108..])
                };
                bytes[104..108].copy_from_slice(&crc.to_le_bytes());
            }
            device.write_at(offset, &bytes).unwrap();
        }
        if let Ok(inspection) = Inspection::new(&*device, LOG, VOLUME) {
            let _ = inspection.checkpoints(|checkpoint| {
                let _ = checkpoint.operations.count();
                Ok(())
            });
        }
        if let Ok((journal, ..)) = open_with(&device, Arc::new(NoHooks), options()) {
            log_now(&journal, &[&Thing::new(9, b"usable")]);
            drop(journal);
            let (_journal, _, sink) = open(&device);
            prop_assert_eq!(&sink.last()[&9], b"usable");
        }
    }

    /// Blocks in any order and at any offset, of this log and of none.
    #[test]
    fn shuffled_logs_are_an_error_or_a_log(
        moves in prop::collection::vec((0..40_u64, 0..256_u64), 1..60),
    ) {
        let device = rich();
        for (from, to) in moves {
            let mut bytes = vec![0; LOG_BLOCK_BYTES];
            let place = |block: u64| LOG.offset + block * LOG_BLOCK_BYTES as u64;
            device.read_at(place(from), &mut bytes).unwrap();
            device.write_at(place(to), &bytes).unwrap();
        }
        let _ = open_with(&device, Arc::new(NoHooks), options());
    }
}

/// A block that can't be read matters where a record may be: up to the block behind the last one
/// that was read. There it may be one that was synced.
#[test]
fn recovery_fails_on_unreadable_blocks_only_where_a_record_may_be() {
    let device = device();
    let (journal, ..) = open(&device);
    for id in 1..=3 {
        // Of two blocks each.
        log_now(&journal, &[&Thing::new(id, &[7; 5000])]);
    }
    drop(journal);
    let inspection = Inspection::new(&*device, LOG, VOLUME).unwrap();
    let live = inspection.live().unwrap();
    let live: Vec<u64> = live.iter().map(|record| record.lsn.block().into()).collect();
    let (first, last) = (live[0], *live.last().unwrap());
    let (mut opened, mut refused) = (0, 0);
    for block in (0..last + 5).chain([200]) {
        let lost = unreadable(&device, LOG.offset + block * 4096, 4096);
        let result = open_with(&lost, Arc::new(NoHooks), options());
        let is_needed = (first..=last + 2).contains(&block);
        match result {
            Ok((journal, recovered, sink)) => {
                opened += 1;
                assert!(!is_needed && recovered.cut.is_none(), "block {block} of {live:?}");
                assert_eq!(sink.replayed.len(), 3, "block {block}");
                drop(journal);
            }
            Err(error) => {
                refused += 1;
                let is_end = matches!(error, Error::EndUnread { .. });
                assert_eq!(is_end, block >= last, "block {block}: {error}");
                assert!(is_end || matches!(error, Error::Device(_)), "block {block}: {error}");
                assert!(is_needed, "block {block} of {live:?}");
            }
        }
    }
    assert!(opened > 3 && refused == 7, "{opened} and {refused} of {live:?}");
}

/// A passing error at the end of the log costs nothing: the opening fails, and writes nothing. One
/// that only reads goes on, and tells where.
#[test]
fn a_log_whose_end_can_be_read_again_has_lost_nothing() {
    let memory = device();
    let (journal, ..) = open(&memory);
    (1..=3).for_each(|id| log_now(&journal, &[&Thing::new(id, &[7; 5000])]));
    drop(journal);
    let inspection = Inspection::new(&*memory, LOG, VOLUME).unwrap();
    let last = inspection.live().unwrap().last().unwrap().lsn;
    let at = LOG.offset + u64::from(last.block()) * 4096;
    let before = copy(&*memory);
    let faulty = Arc::new(FaultyDevice::new(memory));
    let device: Arc<dyn Device> = faulty.clone();
    for sector in [0, 1, 15] {
        let range = at + sector * 512..at + (sector + 1) * 512;
        faulty.arm(vfscale_testkit::Fault::on(Operation::Read).within(range));
        let refused = open_with(&device, Arc::new(NoHooks), options());
        let Err(Error::EndUnread { lsn, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(lsn, last);
        let mut sink = Sink::default();
        let known = Known::default();
        let read = Journal::replay(&*device, LOG, VOLUME, &known, true, &mut sink).unwrap();
        assert_eq!((sink.replayed.len(), read.cut), (2, Some(last)));
        faulty.disarm();
        assert!(all(&*device) == all(&*before), "an opening that failed has written");
    }
    let (_, recovered, sink) = open_with(&device, Arc::new(NoHooks), options()).unwrap();
    assert_eq!((sink.replayed.len(), recovered.cut), (3, None));
}

/// A repair ends the log where it can't be read, and leaves no block behind the end that can't be.
#[test]
fn a_log_that_is_cut_can_be_opened_again() {
    let device = device();
    let (journal, ..) = open(&device);
    (1..=3).for_each(|id| log_now(&journal, &[&Thing::new(id, &[7; 5000])]));
    drop(journal);
    let inspection = Inspection::new(&*device, LOG, VOLUME).unwrap();
    let last = u64::from(inspection.live().unwrap().last().unwrap().lsn.block());
    let lost = unreadable(&device, LOG.offset + last * 4096, 8 * 4096);
    let cut = Options { may_cut: true, ..options() };
    let (journal, recovered, sink) = open_with(&lost, Arc::new(NoHooks), cut).unwrap();
    assert_eq!(recovered.cut.map(|lsn| u64::from(lsn.block())), Some(last));
    assert_eq!(sink.replayed.len(), 2);
    log_now(&journal, &[&Thing::new(4, b"later")]);
    drop(journal);
    let (_, recovered, sink) = open_with(&lost, Arc::new(NoHooks), options()).unwrap();
    assert_eq!((recovered.cut, sink.replayed.len()), (None, 1));
}

fn all(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A log is created where the device can't read the former contents.
#[test]
fn a_log_is_made_over_what_cannot_be_read() {
    let lost = unreadable(&device(), LOG.offset + 8192, 4096);
    Journal::format(&*lost, LOG, VOLUME).unwrap();
    lost.read_at(LOG.offset, &mut vec![0; 1 << 20]).unwrap();
    drop(open(&lost));
}

/// Returns a copy of the device of which some bytes can't be read.
fn unreadable(device: &Arc<dyn Device>, offset: u64, len: u64) -> Arc<dyn Device> {
    let recording = RecordingDevice::new(copy(&**device));
    recording.write_at(offset, &vec![0; len as usize]).unwrap();
    let plan = CrashPlan::default().lost_in(std::iter::once(offset..offset + len));
    recording.crash_states(plan).filter(CrashState::has_lost).last().unwrap().device()
}
