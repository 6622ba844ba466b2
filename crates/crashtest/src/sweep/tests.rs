//! Tests of the choice of states.

use super::*;

/// Returns the states of calls with these numbers of states.
fn moments(counts: &[usize]) -> Vec<Moment> {
    let of = |(marks, count): (usize, &usize)| vec![marks; *count];
    let marks = counts.iter().enumerate().flat_map(of);
    marks.enumerate().map(|(lines, marks)| Moment { marks, lines }).collect()
}

/// Returns the number of chosen states of each call.
fn chosen(counts: &[usize], lines: usize, wanted: usize) -> Vec<usize> {
    let moments = moments(counts);
    let mut found = vec![0; counts.len()];
    for number in choose(&moments, lines..moments.len(), wanted, &mut Random::new(7)) {
        found[moments[number].marks] += 1;
    }
    found
}

#[test]
fn every_call_has_states() {
    assert_eq!(chosen(&[3, 1000, 5, 1], 0, 7), [2, 2, 2, 1]);
    assert_eq!(chosen(&[3, 1000, 5, 1], 0, 4), [1, 1, 1, 1]);
    assert_eq!(chosen(&[3, 1000, 5, 1], 0, 2000), [3, 1000, 5, 1]);
    assert_eq!(chosen(&[100; 10], 0, 5).iter().sum::<usize>(), 5);
}

#[test]
fn states_before_a_line_are_left_out() {
    assert_eq!(chosen(&[3, 10, 5], 8, 100), [0, 5, 5]);
    assert_eq!(chosen(&[3, 10, 5], 100, 100), [0, 0, 0]);
}
