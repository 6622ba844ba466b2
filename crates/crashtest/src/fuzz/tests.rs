//! Rounds reach what they are for: volumes that are sound after all, such with findings, such that do not
//! open, errors of calls, repairs.

use vfscale::diskfs::check::{self, LogState};

use super::{Fuzzer, Tally};

#[test]
fn damage_shows() {
    let mut total = Tally::default();
    for seed in 1..4 {
        let mut fuzzer = Fuzzer::new(seed).unwrap();
        for round in 0..40 {
            match fuzzer.round(round) {
                Ok(tally) => total += tally,
                Err(why) => panic!("seed {seed}, round {round}, {:?}: {why}", fuzzer.did()),
            }
        }
    }
    println!("{total}");
    assert!(total.sound > 10 && total.unsound > 10, "{total}");
    assert!(total.opened > 10 && total.opened < 110, "{total}");
    assert!(total.errors > 10 && total.repaired > 0, "{total}");
}

/// What nobody damages is sound, and each log has something to replay.
#[test]
fn nothing_shows_without_damage() {
    let fuzzer = Fuzzer::new(5).unwrap();
    for image in [&fuzzer.image, &fuzzer.older, &fuzzer.other] {
        let tally = super::look(&image.copy()).unwrap();
        assert_eq!((tally.sound, tally.opened, tally.errors), (1, 1, 0));
        let report = check::check(image.copy(), &check::Options::default(), &mut ()).unwrap();
        assert!(matches!(report.log, LogState::Replayed { items: 1.., .. }), "{:?}", report.log);
    }
}
