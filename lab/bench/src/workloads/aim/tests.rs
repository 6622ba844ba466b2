//! Tests of users and their jobs.

use super::*;

const MIXES: [Mix; 7] = [
    Mix::Short,
    Mix::Alltests,
    Mix::FiveSec,
    Mix::Fserver,
    Mix::HighSystime,
    Mix::NewFserver,
    Mix::Shared,
];

#[test]
fn every_user_does_every_kind_in_an_order_of_its_own() {
    for mix in MIXES {
        let mut rng = Rng::new(1);
        let orders: Vec<_> = (0..3).map(|user| User::new(user, mix, &mut rng).jobs).collect();
        assert_ne!(orders[0], orders[1]);
        for order in orders {
            for (job, hits) in mix.hits() {
                let seen = order.iter().filter(|other| *other == job).count();
                assert_eq!(seen * 5, *hits, "{mix:?} {job:?}");
            }
        }
    }
}

/// The sums of the work files, of the jobs that call a file system.
#[test]
fn mixes_have_the_hits_of_their_work_files() {
    let sum = |mix: Mix| mix.hits().iter().map(|(_, hits)| hits).sum::<usize>();
    assert_eq!(MIXES.map(sum), [17 * 5, 460, 160, 325, 190, 310, 280]);
    for mix in MIXES {
        let kinds: Vec<Job> = mix.hits().iter().map(|(job, _)| *job).collect();
        let twice = |at: usize| kinds[..at].contains(&kinds[at]);
        assert!(!(0..kinds.len()).any(twice), "{mix:?}");
    }
}
