//! Tests of the measured loop, on work whose cost is known.

use std::time::Duration;

use super::*;
use crate::base::error::Fault;

/// Work of a fixed number of sleeps.
pub(crate) struct Sleeper {
    left: u64,
    nanos: u64,
    ended: u64,
}

impl Sleeper {
    /// Creates work of five operations that take `nanos` nanoseconds each.
    pub(crate) fn new(nanos: u64) -> Sleeper {
        Sleeper { left: 0, nanos, ended: 0 }
    }
}

impl Work for Sleeper {
    fn is_fixed(&self) -> bool {
        true
    }

    fn begin(&mut self) -> Outcome<()> {
        self.left = 5;
        Ok(())
    }

    fn left(&self) -> u64 {
        self.left
    }

    fn op(&mut self) -> Outcome<u64> {
        std::thread::sleep(Duration::from_nanos(self.nanos));
        self.left -= 1;
        Ok(2)
    }

    fn end(&mut self) -> Outcome<()> {
        self.ended += 1;
        if self.ended == 3 { Err(Fault::wrong("three is enough")) } else { Ok(()) }
    }
}

/// Work that spins for the given number of nanoseconds.
pub(crate) struct Spinner(pub(crate) u64);

impl Work for Spinner {
    fn op(&mut self) -> Outcome<u64> {
        let end = clock::now() + self.0;
        while clock::now() < end {}
        Ok(1)
    }

    fn end(&mut self) -> Outcome<()> {
        Ok(())
    }
}

fn go(player: &mut Player<impl Work>, slice: u64, timing: Timing) -> Sample {
    player.begin().unwrap();
    player.go(0, slice, timing, &Interrupt::new()).unwrap()
}

#[test]
fn a_fixed_amount_of_work_is_done_whatever_the_time() {
    let mut player = Player::new(Sleeper::new(2_000_000));
    let sample = go(&mut player, 1, Timing::Throughput);
    assert_eq!((sample.ops, sample.fixed), (10, true));
    assert!(sample.elapsed >= 10_000_000, "{}", sample.elapsed);
    // The worker slept.
    assert!(sample.cpu < sample.elapsed / 2, "{sample:?}");
}

#[test]
fn a_slice_ends_soon_after_its_time() {
    let mut player = Player::new(Spinner(1_000));
    let sample = go(&mut player, 20_000_000, Timing::Throughput);
    assert!(!sample.fixed && sample.elapsed >= 20_000_000);
    // An operation takes a microsecond or more, so there can't be more of them than that.
    assert!(sample.ops > 0 && sample.ops <= sample.elapsed / 1_000, "{sample:?}");
    assert!(player.batch > 1, "the clock is read after each operation");
}

#[test]
fn single_operations_are_timed() {
    let mut player = Player::new(Spinner(10_000));
    let sample = go(&mut player, 5_000_000, Timing::Closed);
    assert_eq!(sample.latencies.len() as u64, sample.ops);
    assert!(sample.latencies.iter().all(|nanos| *nanos >= 10_000));
}

/// Operations of a millisecond that should begin every tenth of one wait for those before them, and
/// that time counts.
#[test]
fn late_operations_count_from_when_they_should_have_begun() {
    let mut player = Player::new(Sleeper::new(1_000_000));
    player.begin().unwrap();
    let start = clock::now();
    let sample = player.go(start, 1, Timing::Every(100_000), &Interrupt::new()).unwrap();
    let lateness = sample.latencies.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    assert!(lateness.min().unwrap() >= 800_000, "{:?}", sample.latencies);
    assert!(sample.latencies[4] >= 4_600_000, "{:?}", sample.latencies);
}

#[test]
fn a_raised_interrupt_ends_a_round_early() {
    let stop = Interrupt::new();
    stop.raise();
    let mut player = Player::new(Spinner(1_000));
    let sample = player.go(0, u64::MAX, Timing::Throughput, &stop).unwrap();
    assert_eq!(sample.ops, 1);
}
