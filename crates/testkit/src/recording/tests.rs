use std::collections::BTreeSet;

use super::*;
use crate::{Fault, FaultyDevice};
use vfscale_block::MemoryDevice;

fn base() -> MemoryDevice {
    let base = MemoryDevice::new(2048).unwrap();
    base.write_at(0, &[1; 2048]).unwrap();
    base
}

/// Returns the first byte of each block.
fn heads(device: &dyn Device) -> Vec<u8> {
    let mut buf = vec![0; device.size() as usize];
    device.read_at(0, &mut buf).unwrap();
    buf.chunks(512).map(|block| block[0]).collect()
}

fn all_heads(states: CrashStates) -> BTreeSet<(usize, Vec<u8>)> {
    states.map(|state| (state.marks(), heads(&*state.device()))).collect()
}

#[test]
fn a_recorded_crash_keeps_flushed_writes_and_maybe_others() {
    let device = RecordingDevice::new(base());
    device.write_at(0, &[2; 512]).unwrap();
    device.flush().unwrap();
    device.mark("two is present");
    device.write_at(512, &[3; 1024]).unwrap();
    let seen = all_heads(device.crash_states(CrashPlan::default()));
    let expected = [
        (0, vec![1, 1, 1, 1]),
        (0, vec![2, 1, 1, 1]),
        (1, vec![2, 1, 1, 1]),
        (1, vec![2, 3, 1, 1]),
        (1, vec![2, 1, 3, 1]),
        (1, vec![2, 3, 3, 1]),
    ];
    assert_eq!(seen, BTreeSet::from(expected));
    assert_eq!(*device.marks(), ["two is present".into()]);
    assert_eq!(heads(&device), [2, 3, 3, 1]);
    assert_eq!(heads(device.base()), [1, 1, 1, 1]);
}

#[test]
fn writes_to_one_block_arrive_in_any_order() {
    let device = RecordingDevice::new(base());
    for byte in [2, 3, 4] {
        device.write_at(0, &[byte; 512]).unwrap();
    }
    device.flush().unwrap();
    device.mark("flushed");
    let seen = all_heads(device.crash_states(CrashPlan::default()));
    let first: Vec<_> = seen.iter().map(|(marks, heads)| (*marks, heads[0])).collect();
    assert_eq!(first, [(0, 1), (0, 2), (0, 3), (0, 4), (1, 4)]);
}

#[test]
fn a_lying_device_loses_what_it_had_flushed() {
    let device = FaultyDevice::new(RecordingDevice::new(base()));
    device.arm(Fault::on(Operation::Flush).lie());
    device.write_at(0, &[2; 512]).unwrap();
    device.flush().unwrap();
    device.inner().mark("flushed, it said");
    let seen = all_heads(device.inner().crash_states(CrashPlan::default()));
    assert!(seen.contains(&(1, vec![1, 1, 1, 1])));
}

#[test]
fn discarded_bytes_are_old_or_poison() {
    let device = RecordingDevice::new(base());
    device.discard(512, 1024).unwrap();
    assert_eq!(heads(&device), [1, vfscale_block::DISCARDED, vfscale_block::DISCARDED, 1]);
    let seen = all_heads(device.crash_states(CrashPlan::default()));
    let poison = vfscale_block::DISCARDED;
    assert_eq!(seen, BTreeSet::from([(0, vec![1; 4]), (0, vec![1, poison, poison, 1])]));
}

#[test]
fn states_have_the_size_of_their_moment() {
    let device = RecordingDevice::new(base());
    device.set_size(4096).unwrap();
    device.write_at(3584, &[2; 512]).unwrap();
    assert!(device.set_size(512).is_err());
    let sizes: Vec<_> =
        device.crash_states(CrashPlan::default()).map(|s| s.device().size()).collect();
    assert_eq!(sizes, [2048, 4096, 4096]);
}

#[test]
fn an_image_can_be_recovered_without_touching_others() {
    let device = RecordingDevice::new(base());
    device.write_at(0, &[2; 512]).unwrap();
    let states: Vec<_> = device.crash_states(CrashPlan::default()).collect();
    let written = states[0].device();
    written.write_at(0, &[9; 2048]).unwrap();
    assert_eq!(heads(&*states[1].device()), [2, 1, 1, 1]);
    assert_eq!(heads(&*written), [9, 9, 9, 9]);
    let again = device.crash_state(states[0].id()).unwrap();
    assert_eq!(heads(&*again.device()), [1, 1, 1, 1]);
}

/// Race: A flush against the writes of other threads.
///
/// A flush covers the writes that had returned when it was called, and no caller may rely on more.
/// A disk seldom loses the others, so a mistake there would hardly ever show. The recording device
/// logs when a call begins and when it returns, with its lock free in between, and considers a
/// write durable only if it had returned before the flush began.
#[test]
fn a_flush_promises_nothing_about_calls_that_have_not_returned() {
    let data = |byte| ExtentData::Bytes([byte; 512].as_slice().into(), 0);
    let change =
        |start, byte| LogEntry::Change { disk: 0, start, end: start + 512, data: data(byte) };
    let entries = vec![
        change(0, 2),
        change(512, 3),
        LogEntry::Returned(0),
        LogEntry::Flush(0),
        LogEntry::Returned(1),
        change(1024, 4),
        LogEntry::Returned(5),
        LogEntry::Returned(3),
        LogEntry::Mark,
    ];
    let recording = Recording { bases: vec![Arc::new(base())], entries };
    let seen = all_heads(CrashStates::new(recording, CrashPlan::default()));
    let after: Vec<_> = seen.into_iter().filter(|(marks, _)| *marks == 1).map(|s| s.1).collect();
    assert_eq!(after, [[2, 1, 1, 1], [2, 1, 4, 1], [2, 3, 1, 1], [2, 3, 4, 1]]);
}

#[test]
fn threads_record_side_by_side() {
    let device = RecordingDevice::new(MemoryDevice::new(64 * 512).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let device = &device;
            scope.spawn(move || {
                for i in 0..16 {
                    device.write_at((thread * 16 + i) * 512, &[thread as u8 + 1; 512]).unwrap();
                    device.flush().unwrap();
                }
            });
        }
    });
    device.mark("all of it");
    let expected: Vec<_> = (0..64).map(|i| i / 16 + 1).collect();
    let marked = device.crash_states(CrashPlan::default()).filter(|state| state.marks() == 1);
    let marked: Vec<_> = marked.map(|state| heads(&*state.device())).collect();
    assert!(!marked.is_empty());
    assert!(marked.iter().all(|heads| *heads == expected));
    assert_eq!(device.log_len(), 4 * 16 * 4 + 1);
}

/// Returns the first byte of each block of two devices.
fn both_heads(states: CrashStates) -> BTreeSet<(usize, Vec<u8>, Vec<u8>)> {
    let heads_of = |state: &CrashState| {
        let devices = state.devices();
        (state.marks(), heads(&*devices[0]), heads(&*devices[1]))
    };
    states.map(|state| heads_of(&state)).collect()
}

#[test]
fn two_devices_have_caches_of_their_own() {
    let small = || {
        let base = MemoryDevice::new(512).unwrap();
        base.write_at(0, &[1; 512]).unwrap();
        base
    };
    let one = RecordingDevice::new(small());
    let two = RecordingDevice::beside(&one, small());
    one.write_at(0, &[2; 512]).unwrap();
    two.write_at(0, &[3; 512]).unwrap();
    one.flush().unwrap();
    two.mark("the first is present, the second maybe");
    two.write_at(0, &[4; 512]).unwrap();
    two.flush().unwrap();
    one.mark("both");
    let seen = both_heads(one.crash_states(CrashPlan::default()));
    let expected = [(0, 1, 1), (0, 2, 1), (0, 1, 3), (0, 2, 3)];
    let expected = expected.into_iter().chain([(1, 2, 1), (1, 2, 3), (1, 2, 4), (2, 2, 4)]);
    let expected = expected.map(|(marks, a, b)| (marks, vec![a], vec![b])).collect();
    assert_eq!(seen, expected);
    assert_eq!(both_heads(two.crash_states(CrashPlan::default())), seen);
    let last = one.crash_states(CrashPlan::default()).last().unwrap();
    let again = two.crash_state(last.id()).unwrap();
    assert_eq!((heads(&*again.devices()[0]), heads(&*again.devices()[1])), (vec![2], vec![4]));
}

#[test]
fn a_recording_drops_forgotten_states() {
    let device = RecordingDevice::new(base());
    device.write_at(0, &[2; 512]).unwrap();
    device.flush().unwrap();
    device.write_at(0, &[3; 1024]).unwrap();
    device.forget();
    assert_eq!(heads(&device), [2, 1, 1, 1]);
    device.write_at(1024, &[4; 512]).unwrap();
    device.flush().unwrap();
    device.mark("flushed");
    let seen = all_heads(device.crash_states(CrashPlan::default()));
    let after: Vec<_> = seen.into_iter().filter(|(marks, _)| *marks == 1).map(|s| s.1).collect();
    assert_eq!(after, [[2, 1, 4, 1]]);
}

#[test]
fn moments_are_those_of_the_states() {
    let device = RecordingDevice::new(base());
    for byte in 2..5 {
        device.write_at(0, &[byte; 2048]).unwrap();
        device.mark("");
    }
    let moments = device.crash_states(CrashPlan::default()).moments();
    let marks: Vec<_> = moments.iter().map(|moment| moment.marks).collect();
    let states = device.crash_states(CrashPlan::default());
    assert_eq!(states.map(|state| state.marks()).collect::<Vec<_>>(), marks);
    assert!(moments.is_sorted_by_key(|moment| moment.lines));
    assert_eq!(moments.last().unwrap().lines, device.log_len());
}
