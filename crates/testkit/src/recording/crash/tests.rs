use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::RecordingDevice;
use vfscale_block::{Device, MemoryDevice};

const BLOCKS: u64 = 4;
type Image = Vec<u8>;

/// A call of the test; one byte represents a block.
#[derive(Clone, Debug)]
enum Call {
    Write(u64, u64),
    Flush,
    Mark,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let write = (0..BLOCKS, 1..=3_u64).prop_map(|(at, len)| Call::Write(at, len.min(BLOCKS - at)));
    let call = prop_oneof![6 => write, 2 => Just(Call::Flush), 1 => Just(Call::Mark)];
    prop::collection::vec(call, 0..9)
}

fn record(calls: &[Call]) -> RecordingDevice<MemoryDevice> {
    let device = RecordingDevice::new(MemoryDevice::new(BLOCKS * 512).unwrap());
    for (number, call) in calls.iter().enumerate() {
        match call {
            Call::Write(at, len) => {
                device.write_at(at * 512, &vec![number as u8 + 1; *len as usize * 512]).unwrap();
            }
            Call::Flush => device.flush().unwrap(),
            Call::Mark => assert!(device.mark("") > 0),
        }
    }
    device
}

/// Returns the possible images, block by block. It does not use fragments, subsets or lines of a
/// log.
fn model(calls: &[Call]) -> BTreeSet<(usize, Image)> {
    let (mut seen, mut marks) = (BTreeSet::new(), 0);
    let mut may_be = vec![BTreeSet::from([0]); BLOCKS as usize];
    let mut newest = vec![0; BLOCKS as usize];
    let mut note = |marks, may_be: &[BTreeSet<u8>]| {
        let mut images: Vec<Image> = vec![Vec::new()];
        for block in may_be {
            let longer = |image: &Image| {
                let image = image.clone();
                block.iter().map(move |byte| [image.as_slice(), &[*byte]].concat())
            };
            images = images.iter().flat_map(longer).collect();
        }
        seen.extend(images.into_iter().map(|image| (marks, image)));
    };
    note(0, &may_be);
    for (number, call) in calls.iter().enumerate() {
        match call {
            Call::Write(at, len) => {
                for block in *at..at + len {
                    may_be[block as usize].insert(number as u8 + 1);
                    newest[block as usize] = number as u8 + 1;
                }
            }
            Call::Flush => may_be = newest.iter().map(|byte| BTreeSet::from([*byte])).collect(),
            Call::Mark => marks += 1,
        }
        note(marks, &may_be);
    }
    seen
}

fn image(state: &CrashState) -> Image {
    let mut buf = vec![0; BLOCKS as usize * 512];
    state.device().read_at(0, &mut buf).unwrap();
    let blocks = buf.chunks(512).map(|block| {
        assert!(block.iter().all(|byte| *byte == block[0]), "a block is atomic");
        block[0]
    });
    blocks.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn exhaustively_the_states_are_those_of_the_model(calls in calls()) {
        let fragments = |call: &Call| if let Call::Write(_, len) = call { *len } else { 0 };
        prop_assume!(calls.iter().map(fragments).sum::<u64>() <= 8);
        let states = record(&calls).crash_states(CrashPlan::default().exhaustive_bits(20));
        let seen: BTreeSet<_> = states.map(|state| (state.marks(), image(&state))).collect();
        prop_assert_eq!(seen, model(&calls));
    }

    #[test]
    fn every_state_is_one_of_the_model_and_has_a_name(
        calls in calls(),
        exhaustive_bits in 0..4_u32,
        listed_max in 0..4_usize,
        seed in any::<u64>(),
    ) {
        let plan = CrashPlan::default().exhaustive_bits(exhaustive_bits).listed_max(listed_max);
        let device = record(&calls);
        let legal = model(&calls);
        let mut ids = BTreeSet::new();
        for state in device.crash_states(plan.seed(seed)) {
            let found = (state.marks(), image(&state));
            prop_assert!(legal.contains(&found), "{state} is {found:?}");
            let name = state.id().to_string();
            let again = device.crash_state(name.parse().unwrap()).unwrap();
            prop_assert_eq!((again.marks(), image(&again), again.id()), (found.0, found.1, state.id()));
            prop_assert!(ids.insert(name.clone()), "{name} occurs twice");
        }
    }

    #[test]
    fn names_of_states_are_parsed_without_a_panic(name in "[0-9a-z:]{0,30}|([0-9]{1,25}:){1,3}(all|torn)(:[0-9]{1,25})?") {
        if let Ok(id) = name.parse::<CrashId>() {
            record(&[Call::Write(0, 2), Call::Flush]).crash_state(id);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }
    }
}

/// Sector tears inside of a block, for devices that break their promise.
#[test]
fn blocks_tear_into_sectors_if_asked() {
    let device = RecordingDevice::new(MemoryDevice::with_block_size(4096, 4096).unwrap());
    device.write_at(0, &[1; 4096]).unwrap();
    let count = |plan| device.crash_states(plan).count();
    assert_eq!(count(CrashPlan::default()), 2);
    assert_eq!(count(CrashPlan::default().exhaustive_bits(8).fragment_bytes(512)), 256);
    let torn = "1:512:torn:3".parse().unwrap();
    let mut buf = [9; 4096];
    device.crash_state(torn).unwrap().device().read_at(0, &mut buf).unwrap();
    assert_eq!(buf, *[[1; 1536].as_slice(), &[0; 2560]].concat());
    assert!(device.crash_state("9:512:all".parse().unwrap()).is_none());
}

#[test]
fn a_long_epoch_has_a_bounded_number_of_states() {
    let device = RecordingDevice::new(MemoryDevice::new(1 << 20).unwrap());
    for number in 0..200 {
        device.write_at(number % 100 * 4096, &[number as u8; 4096]).unwrap();
    }
    let ids: Vec<_> = device.crash_states(CrashPlan::default()).map(|state| state.id()).collect();
    // Line 399 begins the last write: all, alone, 16 times one missing, 7 tears, 4 samples.
    let last = ids.iter().filter(|id| id.point == 399);
    let ids: Vec<_> = last.map(CrashId::to_string).collect();
    assert_eq!(ids.len(), 1 + 1 + 16 + 7 + 4);
    for expected in ["399:512:only:199", "399:512:without:0", "399:512:torn:7", "399:512:all"] {
        assert!(ids.iter().any(|id| id == expected), "{expected} in {ids:?}");
    }
    assert!(ids.iter().any(|id| id == "399:512:without:186"), "{ids:?}");
}

#[test]
fn a_seed_yields_the_same_states_again_and_another_one_others() {
    let device = RecordingDevice::new(MemoryDevice::new(1 << 20).unwrap());
    for number in 0..20 {
        device.write_at(number * 4096, &[1; 4096]).unwrap();
    }
    let ids = |seed| {
        let states = device.crash_states(CrashPlan::default().seed(seed));
        states.map(|state| state.id().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(1), ids(1));
    assert_ne!(ids(1), ids(2));
    let sample = ids(1).into_iter().find(|id| id.contains("sample")).unwrap();
    assert!(device.crash_state(sample.parse().unwrap()).is_some());
}

#[test]
fn states_that_are_passed_over_are_not_made_and_counted_all_the_same() {
    let write = |at| Call::Write(at, 2);
    let device = record(&[write(0), Call::Flush, write(1), Call::Mark, write(2), write(0)]);
    // With random samples: skipped states use up their random numbers.
    let plan = CrashPlan::default().exhaustive_bits(1).samples(3);
    let ids: Vec<_> = device.crash_states(plan.clone()).map(|state| state.id()).collect();
    assert_eq!(device.crash_states(plan.clone()).count(), ids.len());
    for step in 1..5 {
        let stepped = device.crash_states(plan.clone()).step_by(step).map(|state| state.id());
        assert!(stepped.eq(ids.iter().step_by(step).copied()), "every {step}");
    }
    assert!(device.crash_states(plan).nth(ids.len()).is_none());
}

/// Unreadable sectors return errors until they are written again, and occur only where the plan
/// allows them.
#[test]
fn a_crash_may_leave_blocks_under_write_unreadable() {
    let device = record(&[Call::Write(0, 3), Call::Flush, Call::Write(1, 2), Call::Write(3, 1)]);
    let plan = CrashPlan::default().lost_in(std::iter::once(512..3 * 512));
    let lost: Vec<_> = device.crash_states(plan).filter(CrashState::has_lost).collect();
    let readable = |device: &dyn Device| -> Vec<Option<u8>> {
        let mut block = [0; 512];
        let read = |at| device.read_at(at * 512, &mut block).ok().map(|()| block[0]);
        (0..BLOCKS).map(read).collect()
    };
    let images: Vec<_> = lost.iter().map(|state| readable(&*state.device())).collect();
    let expected = [
        [Some(1), None, Some(1), Some(0)],
        [Some(1), Some(3), None, Some(0)],
        [Some(1), None, None, Some(0)],
    ];
    assert_eq!(images, expected);
    for state in &lost {
        let id = state.id().to_string().parse().unwrap();
        let again = device.crash_state(id).unwrap();
        assert_eq!(readable(&*again.device()), readable(&*state.device()), "{state}");
        // A copy contains the data that is written to it, and so does the device itself.
        let copy = CowDevice::new(state.device());
        for written in [&copy, &*state.device()] {
            assert!(written.read_at(0, &mut [0; 4 * 512]).is_err(), "{state}");
            written.write_at(512, &[9; 2 * 512]).unwrap();
            assert_eq!(readable(written), [Some(1), Some(9), Some(9), Some(0)], "{state}");
            let mut all = [0; 4 * 512];
            written.read_at(0, &mut all).unwrap();
            assert_eq!((all[0], all[600], all[1200], all[1600]), (1, 9, 9, 0));
        }
    }
}
