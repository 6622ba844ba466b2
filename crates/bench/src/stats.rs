//! Medians, spread, and how sure a ratio is.
//!
//! Times of a shared machine have long tails and no known distribution, so nothing here assumes
//! one: what stands for many rounds is their median, and the interval around the median of a ratio
//! comes from the bootstrap (Efron 1979): the rounds are drawn again and again with replacement,
//! and the middle 95 % of the medians of what was drawn is the interval. The draws come from a
//! fixed seed, so the same rounds always give the same interval.

use serde::{Deserialize, Serialize};
use vfscale_sync::random::Random;

/// How many times the rounds are drawn again.
const DRAWS: usize = 2_000;

/// A generator of random numbers: a seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng(Random);

impl Rng {
    /// Creates a generator with a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(Random::new(seed))
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.number()
    }

    /// Returns a number below `n`, which is not 0. The bias, below n / 2^64, does not matter here.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }
}

/// The middle value, or the mean of the two in the middle. NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which a share `q` of the values lies, between neighbours by the straight line
/// (Hyndman and Fan's type 7). NaN of nothing.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let low = at.floor() as usize;
    let high = (low + 1).min(last);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// Mean and standard deviation (of a sample, so with n - 1). The deviation of fewer than two values is 0.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

/// What several rounds came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median of the rounds.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Spread {
        Spread { median: median(values), min: quantile(values, 0.0), max: quantile(values, 1.0) }
    }

    /// How far the rounds disagree: the whole range over the median.
    pub fn disagreement(&self) -> f64 {
        (self.max - self.min) / self.median
    }

    /// The same in another unit.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Spread {
        Spread { median: self.median * factor, min: self.min * factor, max: self.max * factor }
    }
}

/// An interval that holds the true median with a confidence of 95 %, by the bootstrap.
pub fn bootstrap(values: &[f64], seed: u64) -> (f64, f64) {
    if values.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    let mut rng = Rng::new(seed);
    let mut drawn = vec![0.0; values.len()];
    let medians: Vec<f64> = (0..DRAWS)
        .map(|_| {
            for slot in &mut drawn {
                *slot = values[rng.below(values.len() as u64) as usize];
            }
            median(&drawn)
        })
        .collect();
    (quantile(&medians, 0.025), quantile(&medians, 0.975))
}

/// What may be said of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval is above 1.
    Faster,
    /// The whole interval is below 1.
    Slower,
    /// The interval holds 1.
    NoDifference,
    /// The rounds disagree too much for anything to be said.
    Unsteady,
    /// The process got too little of its CPUs for anything to be said.
    Starved,
}

impl Verdict {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::NoDifference => "no difference seen",
            Verdict::Unsteady => "no verdict: rounds disagree",
            Verdict::Starved => "no verdict: too little of the CPUs",
        }
    }
}

/// A ratio of two things that were measured in the same rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median of the rounds' ratios.
    pub median: f64,
    /// The lower end of the interval of 95 %.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The range of the rounds' ratios over their median.
    pub disagreement: f64,
    /// What may be said of it.
    pub verdict: Verdict,
}

impl Ratio {
    /// Of `these` over `those`, round by round. Rounds that only one of them has don't count. `None` if no
    /// round is left.
    pub fn of(these: &[f64], those: &[f64], disagreement_max: f64, seed: u64) -> Option<Ratio> {
        let ratios: Vec<f64> = these.iter().zip(those).map(|(a, b)| a / b).collect();
        if ratios.is_empty() {
            return None;
        }
        let disagreement = Spread::of(&ratios).disagreement();
        let (low, high) = bootstrap(&ratios, seed);
        // Written so that a NaN is unsteady, too.
        let steady = disagreement <= disagreement_max;
        let verdict = match (steady, low > 1.0, high < 1.0) {
            (false, ..) => Verdict::Unsteady,
            (true, true, _) => Verdict::Faster,
            (true, _, true) => Verdict::Slower,
            _ => Verdict::NoDifference,
        };
        Some(Ratio { median: median(&ratios), low, high, disagreement, verdict })
    }
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
