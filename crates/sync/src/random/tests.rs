use super::*;

/// Compares the first numbers of seed 0 with those of the authors' own program.
#[test]
fn numbers_are_splitmix64() {
    let mut random = Random::new(0);
    let expected = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
    assert_eq!(expected.map(|_| random.below(u64::MAX)), expected);
}

#[test]
fn every_thing_is_chosen_about_as_often() {
    let mut random = Random::new(7);
    let mut counts = [0; 5];
    (0..5_000).for_each(|_| counts[random.one(&[0_usize, 1, 2, 3, 4])] += 1);
    assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
    assert_eq!(random.below(1), 0);
}

#[test]
fn the_keys_of_a_process_are_fixed_once_they_are_known() {
    let keys = *hash_keys();
    assert!(!fix_hash_keys(0));
    assert!(!fix_hash_keys(1));
    assert_eq!(*hash_keys(), keys);
}

#[test]
fn keys_that_are_not_fixed_have_nothing_in_common() {
    let all = |keys: HashKeys| [keys.salts, keys.factors].concat();
    let numbers: std::collections::HashSet<u64> =
        (0..16).flat_map(|_| all(HashKeys::unknown())).chain(all(HashKeys::from_seed(1))).collect();
    // The two salts of a seed are equal.
    assert_eq!(numbers.len(), 16 * 4 + 3);
    assert!(HashKeys::unknown().factors.iter().all(|factor| factor % 2 == 1));
}
