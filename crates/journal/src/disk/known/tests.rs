#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use vfscale_block::{MemoryDevice, Operation};
use vfscale_testkit::FaultyDevice;

use super::*;
use crate::support_tests::{LOG, Sink, Thing, VOLUME, device, open, open_with, options};
use crate::{Journal, NoHooks, Options, Recovered, Reservation};

type Log = Arc<dyn Device>;

fn log_now(journal: &Journal, id: u64, bytes: &[u8]) {
    let mut transaction = journal.begin(Reservation::new(40_000)).unwrap();
    transaction.add(Thing::new(id, bytes));
    journal.force(transaction.commit().unwrap().sequence).unwrap();
}

fn copy(device: &dyn Device) -> Log {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    let copy = MemoryDevice::new(device.size()).unwrap();
    copy.write_at(0, &bytes).unwrap();
    Arc::new(copy)
}

fn bytes(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn open_known(device: &Log, known: Known) -> Result<(Journal, Recovered, Sink)> {
    open_with(device, Arc::new(NoHooks), Options { known, ..options() })
}

/// Returns a log that was used and closed, with its recorded state.
fn closed() -> (Log, Known) {
    let device = device();
    let (journal, ..) = open(&device);
    (0..20).for_each(|id| log_now(&journal, id, &[7; 5000]));
    journal.close().unwrap();
    (device, journal.known().unwrap())
}

#[test]
fn recovery_reads_two_blocks_of_a_closed_log() {
    let (device, known) = closed();
    assert!(known.is_closed && known.epoch == 2 && known.checkpoint >= 20);
    let faulty = Arc::new(FaultyDevice::new(device));
    let counted: Log = faulty.clone();
    assert!(Journal::is_clean(&*counted, LOG, VOLUME, &known).unwrap());
    let (journal, recovered, sink) = open_known(&counted, known).unwrap();
    assert!(recovered.was_clean && sink.replayed.is_empty() && sink.finished == 1);
    assert_eq!(faulty.calls(Operation::Read), 4);
    log_now(&journal, 1, b"later");
    let now = journal.known().unwrap();
    assert!(!now.is_closed && now.epoch == 3 && now.checkpoint > known.checkpoint);
    drop(journal);
    // The recorded state is older, and is that of a closed log.
    let (_, _, sink) = open_known(&counted, known).unwrap();
    assert_eq!(sink.replayed.len(), 1);
}

#[test]
fn an_older_state_of_a_log_is_refused_and_left_as_it_is() {
    let device = device();
    let (journal, ..) = open(&device);
    log_now(&journal, 1, b"first");
    let earlier = copy(&*device);
    let first = journal.known().unwrap();
    log_now(&journal, 1, b"second");
    journal.close().unwrap();
    let last = journal.known().unwrap();
    let before = bytes(&*earlier);
    let refused = open_known(&earlier, last).unwrap_err();
    assert!(matches!(refused, Error::Stale { .. }), "{refused}");
    assert!(refused.to_string().contains("name the device with the log that was used last"));
    assert!(Journal::replay(&*earlier, LOG, VOLUME, &last, false, &mut Sink::default()).is_err());
    assert!(bytes(&*earlier) == before);
    // The earlier state is accepted by an owner that has recorded no later one, and so is the later
    // state.
    open_known(&earlier, first).unwrap();
    open_known(&device, first).unwrap();
    // The result is equal from one epoch to the next.
    let closed = copy(&*device);
    let (journal, ..) = open_known(&device, last).unwrap();
    let opened = journal.known().unwrap();
    let refused = open_known(&closed, opened).unwrap_err();
    assert!(matches!(refused, Error::Stale { .. }), "{refused}");
}

/// The log was opened without telling its owner, by an older program.
#[test]
fn a_log_that_was_used_since_is_read_as_a_whole() {
    let (device, known) = closed();
    let (journal, ..) = open(&device);
    log_now(&journal, 5, b"news");
    drop(journal);
    let (journal, _, sink) = open_known(&device, known).unwrap();
    assert_eq!(sink.last()[&5], b"news");
    // Around the whole log, and over the recorded record.
    (0..200).for_each(|id| log_now(&journal, id, &[8; 9000]));
    log_now(&journal, 6, b"the last");
    drop(journal);
    let (_, _, sink) = open_known(&device, known).unwrap();
    assert_eq!(sink.last()[&6], b"the last");
}

/// A passing error is no older log, and a block behind the record that closed it is not needed.
#[test]
fn a_closing_record_that_cannot_be_read_is_no_older_log() {
    let (device, known) = closed();
    let at = LOG.offset + u64::from(known.last.block()) * 4096;
    let before = bytes(&*device);
    let faulty = Arc::new(FaultyDevice::new(device));
    let unreadable: Log = faulty.clone();
    faulty.arm(vfscale_testkit::Fault::on(Operation::Read).within(at..at + 4096));
    let refused = open_known(&unreadable, known).unwrap_err();
    assert!(matches!(refused, Error::EndUnread { .. }), "{refused}");
    let opened = Known { is_closed: false, ..known };
    let mut sink = Sink::default();
    let refused = Journal::replay(&*unreadable, LOG, VOLUME, &opened, true, &mut sink).unwrap_err();
    assert!(matches!(refused, Error::Device(_)), "{refused}");
    // Nothing is lost without it.
    let read = Journal::replay(&*unreadable, LOG, VOLUME, &known, true, &mut sink).unwrap();
    assert!(read.was_clean && sink.replayed.is_empty());
    assert_eq!((read.last, read.cut), (known.last, Some(known.last)));
    faulty.disarm();
    assert_eq!(bytes(&*unreadable), before);
    faulty.arm(vfscale_testkit::Fault::on(Operation::Read).within(at + 4096..at + 8192));
    let (_, recovered, _) = open_known(&unreadable, known).unwrap();
    assert!(recovered.was_clean && recovered.cut.is_none());
}

/// The owner knows all that the record says that closed its log.
#[test]
fn a_closing_record_that_is_damaged_closes_the_log() {
    let (device, known) = closed();
    let at = LOG.offset + u64::from(known.last.block()) * 4096;
    for byte in [20, 90, 105, 1000] {
        let damaged = copy(&*device);
        let mut block = vec![0; 4096];
        damaged.read_at(at, &mut block).unwrap();
        block[byte] ^= 4;
        damaged.write_at(at, &block).unwrap();
        // Only if its owner says so.
        let opened = Known { is_closed: false, ..known };
        assert!(matches!(open_known(&damaged, opened), Err(Error::Stale { .. })), "byte {byte}");
        let (journal, recovered, sink) = open_known(&damaged, known).unwrap();
        assert!(recovered.was_clean && sink.replayed.is_empty(), "byte {byte}");
        log_now(&journal, 9, b"later");
        drop(journal);
        let (_, recovered, sink) = open_known(&damaged, known).unwrap();
        assert_eq!((recovered.items, &sink.last()[&9][..]), (1, &b"later"[..]), "byte {byte}");
    }
}

#[test]
fn an_opening_record_that_is_torn_opens_nothing() {
    let (device, known) = closed();
    let closed = copy(&*device);
    let (journal, ..) = open_known(&device, known).unwrap();
    let opened = journal.known().unwrap();
    let geometry = recovery::geometry(&*device, LOG).unwrap();
    let at = geometry.device_offset(geometry.position(opened.last));
    let mut torn = [0; 512];
    device.read_at(at, &mut torn).unwrap();
    torn[200] = 1;
    closed.write_at(at, &torn).unwrap();
    let (_, recovered, _) = open_known(&closed, known).unwrap();
    assert!(recovered.was_clean && recovered.epoch == opened.epoch);
}

#[test]
fn the_device_of_a_log_has_an_id() {
    let device = device();
    let of = |id: &[u8; 16]| Known { device: *id, ..Known::default() };
    let (one, two) = (of(b"one log's device"), of(b"two log's device"));
    // A log that was created without a device id gets one.
    open_known(&device, one).unwrap().0.close().unwrap();
    let refused = open_known(&device, two).unwrap_err();
    assert!(matches!(refused, Error::OtherLog { .. }), "{refused}");
    open_known(&device, one).unwrap();
    open(&device);
}

#[test]
fn features_that_are_not_known_end_a_recovery_before_it_begins() {
    let (device, known) = closed();
    let geometry = recovery::geometry(&*device, LOG).unwrap();
    let at = geometry.position(known.last);
    let found = find(&*device, geometry, VOLUME, &Known::default(), false).unwrap();
    let mut block = vec![0; LOG_BLOCK_BYTES];
    let header = RecordHeader { features: 1 << 31, ..found.last };
    record::encode(&mut block, &header, VOLUME, |_| known.last.cycle());
    device.write_at(geometry.device_offset(at), &block).unwrap();
    for known in [known, Known::default()] {
        let mut sink = Sink::default();
        let refused = Journal::replay(&*device, LOG, VOLUME, &known, false, &mut sink).unwrap_err();
        assert!(matches!(refused, Error::Features { bits: 0x8000_0000, .. }), "{refused}");
        assert_eq!(sink.finished, 0);
    }
}

/// A new log that replaces a used one, with any recorded state of that.
#[test]
fn a_renewed_log_is_behind_all_that_was_there() {
    let (device, known) = closed();
    let newest = Lsn::new(known.last.cycle() + 5, 17);
    let renewed = Known::renewed(known.epoch, newest, [9; 16]);
    assert!(renewed.last > newest && renewed.epoch > known.epoch);
    let former = copy(&*device);
    Journal::renew(&*device, LOG, VOLUME, &renewed).unwrap();
    assert_eq!(Journal::owners(&*device, LOG), [VOLUME]);
    assert_eq!(Journal::owners(&MemoryDevice::new(1 << 16).unwrap(), LOG), []);
    // The former log is refused; the new one is not, even after it was used.
    for known in [renewed, Known { is_closed: false, ..renewed }] {
        let refused = open_known(&former, known).unwrap_err();
        assert!(matches!(refused, Error::Stale { .. }), "{refused}");
        let (journal, recovered, sink) = open_known(&copy(&*device), known).unwrap();
        assert!(recovered.was_clean && sink.replayed.is_empty());
        assert_eq!((recovered.epoch, recovered.last), (renewed.epoch + 1, renewed.last));
        log_now(&journal, 1, b"new");
    }
    let (journal, ..) = open_known(&device, renewed).unwrap();
    log_now(&journal, 1, b"new");
    drop(journal);
    let (_journal, recovered, sink) = open_known(&device, renewed).unwrap();
    assert_eq!((recovered.items, sink.replayed.len()), (1, 1));
    // On another device, recognized by its id.
    let other = Known { device: [8; 16], ..renewed };
    let refused = open_known(&device, other).unwrap_err();
    assert!(matches!(refused, Error::OtherLog { .. }), "{refused}");
    for last in [Lsn::new(0, 0), Lsn::new(7, 1)] {
        let refused = Journal::renew(&*device, LOG, VOLUME, &Known { last, ..renewed });
        assert!(matches!(refused, Err(Error::WornOut)));
    }
    // After any former log the new one has many cycles and epochs left.
    let late = Known::renewed(u64::MAX, Lsn::new(u32::MAX, 3), [0; 16]);
    assert!(late.last.cycle() < u32::MAX / 4 * 3 && late.epoch < u64::MAX / 4 * 3);
}

const NEW: VolumeId = VolumeId(*b"id of a new log.");

fn open_new(device: &Log, known: Known) -> Result<(Journal, Recovered, Sink)> {
    let (options, mut sink) = (Options { known, ..options() }, Sink::default());
    Journal::open(device.clone(), LOG, NEW, Arc::new(NoHooks), &mut sink, options)
        .map(|(journal, recovered)| (journal, recovered, sink))
}

/// A new log in the region of a used one, which is not erased, with its first record or without.
#[test]
fn a_new_log_follows_another_one_in_its_region() {
    let (device, former) = closed();
    let state = Known::successor(former.last).unwrap();
    assert!(state.last > former.last && state.is_new && state.is_closed);
    assert!(matches!(Known::successor(Lsn::new(u32::MAX - 1, 0)), Err(Error::WornOut)));
    for has_record in [true, false] {
        let device = copy(&*device);
        if has_record {
            Journal::begin_new(&*device, LOG, NEW, &state).unwrap();
        }
        // The former log ends elsewhere, so it is whole until something is logged.
        assert!(Journal::is_clean(&*device, LOG, VOLUME, &former).unwrap());
        assert!(Journal::is_clean(&*device, LOG, NEW, &state).unwrap());
        let mut sink = Sink::default();
        let nothing = Journal::replay(&*device, LOG, NEW, &state, false, &mut sink).unwrap();
        assert!(nothing.was_clean && nothing.last == state.last && sink.replayed.is_empty());
        // The owner knows nothing of the first epochs, as if it crashed before it could note them.
        for round in 0..2 {
            let (journal, recovered, sink) = open_new(&device, state).unwrap();
            assert_eq!((sink.replayed.len(), recovered.epoch), (round, 2 + round as u64));
            log_now(&journal, 1, b"new");
            let now = journal.known().unwrap();
            assert!(now.last > state.last && !now.is_new);
        }
        assert!(!Journal::is_clean(&*device, LOG, NEW, &state).unwrap());
    }
}

/// The owner does not record that the first epoch of a new log has begun, so neither the record
/// before it nor the loss of its opening record makes the log look empty.
#[test]
fn a_new_log_is_read_although_its_owner_knows_it_as_closed() {
    let (device, former) = closed();
    let state = Known::successor(former.last).unwrap();
    Journal::begin_new(&*device, LOG, NEW, &state).unwrap();
    let (journal, ..) = open_new(&device, state).unwrap();
    log_now(&journal, 1, b"new");
    drop(journal);
    let lost = copy(&*device);
    // The opening record lies behind the first one.
    lost.write_at(LOG.offset + 4096, &[0; 4096]).unwrap();
    let damage = Journal::is_clean(&*lost, LOG, NEW, &state).unwrap_err();
    assert!(matches!(damage, Error::Damaged { .. }), "{damage}");
    let late = |device: &Log, is_unused| {
        let options = Options { known: state, opens_late: true, is_unused, ..options() };
        let (device, hooks) = (device.clone(), Arc::new(NoHooks));
        Journal::open(device, LOG, NEW, hooks, &mut Sink::default(), options)
            .map(|(journal, recovered)| (journal.has_epoch(), recovered.checkpoints))
    };
    assert_eq!(late(&device, false).unwrap(), (true, 1));
    assert!(matches!(late(&lost, false), Err(Error::Damaged { .. })));
    // A log that nobody has opened is opened late, with its first record or without, or unread.
    for (has_record, is_unused) in [(true, false), (false, false), (false, true)] {
        let (device, _) = self::closed();
        if has_record {
            Journal::begin_new(&*device, LOG, NEW, &state).unwrap();
        }
        let before = bytes(&*device);
        assert_eq!(late(&device, is_unused).unwrap(), (false, 0));
        assert_eq!(bytes(&*device), before);
    }
}

#[test]
fn a_log_that_is_missing_is_empty_only_if_it_is_known_to_be_new() {
    let (device, former) = closed();
    let state = Known::successor(former.last).unwrap();
    let others = [
        Known { is_new: false, ..state },
        Known { is_closed: false, ..state },
        Known { checkpoint: 1, ..state },
        Known { last: Lsn::new(state.last.cycle(), 1), ..state },
        Known::default(),
    ];
    for known in others {
        let missing = open_new(&device, known).unwrap_err();
        assert!(matches!(missing, Error::NotALog { .. }), "{missing}");
    }
    // Nor if a block can't be read, which may be the record of something that was logged.
    let faulty = Arc::new(FaultyDevice::new(device));
    let range = LOG.offset + 40_960..LOG.offset + 45_056;
    faulty.arm(vfscale_testkit::Fault::on(Operation::Read).within(range));
    let unreadable: Log = faulty.clone();
    assert!(matches!(open_new(&unreadable, state), Err(Error::Device(_))));
    faulty.disarm();
    open_new(&unreadable, state).unwrap();
}
