//! Measures what each patch costs a single thread, in time. Every call is made alternately with and
//! without the patch, in short batches one after the other, so that other load of the machine
//! affects both.
//!
//! ```sh
//! cargo run --release --example paired                # all calls, with their patches
//! cargo run --release --example paired -- open pipe   # only these
//! ```
//!
//! Both file systems of a couple are created several times, because their addresses in memory make
//! a difference of some percent. The result of a couple is the median of its pairs' ratios. A line
//! shows the median of these results, the interval that contains it with a probability of at least
//! 95 %, and in brackets the range. A change is what the patch costs (+) or saves (-). Run it on an
//! otherwise idle machine.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

mod measured;

use measured::{Ground, KINDS, Kind};

/// Number of couples of file systems. The fourth lowest and the fourth highest of this number of
/// medians enclose the median of all couples with a probability above 95 %.
const COUPLES: usize = 15;
const OUTER: usize = 3;
/// Number of pairs of batches per couple.
const PAIRS: usize = 12;
const BATCH: Duration = Duration::from_millis(2);

/// Returns the nanoseconds per call of a batch.
fn time(ground: &Ground, kind: &Kind, times: u64) -> vfscale::Result<f64> {
    let start = Instant::now();
    ground.call(black_box(kind), times)?;
    Ok(start.elapsed().as_nanos() as f64 / times as f64)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// Measures one couple: returns the medians of its pairs with the patch, without it (in
/// nanoseconds), and of their ratio.
fn couple(kind: &Kind, patch: &str) -> Result<[f64; 3], Box<dyn Error>> {
    let with = Ground::new(kind, &[])?;
    let without = Ground::new(kind, &[patch.to_owned()])?;
    let mut times = 100;
    while time(&with, kind, times)? * times as f64 <= BATCH.as_nanos() as f64 / 2.0 {
        times *= 2;
    }
    time(&without, kind, times)?;
    let mut columns = [const { Vec::new() }; 3];
    for pair in 0..PAIRS {
        // The first of a pair may be affected by the one before; so the order alternates.
        let (a, b) = if pair.is_multiple_of(2) {
            let a = time(&with, kind, times)?;
            (a, time(&without, kind, times)?)
        } else {
            let b = time(&without, kind, times)?;
            (time(&with, kind, times)?, b)
        };
        for (column, value) in columns.iter_mut().zip([a, b, a / b]) {
            column.push(value);
        }
    }
    Ok(columns.map(|mut column| median(&mut column)))
}

fn line(kind: &Kind, patch: &str) -> Result<(), Box<dyn Error>> {
    let mut columns = [const { Vec::new() }; 3];
    for _ in 0..COUPLES {
        for (column, value) in columns.iter_mut().zip(couple(kind, patch)?) {
            column.push(value);
        }
    }
    let [with, without, ratio] = columns.each_mut().map(|column| median(column));
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let at = |index: usize| percent(columns[2][index]);
    println!(
        "{:<8} {patch:<14} {without:>10.1} {with:>10.1} {:>+7.1} %   {:>+6.1} .. {:>+5.1}   [{:+.1} .. {:+.1}]",
        kind.name,
        percent(ratio),
        at(OUTER),
        at(COUPLES - 1 - OUTER),
        at(0),
        at(COUPLES - 1),
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted.iter().find(|name| KINDS.iter().all(|kind| kind.name != *name)) {
        return Err(format!("there is no call `{unknown}`").into());
    }
    let (without, with) = ("without ns", "with ns");
    println!(
        "call     patch          {without:>10} {with:>10} {:>9}   interval          range",
        "change"
    );
    for kind in
        KINDS.iter().filter(|kind| wanted.is_empty() || wanted.iter().any(|n| n == kind.name))
    {
        for patch in kind.patches {
            line(kind, patch)?;
        }
    }
    Ok(())
}
