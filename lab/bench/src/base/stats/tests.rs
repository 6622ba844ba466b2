//! Tests of the statistics, on samples with known answers.

use super::*;

#[test]
fn medians_and_quantiles_of_known_samples() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    assert_eq!(median(&[7.0]), 7.0);
    assert!(median(&[]).is_nan());
    // R's quantile(c(1, 2, 4, 8), c(.25, .75)), whose default is type 7.
    assert_eq!(quantile(&[8.0, 1.0, 4.0, 2.0], 0.25), 1.75);
    assert_eq!(quantile(&[8.0, 1.0, 4.0, 2.0], 0.75), 5.0);
    assert_eq!(quantile(&[8.0, 1.0], 0.0), 1.0);
    assert_eq!(quantile(&[8.0, 1.0], 1.0), 8.0);
}

#[test]
fn deviation_of_a_known_sample() {
    let (mean, deviation) = mean_and_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
    assert_eq!(mean, 5.0);
    // The sum of squares is 32; 32 / 7 = 4.571..., whose root is 2.1380899.
    assert!((deviation - 2.138_089_935).abs() < 1e-9);
    assert_eq!(mean_and_deviation(&[3.0]), (3.0, 0.0));
}

#[test]
fn spread_and_disagreement() {
    let spread = Spread::of(&[90.0, 100.0, 130.0]);
    assert_eq!(spread, Spread { median: 100.0, min: 90.0, max: 130.0 });
    assert!((spread.disagreement() - 0.4).abs() < 1e-12);
    assert_eq!(spread.scaled(60.0).median, 6_000.0);
}

/// The numbers that the generator's authors give for the seed 1234567.
#[test]
fn random_numbers_are_splitmix64() {
    let mut rng = Rng::new(1_234_567);
    let got: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
    assert_eq!(
        got,
        [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
    );
    assert!((0..10_000).all(|_| rng.below(7) < 7));
}

#[test]
fn the_interval_of_equal_rounds_is_a_point() {
    assert_eq!(bootstrap(&[2.0; 7], 1), (2.0, 2.0));
    assert!(bootstrap(&[], 1).0.is_nan());
}

/// For five values the probability that a sample's median is the smallest or the next can be
/// counted: at least three of five draws are at or below it.
#[test]
fn the_interval_of_five_rounds_is_as_counted() {
    let rounds = [1.0, 2.0, 3.0, 4.0, 5.0];
    // P(median = 1) = sum over k >= 3 of C(5, k) .2^k .8^(5-k) = 0.0579, above 0.025.
    assert_eq!(bootstrap(&rounds, 42), (1.0, 5.0));
    // With seven rounds it is 0.010 for the smallest, 0.109 for the two smallest together.
    let seven: Vec<f64> = (1..=7).map(f64::from).collect();
    assert_eq!(bootstrap(&seven, 42), (2.0, 6.0));
}

/// About 95 % of many samples with a known median give an interval that contains it.
#[test]
fn intervals_hold_the_true_median_as_often_as_they_say() {
    let mut rng = Rng::new(7);
    let held = (0..400)
        .filter(|&i| {
            let sample: Vec<f64> = (0..15).map(|_| rng.below(1_000_001) as f64).collect();
            let (low, high) = bootstrap(&sample, i);
            low <= 500_000.0 && 500_000.0 <= high
        })
        .count();
    assert!((350..=398).contains(&held), "{held} of 400");
}

#[test]
fn verdicts() {
    let of = |these: &[f64], those: &[f64]| Ratio::of(these, those, 0.3, 1).unwrap();
    let ones = [1.0; 5];
    assert_eq!(of(&[2.0, 2.1, 1.9, 2.0, 2.05], &ones).verdict, Verdict::Faster);
    assert_eq!(of(&[0.5, 0.52, 0.49, 0.5, 0.5], &ones).verdict, Verdict::Slower);
    assert_eq!(of(&[0.95, 1.05, 1.0, 0.98, 1.02], &ones).verdict, Verdict::NoDifference);
    // The median is twice as fast, but one round three times: no conclusion.
    let unsteady = of(&[2.0, 2.1, 3.0, 2.0, 2.05], &ones);
    assert_eq!(unsteady.verdict, Verdict::Unsteady);
    assert_eq!(unsteady.median, 2.05);
    assert_eq!(of(&[f64::NAN; 5], &ones).verdict, Verdict::Unsteady);
    assert_eq!(Ratio::of(&[], &[], 0.3, 1), None);
}

/// A disturbance that slows both sides of a round equally does not change the ratio.
#[test]
fn ratios_are_taken_round_by_round() {
    let before = [100.0, 50.0, 100.0, 25.0, 100.0];
    let after: Vec<f64> = before.iter().map(|rate| rate * 3.0).collect();
    let ratio = Ratio::of(&after, &before, 0.1, 1).unwrap();
    assert_eq!((ratio.median, ratio.low, ratio.high), (3.0, 3.0, 3.0));
    assert_eq!(ratio.verdict, Verdict::Faster);
}
