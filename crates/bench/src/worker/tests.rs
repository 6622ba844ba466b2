//! The measured loop, on work whose cost is known.

use super::*;

/// Work that sleeps, so many times.
struct Sleeper {
    left: u64,
    nanos: u64,
    ended: u64,
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

/// Work that spins for a time.
struct Spinner(u64);

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
    let mut player = Player::new(Sleeper { left: 0, nanos: 2_000_000, ended: 0 });
    let sample = go(&mut player, 1, Timing::Throughput);
    assert_eq!((sample.ops, sample.fixed), (10, true));
    assert!(sample.elapsed >= 10_000_000, "{}", sample.elapsed);
    // It slept.
    assert!(sample.cpu < sample.elapsed / 2, "{sample:?}");
}

#[test]
fn a_slice_ends_soon_after_its_time() {
    let mut player = Player::new(Spinner(1_000));
    let sample = go(&mut player, 20_000_000, Timing::Throughput);
    assert!(!sample.fixed && sample.elapsed >= 20_000_000);
    // An operation takes a microsecond or more, so there can't be more of them than that.
    assert!(sample.ops > 0 && sample.ops <= sample.elapsed / 1_000, "{sample:?}");
    assert!(player.batch > 1, "the clock is looked at after each operation");
}

#[test]
fn single_operations_are_timed() {
    let mut player = Player::new(Spinner(10_000));
    let sample = go(&mut player, 5_000_000, Timing::Closed);
    assert_eq!(sample.latencies.len() as u64, sample.ops);
    assert!(sample.latencies.iter().all(|nanos| *nanos >= 10_000));
}

/// Operations of a millisecond that should begin every tenth of one: each must wait for those before it,
/// and that counts.
#[test]
fn late_operations_count_from_when_they_should_have_begun() {
    let mut player = Player::new(Sleeper { left: 0, nanos: 1_000_000, ended: 0 });
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

#[test]
fn a_team_works_at_the_same_time_and_tells_of_failures() {
    let stop = Interrupt::new();
    let make = |_| -> Outcome<Box<dyn Act>> {
        Ok(Box::new(Player::new(Sleeper { left: 0, nanos: 3_000_000, ended: 0 })))
    };
    let mut team = Team::of_threads(&[Seat::default(); 3], &stop, make).unwrap();
    let samples = team.round(1, Timing::Throughput).unwrap();
    assert_eq!(samples.len(), 3);
    let begin = samples.iter().map(|s| s.begin).max().unwrap();
    assert!(samples.iter().all(|s| s.begin + s.elapsed > begin), "{samples:?}");
    team.round(1, Timing::Throughput).unwrap();
    let failure = team.round(1, Timing::Throughput).unwrap_err();
    assert!(failure.reason.contains("three is enough") && !failure.unsupported);
}

#[test]
fn who_can_not_begin_is_no_team() {
    let make = |worker| -> Outcome<Box<dyn Act>> {
        match worker {
            1 => Err(Fault::unsupported("no")),
            _ => Ok(Box::new(Player::new(Spinner(1)))),
        }
    };
    let failure = Team::of_threads(&[Seat::default(); 2], &Interrupt::new(), make).err().unwrap();
    assert!(failure.unsupported);
}

#[test]
fn a_pretended_seat_is_what_the_worker_sees() {
    let make = |worker| -> Outcome<Box<dyn Act>> {
        assert_eq!(cpu::current(), 40 + worker as u32);
        Ok(Box::new(Player::new(Spinner(1))))
    };
    let seats = [40, 41].map(|cpu| Seat { cpu: None, pretended: Some(cpu) });
    Team::of_threads(&seats, &Interrupt::new(), make).unwrap();
}

/// What a process is told and answers, over memory instead of pipes.
#[test]
fn a_worker_process_obeys() {
    let dir = tempfile::tempdir().unwrap();
    let scene = Scene { workers: 1, users: 0, files: 1, database: 1, tree: None, random_seed: 1 };
    let setup = Setup {
        workload: "create-unlink-same-dir".into(),
        dir: dir.path().to_owned(),
        scene,
        worker: 0,
        seat: Seat::default(),
    };
    let go = Command::Go { start: 0, slice: 1_000_000, timing: Timing::Throughput };
    let mut input = serde_json::to_string(&setup).unwrap() + "\n";
    for order in [Command::Begin, go, Command::End] {
        input += &(serde_json::to_string(&order).unwrap() + "\n");
    }
    // On a thread of its own, for its working directory changes.
    let answers = std::thread::spawn(move || {
        let mut output = Vec::new();
        serve_process(input.as_bytes(), &mut output).unwrap();
        String::from_utf8(output).unwrap()
    });
    let answers = answers.join().unwrap();
    let replies: Vec<Reply> =
        answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        matches!(
            &replies[..],
            [Reply::Done, Reply::Done, Reply::Measured(sample), Reply::Done] if sample.ops > 0
        ),
        "{answers}"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
