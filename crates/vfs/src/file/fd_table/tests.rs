//! The bitmap of descriptor numbers, against a set.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::UsedNumbers;

proptest! {
    #[test]
    fn the_lowest_free_number_is_given(
        calls in proptest::collection::vec((0..3_u8, 0..400_usize), 1..500),
    ) {
        let mut numbers = UsedNumbers::default();
        let mut used = BTreeSet::new();
        for (call, argument) in calls {
            match call {
                // Like `dup` with a minimum, which is mostly 0.
                0 => {
                    let min = if argument % 3 == 0 { argument } else { 0 };
                    let expected = (min..).find(|n| !used.contains(n)).unwrap();
                    prop_assert_eq!(numbers.lowest_free(min), expected);
                    numbers.claim(expected);
                    used.insert(expected);
                }
                // Like `dup2`.
                1 => {
                    numbers.claim(argument);
                    used.insert(argument);
                }
                _ => {
                    if used.remove(&argument) {
                        numbers.release(argument);
                    }
                }
            }
            prop_assert_eq!(numbers.is_used(argument), used.contains(&argument));
        }
    }
}

#[test]
fn full_words_are_passed() {
    let mut numbers = UsedNumbers::default();
    for expected in 0..200 {
        assert_eq!(numbers.lowest_free(0), expected);
        numbers.claim(expected);
    }
    assert_eq!(numbers.lowest_free(64), 200);
    numbers.release(70);
    assert_eq!((numbers.lowest_free(71), numbers.lowest_free(70)), (200, 70));
    assert_eq!(numbers.lowest_free(0), 70);
    assert_eq!(numbers.lowest_free(1000), 1000);
}
