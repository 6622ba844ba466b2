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
fn the_key_of_a_process_is_fixed_once_it_is_known() {
    let key = process_key();
    assert!(!fix_process_key(!key));
    assert!(!fix_process_key(key ^ 1));
    assert_eq!(process_key(), key);
}
