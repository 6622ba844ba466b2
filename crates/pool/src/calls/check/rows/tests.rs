use vfscale_sync::random::{Random, seed};

use super::*;

/// Ranges at random, against an array.
#[test]
fn ranges_are_those_of_an_array() {
    let mut random = Random::new(seed());
    for _ in 0..200 {
        let (mut rows, mut model) = (Rows::default(), [None; 60]);
        for _ in 0..12 {
            let start = random.below(59);
            let range = start..start + 1 + random.below(60 - start);
            let user = User { birth: 1, node: random.below(3) };
            let (new, others) = rows.visit(range.clone(), user);
            let mut count = 0;
            for place in range {
                let slot = &mut model[place as usize];
                count += u64::from(slot.is_none());
                slot.get_or_insert(user);
            }
            assert_eq!(new, count);
            assert!(others.iter().all(|(place, user)| model[*place as usize] == Some(*user)));
        }
        for place in 0..60 {
            assert_eq!(rows.user(place), model[place as usize]);
            let gap = (place..60).find(|place| model[*place as usize].is_none());
            assert_eq!(rows.gap(place..60), gap);
            let end = place + random.below(61 - place);
            let runs: Vec<u64> = rows.runs(place..end).flatten().collect();
            let used = (place..end).filter(|place| model[*place as usize].is_some());
            assert_eq!(runs, used.collect::<Vec<_>>());
        }
        assert_eq!(rows.count(), model.iter().flatten().count() as u64);
    }
}
