//! Tests of teams of threads and of worker processes.

use vfscale_vfs::cpu;

use super::*;
use crate::measure::player::Player;
use crate::measure::player::tests::{Sleeper, Spinner};

#[test]
fn a_team_works_at_the_same_time_and_tells_of_failures() {
    let stop = Interrupt::new();
    let make = |_| -> Outcome<Box<dyn Act>> { Ok(Box::new(Player::new(Sleeper::new(3_000_000)))) };
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
fn a_team_needs_all_its_workers() {
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

/// A worker process carries out its commands, here read from memory instead of a pipe.
#[test]
fn a_worker_process_obeys() {
    let dir = tempfile::tempdir().unwrap();
    let scene = Scene {
        workers: 1,
        readers: None,
        users: 0,
        files: 1,
        database: 1,
        io_size: 1024,
        tree: None,
        random_seed: 1,
    };
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
    // On a thread of its own, since its working directory changes.
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
