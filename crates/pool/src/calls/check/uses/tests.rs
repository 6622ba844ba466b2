use super::*;
use crate::disk::format::ZONE_PLACES;

/// Each of the sixteen states of a place, at positions around the ends of words and of the zone.
#[test]
fn exactly_contradictions_are_suspects() {
    let layout = Layout { first: 4 * ZONE_PLACES, group: 1 << 10, places: 8 * ZONE_PLACES };
    let zone = 2;
    let start = layout.range(zone).start;
    for at in [0, 1, 63, 64, 65, 127, 5000, ZONE_PLACES - 64, ZONE_PLACES - 1] {
        for state in 0..16_u32 {
            let [committed, used, alone, row] = [0, 1, 2, 3].map(|bit| state >> bit & 1 == 1);
            let bits = |is_set: bool| {
                let mut bits = Box::new([0; WORDS]);
                bits[at as usize / 64] = u64::from(is_set) << (at % 64);
                bits
            };
            let other = layout.range(zone + 1).start + 5;
            let places = [start + at, other].into_iter().filter(|place| alone || *place == other);
            let uses = Uses::new(&layout, places);
            let rows = row.then_some(at..at + 1).into_iter();
            let found = uses.suspects(zone, &(bits(committed), bits(used)), rows);
            let is_whole = match (committed, alone, row) {
                (_, true, true) | (true, false, false) => false,
                (false, is_alone, is_row) => !is_alone && !is_row,
                (true, ..) => used,
            };
            assert_eq!(found, if is_whole { vec![] } else { vec![at] }, "{at}: {state:04b}");
        }
    }
}

#[test]
fn a_run_sets_its_bits_and_no_others() {
    for run in [0..1, 3..64, 60..70, 64..128, 10..900, ZONE_PLACES - 3..ZONE_PLACES + 9, 7..7] {
        let mut bits = Box::new([0; WORDS]);
        set(&mut bits, run.clone());
        for at in 0..ZONE_PLACES {
            assert_eq!(bits[at as usize / 64] >> (at % 64) & 1 == 1, run.contains(&at), "{run:?}");
        }
    }
}
