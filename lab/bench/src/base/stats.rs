//! Medians, ranges, and confidence intervals of ratios.
//!
//! Times on a shared machine have long tails and no known distribution, so nothing here assumes
//! one. The figure of several rounds is their median. The confidence interval of a median ratio
//! is computed by the bootstrap (Efron 1979): the rounds are resampled many times with replacement,
//! and the interval contains the middle 95 % of the medians of the samples. The random numbers
//! start at a fixed seed, so equal rounds give equal intervals.

use serde::{Deserialize, Serialize};
use vfscale_sync::random::Random;

/// Number of samples of the bootstrap.
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

/// Returns the middle value, or the mean of the two in the middle; NaN if `values` is empty.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns the value below which a share `q` of the values lies, interpolated linearly between
/// neighbours (Hyndman and Fan's type 7); NaN if `values` is empty.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let low = at.floor() as usize;
    let high = (low + 1).min(last);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// Returns the mean and the standard deviation of a sample (with n - 1). The deviation of fewer
/// than two values is 0.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

/// Median and range of several rounds.
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
    /// Returns the spread of at least one value.
    pub fn of(values: &[f64]) -> Spread {
        Spread { median: median(values), min: quantile(values, 0.0), max: quantile(values, 1.0) }
    }

    /// Returns how far the rounds disagree: their range over their median.
    pub fn disagreement(&self) -> f64 {
        (self.max - self.min) / self.median
    }

    /// Returns the spread in another unit.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Spread {
        Spread { median: self.median * factor, min: self.min * factor, max: self.max * factor }
    }
}

/// Returns the 95 % confidence interval of the median, by the bootstrap.
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

/// The conclusion that a ratio allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval is above 1.
    Faster,
    /// The whole interval is below 1.
    Slower,
    /// The interval contains 1.
    NoDifference,
    /// The rounds disagree too much for a conclusion.
    Unsteady,
    /// The process got too little of its CPUs for a conclusion.
    Starved,
}

impl Verdict {
    /// Returns the verdict in words.
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

/// The ratio of two rates that were measured in the same rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median of the rounds' ratios.
    pub median: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The range of the rounds' ratios over their median.
    pub disagreement: f64,
    /// The conclusion.
    pub verdict: Verdict,
}

impl Ratio {
    /// Returns the ratio of `these` over `those`, round by round. Rounds that only one of them
    /// contains don't count. Returns `None` if no round is left.
    pub fn of(these: &[f64], those: &[f64], disagreement_max: f64, seed: u64) -> Option<Ratio> {
        let ratios: Vec<f64> = these.iter().zip(those).map(|(a, b)| a / b).collect();
        if ratios.is_empty() {
            return None;
        }
        let disagreement = Spread::of(&ratios).disagreement();
        let (low, high) = bootstrap(&ratios, seed);
        // In this form a NaN is unsteady, too.
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
mod tests;
