//! Tests that rounds reach all cases: volumes that are sound despite the damage, volumes with
//! findings, volumes that do not open, errors of calls, repairs.

use vfscale_diskfs::{check, check::LogState, copies};

use super::image::new_volume;
use super::{FuzzTally, Fuzzer, Interrupted, RepairFault};
use vfscale_sync::random::Random;

#[test]
fn damage_shows() {
    let mut total = FuzzTally::default();
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
    // A damaged directory fails many calls or few, by what its names were when they were written.
    assert!(total.errors > 3 && total.repaired > 0, "{total}");
}

/// An undamaged volume is sound, and each log has items to replay.
#[test]
fn undamaged_images_show_no_findings() {
    let fuzzer = Fuzzer::new(5).unwrap();
    for image in [&fuzzer.image, &fuzzer.older, &fuzzer.other] {
        let tally = super::look(&image.copy()).unwrap();
        assert_eq!((tally.sound, tally.opened, tally.errors), (1, 1, 0));
        let report = check::check(image.copy(), &check::Options::default(), &mut ()).unwrap();
        assert!(matches!(report.log, LogState::Replayed { items: 1.., .. }), "{:?}", report.log);
    }
}

/// A bit of a feature that this version does not know, and that forbids changes.
#[test]
fn a_volume_that_may_only_be_read_is_sound_if_it_can_be_read() {
    let image = new_volume(&mut Random::new(7)).unwrap();
    let mut found = copies::read(&*image.device).unwrap().superblock;
    found.features.ro_compat |= 1 << 40;
    copies::write(&*image.device, &mut found).unwrap();
    let tally = super::look(&image.copy()).unwrap();
    assert_eq!((tally.sound, tally.opened, tally.errors), (1, 1, 0));
    assert_eq!(super::repair(&image.copy()), Ok(0));
}

/// After power cuts during a repair, an incompletely repaired volume is not mounted.
#[test]
fn repairs_that_are_cut_off() {
    let mut total = Interrupted::default();
    for seed in 1..=12 {
        let tally = Interrupted::run(RepairFault::Nothing, 10, seed);
        total += tally.unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{total}");
    assert!(total.refused > 0 && total.as_before > 0 && total.repaired > 0, "{total}");
}

/// Without the mark, or the flush after it, partially repaired volumes are mounted.
#[test]
fn repairs_without_a_mark_are_found() {
    for planted in [RepairFault::NoMark, RepairFault::NoFlush] {
        let found = (1..=40).find_map(|seed| Interrupted::run(planted, 30, seed).err());
        println!("{planted:?}: {found:?}");
        assert!(found.is_some(), "{planted:?} was not detected");
    }
}
